"""Tests of ros_rl.nodes.bench_walk: what is told and counted, on states made by hand, and a graph that is really pushed over."""

import numpy as np
import pytest
from geometry_msgs.msg import Twist, Vector3
from sensor_msgs.msg import JointState

from ros_rl.errors import UserError
from ros_rl.nodes.bench_walk import FASTEST, Judge, Script, WalkWatcher, described, measure
from ros_rl.nodes.messages import to_privileged
from ros_rl.robots.spec import load_robot

PERIOD = 0.005
UPRIGHT = np.array([0.0, 0.0, 0.27, 1.0, 0.0, 0.0, 0.0])


class Told(Script):
    """One command, and pushes at given times."""

    def __init__(self, command=(0.5, 0.0, 0.4), pushes=()):
        super().__init__(0.0, 1.0, 0)
        self.command, self._new, self._times = np.array(command), True, list(pushes)

    def told(self, now):
        new, self._new = self._new, False
        return new

    def push(self, now):
        return np.array([0.0, 1.0, 0.0]) if self._times and now >= self._times[0] and self._times.pop(0) else None


def walk(judge, seconds, velocity, pose=UPRIGHT, start=0.0):
    """Shows states until robot time reaches `start` + `seconds`; returns the pushes and the stamp after the last."""
    count = round(seconds / PERIOD)
    pushes = [judge.take(start + PERIOD * number, pose, np.array(velocity)) for number in range(count)]
    return [push for push in pushes if push is not None], start + PERIOD * count


def test_a_script_stays_within_its_limits_and_is_the_same_for_the_same_seed():
    def play(seed):
        script, commands, pushes = Script(10.0, 0.5, seed), [], []
        for now in np.arange(0.0, 2000.0, 0.1):
            if script.told(now):
                commands.append([now, *script.command])
            if (push := script.push(now)) is not None:
                pushes.append([now, *push])
        return np.array(commands), np.array(pushes)

    commands, pushes = play(0)
    assert (commands[:, 1] >= 0.0).all() and (commands[:, 2] == 0.0).all()
    assert (np.abs(commands[:, [1, 3]]) <= FASTEST).all() and (np.abs(commands[:, [1, 3]]).max(axis=0) > 0.9 * FASTEST).all()
    assert 0.05 < (commands[:, 1:] == 0.0).all(axis=1).mean() < 0.17
    gaps = np.diff(commands[:, 0])
    assert gaps.min() >= 3.0 - 1e-9 and gaps.max() <= 6.1 + 1e-9
    np.testing.assert_allclose(np.linalg.norm(pushes[:, 1:], axis=1), 0.5)
    assert np.diff(pushes[:, 0]).mean() == pytest.approx(10.0, abs=0.8)
    assert np.abs(pushes[:, 1:3].mean(axis=0)).max() < 0.1
    for one, other in zip(play(0), (commands, pushes), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(play(1)[1], pushes)


def test_without_a_time_between_pushes_there_is_none():
    script = Script(0.0, 0.5, 0)
    assert all(script.push(now) is None for now in np.linspace(0.0, 1e5, 100))


def test_the_mean_velocity_of_a_command_is_compared_along_the_heading():
    """The robot looks to the left of the world, so that it walks ahead at 0.4 m/s where it moves along y; it was told 0.5 and 0.4."""
    judge = Judge(Told())
    turned = np.array([0.0, 0.0, 0.27, np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])
    walk(judge, 10.0, [0.0, 0.4, 0.0, 0.0, 0.0, 0.3], turned)
    np.testing.assert_array_equal(judge.command, [0.5, 0.0, 0.4])
    figures = judge.figures()
    assert figures["commands"] == 1 and figures["falls"] == figures["pushes"] == 0
    assert figures["linear_error"] == pytest.approx(0.1, abs=1e-4) and figures["linear_error_share"] == pytest.approx(0.2, abs=1e-4)
    assert figures["turn_error"] == pytest.approx(0.1, abs=1e-4)
    assert figures["walked"] == pytest.approx(8.5, abs=0.1), "it has 1.5 s to stand up"


def test_what_follows_a_command_or_a_push_at_once_is_not_judged():
    judge = Judge(Told(pushes=[3.9025]))
    _, now = walk(judge, 1.5 + 1.4, [9.0, 0.0, 0.0, 0.0, 0.0, 9.0])
    _, now = walk(judge, 2.5, [0.5, 0.0, 0.0, 0.0, 0.0, 0.4], start=now)
    assert judge.pushes == 0
    pushes, now = walk(judge, 1.2, [9.0, 0.0, 0.0, 0.0, 0.0, 9.0], start=now)
    np.testing.assert_array_equal(pushes, [[0.0, 1.0, 0.0]])
    assert judge.pushes == 1
    walk(judge, 3.0, [0.5, 0.0, 0.0, 0.0, 0.0, 0.4], start=now)
    figures = judge.figures()
    assert (figures["commands"], figures["linear_error"], figures["turn_error"]) == (1, 0.0, 0.0)


@pytest.mark.parametrize("pose", [[0.0, 0.0, 0.1, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.27, np.cos(0.55), 0.0, -np.sin(0.55), 0.0]])
def test_a_fall_counts_once_and_nothing_until_the_next_episode(pose):
    judge = Judge(Told(pushes=[5.0]))
    walk(judge, 4.0, [0.5, 0.0, 0.0, 0.0, 0.0, 0.4])
    pushes, _ = walk(judge, 10.0, [3.0, 0.0, 0.0, 0.0, 0.0, 0.0], np.array(pose), 4.0)
    assert (judge.falls, judge.fallen, pushes) == (1, True, [])
    np.testing.assert_array_equal(judge.command, 0.0)
    walked = judge.walked
    _, now = walk(judge, 1.4, [0.0] * 6)
    assert not judge.fallen and judge.walked == walked
    np.testing.assert_array_equal(judge.command, 0.0)
    walk(judge, 1.0, [0.5, 0.0, 0.0, 0.0, 0.0, 0.4], start=now)
    np.testing.assert_array_equal(judge.command, [0.5, 0.0, 0.4])
    assert judge.figures() | {"walked": 0.0} == {
        **{"pushes": 0, "falls": 1, "walked": 0.0, "commands": 1},
        **{"linear_error": 0.0, "linear_error_share": 0.0, "turn_error": 0.0},
    }


def test_nothing_is_said_of_commands_that_did_not_hold_for_long_enough():
    judge = Judge(Told())
    walk(judge, 3.5, [0.5, 0.0, 0.0, 0.0, 0.0, 0.4])
    assert judge.figures()["commands"] == 0 and judge.figures()["linear_error"] is None


@pytest.mark.parametrize(
    ("robot", "policy", "message"),
    [
        ("arm", "arm_circle", "FL_hip_joint"),
        ("quadruped", "quadruped_wlk", "quadruped_walk"),
    ],
)
def test_what_cannot_walk_is_refused_before_anything_starts(robot, policy, message):
    with pytest.raises(UserError, match=message):
        described(robot, policy, "none", "")


def test_the_command_that_holds_and_pushes_are_sent_into_the_graph(ros):
    watcher = WalkWatcher(load_robot("quadruped"), "/test", Judge(Told((0.5, 0.1, -0.4), pushes=[0.3])), "", False)
    ros.executor.add_node(watcher)
    told, pushed = ros.hear(Twist, "cmd_vel"), ros.hear(Vector3, "sim/push")
    states = ros.probe.create_publisher(JointState, "sim/privileged", 10)

    def show(stamp):
        before = watcher.heard

        def arrived():
            states.publish(to_privileged(stamp, {"base_pose": UPRIGHT, "base_velocity": np.zeros(6)}))
            return watcher.heard != before

        ros.until(arrived)

    try:
        ros.until(lambda: told and watcher.count_subscribers("sim/push") and ros.probe.count_publishers("sim/push"))
        for stamp in (1.4, 1.6, 1.8, 2.0):
            show(stamp)
        ros.until(lambda: told[-1].linear.x and pushed)
    finally:
        ros.executor.remove_node(watcher)
        watcher.close()
    sent = [[twist.linear.x, twist.linear.y, twist.angular.z] for twist in told]
    assert sent[0] == [0.0, 0.0, 0.0] and sent[-1] == [0.5, 0.1, -0.4], "it is told to walk once it stands"
    assert [[push.x, push.y, push.z] for push in pushed] == [[0.0, 1.0, 0.0]]


def test_a_graph_of_processes_is_pushed_over_and_stood_up_again(domain):
    """With 4 m/s no robot stays up, however busy the machine is."""
    script = Script(1.0, 4.0, 0)
    seconds = []
    figures, takes = measure("quadruped", "quadruped_walk", "recovery", "quadruped_stand", 12.0, script, True, seconds.append)
    assert figures["falls"] >= 1 and figures["pushes"] >= 1 and figures["walked"] > 0.0
    assert set(figures["cpu"]) == {"hardware_node", "safety_node", "policy_node", "task_node"}
    assert 0 <= figures["overruns"] <= figures["ticks"] and figures["ticks"] > 0
    assert len(takes) >= 1 and len(takes[0].moments) > 10
    stamps = np.array([moment.stamp for moment in takes[0].moments])
    assert (np.diff(stamps) > 0).all() and takes[0].moments[-1].state["base_pose"].shape == (7,)
    assert seconds == sorted(seconds) and seconds[-1] <= 12.0
