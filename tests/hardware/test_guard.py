"""Tests of ros_rl.hardware.guard: whatever comes in, only finite commands within the limits go out."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import RobotFault
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import JointCommand, Observation, Robot
from ros_rl.robots.spec import Joint, RobotSpec, load_robot, robot_names

ARM = load_robot("arm")
STEP = ARM.velocity * ARM.period
INF = float("inf")


def make_spec(mode: str, *joints: Joint) -> RobotSpec:
    return replace(ARM, name="test", joints=joints, passive=(), control_rate=100.0, command_mode=mode)


def seen(spec: RobotSpec, position=None, stamp: float = 0.0) -> Observation:
    count = len(spec.measured_names)
    position = spec.home.copy() if position is None else np.asarray(position, dtype=float)
    return Observation(stamp, position, np.zeros(count), np.zeros(count))


def asked(spec: RobotSpec, values, stamp: float = 0.0, names: tuple[str, ...] | None = None) -> JointCommand:
    return JointCommand(spec.joint_names if names is None else names, np.asarray(values, dtype=float), stamp, "test")


def started(spec: RobotSpec, position=None, **options) -> tuple[Guard, Observation]:
    guard, observation = Guard(spec, **options), seen(spec, position)
    guard.reset(observation)
    return guard, observation


class Backend:
    """Remembers what it was sent; its joints go nowhere unless told."""

    def __init__(self, spec: RobotSpec):
        self.spec = spec
        self.position = spec.home.copy()
        self.stamp = 0.0
        self.sent: list[np.ndarray] = []
        self.stops = 0
        self.closed = False

    def connect(self) -> None:
        pass

    def read(self) -> Observation:
        return seen(self.spec, self.position.copy(), self.stamp)

    def write(self, command: JointCommand) -> JointCommand:
        assert np.isfinite(command.values).all()
        self.sent.append(command.values)
        return command

    def step(self) -> None:
        self.stamp += self.spec.period

    def stop(self) -> None:
        self.stops += 1

    def close(self) -> None:
        self.closed = True


# C1: not finite


@pytest.mark.parametrize("joint", range(len(ARM.joints)))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_c1_a_number_that_is_not_finite_in_any_joint_rejects_the_whole_command(joint, bad):
    guard, observation = started(ARM)
    good, _ = guard.check(asked(ARM, ARM.home - 0.001), observation, 0.0)
    values = ARM.home - 0.005
    values[joint] = bad
    target, report = guard.check(asked(ARM, values), observation, 0.0)
    np.testing.assert_array_equal(target, good)
    np.testing.assert_array_equal(good, ARM.home - 0.001)
    assert report.state == "hold"
    assert f"the command for {ARM.joint_names[joint]} is not finite" in report.rejected
    assert (guard.counts["limited"], guard.counts["rejected"], guard.counts["held"]) == (0, 1, 1)


@pytest.mark.parametrize("name", robot_names())
def test_c1_c5_no_command_makes_the_guard_send_what_a_robot_must_not_do(name):
    spec = load_robot(name)
    random = np.random.default_rng(0)
    guard, observation = started(spec)
    lower, upper = spec.command_limits
    step = spec.velocity * spec.period if spec.command_mode == "position" else np.full(len(lower), np.inf)
    last, rejected = spec.home[: len(lower)], 0
    for tick in range(2000):
        now = tick * spec.period
        values = random.normal(0.0, 10.0 ** random.uniform(-3, 300), len(spec.joints))
        if bad := random.random() < 0.3:
            values[random.integers(len(values))] = random.choice([np.nan, np.inf, -np.inf])
        target, report = guard.check(asked(spec, values, now), replace(observation, stamp=now), now)
        rejected += bad
        assert (report.rejected is not None) == bad
        assert np.isfinite(target).all()
        assert (target >= lower).all() and (target <= upper).all()
        assert (np.abs(target - last) <= step + 1e-12).all()
        last = target
    assert guard.counts["rejected"] == guard.counts["held"] == rejected > 0


@pytest.mark.parametrize("mode", ["position", "velocity", "effort"])
def test_c1_a_measured_position_that_is_not_finite_holds(mode):
    spec = make_spec(mode, Joint("a", "revolute", -1, 1, 2, 3), Joint("b", "revolute", -1, 1, 2, 3))
    guard, observation = started(spec)
    before, _ = guard.check(asked(spec, [0.01, 0.01]), observation, 0.0)
    target, report = guard.check(asked(spec, [0.02, 0.02]), seen(spec, [0.0, np.nan]), 0.0)
    assert report.rejected == "the measured position of b is not finite"
    np.testing.assert_array_equal(target, before if mode == "position" else [0.0, 0.0])


@pytest.mark.parametrize("event", ["reset", "release", "stop", "estop"])
def test_c1_a_measured_position_that_is_not_finite_never_becomes_the_target(event):
    guard, _ = started(ARM)
    blind = seen(ARM, np.full(len(ARM.joints), np.nan), stamp=5.0)
    if event == "reset":
        guard.reset(blind)
    elif event != "stop":
        guard.estop("test")
        if event == "release":
            guard.release(blind)
    target, report = guard.check(None, blind, 5.0)
    np.testing.assert_array_equal(target, ARM.home)
    assert report.state == ("estop" if event == "estop" else "stop")
    if event in ("reset", "release"):
        moved = ARM.home - 0.02
        target, report = guard.check(asked(ARM, moved, 5.01), seen(ARM, moved, 5.01), 5.01)
        np.testing.assert_array_equal(target, moved)
        assert report.rejected is None


def test_c1_without_any_finite_position_there_is_nothing_to_hold():
    position = ARM.home.copy()
    position[2] = np.nan
    with pytest.raises(RobotFault, match="measured position of joint3 is not finite, and there is no target"):
        Guard(ARM).check(None, seen(ARM, position), 0.0)


def test_without_activation_the_measured_position_is_held():
    target, report = Guard(ARM).check(None, seen(ARM), 0.0)
    np.testing.assert_array_equal(target, ARM.home)
    assert report.state == "stop"


@pytest.mark.parametrize(("command", "observation", "now"), [(np.nan, 0.0, 0.0), (0.0, np.nan, 0.0), (0.0, 0.0, np.nan)])
def test_a_time_that_is_not_a_number_is_refused(command, observation, now):
    guard, _ = started(ARM)
    target, report = guard.check(asked(ARM, ARM.home + 0.001, command), seen(ARM, stamp=observation), now)
    assert report.rejected is not None
    np.testing.assert_array_equal(target, ARM.home)


# C2, C3: names


@pytest.mark.parametrize(
    "names",
    [
        ARM.joint_names[:-1],
        (*ARM.joint_names[:-1], "finger_joint"),
        (*ARM.joint_names, "joint8"),
        (*ARM.joint_names[:-1], ARM.joint_names[0]),
        (),
    ],
    ids=["missing", "misspelt", "extra", "twice", "none"],
)
def test_c2_other_joints_are_rejected_with_both_lists(names):
    guard, observation = started(ARM)
    target, report = guard.check(asked(ARM, np.zeros(len(names)), names=names), observation, 0.0)
    assert report.rejected == f"joint names do not match: got {', '.join(names) or 'none'}; robot 'arm' has {', '.join(ARM.joint_names)}"
    np.testing.assert_array_equal(target, ARM.home)


@pytest.mark.parametrize("shape", [(7,), (9,), (8, 1), (1, 8), (0,), ()])
def test_c2_the_wrong_number_of_values_is_rejected(shape):
    guard, observation = started(ARM)
    target, report = guard.check(asked(ARM, np.zeros(shape)), observation, 0.0)
    assert report.rejected == f"8 values are needed, got an array of shape {shape}"
    np.testing.assert_array_equal(target, ARM.home)


def test_c3_the_order_of_joints_in_a_command_changes_no_bit():
    spec = make_spec("position", *(Joint(name, "revolute", -1, 1, 0.5, 1) for name in "abcd"))
    values = np.array([0.001, -0.9, 0.3, 0.0047])
    results = []
    for order in itertools.permutations(range(4)):
        guard, observation = started(spec)
        names = tuple(spec.joint_names[index] for index in order)
        target, report = guard.check(asked(spec, values[list(order)], names=names), observation, 0.0)
        results.append((target.tobytes(), report))
    assert len(set(results)) == 1


# C5: limits


def test_c5_a_jump_becomes_steps_of_the_velocity_limit_from_the_first_tick_on():
    guard, observation = started(ARM)
    goal = ARM.home + np.where(np.arange(8) < 7, 0.5, -0.02)
    last, ticks = ARM.home, 0
    while not np.allclose(last, goal, atol=1e-12):
        target, report = guard.check(asked(ARM, goal), replace(observation, joint_position=last), 0.0)
        assert (np.abs(target - last) <= STEP + 1e-12).all()
        moving = np.abs(goal - last) > STEP + 1e-9
        np.testing.assert_allclose(np.abs(target - last)[moving], STEP[moving])
        assert report.limited == tuple(np.array(ARM.joint_names)[moving])
        last, ticks = target, ticks + 1
    assert ticks == max(np.ceil(np.abs(goal - ARM.home) / STEP))
    assert guard.counts["limited"] == ticks - 1


def test_c5_positions_stay_within_their_limits_the_gripper_too():
    guard, _ = started(ARM)
    target = ARM.home
    for tick in range(1000):
        now = tick * 0.005
        target, report = guard.check(asked(ARM, np.full(8, 100.0), now), seen(ARM, target, now), now)
    np.testing.assert_array_equal(target, ARM.upper)
    assert report.limited == ARM.joint_names


def test_c5_a_joint_that_is_beyond_a_limit_comes_back_without_a_jump():
    spec = make_spec("position", Joint("a", "revolute", -1, 1, 2.0, 1))
    guard, observation = started(spec, [1.1])
    targets = [guard.check(asked(spec, [1.1]), observation, 0.0)[0][0] for _ in range(7)]
    np.testing.assert_allclose(targets, [1.08, 1.06, 1.04, 1.02, 1.0, 1.0, 1.0])


def test_c5_a_target_does_not_run_away_from_a_robot_that_is_held_fast():
    guard, observation = started(ARM)
    for tick in range(200):
        now = tick * 0.005
        target, report = guard.check(asked(ARM, ARM.home + 1.0, now), replace(observation, stamp=now), now)
    np.testing.assert_allclose(target[:7], ARM.home[:7] + ARM.lead[:7])
    assert set(report.limited) >= set(ARM.joint_names[:7])


def test_c5_one_wrong_measurement_does_not_make_the_target_jump():
    guard, _ = started(ARM)
    for tick, offset in enumerate((0.0, 1.0, -1.0, 0.0)):
        now = tick * 0.005
        target, _ = guard.check(asked(ARM, ARM.home, now), seen(ARM, ARM.home + offset, now), now)
        assert (np.abs(target - ARM.home) <= STEP + 1e-12).all()


def test_c5_a_robot_beyond_its_limits_is_not_sent_further_out():
    beyond = ARM.upper + 0.3
    guard, _ = started(ARM, beyond)
    target = beyond
    for tick in range(400):
        now = tick * 0.005
        last = target
        target, _ = guard.check(asked(ARM, ARM.home, now), seen(ARM, last, now), now)
        assert (target <= last + 1e-12).all()
        assert (np.abs(target - last) <= STEP + 1e-12).all()
    assert (target[:7] <= ARM.upper[:7]).all()


@pytest.mark.parametrize("eased_by", ["release", "stop"])
def test_s5_a_clock_that_starts_again_after_a_stop_moves_nothing(eased_by):
    guard, _ = started(ARM, stop_after=0.5)
    if eased_by == "release":
        guard.estop("button")
        guard.release(seen(ARM, stamp=50.0))
    else:
        guard.check(None, seen(ARM, stamp=49.0), 49.0)
        guard.check(asked(ARM, ARM.home, 50.0), seen(ARM, stamp=50.0), 50.0)
    for tick in range(10):
        now = tick * 0.005
        target, report = guard.check(asked(ARM, ARM.home, now), seen(ARM, stamp=now), now)
        assert report.state == "ok"
        np.testing.assert_array_equal(target, ARM.home)


def test_c7_a_robot_moved_unseen_while_stopped_comes_back_gently():
    guard, _ = started(ARM, stop_after=0.5)
    for tick in range(400):
        guard.check(None, seen(ARM, stamp=0.0), tick * 0.005)
    moved = ARM.home - np.where(np.arange(8) == 0, 1.0, 0.0)
    target, report = guard.check(asked(ARM, ARM.home, 2.0), seen(ARM, moved, 2.0), 2.0)
    assert report.state == "ok"
    np.testing.assert_array_equal(target, moved)


def test_the_lead_is_where_the_actuator_saturates_or_half_a_second():
    stiff = Joint("a", "revolute", -1, 1, velocity=2.0, effort=10.0, stiffness=100.0, damping=5.0)
    bare = Joint("b", "revolute", -1, 1, velocity=3.0, effort=10.0)
    np.testing.assert_allclose(make_spec("position", stiff, bare).lead, [0.2, 1.5])


def test_c5_joints_without_limits_are_left_alone():
    spec = make_spec("position", Joint("wheel", "continuous", -INF, INF, INF, INF), Joint("a", "revolute", -1, 1, 1, 1))
    guard, observation = started(spec)
    target, report = guard.check(asked(spec, [1e6, 0.5]), observation, 0.0)
    np.testing.assert_allclose(target, [1e6, 0.01])
    assert report.limited == ("a",)


def test_c5_effort_does_not_speed_up_a_joint_at_its_velocity_limit():
    spec = make_spec("effort", Joint("a", "prismatic", -5, 5, 2, 9), Joint("b", "prismatic", -5, 5, 2, 9))
    guard, observation = started(spec)
    fast = replace(observation, joint_velocity=np.array([2.5, -2.5]))
    np.testing.assert_array_equal(guard.check(asked(spec, [9.0, 9.0]), fast, 0.0)[0], [0.0, 9.0])
    np.testing.assert_array_equal(guard.check(asked(spec, [-9.0, -9.0]), fast, 0.0)[0], [-9.0, 0.0])


def test_c5_velocity_is_limited_and_may_not_lead_beyond_a_position_limit():
    spec = make_spec("velocity", Joint("a", "revolute", -1, 1, 2, 9), Joint("b", "revolute", -1, 1, 2, 9))
    guard, _ = started(spec)
    target, report = guard.check(asked(spec, [5.0, -1.5]), seen(spec), 0.0)
    np.testing.assert_array_equal(target, [2.0, -1.5])
    assert report.limited == ("a",)
    for position in (0.985, 1.0, 1.2):
        np.testing.assert_array_equal(guard.check(asked(spec, [2.0, -2.0]), seen(spec, [position, -position]), 0.0)[0], [0.0, 0.0])
        np.testing.assert_array_equal(guard.check(asked(spec, [-2.0, 2.0]), seen(spec, [position, -position]), 0.0)[0], [-2.0, 2.0])
    np.testing.assert_array_equal(guard.check(asked(spec, [1.0, 0.0]), seen(spec, [0.985, 0.0]), 0.0)[0], [1.0, 0.0])


def test_c5_effort_is_limited_and_pushes_back_only_at_a_position_limit():
    spec = make_spec("effort", Joint("a", "revolute", -1, 1, 2, 9), Joint("b", "revolute", -1, 1, 2, 9))
    guard, _ = started(spec)
    np.testing.assert_array_equal(guard.check(asked(spec, [20.0, -20.0]), seen(spec), 0.0)[0], [9.0, -9.0])
    target, report = guard.check(asked(spec, [5.0, -5.0]), seen(spec, [1.0, -1.3]), 0.0)
    np.testing.assert_array_equal(target, [0.0, 0.0])
    assert report.limited == ("a", "b")
    np.testing.assert_array_equal(guard.check(asked(spec, [-5.0, 5.0]), seen(spec, [1.0, -1.3]), 0.0)[0], [-5.0, 5.0])


def test_c5_thrusters_have_limits_of_their_own_and_hold_what_carries_the_robot():
    spec = load_robot("quadrotor")
    guard, observation = started(spec)
    hover = [joint.hold for joint in spec.joints]
    np.testing.assert_array_equal(guard.check(asked(spec, [-1.0, 7.0, 6.0, 0.0]), observation, 0.0)[0], [0.0, 6.0, 6.0, 0.0])
    np.testing.assert_array_equal(guard.check(asked(spec, [np.nan, 3.0, 3.0, 3.0]), observation, 0.0)[0], hover)
    np.testing.assert_array_equal(guard.check(None, seen(spec, stamp=9.0), 9.0)[0], hover)
    guard.estop("test")
    np.testing.assert_array_equal(guard.check(asked(spec, np.ones(4), 9.0), seen(spec, stamp=9.0), 9.0)[0], hover)


@pytest.mark.parametrize("measured", [-6.0, 0.0, 6.0, 7.0])
def test_c5_what_is_measured_of_a_thruster_is_no_position_that_cuts_its_command(measured):
    spec = make_spec("effort", *(Joint(name, "thruster", -6, 6, INF, 6) for name in "abcd"))
    guard, _ = started(spec)
    values = np.array([-6.0, -1.0, 1.0, 6.0])
    target, report = guard.check(asked(spec, values), seen(spec, np.full(4, measured)), 0.0)
    np.testing.assert_array_equal(target, values)
    assert report.limited == ()


def test_c5_a_hold_command_is_limited_too():
    spec = make_spec("effort", Joint("a", "revolute", -1, 1, 2, effort=3, hold=50.0))
    np.testing.assert_array_equal(started(spec)[0].check(None, seen(spec), 0.0)[0], [3.0])


@pytest.mark.parametrize("mode", ["velocity", "effort"])
def test_a_rejected_command_does_not_keep_the_last_velocity_or_effort(mode):
    spec = make_spec(mode, Joint("a", "revolute", -1, 1, 2, 3))
    guard, observation = started(spec)
    np.testing.assert_array_equal(guard.check(asked(spec, [1.0]), observation, 0.0)[0], [1.0])
    np.testing.assert_array_equal(guard.check(asked(spec, [np.nan]), observation, 0.0)[0], [0.0])


# C7: activation and emergency stop


def test_c7_a_robot_moved_by_hand_does_not_jump_back():
    backend = Backend(ARM)
    robot = GuardedRobot(backend, Guard(ARM))
    robot.connect()
    robot.write(asked(ARM, ARM.home + 0.001))
    backend.position = ARM.home + np.where(np.arange(8) < 7, 0.4, -0.02)
    robot.activate()
    sent = robot.write(asked(ARM, ARM.home))
    assert (np.abs(sent.values - backend.position) <= STEP + 1e-12).all()
    robot.activate()
    np.testing.assert_array_equal(robot.write(None).values, backend.position)


def test_c7_an_emergency_stop_rests_where_the_robot_is_and_latches():
    backend = Backend(ARM)
    robot = GuardedRobot(backend, Guard(ARM))
    robot.connect()
    for _ in range(20):  # the target runs ahead of an arm that is held back
        robot.write(asked(ARM, ARM.home + 0.5))
    backend.position = ARM.home + 0.01
    robot.read()
    robot.estop("button")
    assert backend.stops == 1
    sent = robot.write(asked(ARM, ARM.home + 0.5))
    np.testing.assert_array_equal(sent.values, backend.position)
    assert sent.source == "guard"
    assert robot.report.rejected == "emergency stop: button"
    robot.activate()
    robot.write(asked(ARM, ARM.home))
    robot.estop("again")
    robot.write(asked(ARM, ARM.home))
    assert (robot.report.state, robot.report.rejected) == ("estop", "emergency stop: button")
    assert robot.guard.counts["estops"] == 1


def test_c7_an_emergency_stop_rests_where_the_robot_was_last_seen_when_nothing_is_measured_any_more():
    backend, now = Backend(ARM), [0.0]
    robot = GuardedRobot(backend, Guard(ARM), lambda: now[0])
    robot.connect()
    for _ in range(20):
        robot.write(asked(ARM, ARM.home + 0.5))
    backend.position = ARM.home + 0.01
    robot.read()
    robot.estop("button")
    now[0] = 0.5
    np.testing.assert_array_equal(robot.write(asked(ARM, ARM.home + 0.5)).values, backend.position)
    assert robot.report.state == "estop"


def test_c7_release_starts_from_where_the_arm_was_put():
    backend = Backend(ARM)
    robot = GuardedRobot(backend, Guard(ARM))
    robot.connect()
    robot.estop("button")
    robot.write(None)
    backend.position = ARM.home - np.where(np.arange(8) < 7, 0.3, 0.01)
    robot.release()
    sent = robot.write(asked(ARM, ARM.home))
    assert robot.report.state == "ok"
    np.testing.assert_array_equal(sent.values, backend.position)


def test_c7_after_release_full_speed_comes_back_within_a_second():
    guard, _ = started(ARM)
    guard.estop("button")
    guard.release(seen(ARM, stamp=1.0))
    target, moved = ARM.home.copy(), []
    for tick in range(1, 241):
        now = 1.0 + tick * 0.005
        last = target
        target, _ = guard.check(asked(ARM, ARM.home + np.where(np.arange(8) == 0, 2.5, 0.0), now), seen(ARM, last, now), now)
        moved.append(target[0] - last[0])
    np.testing.assert_allclose(moved[:200], STEP[0] * np.arange(1, 201) / 200, rtol=1e-9)
    np.testing.assert_allclose(moved[200:], STEP[0])


@pytest.mark.parametrize("blinded", ["silent", "nan"])
def test_c7_a_robot_moved_while_nobody_saw_it_stays_where_it_was_put(blinded):
    guard, _ = started(ARM)
    for tick in range(300):
        now = tick * 0.005
        unseen = seen(ARM, stamp=0.0) if blinded == "silent" else seen(ARM, np.full(8, np.nan), now)
        target, _ = guard.check(asked(ARM, ARM.home, now), unseen, now)
    np.testing.assert_array_equal(target, ARM.home)
    moved = ARM.home - np.where(np.arange(8) < 7, 0.3, 0.0)
    target, _ = guard.check(None, seen(ARM, moved, 1.5), 1.5)
    np.testing.assert_array_equal(target, moved)


# C8: silence, late answers and time that jumps


def test_c8_silence_is_held_then_stopped_then_over():
    guard, _ = started(ARM, max_age=0.1, stop_after=0.5)
    command = asked(ARM, ARM.home + 0.5, 0.0)
    states = []
    for tick in range(121):
        now = tick * ARM.period
        _, report = guard.check(command, seen(ARM, stamp=now), now)
        states.append(report.state)
    assert states == ["ok"] * 21 + ["hold"] * 100
    measured = ARM.home - np.where(np.arange(8) < 7, 0.3, 0.0)
    target, report = guard.check(command, seen(ARM, measured, 0.61), 0.61)
    assert (report.state, guard.counts["stops"]) == ("stop", 1)
    np.testing.assert_array_equal(target, measured)
    for now in (0.7, 5.0):
        target, report = guard.check(None, seen(ARM, ARM.home, now), now)
        np.testing.assert_array_equal(target, measured)
    assert (report.state, guard.counts["stops"]) == ("stop", 1)
    target, report = guard.check(asked(ARM, measured, 5.01), seen(ARM, ARM.home, 5.01), 5.01)
    assert report.state == "ok"
    np.testing.assert_array_equal(target, ARM.home)


def test_c8_a_stop_does_not_lower_an_arm_that_sags_under_its_load():
    guard, _ = started(ARM, stop_after=0.5)
    held, _ = guard.check(asked(ARM, ARM.home), seen(ARM), 0.0)
    sagged = ARM.home - 0.01
    for tick in range(1, 400):
        target, report = guard.check(None, seen(ARM, sagged, tick * 0.005), tick * 0.005)
    assert report.state == "stop"
    np.testing.assert_array_equal(target, held)


def test_c8_a_command_that_is_used_again_is_counted():
    guard, _ = started(ARM)
    command = asked(ARM, ARM.home)
    for tick in range(5):
        guard.check(command, seen(ARM, stamp=tick * 0.005), tick * 0.005)
    assert guard.counts["starved"] == 4


def test_c8_starved_ticks_are_counted():
    guard, _ = started(ARM)
    for tick in range(1, 11):
        guard.check(None, seen(ARM, stamp=tick * 0.005), tick * 0.005)
    assert guard.counts == {"held": 10}


@pytest.mark.parametrize(("age", "accepted"), [(0.09, True), (0.11, False), (-0.09, True), (-0.11, False), (1e9, False), (-1e9, False)])
def test_c8_an_answer_to_an_old_or_a_future_observation_is_discarded(age, accepted):
    guard, _ = started(ARM)
    _, report = guard.check(asked(ARM, ARM.home, 10.0 - age), seen(ARM, stamp=10.0), 10.0)
    assert (report.rejected is None) == accepted
    assert accepted or ("in the future" if age < 0 else "more than 0.1 s") in report.rejected


def test_c8_an_answer_that_another_has_overtaken_is_discarded():
    guard, _ = started(ARM)
    newer, _ = guard.check(asked(ARM, ARM.home + 0.01, 0.05), seen(ARM, stamp=0.05), 0.05)
    target, report = guard.check(asked(ARM, ARM.home - 0.01, 0.045), seen(ARM, stamp=0.055), 0.055)
    assert report.rejected == "the command answers an observation 0.005 s before that of the last one"
    np.testing.assert_array_equal(target, newer)
    assert guard.check(asked(ARM, ARM.home + 0.01, 0.05), seen(ARM, stamp=0.06), 0.06)[1].rejected is None


@pytest.mark.parametrize("age", [0.2, -0.2])
def test_c8_an_observation_of_another_time_is_refused(age):
    guard, _ = started(ARM)
    _, report = guard.check(asked(ARM, ARM.home, 10.0), seen(ARM, stamp=10.0 - age), 10.0)
    assert report.rejected.startswith("the observation is 0.200 s")


@pytest.mark.parametrize("back", [0.03, 50.0])
def test_s5_commands_flow_within_two_ticks_after_time_has_jumped_back(back):
    guard, _ = started(ARM)
    for now in np.arange(60.0, 60.1, ARM.period):
        guard.check(asked(ARM, ARM.home - 0.5, now), seen(ARM, stamp=now), now)
    elsewhere, then = ARM.home - 0.02, now - back
    first, _ = guard.check(asked(ARM, ARM.home - 0.5, now), seen(ARM, elsewhere, then), then)
    assert (np.abs(first - elsewhere) <= STEP + 1e-12).all()
    then += ARM.period
    second, report = guard.check(asked(ARM, first, then), seen(ARM, elsewhere, then), then)
    assert report.state == "ok"
    np.testing.assert_array_equal(second, first)


# the robot behind its guard


def test_a_guarded_robot_is_a_robot():
    assert isinstance(GuardedRobot(Backend(ARM), Guard(ARM)), Robot)


def test_stepping_and_closing_reach_the_backend():
    backend = Backend(ARM)
    robot = GuardedRobot(backend, Guard(ARM))
    robot.connect()
    robot.step()
    assert robot.read().stamp == ARM.period
    assert not backend.closed
    robot.close()
    assert backend.closed


def test_what_was_sent_says_whose_it_is_and_what_it_answers():
    backend = Backend(ARM)
    robot = GuardedRobot(backend, Guard(ARM))
    robot.connect()
    backend.stamp = 0.02
    robot.read()
    good, bad = robot.write(asked(ARM, ARM.home, 0.015)), robot.write(asked(ARM, ARM.home, np.nan))
    assert (good.source, good.stamp) == ("test", 0.015)
    assert (bad.source, bad.stamp) == ("guard", 0.02)


def test_c8_the_target_stands_still_when_commands_stay_away():
    backend, now = Backend(ARM), [0.0]
    robot = GuardedRobot(backend, Guard(ARM, max_age=0.1, stop_after=0.5), lambda: now[0])
    robot.connect()
    for tick in range(400):
        now[0] = backend.stamp = tick * 0.005
        robot.read()
        robot.write(asked(ARM, ARM.home + 0.001, 0.0))
    assert robot.report.state == "stop"
    assert len(backend.sent) == 400
    np.testing.assert_array_equal(backend.sent[20:], np.tile(backend.sent[20], (380, 1)))


def test_a_robot_that_no_longer_measures_is_held():
    backend, now = Backend(ARM), [0.0]
    robot = GuardedRobot(backend, Guard(ARM), lambda: now[0])
    robot.connect()
    now[0] = 0.2
    robot.write(asked(ARM, ARM.home, 0.2))
    assert robot.report.rejected == "the observation is 0.200 s old, more than 0.1 s"


@pytest.mark.parametrize("source", ["nan", "short", "late", "none"])
def test_c1_c2_nothing_but_safe_targets_reaches_a_backend(source):
    backend = Backend(ARM)
    robot = GuardedRobot(backend, Guard(ARM))
    robot.connect()
    first = robot.write(asked(ARM, ARM.home + 0.005)).values
    command = {
        "nan": asked(ARM, np.full(8, np.nan)),
        "short": asked(ARM, ARM.home[:5], names=ARM.joint_names[:5]),
        "late": asked(ARM, ARM.home + 1.0, -1.0),
        "none": None,
    }[source]
    robot.write(command)
    np.testing.assert_array_equal(backend.sent[-1], first)
