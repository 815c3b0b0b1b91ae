"""Tests of ros_rl.nodes.replay: each phase of a replay has an end, and on a robot an interruption is one."""

import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from harness import PATIENCE
from sample_episodes import make_columns
from std_srvs.srv import Trigger

from ros_rl.data.dataset import DatasetWriter
from ros_rl.data.features import DatasetSpec
from ros_rl.errors import RobotFault
from ros_rl.nodes.messages import to_joint_state
from ros_rl.nodes.replay import Plan, Playing, Watcher
from ros_rl.robots.spec import load_robot

ARM = load_robot("arm")
GOAL = ARM.home[: len(ARM.joints)]
ON_A_ROBOT = Plan(ARM, GOAL, 10.0, from_reset=False, lockstep=False)
FROM_RESET = Plan(ARM, GOAL, 10.0, from_reset=True, lockstep=True)
IN_REAL_TIME = Plan(ARM, GOAL, 10.0, from_reset=True, lockstep=False)


class Replay:
    """The phases of a replay whose policy node is active, and what its topics say."""

    def __init__(self, ros, monkeypatch):
        monkeypatch.setattr("ros_rl.nodes.replay.NodeStarter", lambda *_: SimpleNamespace(start=lambda: None, started=True))
        self.watcher = Watcher(ARM, "/test")
        ros.executor.add_node(self.watcher)

    def begin(self, plan):
        self.playing = Playing(self.watcher, plan)
        self.joints(0.0)
        assert not self.done

    def joints(self, stamp, off=0.0):
        position = ARM.home + off * (np.arange(len(ARM.home)) == 1)
        self.watcher._on_joints(to_joint_state(stamp, ARM.measured_names, position, 0 * position, 0 * position))

    def hears(self, node, message="", **values):
        pairs = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        self.watcher._on_diagnostics(DiagnosticArray(status=[DiagnosticStatus(name=f"/test/{node}", message=message, values=pairs)]))

    @property
    def done(self):
        return self.playing.done(lambda seconds: None)


@pytest.fixture
def replay(ros, monkeypatch):
    made = Replay(ros, monkeypatch)
    yield made
    ros.executor.remove_node(made.watcher)
    made.watcher.destroy_node()


def test_a_robot_that_does_not_get_to_the_beginning_is_told_by_joint_and_distance(replay):
    replay.begin(ON_A_ROBOT)
    replay.hears("policy_node", arrives=2.0)
    replay.joints(7.0, off=-0.25)
    assert not replay.done
    replay.joints(7.1, off=-0.25)
    with pytest.raises(RobotFault, match=r"has not come to where the recording begins: joint2 is 0\.250 rad off; within 0\.1 would do"):
        replay.playing.done(lambda seconds: None)


def test_a_policy_that_does_not_answer_is_not_waited_for_without_end(replay, monkeypatch):
    replay.begin(ON_A_ROBOT)
    monkeypatch.setattr("ros_rl.nodes.replay.SILENCE", 0.0)
    with pytest.raises(RobotFault, match="the policy that plays the recording has not answered"):
        replay.playing.done(lambda seconds: None)


def test_it_is_played_from_when_the_policy_says_to_the_end(replay):
    replay.begin(ON_A_ROBOT)
    replay.joints(50.0)
    replay.hears("policy_node", arrives=49.0)
    assert not replay.done
    replay.hears("policy_node", began=45.0)
    shown = []
    assert not replay.playing.done(shown.append) and shown == [5.0]
    replay.joints(55.0)
    assert replay.done and replay.playing.began == 45.0


@pytest.mark.parametrize("began", [False, True])
@pytest.mark.parametrize("state", ["hold", "stop", "estop"])
def test_on_a_robot_whatever_stops_the_commands_ends_the_replay_for_good(replay, state, began):
    replay.begin(ON_A_ROBOT)
    replay.joints(50.0)
    for before in ("hold", "stop"):  # nobody has commanded yet
        replay.hears("hardware_node", "no command", state=before)
    replay.hears("policy_node", **({"began": 48.0} if began else {"arrives": 52.0}))
    replay.hears("hardware_node", state="ok")
    assert not replay.done
    replay.hears("hardware_node", "somebody said so", state=state)
    replay.hears("hardware_node", state="ok")  # it would go on, straight to where the recording is by now
    where = "2.0 s into the recording" if began else "before the recording was played"
    with pytest.raises(RobotFault, match=f"the replay ended {where}: the guard said '{state}', somebody said so; the robot is held"):
        replay.playing.done(lambda seconds: None)


def test_an_emergency_stop_from_before_the_replay_ends_it(replay):
    replay.begin(ON_A_ROBOT)
    replay.hears("policy_node", arrives=2.0)
    replay.hears("hardware_node", "emergency stop: estop service", state="estop")
    with pytest.raises(RobotFault, match="the guard said 'estop'"):
        replay.playing.done(lambda seconds: None)


def test_in_simulation_only_an_emergency_stop_ends_it(replay):
    replay.begin(FROM_RESET)
    for state in ("ok", "hold", "stop", "ok"):
        replay.hears("hardware_node", "late", state=state)
        assert not replay.done
    replay.hears("hardware_node", "emergency stop", state="estop")
    with pytest.raises(RobotFault, match=r"the replay ended 0\.0 s into the recording"):
        replay.playing.done(lambda seconds: None)


def test_in_real_time_what_comes_of_the_time_before_the_reset_does_not_count(ros, replay):
    asked = []

    def reset(_, response):
        asked.append(True)
        response.success = True
        return response

    ros.probe.create_service(Trigger, "sim/reset", reset)
    replay.begin(IN_REAL_TIME)
    ros.until(lambda: not replay.done and asked, "for the reset to be asked for")
    for stamp in (20.0, 20.1):  # longer than the recording, on their way since before the reset
        replay.joints(stamp)
        assert not replay.done
    replay.joints(0.01)
    assert not replay.done
    replay.joints(10.0)
    assert replay.done and len(asked) == 1
    assert sorted(replay.watcher.positions) == [0.01, 10.0]


def test_a_refused_reset_ends_it(ros, replay):
    def refuse(_, response):
        response.success, response.message = False, "another scene"
        return response

    ros.probe.create_service(Trigger, "sim/reset", refuse)
    replay.begin(IN_REAL_TIME)
    with pytest.raises(RobotFault, match="sim/reset is refused: another scene"):
        ros.until(lambda: replay.done)


# --- through a graph, on a robot behind the topics of ros2_control ---


@pytest.fixture
def recorded(tmp_path, seconds):
    """A dataset of an episode of the arm: near its home joint 1 goes to and fro, once."""
    spec = DatasetSpec.of(ARM, 20)
    rows = 80
    columns = make_columns(rows, spec=spec)
    columns["action"] = np.tile(GOAL, (rows, 1))
    columns["action"][:, 0] += 0.05 * np.sin(np.linspace(0.0, 2 * np.pi, rows))
    columns["observation.state"] = np.hstack([columns["action"], np.tile(ARM.home[len(GOAL) :], (rows, 1))])
    columns["age"] = np.zeros_like(columns["age"])
    columns["stamp"] = np.repeat(np.linspace(0.0, seconds, rows)[:, None], columns["stamp"].shape[1], axis=1)
    with DatasetWriter(tmp_path / "set", spec) as writer:
        writer.commit(columns, {}, "wave")
    return tmp_path / "set"


@pytest.fixture
def on_a_robot(domain, recorded):
    """Starts a robot, and a replay on it that does not mind a busy machine; both end with the test."""
    patient = ["max_age:=10.0", "stop_after:=10.0", "connect_timeout:=60.0", "namespace:=test"]
    robot = [sys.executable, "-m", "ros_rl.nodes", "sim_robot_node", "--ros-args", "-p", "robot:=arm"]
    words = [sys.executable, "-m", "ros_rl.cli.main", "replay", str(recorded), "--yes", "mode:=robot", *patient]
    processes = []

    def start():
        processes.append(subprocess.Popen(robot, stderr=subprocess.PIPE, text=True))
        processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("seconds", [4.0])
def test_a_robot_plays_a_recording_from_where_it_stands(on_a_robot):
    output, error = (replay := on_a_robot()).communicate(timeout=2 * PATIENCE)
    assert replay.returncode == 0, error
    assert "episode 0: 80 rows played, largest deviation" in output


@pytest.mark.parametrize("seconds", [600.0])
def test_an_emergency_stop_ends_a_replay_with_a_line_and_exit_code_1(ros, on_a_robot):
    replay, diagnostics = on_a_robot(), ros.diagnostics()

    def began():
        assert replay.poll() is None, replay.communicate()[1]
        return any(pair.key == "began" for pair in diagnostics("policy_node").values)

    ros.until(began, "for the recording to be played")
    assert ros.call(Trigger, "estop").success
    deadline = time.monotonic() + PATIENCE
    while replay.poll() is None and time.monotonic() < deadline:
        ros.executor.spin_once(timeout_sec=0.05)
    output, error = replay.communicate(timeout=PATIENCE)
    assert replay.returncode == 1 and output == ""
    assert "s into the recording: the guard said 'estop', emergency stop: estop service; the robot is held" in error
