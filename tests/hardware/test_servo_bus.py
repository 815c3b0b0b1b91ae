"""Tests of ros_rl.hardware.servo_bus on servos behind a pseudo-terminal, through the library that drives real ones."""

import itertools
import math
import os
import sys
import time

import numpy as np
import pytest

pytest.importorskip("rustypot", reason="rustypot is not installed: pip install -e '.[servo]'")

from fake_servos import (
    DYNAMIXEL,
    FEETECH,
    IDS,
    LARGEST_TORQUE,
    TORQUE_LIMIT,
    FakeServos,
    Protocol1,
    damaged,
    sign_magnitude,
    spoilt,
    write_robot,
)

from ros_rl.errors import RobotFault, UserError
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import JointCommand, Robot
from ros_rl.hardware.servo_bus import ServoBusRobot
from ros_rl.robots.spec import load_robot

TICK = math.tau / 4096
MIN_POSITION, MAX_POSITION = (9, 2), (11, 2)  # of a Feetech
LONG = 20.0  # s to wait for an answer that is sure to come, on however busy a machine
SHORT = 0.5  # s to wait for one that will not come


@pytest.fixture
def servos():
    bus = FakeServos()
    yield bus
    bus.close()


@pytest.fixture
def spec(tmp_path):
    return load_robot(write_robot(tmp_path))


@pytest.fixture
def robot(servos, spec):
    made = ServoBusRobot(spec, servos.port, timeout=LONG)
    made.connect()
    yield made
    servos.spoil = None
    made.close()


def command(robot, *values):
    return JointCommand(robot.spec.joint_names, np.array(values, dtype=float), 0.0)


def test_it_is_a_robot(robot):
    assert isinstance(robot, Robot)


def test_the_measured_positions_are_the_goals_before_the_torque_is_on(servos, spec):
    for servo, tick in zip(IDS, (100, 2000, 4095), strict=True):
        servos.put(servo, FEETECH.position, tick)
        servos.put(servo, FEETECH.goal, 3000)
    ServoBusRobot(spec, servos.port, timeout=LONG).connect()
    assert servos.written[:3] == [(1, 42, 100), (2, 42, 2000), (7, 42, 4095)]
    torque = [entry for entry in servos.written if entry[1] == 40]
    assert torque == [(1, 40, 1), (2, 40, 1), (7, 40, 1)]
    assert servos.goals() == [100, 2000, 4095]


def test_the_torque_is_limited_to_the_joints_effort_before_it_is_on_where_a_count_of_it_is_known(servos, tmp_path):
    path = write_robot(tmp_path)
    path.write_text(path.read_text().replace("pan: {", "pan: {effort: 0.6, ").replace("  lift:\n    {", "  lift:\n    {effort: 1.5, "))
    servos.put(2, LARGEST_TORQUE, 500)
    ServoBusRobot(load_robot(path), servos.port, timeout=LONG).connect()
    # 0.6 N·m at 0.003 a count; 1.5 at 0.002 are 750, which is more than the servo is set to; a count of the third is not known.
    assert [entry for entry in servos.written if entry[1] == TORQUE_LIMIT[0]] == [(1, 48, 200), (2, 48, 500)]
    addresses = [entry[1] for entry in servos.written]
    assert addresses.index(48) < addresses.index(40)


def test_goals_that_got_lost_are_sent_again_before_the_torque_is_on(servos, spec):
    servos.deaf = 2
    ServoBusRobot(spec, servos.port, timeout=LONG).connect()
    assert [entry[:2] for entry in servos.written if entry[1] in (40, 42)][:4] == [(1, 42), (2, 42), (7, 42), (1, 40)]


def test_servos_that_take_no_goals_are_not_switched_on(servos, spec):
    servos.deaf = 1000
    with pytest.raises(RobotFault, match="do not take goal positions"):
        ServoBusRobot(spec, servos.port, timeout=LONG).connect()
    assert servos.written == []


def test_positions_speeds_and_loads_are_read_in_si(servos, robot):
    for servo, (tick, speed, load) in zip(IDS, ((2048 + 1024, 512, 100), (1000, -1024, -50), (1024, 0, 77)), strict=True):
        servos.put(servo, FEETECH.position, tick)
        servos.put(servo, FEETECH.velocity, sign_magnitude(speed, 15))
        servos.put(servo, FEETECH.load, sign_magnitude(load, 10))
    observation = robot.read()
    np.testing.assert_allclose(observation.joint_position, [math.pi / 2, 1000 * TICK, 0.0], atol=1e-12)
    np.testing.assert_allclose(observation.joint_velocity, [math.pi / 4, math.pi / 2, 0.0], atol=1e-12)
    np.testing.assert_allclose(observation.joint_effort, [0.3, 0.1, 0.0], atol=1e-12)


def test_a_tick_below_zero_is_read_as_one(servos, robot):
    servos.put(7, FEETECH.position, sign_magnitude(-24, 15))
    assert robot.read().joint_position[2] == pytest.approx((-24 - 1024) * TICK)


def test_stamps_grow_on_the_monotonic_clock_in_whole_nanoseconds(robot):
    stamps = [robot.read().stamp for _ in range(5)]
    assert all(later > earlier for earlier, later in itertools.pairwise(stamps))
    assert all(round(stamp * 1e9) / 1e9 == stamp for stamp in stamps)


def test_a_stamp_is_of_when_the_positions_that_came_were_asked_for(servos, robot):
    asked = []

    def spoil(servo, packet):
        if servo == IDS[0]:
            asked.append(time.monotonic())  # of positions, twice, and of what comes after them
        return damaged(packet) if len(asked) == 1 else packet

    servos.spoil = spoil
    before = time.monotonic()
    stamp = robot.read().stamp
    assert before < asked[0] < stamp < asked[1] < asked[2]


def test_goals_are_sent_in_ticks_and_what_was_sent_is_returned(servos, robot):
    sent = robot.write(command(robot, 0.5, -0.25, 1.0))
    ticks = [round(2048 + 0.5 / TICK), round(2000 + 0.25 / TICK), round(1024 + 1.0 / TICK)]
    robot.read()  # the bus takes one thing after the other
    assert servos.goals() == ticks
    np.testing.assert_allclose(sent.values, [(ticks[0] - 2048) * TICK, (2000 - ticks[1]) * TICK, (ticks[2] - 1024) * TICK], atol=1e-12)
    np.testing.assert_allclose(sent.values, [0.5, -0.25, 1.0], atol=TICK / 2)


def test_goals_are_cut_to_what_the_encoders_count(servos, robot):
    sent = robot.write(command(robot, 10.0, 10.0, -10.0))
    robot.read()
    assert servos.goals() == [4095, 0, 0]
    np.testing.assert_allclose(sent.values, [2047 * TICK, 2000 * TICK, -1024 * TICK], atol=1e-12)


@pytest.mark.parametrize("values", [(np.nan, 0.0, 0.0), (0.0, np.inf, 0.0)])
def test_c1_what_is_not_finite_is_not_sent(servos, robot, values):
    before = list(servos.written)
    with pytest.raises(UserError, match="not finite"):
        robot.write(command(robot, *values))
    robot.read()
    assert servos.written == before


def test_c3_joints_in_another_order_reach_the_same_servos(servos, robot):
    robot.write(JointCommand(("jaw", "pan", "lift"), np.array([1.0, 0.5, -0.25]), 0.0))
    robot.read()
    assert servos.goals() == [2374, 2163, 1676]


@pytest.mark.parametrize(
    "how",
    [
        damaged,
        lambda packet: b"\x00\x37\x80" + packet,
        lambda packet: Protocol1.answer(9, packet[4], packet[5:-1]),
        lambda packet: packet[:-3],
        lambda packet: b"",
    ],
    ids=["checksum", "noise", "another id", "cut short", "dropped"],
)
def test_s3_one_bad_packet_is_retried_and_counted(servos, robot, how):
    before = robot.read()
    servos.put(2, FEETECH.position, 1500)
    servos.spoil = spoilt(1, 2, how)  # another servo answers after it, so that nobody has to wait for a packet that is missing
    observation = robot.read()
    assert observation.joint_position[1] == pytest.approx(500 * TICK)
    assert observation.stamp > before.stamp
    assert robot.counts == {"retries": 1, "lost": 0}


def test_s3_answers_still_on_their_way_are_not_taken_for_those_to_the_second_attempt(servos, robot, monkeypatch):
    held, rounds = [], []

    def spoil(servo, packet):
        if servo == IDS[0]:
            rounds.append(len(rounds))
            late = b"".join(held)
            held.clear()
            return late + packet if rounds[-1] else damaged(packet)
        if rounds[-1] == 0:
            held.append(packet)
            return b""
        return packet

    def sleep(seconds):
        late = b"".join(held)
        held.clear()
        servos.send(late)
        while servos.arrived() < len(late):
            pass

    monkeypatch.setattr("ros_rl.hardware.servo_bus.time.sleep", sleep)
    servos.spoil = spoil
    robot.read()
    assert robot.counts == {"retries": 1, "lost": 0}


def test_s3_an_answer_that_never_comes_is_waited_for_and_asked_for_again(servos, spec):
    robot = ServoBusRobot(spec, servos.port, timeout=SHORT)
    robot.connect()
    servos.spoil = spoilt(1, 7, lambda packet: b"")
    robot.read()
    assert robot.counts["retries"] >= 1


def test_s3_a_lost_measurement_gives_the_one_before_with_its_stamp(servos, robot):
    before = robot.read()
    servos.put(1, FEETECH.position, 3000)
    servos.spoil = spoilt(2, 1)
    kept = robot.read()
    assert kept.stamp == before.stamp
    np.testing.assert_array_equal(kept.joint_position, before.joint_position)
    assert robot.counts == {"retries": 1, "lost": 1}
    assert robot.read().joint_position[0] == pytest.approx(952 * TICK)


def test_s3_what_is_lost_but_not_in_a_row_is_no_fault(servos, robot):
    for _ in range(3):
        servos.spoil = spoilt(8, 1)
        for _ in range(5):
            last = robot.read()
    assert robot.counts == {"retries": 12, "lost": 12}
    assert robot.read().stamp > last.stamp


def test_s3_five_lost_in_a_row_are_a_fault_and_a_hold(servos, robot):
    guarded = GuardedRobot(robot, Guard(robot.spec))
    guarded.activate()
    robot.write(command(robot, 0.1, 0.1, 1.0))
    goals = [2048, 2048, 2048]
    robot.read()
    servos.put(1, FEETECH.position, 2500)
    servos.spoil = lambda servo, packet: damaged(packet) if servo == 2 else packet
    for _ in range(4):
        guarded.read()
    with pytest.raises(RobotFault, match=r"5 measurements in a row were lost: joint 'lift' \(servo 2\) gives no sound answer") as caught:
        guarded.read()
    assert servos.port in str(caught.value)
    assert servos.goals() == [2500, goals[1], goals[2]], "it is stopped where it is, and what is silent where it was"
    with pytest.raises(RobotFault):  # still
        guarded.read()
    servos.spoil = None
    assert guarded.activate().joint_position[0] == pytest.approx(452 * TICK)
    guarded.stop()
    robot.read()
    assert servos.goals()[0] == 2500


def test_s3_the_guard_holds_while_what_was_measured_grows_old(servos, robot):
    now = [0.0]
    guarded = GuardedRobot(robot, Guard(robot.spec, max_age=0.1), lambda: now[0])
    observation = guarded.activate()
    now[0] = observation.stamp
    guarded.write(JointCommand(robot.spec.joint_names, observation.joint_position, observation.stamp))
    assert guarded.report.state == "ok"
    servos.spoil = spoilt(2, 1)
    assert guarded.read().stamp == observation.stamp
    now[0] = observation.stamp + 0.11
    guarded.write(JointCommand(robot.spec.joint_names, observation.joint_position + 0.1, now[0]))
    assert guarded.report.state == "hold"
    assert "observation is 0.110 s old" in guarded.report.rejected


def test_s3_a_port_that_is_gone_is_a_fault(servos, robot, monkeypatch):
    class Gone:
        def __getattr__(self, name):
            def fail(*arguments):
                raise RuntimeError("Broken pipe")

            return fail

    monkeypatch.setattr(robot, "_open", Gone())
    for _ in range(4):
        robot.write(command(robot, 0.0, 0.0, 0.0))
    with pytest.raises(RobotFault, match=r"5 commands in a row were lost.*'pan' \(servo 1\), joint 'lift' \(servo 2\), joint 'jaw'"):
        robot.write(command(robot, 0.0, 0.0, 0.0))
    with pytest.raises(RobotFault, match=r"'pan' .* 'lift' .* 'jaw' .* did not acknowledge the stop"):
        robot.stop()
    monkeypatch.undo()


def test_a_step_ends_with_a_measurement_that_is_new(servos, robot):
    before = robot.read()
    servos.spoil = spoilt(4, 1)  # two measurements
    robot.step()
    assert robot.counts["lost"] == 2
    first, second = robot.read(), robot.read()
    assert before.stamp < first.stamp < second.stamp


def test_a_stop_that_got_lost_is_sent_again(servos, robot):
    servos.put(1, FEETECH.position, 2222)
    servos.deaf = 2
    robot.stop()
    assert servos.goals() == [2222, 2048, 2048]


def test_servos_that_have_lost_their_torque_are_taken_hold_of_where_they_are(servos, robot):
    robot.write(command(robot, 0.5, -0.25, 2.0))
    robot.read()
    for servo, tick in zip(IDS, (1900, 2222, 1700), strict=True):  # without power, the arm has dropped
        servos.put(servo, FEETECH.torque, 0)
        servos.put(servo, FEETECH.position, tick)
    servos.written.clear()
    robot.take_hold()
    assert servos.written[:3] == [(1, 42, 1900), (2, 42, 2222), (7, 42, 1700)]
    assert [servos.get(servo, FEETECH.torque) for servo in IDS] == [1, 1, 1]


def test_a_servo_that_does_not_answer_is_not_taken_hold_of(servos, robot):
    servos.put(1, FEETECH.torque, 0)
    servos.spoil = lambda servo, packet: damaged(packet) if servo == 2 else packet
    with pytest.raises(RobotFault, match=r"the servos cannot be made to hold: joint 'lift' \(servo 2\) gives no sound answer"):
        robot.take_hold()
    assert servos.get(1, FEETECH.torque) == 0


def test_one_servo_that_fails_keeps_no_other_from_being_stopped(servos, robot):
    servos.put(7, FEETECH.position, 1900)
    robot.read()
    robot.write(command(robot, 0.5, -0.25, 2.0))  # ahead of where it is
    servos.put(1, FEETECH.position, 2100)
    servos.spoil = lambda servo, packet: damaged(packet) if servo == 7 else packet
    with pytest.raises(RobotFault, match=r"joint 'jaw' \(servo 7\) on .* did not acknowledge the stop and may still move") as caught:
        robot.stop()
    assert "pan" not in str(caught.value) and "lift" not in str(caught.value)
    assert servos.goals() == [2100, 2048, 1900]
    robot.write(command(robot, 0.5, -0.25, 2.0))
    with pytest.raises(RobotFault, match=r"joint 'jaw' \(servo 7\) .* did not acknowledge the stop"):
        robot.close()
    assert servos.goals() == [2100, 2048, 1900]
    servos.spoil = None
    robot.connect()  # the port is free


def test_a_bus_that_fails_is_stopped_before_anybody_looks_for_the_cause(servos, robot, monkeypatch):
    robot.write(command(robot, 0.5, -0.25, 2.0))
    told = []
    monkeypatch.setattr(robot, "_fault", lambda what, lost: told.append(servos.goals()) or RobotFault(what))
    servos.spoil = lambda servo, packet: damaged(packet) if servo == 2 else packet
    for _ in range(4):
        robot.read()
    with pytest.raises(RobotFault):
        robot.read()
    assert told == [[2048, 2048, 2048]]


def test_an_alarm_is_kept_until_it_is_over(servos, robot):
    servos.alarm = {7: 0x20}
    robot.read()
    assert robot.alarms == {"jaw": 0x20}
    servos.alarm = {}
    robot.read()
    assert robot.alarms == {}


def test_it_stops_where_it_is_and_holds_on_when_it_is_closed(servos, robot):
    servos.put(1, FEETECH.position, 2222)
    robot.close()
    robot.close()
    assert servos.goals() == [2222, 2048, 2048]
    assert [servos.get(servo, FEETECH.torque) for servo in IDS] == [1, 1, 1]
    robot.connect()  # the port is free


def test_torque_is_released_on_request_only(servos, spec):
    robot = ServoBusRobot(spec, servos.port, timeout=LONG, release_torque=True)
    robot.connect()
    robot.close()
    assert [servos.get(servo, FEETECH.torque) for servo in IDS] == [0, 0, 0]


def test_a_servo_of_another_model_is_named_and_nothing_is_switched_on(servos, spec):
    servos.put(2, FEETECH.model_number, 2825)
    message = (
        rf"joint 'lift': the servo with id 2 on {servos.port} at 1000000 baud is sts3250 \(number 2825\), robot.yaml says sts3215 \(777\)"
    )
    with pytest.raises(UserError, match=message):
        ServoBusRobot(spec, servos.port, timeout=LONG).connect()
    assert servos.written == []


def test_a_servo_in_another_mode_is_named(servos, spec):
    servos.put(7, FEETECH.operating_mode, 1)
    with pytest.raises(UserError, match=r"joint 'jaw' \(servo 7\) .* is in operating mode 1 \(velocity\); set its operating_mode to 0"):
        ServoBusRobot(spec, servos.port, timeout=LONG).connect()
    assert servos.written == []


def test_s3_a_bus_that_fails_while_it_connects_leaves_the_servos_alone(servos, spec):
    model = len(Protocol1.answer(1, 0, b"\0\0"))
    servos.spoil = lambda servo, packet: packet if len(packet) == model else damaged(packet)
    with pytest.raises(RobotFault, match="a servo answered and does so no more"):
        ServoBusRobot(spec, servos.port, timeout=LONG).connect()
    assert servos.written == []


def test_a_servo_beyond_its_encoder_is_named(servos, spec):
    servos.put(2, FEETECH.position, sign_magnitude(-30, 15))
    with pytest.raises(RobotFault, match=r"joint 'lift' \(servo 2\) .* reads tick -30, where its encoder has 0 to 4095"):
        ServoBusRobot(spec, servos.port, timeout=LONG).connect()
    assert servos.written == []


@pytest.mark.parametrize(("low", "high"), [(2100, 3000), (1000, 2000)])
def test_a_servo_outside_its_own_limits_is_named_and_nothing_is_switched_on(servos, spec, low, high):
    servos.put(2, MIN_POSITION, low)
    servos.put(2, MAX_POSITION, high)
    with pytest.raises(
        RobotFault, match=rf"joint 'lift' \(servo 2\) .* reads tick 2048, and its own limits are {low} to {high}: with torque"
    ):
        ServoBusRobot(spec, servos.port, timeout=LONG).connect()
    assert servos.written == []


def test_a_servo_within_its_own_limits_is_switched_on(servos, spec):
    servos.put(2, MIN_POSITION, 2048)
    servos.put(2, MAX_POSITION, 3000)
    robot = ServoBusRobot(spec, servos.port, timeout=LONG)
    robot.connect()
    assert servos.get(2, FEETECH.torque) == 1
    robot.close()


def test_a_servo_that_is_missing_is_named_with_those_that_answer(spec):
    servos = FakeServos((1, 7))
    try:
        with pytest.raises(RobotFault, match=r"joint 'lift' \(servo 2\) does not answer on .* \(ids 1, 7 do\); check its cable"):
            ServoBusRobot(spec, servos.port, timeout=SHORT).connect()
        assert servos.written == []
    finally:
        servos.close()


def test_a_bus_without_servos_is_named(spec):
    servos = FakeServos(())
    try:
        with pytest.raises(RobotFault, match=rf"no servo answers on {servos.port} at 57600 baud; check that they have power"):
            ServoBusRobot(spec, servos.port, 57600, timeout=0.02).connect()
    finally:
        servos.close()


def test_a_port_that_is_not_there_is_refused(spec):
    with pytest.raises(UserError, match=r"there is no serial port /dev/ttyNONE \(there: .*\); plug the adapter in"):
        ServoBusRobot(spec, "/dev/ttyNONE").connect()


def test_a_port_without_permission_is_refused_with_what_mends_it(servos, spec, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UserError, match=rf"no permission to use {servos.port}; run 'sudo usermod -aG \w+ \$USER' and log in again"):
        ServoBusRobot(spec, servos.port).connect()


def test_a_file_that_is_no_port_is_refused(spec):
    with pytest.raises(UserError, match="/dev/null cannot be opened as a serial port at 1000000 baud"):
        ServoBusRobot(spec, "/dev/null").connect()


def test_without_the_library_it_says_how_to_get_it(servos, spec, monkeypatch):
    monkeypatch.setitem(sys.modules, "rustypot", None)
    with pytest.raises(UserError, match=r"rustypot, which is not installed; run: pip install 'ros_rl\[servo\]'"):
        ServoBusRobot(spec, servos.port).connect()


@pytest.mark.parametrize("name", ["arm", "cartpole"])
def test_a_robot_without_servos_is_refused(name):
    with pytest.raises(UserError, match=rf"robot '{name}' has no servos: give each joint in its robot.yaml a servo"):
        ServoBusRobot(load_robot(name), "/dev/ttyACM0")


def test_a_dynamixel_arm_is_read_and_driven(tmp_path):
    servos = FakeServos(model=1060, table=DYNAMIXEL, mode=3)
    try:
        robot = ServoBusRobot(load_robot(write_robot(tmp_path, "xl430-w250")), servos.port, 1_000_000, timeout=LONG)
        robot.connect()
        assert servos.goals() == [2048, 2048, 2048]
        servos.put(1, DYNAMIXEL.position, 2048 + 512)
        servos.put(1, DYNAMIXEL.velocity, -100)
        servos.put(1, DYNAMIXEL.load, -200)
        observation = robot.read()
        assert observation.joint_position[0] == pytest.approx(math.pi / 4)
        assert observation.joint_velocity[0] == pytest.approx(-22.9 * math.tau / 60)
        assert observation.joint_effort[0] == pytest.approx(-0.6)
        servos.spoil = spoilt(1, 2)
        robot.write(command(robot, 0.5, -0.25, 1.0))
        robot.read()
        assert servos.goals() == [2374, 2163, 1676]
        assert robot.counts == {"retries": 1, "lost": 0}
        robot.close()
    finally:
        servos.close()


@pytest.mark.parametrize("name", ["so101"])
def test_so101_has_six_servos(name):
    spec = load_robot(name)
    assert [servo.id for servo in spec.servos] == [1, 2, 3, 4, 5, 6]
    assert {servo.model for servo in spec.servos} == {"sts3215"}
    assert spec.joint_names[0] == "shoulder_pan" and spec.joint_names[-1] == "gripper"
    ends = np.array([[joint.lower, joint.upper] for joint in spec.joints])
    ticks = np.array([servo.unit.rate * end + servo.unit.zero for servo, end in zip(spec.servos, ends, strict=True)])
    assert (ticks > 0).all() and (ticks < 4096).all()
    assert ticks[-1].mean() == pytest.approx(2048, abs=1)
