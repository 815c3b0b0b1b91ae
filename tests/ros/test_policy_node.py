"""Tests of ros_rl.nodes.policy_node: the same observation gets the same command, however it comes."""

import threading
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from geometry_msgs.msg import Twist
from harness import PATIENCE, watch
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger
from token_samples import make_model
from trajectory_msgs.msg import JointTrajectory

from ros_rl.errors import UserError
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.rollout import run_episode
from ros_rl.nodes.messages import COMMAND_QOS, LATCHED_QOS, STREAM_QOS, from_time, to_joint_state
from ros_rl.nodes.policy_node import PolicyNode
from ros_rl.policies import actors
from ros_rl.policies.async_runner import at
from ros_rl.policies.bundle import Bundle, load_bundle, save_bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.policies.learned import prior_tensors
from ros_rl.policies.policy_server import PolicyServer
from ros_rl.policies.runner import PolicyRunner
from ros_rl.policies.vla import VlaModel, VlaPolicy, spec_for
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.prior import prior_in
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.task import load_task


def policy_node(robot, policy, **parameters):
    given = {"robot": robot, "policy": str(policy), "instruction": "do it", **parameters}
    return PolicyNode(namespace="test", parameter_overrides=[Parameter(name, value=value) for name, value in given.items()])


@pytest.fixture
def answer(ros):
    """Gives a test a function that publishes a joint state and returns the action that answers it."""
    actions = ros.hear(JointTrajectory, "policy/action")
    publisher = ros.probe.create_publisher(JointState, "joint_states", STREAM_QOS)

    def ask(message):
        ros.until(publisher.get_subscription_count)
        actions.clear()
        publisher.publish(message)
        ros.until(lambda: actions and actions[-1].header.stamp == message.header.stamp, "for an action")
        return list(actions[-1].points[0].effort or actions[-1].points[0].positions)

    return ask


@pytest.mark.parametrize(("robot", "policy"), [("cartpole", "cartpole_lqr"), ("arm", "arm_circle")])
def test_joint_states_in_any_order_give_the_same_command_bit_for_bit(ros, answer, robot, policy):
    node, spec, random = ros.add(policy_node(robot, policy)), load_robot(robot), np.random.default_rng(0)
    names, count = (*spec.measured_names, "someone_elses_joint"), len(spec.measured_names) + 1
    shown = [
        (tick * spec.period, spec.home + random.normal(0.0, 0.01, count - 1), random.normal(0.0, 0.01, count - 1)) for tick in range(5)
    ]

    def actions(order):
        node.runner.restart()
        fields = ((stamp, np.append(position, 9.0)[order], np.append(velocity, 9.0)[order]) for stamp, position, velocity in shown)
        return [answer(to_joint_state(s, [names[i] for i in order], p, v, np.zeros(count))) for s, p, v in fields]

    expected = actions(np.arange(count))
    assert len({tuple(action) for action in expected}) > 1
    assert actions(np.arange(count)[::-1]) == expected
    assert actions(random.permutation(count)) == expected


def test_joint_states_that_lack_a_joint_are_not_answered_and_reported(ros, answer):
    node = ros.add(policy_node("cartpole", "cartpole_lqr"))
    status, publisher = ros.diagnostics(), ros.probe.create_publisher(JointState, "joint_states", STREAM_QOS)
    ros.until(publisher.get_subscription_count)
    publisher.publish(to_joint_state(0.5, ["pole"], np.zeros(1), np.zeros(1), np.zeros(1)))
    ros.until(lambda: "joint state lacks slider; it has pole, needed are slider, pole" in status("policy_node").message)
    assert node.runner.episode == -1
    assert answer(to_joint_state(0.6, ["pole", "slider"], np.zeros(2), np.zeros(2), np.zeros(2))) == [0.0]
    ros.until(lambda: status("policy_node").level == b"\0", "for the node to recover")
    assert status("policy_node").message == "active"


def test_a_policy_that_fails_is_reported_and_asked_again(ros, answer, monkeypatch):
    node, status = ros.add(policy_node("cartpole", "cartpole_lqr")), ros.diagnostics()
    state = [to_joint_state(0.01 * tick, ["slider", "pole"], np.zeros(2), np.zeros(2), np.zeros(2)) for tick in range(3)]
    answer(state[0])
    act = node.runner.policy.act
    monkeypatch.setattr(node.runner.policy, "act", lambda observation: {}["weights"])
    publisher = ros.probe.create_publisher(JointState, "joint_states", STREAM_QOS)
    ros.until(publisher.get_subscription_count)
    publisher.publish(state[1])
    ros.until(lambda: "KeyError: 'weights'" in status("policy_node").message)
    monkeypatch.setattr(node.runner.policy, "act", act)
    assert answer(state[2]) == [0.0]
    ros.until(lambda: status("policy_node").message == "active", "for the node to recover")


def test_reload_loads_the_bundle_again_and_keeps_the_old_one_when_it_is_damaged(ros, answer, tmp_path):
    keys = tuple(ObservationKey(f"joint_{word}", (2,)) for word in ("position", "velocity"))
    spec = PolicySpec("cartpole", ("slider",), keys, 100.0, command_mode="effort")

    def save(gain):
        save_bundle(tmp_path / "mine", Bundle("mine", "cartpole_lqr", "test", spec, tensors={"gain": np.array([[gain, 0.0, 0.0, 0.0]])}))

    def state(stamp):
        return to_joint_state(stamp, ["slider", "pole"], np.array([1.0, 0.0]), np.zeros(2), np.zeros(2))

    save(2.0)
    ros.add(policy_node("cartpole", tmp_path / "mine"))
    assert answer(state(0.0)) == [-2.0]
    save(3.0)
    assert ros.call(Trigger, "policy/reload").success
    assert answer(state(0.1)) == [-3.0]
    (tmp_path / "mine" / "weights.safetensors").write_bytes(b"half")
    refused = ros.call(Trigger, "policy/reload")
    assert not refused.success and "damaged bundle" in refused.message
    assert answer(state(0.2)) == [-3.0]


def test_reload_refuses_a_bundle_that_was_trained_with_another_safe_prior(ros, tmp_path):
    bundle = load_bundle("cartpole_autosafe")
    save_bundle(tmp_path / "mine", bundle)
    node = ros.add(policy_node("cartpole", tmp_path / "mine", control_rate=50.0))
    assert ros.call(Trigger, "policy/reload").success
    before, other = node.runner, replace(prior_in(bundle), sharpness_bound=3.0)
    parameters = bundle.parameters | {"prior": other.description()}
    save_bundle(tmp_path / "mine", replace(bundle, parameters=parameters, tensors=bundle.tensors | prior_tensors(other)))
    refused = ros.call(Trigger, "policy/reload")
    assert not refused.success
    assert f"trained with the safe prior {other.digest()}, the policy that runs with {prior_in(bundle).digest()}" in refused.message
    assert node.runner is before


def test_a_target_velocity_is_forward_left_and_turn_and_ends_when_nobody_repeats_it(ros):
    node = ros.add(policy_node("cartpole", "cartpole_lqr", command=[0.1, 0.2, 0.3], command_timeout=0.5))
    np.testing.assert_array_equal(node._target_velocity(), [0.1, 0.2, 0.3])
    told, seen = Twist(), []
    told.linear.x, told.linear.y, told.linear.z = 1.0, 2.0, 7.0
    told.angular.x, told.angular.y, told.angular.z = 8.0, 9.0, 3.0
    twists = ros.probe.create_publisher(Twist, "cmd_vel", COMMAND_QOS)
    ros.until(twists.get_subscription_count)
    twists.publish(told)

    def over():
        if node._twist is not None:
            seen.append(node._target_velocity().tolist())
        return seen[-1:] == [[0.0, 0.0, 0.0]]

    ros.until(over, "for the target velocity to end")
    assert seen[0] == [1.0, 2.0, 3.0]
    assert time.monotonic() - node._twist[0] > 0.5
    twists.publish(told)
    ros.until(lambda: node._target_velocity().tolist() == [1.0, 2.0, 3.0])


def test_a_target_velocity_that_is_not_finite_is_ignored_and_a_new_instruction_starts_an_episode(ros, answer):
    node, status = ros.add(policy_node("cartpole", "cartpole_lqr")), ros.diagnostics()
    twists = ros.probe.create_publisher(Twist, "cmd_vel", COMMAND_QOS)
    ros.until(twists.get_subscription_count)
    bad = Twist()
    bad.linear.x = float("nan")
    twists.publish(bad)
    ros.until(lambda: "cmd_vel: rejected, it is not finite" in status("policy_node").message)
    np.testing.assert_array_equal(node._target_velocity(), np.zeros(3))

    state = [to_joint_state(0.01 * tick, ["slider", "pole"], np.zeros(2), np.zeros(2), np.zeros(2)) for tick in range(2)]
    answer(state[0])
    assert node.runner.episode == 0
    ros.probe.create_publisher(String, "task/instruction", LATCHED_QOS).publish(String(data="do something else"))
    ros.until(lambda: node._told == "do something else")
    answer(state[1])
    assert node.runner.episode == 1


def test_a_policy_that_reads_a_camera_sees_the_same_images_through_the_graph(ros, tmp_path, monkeypatch):
    monkeypatch.setitem(actors.ACTORS, "image", "image_policy:ImagePolicy")
    arm, task, steps = load_robot("arm"), load_task("arm_circle"), 25
    camera = arm.camera("wrist")
    keys = (ObservationKey("images.wrist", (camera.height, camera.width, 3)),)
    save_bundle(tmp_path / "image", Bundle("image", "image", "test", PolicySpec("arm", arm.joint_names, keys, arm.control_rate)))

    expected = {}
    robot = GuardedRobot(MujocoRobot(arm, task, 0, ["wrist"]), Guard(arm))
    runner = PolicyRunner(actors.load_policy(tmp_path / "image", arm), 0)
    run_episode(
        robot,
        runner,
        SafetyStage(arm, PassThrough()),
        0,
        steps,
        record=lambda tick: expected.setdefault(tick.observation.stamp, runner.command(tick.observation).values),
    )
    robot.close()
    assert len({tuple(values) for values in expected.values()}) > 2

    commands = ros.hear(JointTrajectory, "policy/action")
    ros.up("arm", tasks="arm_circle", policy=tmp_path / "image", cameras="wrist", lockstep=True)
    ros.until(lambda: commands and from_time(commands[-1].header.stamp) >= max(expected))
    sent = {from_time(message.header.stamp): np.array(message.points[0].positions) for message in commands}
    for stamp, values in expected.items():
        np.testing.assert_array_equal(sent[stamp], values, err_msg=f"at {stamp} s")


def test_an_asynchronous_policy_answers_ahead_and_starves_without_harm(ros):
    """The first observations get no command; once the policy has answered, each gets one at once."""
    node, status = ros.add(policy_node("cartpole", "cartpole_lqr", asynchronous=True)), ros.diagnostics()
    actions, publisher = ros.hear(JointTrajectory, "policy/action"), ros.probe.create_publisher(JointState, "joint_states", STREAM_QOS)
    ros.until(publisher.get_subscription_count)
    stamps = iter(np.arange(1, 100_000) * 0.01)

    def show_until_answered():
        publisher.publish(to_joint_state(float(next(stamps)), ["slider", "pole"], np.zeros(2), np.zeros(2), np.zeros(2)))
        return bool(actions)

    ros.until(show_until_answered, "for a command")
    ros.until(lambda: "async_starved" in {entry.key for entry in status("policy_node").values})
    assert node.runner.counts["starved"] >= 1 and node.runner.counts["late"] == 0


class SlowServer:
    """A policy that answers when it is let, as a server does that needs a while."""

    def __init__(self, policy):
        self.policy, self.spec, self.let, self.chunks = policy, policy.spec, threading.Semaphore(0), []

    def reset(self, seed, instruction):
        self.policy.reset(seed, instruction)

    def act(self, observation):
        assert self.let.acquire(timeout=PATIENCE)
        self.chunks.append(self.policy.act(observation))
        return self.chunks[-1]


def test_a_vla_on_a_server_that_needs_half_a_second_moves_the_robot_without_a_jump_or_a_gap(ros):
    """Half a second of robot time, so that it is no more on a busy machine. Chunks of random weights are far from each other."""
    robot, delay, ticks, period = load_robot("arm"), 0.5, 15, 0.1
    small = make_model(temperature=1.0)
    spec = spec_for(robot, {"wrist": (robot.camera("wrist").height, robot.camera("wrist").width)}, ticks, period)
    model = VlaModel.new(spec, replace(small.settings, ticks=ticks), small.state, small.code.ranges)
    slow = SlowServer(VlaPolicy(model.to_bundle("slow", "random", {}, {}), robot))
    with PolicyServer(slow) as server:
        commands = ros.hear(JointTrajectory, "policy/action")
        words = {"policy": f"{server.url}?timeout={PATIENCE:g}", "asynchronous": True, "cameras": "wrist", "tasks": "arm_circle"}
        nodes = ros.up("arm", **words, instruction="turn left")
        hardware, node = nodes["hardware_node"], nodes["policy_node"]
        sent, step, let, given, command = watch(hardware), hardware.robot.step, [], [], node.runner.command

        def answer_and_step():
            asked = node.runner._asked
            if asked not in (None, *let) and sent and sent[-1].stamp >= asked.stamp + delay:
                let.append(asked)
                slow.let.release()
                asked.answer.exception(timeout=PATIENCE)
            step()

        def note(observation):
            found = command(observation)
            given.append((observation.stamp, found is not None))
            return found

        hardware.robot.step, node.runner.command = answer_and_step, note
        ros.until(lambda: len(slow.chunks) == 5, "for five chunks")
        slow.let.release(100)
    asked = [chunk.stamp for chunk in slow.chunks]
    # From the second answer on it is known how long one takes: the next is asked for while there are rows for as long.
    for before, after in pairwise(asked[1:]):
        assert after < before + ticks * period - 0.8 * delay
    # There is a command for every observation from then on,
    known = asked[1] + delay + 0.1
    found = [found for stamp, found in given if stamp > known]
    assert len(found) > 200 and all(found)
    assert "ok" in {tick.state for tick in sent if tick.stamp > known}
    # and what is commanded moves at the speed of the chunks, 2 rad/s, and of the way over to another one in 0.1 s.
    told = [(from_time(message.header.stamp), np.array(message.points[0].positions)) for message in commands]
    speeds = [np.abs(b - a).max() / (t - s) for (s, a), (t, b) in pairwise(told) if t > s]
    apart = [np.abs(rows.values[-1] - at(following, rows.stamp + ticks * period)).max() for rows, following in pairwise(slow.chunks[1:])]
    assert max(speeds) < 2.0 + 0.3 / 0.1 < 0.5 * max(apart) / robot.period


def test_asynchronous_and_lockstep_exclude_each_other(ros):
    with pytest.raises(UserError, match="asynchronous and lockstep"):
        ros.add(policy_node("cartpole", "cartpole_lqr", asynchronous=True, lockstep=True))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_policy_server_is_free_for_a_reload_and_after_a_cleanup(ros, asynchronous):
    with PolicyServer(actors.load_policy("cartpole_lqr", load_robot("cartpole"))) as server:
        node, commands = ros.add(policy_node("cartpole", server.url, asynchronous=asynchronous)), ros.hear(JointTrajectory, "policy/action")
        publisher = ros.probe.create_publisher(JointState, "joint_states", STREAM_QOS)
        ros.until(publisher.get_subscription_count)
        began = shown = time.monotonic()

        def show_until_answered():
            nonlocal shown
            if (now := time.monotonic()) >= shown + 0.01:  # in real time, or every answer would be too late
                shown = now
                publisher.publish(to_joint_state(now - began, ["slider", "pole"], np.zeros(2), np.zeros(2), np.zeros(2)))
            return bool(commands)

        ros.until(show_until_answered, "for a command")
        reloaded = ros.call(Trigger, "policy/reload")
        assert reloaded.success, reloaded.message
        commands.clear()
        ros.until(show_until_answered, "for a command of the policy that was loaded again")
        node.trigger_deactivate()
        node.trigger_cleanup()

        def free():  # on a busy machine the server takes a while to see that the connection was closed
            try:
                return load_bundle(server.url).spec.robot == "cartpole"
            except UserError:
                return False

        ros.until(free, "for the server to be free")
        node.trigger_configure()
        assert node.failure is None
