"""Tests of ros_rl.nodes.hardware_node on simulated robots: whatever happens around it, the robot does nothing unsafe."""

import re

import numpy as np
import pytest
from geometry_msgs.msg import Vector3
from harness import value, watch
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_srvs.srv import SetBool, Trigger
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import UserError
from ros_rl.hardware.interface import JointCommand
from ros_rl.nodes.hardware_node import HardwareNode
from ros_rl.nodes.messages import COMMAND_QOS, from_time, to_trajectory
from ros_rl.nodes.ownership import claim
from ros_rl.paths import share_dir
from ros_rl.robots.spec import load_robot

ARM = load_robot("arm")
STEP = ARM.velocity * ARM.period + 1e-9


def stamps(messages):
    return [from_time(message.header.stamp) for message in messages]


def test_a_robot_without_a_policy_is_held_and_nobody_is_warned_before_the_first_command(ros, capfd):
    status, ticks = ros.diagnostics(), watch(ros.up("arm", without=("task_node", "policy_node"), tasks="arm_circle")["hardware_node"])
    ros.until(lambda: value(status("hardware_node"), "state") == "stop")
    assert {tick.state for tick in ticks} == {"hold", "stop"}
    assert np.ptp([tick.sent for tick in ticks if tick.state == "hold"], axis=0).max() == 0.0
    assert status("hardware_node").message == "no command"
    assert "WARN" not in capfd.readouterr().err


@pytest.mark.parametrize("gone", ["policy_node", "safety_node"])
def test_the_watchdog_holds_then_stops_when_commands_end(ros, capfd, gone):
    nodes = ros.up("arm", tasks="arm_circle")
    ticks = watch(nodes["hardware_node"])
    ros.until(lambda: len(ticks) > 50 and ticks[-1].state == "ok")
    capfd.readouterr()
    ros.remove(nodes[gone])
    ros.until(lambda: ticks[-1].state == "stop")
    last = max(index for index, tick in enumerate(ticks) if tick.state == "ok")
    first_hold, first_stop = ticks[last + 1], next(tick for tick in ticks[last:] if tick.state == "stop")
    assert first_hold.state == "hold"
    assert first_hold.stamp - ticks[last].stamp <= ARM.period + 1e-9
    assert first_stop.stamp - ticks[last].stamp == pytest.approx(1.0, abs=2 * ARM.period)
    held = [tick.sent for tick in ticks[last + 1 :] if tick.state == "hold"]
    assert np.ptp([ticks[last].sent, *held], axis=0).max() == 0.0
    warnings = [line for line in capfd.readouterr().err.splitlines() if "guard" in line]
    assert 1 <= len(warnings) <= 2, "once when it begins, not at every tick"


def test_the_robot_moves_on_when_the_policy_comes_back(ros):
    nodes = ros.up("cartpole")
    ticks = watch(nodes["hardware_node"])
    ros.until(lambda: ticks and ticks[-1].state == "ok")
    ros.change("policy_node", "deactivate")
    ros.until(lambda: ticks[-1].state == "hold")
    ros.change("policy_node", "activate")
    ros.until(lambda: ticks[-1].state == "ok")


@pytest.mark.parametrize(
    ("names", "numbers", "reason"),
    [
        (ARM.joint_names, [np.nan] * 8, "not finite"),
        (ARM.joint_names, [0.0] * 7 + [np.inf], "finger_joint1 is not finite"),
        (ARM.joint_names[:-1], [0.0] * 7, "joint names do not match: got joint1"),
        (("elbow", *ARM.joint_names[1:]), [0.0] * 8, "got elbow, joint2"),
        (ARM.joint_names, [0.0] * 5, "8 values are needed"),
        (ARM.joint_names, [], "8 values are needed"),
    ],
)
def test_a_rogue_command_is_rejected_whole_and_reported(ros, names, numbers, reason):
    ticks = watch(ros.up("arm", without=("task_node", "policy_node"), tasks="arm_circle")["hardware_node"])
    status, states = ros.diagnostics(), ros.hear(JointState, "joint_states", COMMAND_QOS)
    rogue = ros.probe.create_publisher(JointTrajectory, "policy/action", COMMAND_QOS)

    def reported():
        if states:
            rogue.publish(to_trajectory(JointCommand(names, np.array(numbers), stamps(states)[-1], "rogue"), "position"))
        return reason in status("hardware_node").message

    ros.until(reported, f"for '{reason}'")
    assert np.isfinite([tick.sent for tick in ticks]).all()
    assert {tick.state for tick in ticks} <= {"hold", "stop"}
    assert int(value(status("hardware_node"), "rejected")) > 0


def test_the_emergency_stop_latches_until_it_is_released(ros):
    nodes = ros.up("arm", tasks="arm_circle", lockstep=True)
    ticks, actions = watch(nodes["hardware_node"]), ros.hear(JointTrajectory, "policy/action")
    ros.until(lambda: len(ticks) > 50)
    assert ros.call(Trigger, "estop").success
    start, proposed = len(ticks), len(actions)
    ros.until(lambda: len(ticks) > start + 50)
    latched = ticks[start:]
    assert {tick.state for tick in latched} == {"estop"}
    assert np.ptp([tick.sent for tick in latched], axis=0).max() == 0.0
    ros.until(lambda: len({tuple(action.points[0].positions) for action in actions[proposed:]}) > 10)
    assert ros.call(Trigger, "estop/reset").success
    ros.until(lambda: ticks[-1].state == "ok")
    released = next(tick for tick in ticks[start:] if tick.state == "ok")
    assert (np.abs(released.sent - released.measured) <= STEP).all()


def test_a_robot_that_was_moved_by_hand_does_not_jump_back_on_activation(ros):
    nodes = ros.up("arm", tasks="arm_circle", lockstep=True)
    hardware = nodes["hardware_node"]
    ticks = watch(hardware)
    ros.until(lambda: len(ticks) > 20)
    ros.change("hardware_node", "deactivate")
    simulation, before = hardware.robot.robot, ticks[-1].measured
    simulation.data.qpos[simulation.model.qpos[:7]] += 0.3
    simulation.stop()
    done = len(ticks)
    ros.change("hardware_node", "activate")
    ros.until(lambda: len(ticks) > done + 20)
    first = ticks[done]
    assert np.abs(first.measured - before)[:7].min() > 0.2
    assert (np.abs(first.sent - first.measured) <= STEP).all()
    sent = np.array([first.measured, *(tick.sent for tick in ticks[done:])])
    assert (np.abs(np.diff(sent, axis=0)) <= STEP).all()


def test_a_lifecycle_can_be_gone_through_again(ros):
    nodes = ros.up("cartpole", lockstep=True)
    commands = ros.hear(JointTrajectory, "joint_command")
    for name in ("hardware_node", "policy_node", "safety_node"):
        ros.change(name, "deactivate", "cleanup", "configure", "activate")
    commands.clear()
    ros.until(lambda: len(commands) > 50)
    assert all(node.active for node in nodes.values())


def test_a_second_hardware_node_in_the_namespace_is_refused_and_leaves_the_first_alone(ros):
    first = ros.up("cartpole", lockstep=True)["hardware_node"]
    with pytest.raises(UserError, match=r"another /test/hardware_node runs in this ROS domain \(process \d+\)"):
        ros.add(HardwareNode(namespace="test", parameter_overrides=[Parameter("robot", value="cartpole")]))
    ticks = watch(first)
    ros.until(lambda: len(ticks) > 20)


def test_after_a_reset_commands_flow_within_two_ticks_and_the_policy_starts_anew(ros):
    nodes = ros.up("cartpole", lockstep=True)
    commands, runner = ros.hear(JointTrajectory, "joint_command"), nodes["policy_node"].runner
    ros.until(lambda: len(commands) > 100)
    assert runner.episode == 0
    assert ros.call(Trigger, "sim/reset").success
    ros.until(lambda: stamps(commands)[-1] < 0.5, "for time to jump back")
    back = next(index for index, (one, other) in enumerate(zip(stamps(commands), stamps(commands)[1:], strict=False)) if other < one)
    assert stamps(commands)[back + 1] <= 2 * 0.01
    ros.until(lambda: len(commands) > back + 50)
    assert runner.episode == 1


def test_a_push_throws_a_simulated_robot_about_and_one_that_is_not_finite_does_not(ros, capfd):
    hardware = ros.up("quadruped", without=("task_node", "policy_node", "safety_node"))["hardware_node"]
    blows, said = ros.probe.create_publisher(Vector3, "sim/push", 10), []
    base = lambda: hardware.robot.robot.data.qpos[:3]  # noqa: E731

    def reported():
        blows.publish(Vector3(x=np.nan, y=4.0))
        said.append(capfd.readouterr().err)
        return "sim/push callback: a push changes a velocity by finite numbers" in "".join(said)

    ros.until(reported)
    assert np.abs(base()[:2]).max() < 0.05
    blows.publish(Vector3(x=-2.0, y=2.0))
    ros.until(lambda: base()[0] < -0.05 and base()[1] > 0.05)
    assert np.isfinite(base()).all()


def test_a_robot_on_a_fixed_base_takes_no_push(ros):
    ros.up("arm", without=("task_node", "policy_node", "safety_node"))
    status = ros.diagnostics()
    ros.until(lambda: value(status("hardware_node"), "state"))
    assert ros.probe.count_subscribers("/test/sim/push") == 0


def test_after_a_reset_in_real_time_commands_are_used_again(ros):
    ticks = watch(ros.up("cartpole")["hardware_node"])
    ros.until(lambda: len(ticks) > 100 and ticks[-1].state == "ok")
    before = ticks[-1].stamp
    assert ros.call(Trigger, "sim/reset").success
    ros.until(lambda: ticks[-1].stamp < before and ticks[-1].state == "ok")


def test_a_reset_with_the_same_seed_repeats_the_episode_bit_for_bit(ros):
    ros.up("cartpole", lockstep=True, seed=3)
    states = ros.hear(JointState, "joint_states")
    ros.until(lambda: len(states) > 60)
    ros.call(Trigger, "sim/reset")
    ros.until(lambda: stamps(states)[-1] < 0.3)
    ros.until(lambda: stamps(states)[-1] > 0.5)
    first, second = {}, {}
    for stamp, message in zip(stamps(states), states, strict=True):
        (first if stamp not in first else second)[stamp] = list(message.position)
    common = [stamp for stamp in second if 0.0 < stamp <= 0.5]
    assert len(common) >= 40
    assert all(first[stamp] == second[stamp] for stamp in common)


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_diverged_simulation_is_reported_with_time_and_body_until_someone_resets_it(ros, lockstep):
    hardware = ros.up("cartpole", lockstep=lockstep)["hardware_node"]
    status, states = ros.diagnostics(), ros.hear(JointState, "joint_states")
    ros.until(lambda: len(states) > 20)
    with hardware._lock:
        hardware.robot.robot.data.qvel[0] = 1e7
    ros.until(lambda: "diverged" in status("hardware_node").message, "for the divergence")
    problem = status("hardware_node")
    assert problem.level == b"\x02"
    assert "the simulation of 'cartpole' diverged at" in problem.message
    assert "body 'cart'" in problem.message
    count = len(states)
    hardware.publish_diagnostics()
    ros.until(lambda: status("hardware_node") is not problem)
    assert len(states) == count and stamps(states) == sorted(stamps(states)), "it went on without being told"
    assert ros.call(Trigger, "sim/reset").success
    ros.until(lambda: len(states) > count + 20)
    ros.until(lambda: "diverged" not in status("hardware_node").message)


def test_an_unforeseen_error_in_the_control_loop_stops_the_robot_and_is_reported(ros, monkeypatch):
    hardware = ros.up("cartpole")["hardware_node"]
    status, ticks = ros.diagnostics(), watch(hardware)
    ros.until(lambda: ticks and ticks[-1].state == "ok")
    stopped = []
    monkeypatch.setattr(hardware.robot.robot, "stop", lambda: stopped.append(True))
    monkeypatch.setattr(hardware.robot.robot, "step", lambda: {}["gone"])
    ros.until(lambda: "KeyError: 'gone'" in status("hardware_node").message)
    assert stopped
    monkeypatch.undo()
    ros.change("hardware_node", "deactivate", "activate")
    count = len(ticks)
    ros.until(lambda: len(ticks) > count + 20)


def test_a_pause_stops_time_and_a_reset_leaves_it_paused(ros):
    ros.up("cartpole", lockstep=True)
    states = ros.hear(JointState, "joint_states")
    ros.until(lambda: len(states) > 20)
    ros.call(SetBool, "sim/pause", SetBool.Request(data=True))
    ros.call(Trigger, "sim/reset")
    ros.until(lambda: stamps(states)[-1] == 0.0)
    for _ in range(50):
        ros.executor.spin_once(timeout_sec=0.01)
    assert stamps(states)[-1] == 0.0
    ros.call(SetBool, "sim/pause", SetBool.Request(data=False))
    ros.until(lambda: stamps(states)[-1] > 0.1)


def set_task(ros, name):
    change = SetParameters.Request(parameters=[Parameter("task", value=str(name)).to_parameter_msg()])
    assert ros.call(SetParameters, "hardware_node/set_parameters", change).results[0].successful


UNFIT = {
    "another scene": ("push_button", "'push_button' is in scene 'tabletop', this simulation is in 'floor'"),
    "another robot": ("cartpole_balance", "task 'cartpole_balance' is for the robot 'cartpole', not for 'arm'"),
    "no such joint": ("odd", "unknown joint 'elbow'"),
}


@pytest.mark.parametrize("first", ["arm_circle", "none"])
@pytest.mark.parametrize("case", UNFIT)
def test_a_reset_to_a_task_that_does_not_fit_is_refused_and_changes_nothing(ros, tmp_path, case, first):
    task, reason = UNFIT[case]
    if task == "odd":  # found out when the reset is half done
        task = tmp_path / "odd.yaml"
        text = (share_dir() / "sim/tasks/arm_circle.yaml").read_text()
        text = re.sub(r"(?ms)^reset:.*?(?=^\S|\Z)", "", text)
        task.write_text(f"{text}\nreset:\n  joint_noise: {{elbow: 0.1}}\n")
    others = ("task_node", "policy_node", "safety_node")
    hardware = ros.up("arm", tasks=first, policy="arm_circle", lockstep=True, seed=7, without=others)["hardware_node"]
    robot, states = hardware.robot.robot, ros.hear(JointState, "joint_states")
    before = (robot.task, robot.data.time, robot.data.qpos.tolist(), robot.data.qvel.tolist())
    set_task(ros, task)
    answer = ros.call(Trigger, "sim/reset")
    assert not answer.success
    assert reason in answer.message
    assert (robot.task, robot.data.time, robot.data.qpos.tolist(), robot.data.qvel.tolist()) == before
    set_task(ros, "arm_circle")
    assert ros.call(Trigger, "sim/reset").success
    assert robot.task.name == "arm_circle"
    ros.until(lambda: states and stamps(states)[-1] == 0.0)


def test_simulated_time_is_published_with_the_observations(ros):
    clock, states = ros.hear(Clock, "/clock"), ros.hear(JointState, "joint_states")
    ros.up("cartpole", lockstep=True)
    ros.until(lambda: len(clock) > 20 and len(states) > 20)
    times = [from_time(message.clock) for message in clock]
    assert times == sorted(times)
    np.testing.assert_allclose([gap for gap in np.diff(times) if gap], 0.01)
    ros.until(lambda: set(times) <= set(stamps(states)))


def test_simulated_time_is_not_published_when_it_is_switched_off(ros):
    states = ros.hear(JointState, "joint_states")
    ros.up("cartpole", lockstep=True, publish_clock=False)
    ros.until(lambda: len(states) > 20)
    assert ros.probe.count_publishers("/clock") == 0


def test_a_camera_tells_its_model_with_every_image(ros):
    images, models = ros.hear(Image, "camera/wrist/image_raw"), ros.hear(CameraInfo, "camera/wrist/camera_info")
    ros.up("arm", tasks="arm_circle", cameras="wrist", lockstep=True)
    ros.until(lambda: len(images) > 2 and len(models) > 2)
    camera = ARM.camera("wrist")
    assert stamps(images)[:3] == stamps(models)[:3]
    assert {(model.width, model.height, model.header.frame_id) for model in models} == {(camera.width, camera.height, camera.frame)}


def test_a_robot_that_fails_while_it_is_given_back_leaves_neither_claim_nor_topics(ros, monkeypatch):
    node = ros.add(HardwareNode(namespace="test", parameter_overrides=[Parameter("robot", value="cartpole")]), start=False)
    own = {publisher.topic_name for publisher in node.publishers}
    node.autostart()
    monkeypatch.setattr(node.robot.robot, "close", lambda: {}["connection"])
    with pytest.raises(KeyError):
        node.end()
    assert {publisher.topic_name for publisher in node.publishers} == own
    claim(node, 0.0).close()


def test_lockstep_goes_on_after_a_lost_message_and_nodes_may_start_in_any_order(ros):
    hardware = ros.up("cartpole", lockstep=True, without=("task_node", "policy_node", "safety_node"))["hardware_node"]
    ticks = watch(hardware)
    ros.up("cartpole", lockstep=True, without=("task_node", "hardware_node", "safety_node"))
    safety = ros.up("cartpole", lockstep=True, without=("task_node", "hardware_node", "policy_node"))["safety_node"]
    ros.until(lambda: len(ticks) > 20)
    publisher, lost = safety._publisher, []

    class Deaf:
        def publish(self, message):
            lost.append(message)
            safety._publisher = publisher

    safety._publisher = Deaf()
    ros.until(lambda: lost)
    count = len(ticks)
    ros.until(lambda: len(ticks) > count + 20)
    assert [tick.stamp for tick in ticks] == sorted(tick.stamp for tick in ticks)
