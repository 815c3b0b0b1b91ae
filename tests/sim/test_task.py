"""Tests of ros_rl.sim.task: files that are refused with their line, and how episodes are judged."""

import dataclasses

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.robots.model import RobotModel
from ros_rl.robots.spec import load_robot
from ros_rl.sim.task import BatchMonitor, Condition, OnCircle, Success, TaskMonitor, TaskState, load_task, task_names, tolerance

CARTPOLE = """\
robots: {cartpole: cartpole_lqr}
scene: floor
instruction: balance the pole
time_limit: 2.0
success:
  hold: 1.0
  all:
    - within: {quantity: joint_position.pole, bounds: [-0.2, 0.2]}
failure:
  - outside: {quantity: joint_position.pole, bounds: [-0.8, 0.8]}
reward:
  success: 5.0
  terms:
    - {quantity: joint_position.pole, bounds: [-0.1, 0.1], margin: 0.5, weight: 2.0}
"""


def task_file(tmp_path, text: str):
    path = tmp_path / "task.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def monitor(tmp_path) -> TaskMonitor:
    return TaskMonitor(load_task(task_file(tmp_path, CARTPOLE)), load_robot("cartpole"))


def at(stamp: float, pole: float, **fields) -> Observation:
    return Observation(stamp, np.array([0.0, pole]), np.zeros(2), np.zeros(2), **fields)


@pytest.mark.parametrize(("name", "robot"), [(name, robot) for name in task_names() for robot in load_task(name).robots])
def test_every_task_loads_for_its_robots(name, robot):
    task = load_task(name, robot)
    assert task.robot == robot
    assert task.instruction
    assert task.paraphrases
    TaskMonitor(task, load_robot(robot))


def test_a_task_is_another_for_each_of_its_robots(tmp_path):
    own = "{policy: ours, reset: {joint_noise: {pole: 0.3}}, success: {all: [{within: {quantity: joint_position.pole, bounds: [0, 1]}}]}}"
    path = task_file(tmp_path, CARTPOLE.replace("{cartpole: cartpole_lqr}", f"{{cartpole: cartpole_lqr, other: {own}}}"))
    first, other = load_task(path), load_task(path, "other")
    assert first == load_task(path, "cartpole")
    assert first.robots == other.robots == ("cartpole", "other")
    assert (first.policy, other.policy) == ("cartpole_lqr", "ours")
    assert (first.reset.joint_noise, other.reset.joint_noise) == ({}, {"pole": 0.3})
    assert (first.success.hold, other.success.hold) == (1.0, 0.0)
    assert dataclasses.replace(other, robot="cartpole", policy=first.policy, reset=first.reset, success=first.success) == first
    with pytest.raises(UserError, match=r"task\.yaml: task 'task' is for the robots cartpole, other, not for 'arm'$"):
        load_task(path, "arm")


@pytest.mark.parametrize(
    ("line", "replacement", "message"),
    [
        ("robots: {cartpole: cartpole_lqr}", "robot: cartpole", r"task.yaml:1: unknown key 'robot', did you mean 'robots'\?"),
        ("{cartpole: cartpole_lqr}", "{}", r"task.yaml:1: 'robots' .*at least 1"),
        ("{cartpole: cartpole_lqr}", "{cartpole: 3}", r"task.yaml:1: 'robots.cartpole'"),
        ("{cartpole: cartpole_lqr}", "{cartpole: {rest: {}}}", r"task.yaml:1: unknown key 'robots.cartpole.rest'"),
        ("time_limit: 2.0", "time_limit: -2.0", r"task.yaml:4: 'time_limit' .*greater than 0"),
        ("time_limit: 2.0", "time_limits: 2.0", r"task.yaml:\d+: .*time_limit"),
        ("  hold: 1.0", "  hold: soon", r"task.yaml:6: 'success.hold'"),
        ("quantity: joint_position.pole, bounds: [-0.2", "quantity: joint_positon.pole, bounds: [-0.2", r"task.yaml:8: .*'joint_position'"),
        ("bounds: [-0.8, 0.8]", "bounds: [0.8, -0.8]", r"task.yaml:10: .*lower not above upper"),
        ("  - outside:", "  - beyond:", r"task.yaml:10: unknown key 'failure.0.beyond'"),
        ("- within:", "- outside: {quantity: tilt, bounds: [0, 1]}\n      within:", r"task.yaml:8: .*exactly one of within, outside"),
        ("margin: 0.5, ", "", r"task.yaml:14: key 'reward.terms.0.margin' is missing"),
    ],
)
def test_bad_files_are_refused_with_their_line(tmp_path, line, replacement, message):
    assert line in CARTPOLE
    with pytest.raises(UserError, match=message) as caught:
        load_task(task_file(tmp_path, CARTPOLE.replace(line, replacement, 1)))
    assert "\n" not in str(caught.value)


def test_unknown_task():
    with pytest.raises(UserError, match="unknown task 'push_buton', did you mean 'push_button'"):
        load_task("push_buton")


def test_a_task_for_another_robot_is_refused():
    with pytest.raises(UserError, match="is for the robot 'cartpole', not for 'arm'"):
        TaskMonitor(load_task("cartpole_balance"), load_robot("arm"))
    message = "task was loaded for robot 'arm', not for 'panda'; load_task(..., 'panda') loads it for that one"
    with pytest.raises(UserError) as caught:
        TaskMonitor(load_task("push_button"), dataclasses.replace(load_robot("arm"), name="panda"))
    assert str(caught.value) == f"{load_task('push_button').path}: {message}"


def test_a_joint_that_the_robot_lacks_is_refused(tmp_path):
    task = load_task(task_file(tmp_path, CARTPOLE.replace("joint_position.pole", "joint_position.hinge")))
    with pytest.raises(UserError, match=r"task.yaml: unknown joint 'hinge'"):
        TaskMonitor(task, load_robot("cartpole"))


def test_success_needs_the_whole_hold_time(monitor):
    states = [monitor.update(at(stamp, pole)) for stamp, pole in [(0.0, 0.1), (0.6, 0.3), (0.7, 0.1), (1.6, 0.1), (1.7, 0.1)]]
    assert [state.success for state in states] == [False, False, False, False, True]
    assert states[-1] == TaskState(reward=7.0, success=True, terminated=True, truncated=False, reason="success")


def test_failure_ends_the_episode_and_says_why(monitor):
    state = monitor.update(at(0.0, 0.9))
    assert (state.success, state.terminated, state.truncated) == (False, True, False)
    assert state.reason == "joint_position.pole is 0.9, outside -0.8 to 0.8"


def test_the_time_limit_truncates(monitor):
    monitor.update(at(0.0, 0.5))
    assert not monitor.update(at(1.99, 0.5)).done
    state = monitor.update(at(2.0, 0.5))
    assert (state.success, state.terminated, state.truncated, state.reason) == (False, False, True, "time limit of 2 s")


@pytest.mark.parametrize("pole", [0.1, 0.9])
def test_an_end_at_the_time_limit_is_an_end(monitor, pole):
    monitor.update(at(0.0, 0.5))
    monitor.update(at(1.0, 0.1))
    state = monitor.update(at(2.0, pole))
    assert state.terminated
    assert not state.truncated


def test_reset_forgets_time_and_hold(monitor):
    monitor.update(at(0.0, 0.1))
    monitor.reset()
    assert not monitor.update(at(5.0, 0.1)).done
    assert monitor.update(at(6.0, 0.1)).success


def test_success_needs_no_reset_to_zero(monitor):
    """Stamps of a real robot start anywhere; an episode's time runs from its first observation."""
    monitor.update(at(1e6, 0.5))
    assert monitor.update(at(1e6 + 2.0, 0.5)).truncated


def test_many_episodes_are_judged_as_each_alone(tmp_path):
    """The poles of four episodes, one of them started again on the way: states, rewards and reasons are those of single monitors."""
    task, spec = load_task(task_file(tmp_path, CARTPOLE)), load_robot("cartpole")
    batch, singles = BatchMonitor(task, spec, (4,)), [TaskMonitor(task, spec) for _ in range(4)]
    poles = [[0.1, 0.3, 0.5, 0.1], [0.1, 0.1, 0.5, 0.3], [0.15, 0.1, 0.5, 0.9], [0.0, 0.3, 0.7, 0.1], [0.1, 0.1, 0.6, 0.1]]
    for tick, angles in enumerate(poles):
        stamps = np.full(4, 0.5 * tick)
        if tick == 3:
            batch.reset([0])
            singles[0].reset()
        seen = at(stamps, 0.0)
        seen = dataclasses.replace(seen, joint_position=np.stack([np.zeros(4), angles], axis=-1))
        now = batch.update(seen)
        for episode, monitor in enumerate(singles):
            alone = monitor.update(at(stamps[episode], angles[episode]))
            assert (now.success[episode], now.terminated[episode], now.truncated[episode]) == (
                alone.success,
                alone.terminated,
                alone.truncated,
            )
            assert now.reward[episode] == alone.reward
            assert batch.reason(seen, now, episode) == alone.reason
    assert now.truncated[2] and not now.done[0]


def test_tolerance():
    assert tolerance(0.3, [0.0, 0.5], 1.0) == 1.0
    assert tolerance(1.5, [0.0, 0.5], 1.0) == pytest.approx(0.1)
    assert tolerance(-0.5, [0.0, 0.5], 1.0) == pytest.approx(0.1 ** (0.5**2))
    assert 0.0 <= tolerance(1e9, [0.0, 0.5], 1.0) < 1e-9


def pose(x: float, y: float, z: float) -> np.ndarray:
    return np.array([x, y, z, 1.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("condition", "position", "holds"),
    [
        ("inside: {object: a, container: b, radius: 0.05, height: 0.04}", (0.54, 0.0, 0.13), True),
        ("inside: {object: a, container: b, radius: 0.05, height: 0.04}", (0.56, 0.0, 0.13), False),
        ("inside: {object: a, container: b, radius: 0.05, height: 0.04}", (0.5, 0.0, 0.15), False),
        ("inside: {object: a, container: b, radius: 0.05, height: 0.04}", (0.5, 0.0, 0.09), False),
        ("stacked: {object: a, support: b, height: 0.04, radius: 0.02}", (0.51, 0.01, 0.141), True),
        ("stacked: {object: a, support: b, height: 0.04, radius: 0.02}", (0.51, 0.02, 0.141), False),
        ("stacked: {object: a, support: b, height: 0.04, radius: 0.02}", (0.5, 0.0, 0.16), False),
        ("pressed: {joint: button, depth: 0.008}", (0.5, 0.0, 0.0), True),
        ("pressed: {joint: button, depth: 0.011}", (0.5, 0.0, 0.0), False),
    ],
)
def test_conditions_on_objects(tmp_path, condition, position, holds):
    text = CARTPOLE.replace("within: {quantity: joint_position.pole, bounds: [-0.2, 0.2]}", condition).replace("hold: 1.0", "hold: 0.0")
    monitor = TaskMonitor(load_task(task_file(tmp_path, text)), load_robot("cartpole"))
    seen = {"a": pose(*position), "b": pose(0.5, 0.0, 0.1), "button": np.array([0.01, 0.0])}
    assert monitor.update(at(0.0, 0.5, privileged=seen)).success is holds
    with pytest.raises(UserError, match="unknown object or joint in the simulator state"):
        monitor.update(at(0.0, 0.5))


def test_a_tool_on_a_circle():
    """A circle of 0.1 m through the tool's home, seen from the side: on it, and off it by moving the centre."""
    spec, task = load_robot("arm"), load_task("arm_circle")
    tool = RobotModel(spec).frame_pose(spec.tool_frame, spec.home).position
    still = Observation(0.0, spec.home, np.zeros(8), np.zeros(8))
    for offset, holds in [((0.0, 0.0, 0.1), True), ((0.0, 0.06, 0.08), True), ((0.0, 0.0, 0.12), False), ((0.02, 0.0, 0.1), False)]:
        circle = OnCircle(list(tool - offset), [2.0, 0.0, 0.0], radius=0.1, tolerance=0.01)
        judged = dataclasses.replace(task, success=Success([Condition(on_circle=circle)]))
        assert TaskMonitor(judged, spec).update(still).success is holds


@pytest.mark.parametrize(
    ("position", "yaw", "condition", "holds"),
    [
        ((0.5, 0.3, 0.1), 0.0, "{object: a, lower: [0.4, 0.2, 0.0], upper: [0.6, 0.4, 0.2]}", True),
        ((0.5, 0.3, 0.3), 0.0, "{object: a, lower: [0.4, 0.2, 0.0], upper: [0.6, 0.4, 0.2]}", False),
        ((0.5, 0.1, 0.1), 0.0, "{object: a, of: b, lower: [-0.01, 0.09, -0.01], upper: [0.01, 0.11, 0.01]}", True),
        ((0.5, 0.1, 0.1), np.pi / 2, "{object: a, of: b, lower: [-0.01, 0.09, -0.01], upper: [0.01, 0.11, 0.01]}", True),
        # 0.1 m along the world's y axis is 0.1 m along the x axis of what is turned by a quarter to the left
        ((0.5, 0.1, 0.1), np.pi / 2, "{object: a, of: b, turned: true, lower: [0.09, -0.01, -0.01], upper: [0.11, 0.01, 0.01]}", True),
        ((0.5, 0.1, 0.1), -np.pi / 2, "{object: a, of: b, turned: true, lower: [0.09, -0.01, -0.01], upper: [0.11, 0.01, 0.01]}", False),
    ],
)
def test_an_object_is_placed(tmp_path, position, yaw, condition, holds):
    text = CARTPOLE.replace("hold: 1.0", "hold: 0.0").replace(
        "within: {quantity: joint_position.pole, bounds: [-0.2, 0.2]}", f"placed: {condition}"
    )
    monitor = TaskMonitor(load_task(task_file(tmp_path, text)), load_robot("cartpole"))
    b = np.array([0.5, 0.0, 0.1, np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)])
    assert monitor.update(at(0.0, 0.1, privileged={"a": pose(*position), "b": b})).success == holds


CHAIN = """\
  after:
    - hold: 0.5
      all:
        - within: {quantity: joint_position.pole, bounds: [0.3, 0.4]}
    - all:
        - within: {quantity: scene_joint.lever, bounds: [1.0, .inf]}
"""


def test_stages_come_one_after_the_other(tmp_path):
    """The pole to 0.35 for half a second, the lever up, the pole back for a second; a stage's condition may end once it has been met."""
    task = load_task(task_file(tmp_path, CARTPOLE.replace("success:\n", "success:\n" + CHAIN, 1)))
    monitor = TaskMonitor(dataclasses.replace(task, time_limit=60.0), load_robot("cartpole"))

    def run(*ticks: tuple[float, float, float]) -> list[bool]:
        monitor.reset()
        return [monitor.update(at(stamp, pole, privileged={"lever": np.array([lever, 0.0])})).success for stamp, pole, lever in ticks]

    whole = [(0.0, 0.35, 0.0), (0.5, 0.35, 0.0), (0.6, 0.1, 2.0), (0.7, 0.1, 0.0), (1.6, 0.1, 0.0), (1.7, 0.1, 0.0)]
    assert run(*whole) == [False] * 5 + [True]
    assert run(*whole[2:], (9.0, 0.1, 0.0)) == [False] * 5  # the last stage alone
    assert run((0.0, 0.35, 0.0), (0.4, 0.35, 0.0), *whole[2:]) == [False] * 6  # not held for long enough
    assert (
        run((0.0, 0.1, 2.0), (0.5, 0.1, 2.0), (1.0, 0.35, 0.0), (1.5, 0.35, 0.0), (2.0, 0.1, 0.0), (4.0, 0.1, 0.0)) == [False] * 6
    )  # order


VARIANTS = """\
variants:
  left: {way: left, low: 0.1, high: 0.2}
  right: {way: right, low: -0.2, high: -0.1}
"""


def test_a_stage_that_is_awaited_can_fail(tmp_path):
    """Pressing `b` or `c` fails until `a` was; afterwards it is what is asked for."""
    text = CARTPOLE.replace(
        """success:
  hold: 1.0
  all:
    - within: {quantity: joint_position.pole, bounds: [-0.2, 0.2]}
""",
        """success:
  after:
    - all: [{pressed: {joint: a, depth: 0.01}}]
      failure: [{pressed: {joint: [b, c], depth: 0.01}}]
  all: [{pressed: {joint: c, depth: 0.01}}]
""",
    )
    monitor = TaskMonitor(load_task(task_file(tmp_path, text)), load_robot("cartpole"))

    def update(stamp, **pressed):
        return monitor.update(at(stamp, 0.0, privileged={name: np.array([pressed.get(name, 0.0)]) for name in "abc"}))

    assert not update(0.0).done
    early = update(0.1, c=0.02)
    assert early.terminated and not early.success and early.reason == "c is pressed"
    monitor.reset()
    both = update(0.0, a=0.02, b=0.02)
    assert both.terminated and not both.success and both.reason == "b is pressed"
    monitor.reset()
    assert not update(0.0, a=0.02).done and not update(0.1, b=0.02).done
    assert update(0.2, c=0.02).success


def test_a_path_may_have_a_colon(tmp_path):
    folder = tmp_path / "run:3"
    folder.mkdir()
    path = task_file(folder, CARTPOLE)
    assert load_task(path).path == path
    path.write_text(CARTPOLE.replace("time_limit: 2.0", "variants: {short: {limit: 1.0}, long: {limit: 5.0}}\ntime_limit: '{limit}'"))
    assert load_task(f"{path}:long").time_limit == 5.0 and load_task(path).time_limit == 1.0


def test_a_task_in_variants(tmp_path):
    text = CARTPOLE.replace("balance the pole", "lean to the {way}").replace("bounds: [-0.2, 0.2]", 'bounds: ["{low}", "{high}"]')
    path = task_file(tmp_path, text + VARIANTS)
    left, right = load_task(path), load_task(f"{path}:right")
    assert (left.name, right.name) == ("task:left", "task:right")
    assert (left.instruction, right.instruction) == ("lean to the left", "lean to the right")
    assert right.success.all[0].within.bounds == [-0.2, -0.1]
    assert left.variants == ("left", "right")
    assert load_task(right.path) == right  # a graph hands tasks to its nodes by their path
    with pytest.raises(UserError, match=r"unknown variant of 'task' 'up' \(known: left, right\)"):
        load_task(f"{path}:up")
    with pytest.raises(UserError, match="variant 'left' has no 'size', which the file speaks of"):
        load_task(task_file(tmp_path, (text + VARIANTS).replace("lean to", "lean {size} to")))
    with pytest.raises(UserError, match=r"task.yaml:8: .*bounds"):
        load_task(task_file(tmp_path, (text + VARIANTS).replace("low: 0.1", "low: far")))


def test_tasks_are_values():
    task = load_task("cartpole_balance")
    assert task == load_task("cartpole_balance")
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.time_limit = 1.0
