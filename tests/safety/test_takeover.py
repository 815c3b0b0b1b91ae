"""Tests of ros_rl.safety.takeover: a person takes over and gives back without a jump, and what is no command holds the robot."""

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.guard import Guard
from ros_rl.hardware.interface import JointCommand, Observation
from ros_rl.robots.spec import load_robot
from ros_rl.safety.takeover import Takeover

ARM = load_robot("arm")
CARTPOLE = load_robot("cartpole")
COUNT = len(ARM.joints)
AWAY = np.where(np.array(ARM.joint_names) == "finger_joint1", -0.02, 0.5)  # where the leader is, from home


class Loop:
    """An arm that is where it was last commanded to be, a policy that keeps it at home, and the takeover between."""

    def __init__(self, **options):
        self.takeover = Takeover(ARM, timeout=0.5, **options)
        self.position = ARM.home.copy()
        self.time = 0.0
        self.commands = []
        self.modes = []
        self.policy = ARM.home[:COUNT].copy()

    @property
    def observation(self):
        return Observation(self.time, self.position.copy(), np.zeros_like(self.position), np.zeros_like(self.position))

    def tick(self, device=None, stamp=None, source="leader", names=ARM.joint_names):
        """One control period, in which the device may send a command."""
        self.time = round(self.time + ARM.period, 9)
        takeover, command = self.takeover, None
        takeover.observe(self.observation)
        if takeover.claimed:
            if device is not None:
                takeover.propose(JointCommand(tuple(names), np.asarray(device), self.time if stamp is None else stamp, source))
            command = takeover.command(self.time)
        else:
            command = JointCommand(ARM.joint_names, self.policy.copy(), self.time, "policy")
            if takeover.mode == "hand_back":
                command = takeover.hand_back(command)
        takeover.sent(command)
        self.commands.append(command)
        self.modes.append(takeover.mode)
        self.position[:COUNT] = command.values
        return command

    def claim(self, claim, device="leader"):
        self.takeover.claim(device, claim, self.time)

    def run(self, ticks, device=None):
        for _ in range(ticks):
            if self.takeover.claimed and device is not None:
                self.claim("engaged")
            self.tick(device)

    def steps(self):
        return np.abs(np.diff([command.values for command in self.commands], axis=0))


def test_c6_takeover_and_hand_back_ramp_without_a_step_above_the_velocity_limit():
    loop = Loop()
    leader = ARM.home[:COUNT] + AWAY
    loop.run(5)
    loop.claim("engaged")
    loop.run(400, leader)
    taken = loop.commands[-1].values
    assert loop.modes[-1] == "teleop"
    np.testing.assert_array_equal(taken, np.clip(leader, ARM.lower, ARM.upper))
    loop.claim("released")
    loop.run(400)
    np.testing.assert_array_equal(loop.commands[-1].values, loop.policy)
    assert (loop.steps() <= ARM.velocity * ARM.period + 1e-12).all()
    order = list(dict.fromkeys(loop.modes))
    assert order == ["policy", "takeover", "teleop", "hand_back"]
    assert loop.modes[-1] == "policy"
    # Every command of the ramps says by its source that a person intervenes.
    for mode, command in zip(loop.modes, loop.commands, strict=True):
        assert command.source == "teleop:leader" or mode == "policy"


def test_c6_the_ramp_gains_speed_over_a_second():
    loop = Loop()
    loop.run(1)
    loop.claim("engaged")
    loop.run(300, ARM.home[:COUNT] + AWAY)
    # Joint 1 reaches 0.5 rad when half of v·t² is that, with the speed limit v of 2.175 rad/s gained in a second.
    met = next(i for i, command in enumerate(loop.commands) if command.values[0] > 0.5 - 1e-9)
    speed = ARM.velocity[0]
    assert (met - 1) * ARM.period == pytest.approx(np.sqrt(2 * 0.5 / speed), abs=0.02)


def test_c6_a_device_that_jumps_after_the_ramp_still_makes_no_step_above_the_limit():
    loop = Loop()
    loop.claim("engaged")
    loop.run(3, loop.policy)
    assert loop.modes[-1] == "teleop"
    loop.run(100, ARM.home[:COUNT] + AWAY)
    steps = loop.steps()
    assert steps.max(axis=0)[0] == pytest.approx(ARM.velocity[0] * ARM.period)
    assert (steps <= ARM.velocity * ARM.period + 1e-12).all()


def test_c6_hand_back_to_a_policy_that_moves_makes_no_step_above_the_limit():
    loop = Loop()
    loop.claim("engaged")
    loop.run(300, ARM.home[:COUNT] + AWAY)
    loop.claim("released")
    for _ in range(500):
        loop.policy = np.clip(loop.policy - 0.9 * ARM.velocity * ARM.period, ARM.lower, ARM.upper)
        loop.tick()
    assert loop.modes[-1] == "policy"
    assert (loop.steps() <= ARM.velocity * ARM.period + 1e-12).all()


def test_hand_back_to_a_policy_that_explores_ends():
    loop, noise = Loop(), np.random.default_rng(0)
    loop.claim("engaged")
    loop.run(10, ARM.home[:COUNT])
    loop.claim("released")
    for _ in range(600):  # three seconds
        loop.policy = np.clip(ARM.home[:COUNT] + 0.05 * noise.standard_normal(COUNT), ARM.lower, ARM.upper)
        loop.tick()
    assert loop.modes[-1] == "policy"
    ramp = loop.modes.count("hand_back")
    assert ramp * ARM.period > 0.9  # it gains speed first
    assert (loop.steps()[: 10 + ramp] <= ARM.velocity * ARM.period + 1e-12).all()


def test_hand_back_to_a_policy_that_pushes_on_a_blocked_arm_ends():
    loop = Loop()
    loop.claim("engaged")
    loop.run(10, ARM.home[:COUNT])
    loop.claim("released")
    loop.policy = loop.policy.copy()
    loop.policy[0] += 2 * ARM.lead[0]
    for _ in range(600):
        loop.tick()
        loop.position = ARM.home.copy()
    assert loop.modes[-1] == "policy"


def test_letting_go_holds_in_the_middle_of_the_ramp_until_engaged_again_or_handed_back():
    loop = Loop()
    leader = ARM.home[:COUNT] + AWAY
    loop.claim("engaged")
    loop.run(80, leader)
    assert loop.modes[-1] == "takeover"
    loop.claim("holding")
    held = loop.commands[-1].values
    loop.run(1000, None)  # five seconds: the policy takes nothing back by itself
    assert set(loop.modes[80:]) == {"hold"}
    np.testing.assert_array_equal(loop.commands[-1].values, held)
    assert "dead-man switch of 'leader' is released" in loop.takeover.reason(loop.time)
    loop.claim("engaged")
    loop.run(300, leader)
    assert loop.modes[-1] == "teleop"
    assert (loop.steps() <= ARM.velocity * ARM.period + 1e-12).all()


def test_c6_every_takeover_gains_speed_anew():
    loop = Loop()
    loop.claim("engaged")
    loop.run(300, ARM.home[:COUNT])
    loop.tick(np.full(COUNT, np.nan))  # no command: the robot holds
    loop.run(21, ARM.home[:COUNT] + AWAY)
    assert loop.steps().max(axis=0)[0] == pytest.approx(0.1 * ARM.velocity[0] * ARM.period)  # a tenth of a second later


def test_c7_an_arm_that_was_moved_while_time_went_on_is_held_where_it_is():
    loop = Loop()
    loop.claim("engaged")
    loop.run(10, ARM.home[:COUNT])
    loop.claim("holding")
    loop.time += 10.0  # paused
    loop.position[0] += 0.04
    moved = loop.position[:COUNT].copy()
    np.testing.assert_array_equal(loop.tick().values, moved)


def test_c7_the_second_takeover_starts_near_the_robot_as_the_first_did():
    loop = Loop()
    loop.claim("engaged")
    loop.run(3, loop.policy)
    loop.claim("released")
    loop.run(3)
    assert loop.modes[-1] == "policy"
    loop.policy = ARM.home[:COUNT] + 1.0
    loop.run(1)
    loop.position = ARM.home.copy()
    loop.claim("engaged")
    loop.tick()
    assert (np.abs(loop.commands[-1].values - ARM.home[:COUNT]) <= ARM.lead + 1e-12).all()


def test_c7_an_arm_that_is_pushed_away_while_held_makes_no_step_above_the_limit():
    loop = Loop()
    loop.claim("engaged")
    loop.run(10, ARM.home[:COUNT])
    loop.claim("released")
    loop.position[:COUNT] += 1.5 * ARM.lead
    loop.run(1)
    assert (loop.steps() <= ARM.velocity * ARM.period + 1e-12).all()


def test_a_device_that_falls_silent_is_lost_and_the_robot_held():
    loop = Loop()
    loop.claim("engaged")
    loop.run(10, loop.policy)
    for _ in range(90):
        loop.tick(loop.policy)  # commands still come, but nobody says any more that the switch is pressed
    assert loop.modes[-1] == "teleop"
    for _ in range(20):
        loop.tick(loop.policy + 0.1)
    assert "'leader' is lost" in loop.takeover.reason(loop.time)
    held = loop.commands[-1].values
    for _ in range(100):
        loop.takeover.observe(loop.observation)
        loop.tick()
    np.testing.assert_array_equal(loop.commands[-1].values, held)


def test_commands_that_stop_coming_hold_the_robot():
    loop = Loop()
    loop.claim("engaged")
    loop.run(10, ARM.home[:COUNT] + AWAY)
    for _ in range(110):
        loop.claim("engaged")
        loop.tick()
    assert loop.modes[-1] == "hold"
    assert "has sent no command for more than 0.5 s" in loop.takeover.reason(loop.time)


def test_the_first_of_two_devices_keeps_control():
    loop = Loop()
    loop.claim("engaged")
    loop.run(10, loop.policy)
    loop.claim("engaged", "joy")
    assert loop.takeover.device == "leader"
    assert loop.takeover.reason(loop.time) == "'joy' is refused, 'leader' has control"
    loop.tick(ARM.home[:COUNT] + AWAY, source="joy")
    np.testing.assert_array_equal(loop.commands[-1].values, loop.policy)
    loop.claim("released", "joy")  # nor can it give back what it has not
    loop.claim("holding", "joy")
    assert loop.takeover.claimed
    assert loop.takeover.mode == "teleop"
    assert loop.takeover.reason(loop.time + 1.0) == ""  # said as long as it is so
    loop.claim("released")
    loop.claim("engaged", "joy")
    assert (loop.takeover.device, loop.takeover.mode) == ("joy", "hold")


def test_another_device_takes_over_from_one_that_is_lost():
    loop = Loop()
    loop.claim("engaged")
    loop.run(3, loop.policy)
    loop.time += 1.0
    loop.claim("released", "joy")
    assert loop.takeover.claimed  # a device that merely starts up hands nothing back
    loop.claim("engaged", "joy")
    loop.tick(loop.policy, source="joy")
    assert (loop.takeover.device, loop.takeover.mode) == ("joy", "teleop")


def test_whoever_holds_a_robot_that_nobody_has_keeps_it():
    loop = Loop()
    loop.run(5)
    loop.claim("holding")  # this process was started anew, the device was not
    loop.policy = ARM.home[:COUNT] + AWAY
    loop.run(20)
    assert (loop.takeover.device, loop.takeover.mode) == ("leader", "hold")
    np.testing.assert_array_equal(loop.commands[-1].values, ARM.home[:COUNT])
    loop.claim("released")
    assert loop.takeover.mode == "hand_back"


def test_a_device_that_had_to_wait_does_not_hold_the_robot_once_it_is_handed_back():
    loop = Loop()
    loop.claim("engaged")
    loop.claim("engaged", "joy")  # in vain
    loop.claim("holding", "joy")
    loop.claim("released")
    loop.claim("holding", "joy")
    assert loop.takeover.mode == "hand_back"
    loop.claim("released", "joy")  # from now on it is as any other
    loop.claim("holding", "joy")
    assert (loop.takeover.device, loop.takeover.mode) == ("joy", "hold")
    loop.time += 1.0
    loop.claim("engaged")  # joy is lost
    loop.claim("released")
    loop.claim("holding", "joy")
    assert loop.takeover.mode == "hand_back"


BAD = {
    "not finite": (lambda values, names: (np.where(np.arange(COUNT) == 3, np.nan, values), names), "the command for joint4 is not finite"),
    "infinite": (lambda values, names: (np.where(np.arange(COUNT) == 0, np.inf, values), names), "the command for joint1 is not finite"),
    "a joint is missing": (lambda values, names: (values[1:], names[1:]), "joint names do not match: got joint2"),
    "a joint is misspelt": (lambda values, names: (values, ("joint_1", *names[1:])), "joint names do not match: got joint_1"),
    "a value too few": (lambda values, names: (values[1:], names), "8 values are needed"),
}


@pytest.mark.parametrize("case", BAD)
def test_c1_c2_what_is_no_command_is_rejected_whole_and_the_robot_held(case):
    loop = Loop()
    leader = ARM.home[:COUNT] + AWAY
    loop.claim("engaged")
    loop.run(100, leader)
    held = loop.commands[-1].values
    spoil, reason = BAD[case]
    values, names = spoil(leader, ARM.joint_names)
    for _ in range(3):
        loop.tick(values, names=names)
        np.testing.assert_array_equal(loop.commands[-1].values, held)
        assert loop.modes[-1] == "hold"
    assert loop.takeover.rejected == 3
    assert f"a command of 'leader' is rejected: {reason}" in loop.takeover.reason(loop.time)
    loop.run(300, leader)  # a usable one ramps in anew
    assert loop.modes[-1] == "teleop"
    assert (loop.steps() <= ARM.velocity * ARM.period + 1e-12).all()


def test_c1_a_measured_position_that_is_not_finite_holds_the_last_target():
    loop = Loop()
    loop.claim("engaged")
    loop.run(300, ARM.home[:COUNT] + 0.5 * AWAY)
    held = loop.commands[-1].values
    loop.position[0] = np.nan
    np.testing.assert_array_equal(loop.tick(ARM.home[:COUNT]).values, held)
    assert (loop.modes[-1], loop.takeover.reason(loop.time)) == ("hold", "the measured position of joint1 is not finite")
    loop.run(300, ARM.home[:COUNT])
    assert loop.modes[-1] == "teleop"
    assert (loop.steps() <= ARM.velocity * ARM.period + 1e-12).all()


def test_c1_a_takeover_begins_with_the_policy_s_target_where_nobody_knows_where_the_robot_is():
    loop = Loop()
    loop.run(3)
    loop.claim("engaged")
    loop.position[0] = np.nan
    np.testing.assert_array_equal(loop.tick().values, loop.policy)


def test_c8_stale_commands_are_discarded_by_their_stamp():
    loop = Loop()
    loop.claim("engaged")
    loop.run(20, loop.policy)
    for stamp in (loop.time - 0.02, loop.time - 10.0, loop.time + 1e9, float("nan")):  # overtaken, old, of another clock, none
        loop.tick(ARM.home[:COUNT] + AWAY, stamp=stamp)
        np.testing.assert_array_equal(loop.commands[-1].values, loop.policy)
    assert loop.takeover.rejected == 4
    assert "is discarded" in loop.takeover.reason(loop.time)
    loop.tick(loop.policy)
    assert loop.takeover.reason(loop.time) == ""


def test_c3_the_order_of_joints_changes_no_bit():
    loops = Loop(), Loop()
    leader = ARM.home[:COUNT] + AWAY
    for loop, order in zip(loops, (np.arange(COUNT), np.arange(COUNT)[::-1]), strict=True):
        loop.claim("engaged")
        for _ in range(50):
            loop.tick(leader[order], names=[ARM.joint_names[i] for i in order])
    np.testing.assert_array_equal(*(np.array([command.values for command in loop.commands]) for loop in loops))


def test_c5_a_command_beyond_a_limit_is_cut_to_it():
    loop = Loop()
    loop.claim("engaged")
    loop.run(1000, np.full(COUNT, 10.0))
    np.testing.assert_array_equal(loop.commands[-1].values, ARM.upper)
    assert loop.modes[-1] == "teleop"


def test_c7_the_target_does_not_run_away_from_an_arm_that_is_held_fast():
    loop = Loop()
    loop.claim("engaged")
    for _ in range(1000):
        loop.tick(ARM.home[:COUNT] + AWAY)
        loop.position = ARM.home.copy()
    assert (np.abs(loop.commands[-1].values - ARM.home[:COUNT]) <= ARM.lead + 1e-12).all()


def test_c7_a_takeover_starts_near_the_robot_wherever_its_policy_wanted_to_go():
    loop = Loop()
    loop.policy = ARM.home[:COUNT] + 1.0
    loop.run(1)
    loop.position = ARM.home.copy()  # an emergency stop holds it
    loop.claim("engaged")
    loop.tick()
    assert (np.abs(loop.commands[-1].values - ARM.home[:COUNT]) <= ARM.lead + 1e-12).all()


def test_s5_time_that_jumps_back_starts_from_where_the_robot_is():
    loop = Loop()
    loop.claim("engaged")
    loop.run(300, ARM.home[:COUNT] + AWAY)
    loop.time, loop.position = 0.0, ARM.home.copy()
    loop.claim("engaged")
    np.testing.assert_array_equal(loop.tick().values, ARM.home[:COUNT])
    assert loop.takeover.mode == "hold"
    loop.run(300, ARM.home[:COUNT] + AWAY)
    assert loop.takeover.mode == "teleop"


def test_s5_a_reset_that_repeats_the_stamp_starts_from_where_the_robot_is():
    takeover = Takeover(ARM, timeout=0.5)
    takeover.claim("leader", "engaged", 0.0)
    for position in (ARM.home, ARM.home + 0.1):
        takeover.observe(Observation(0.0, position, *2 * [np.zeros_like(position)]))
        command = takeover.command(0.0)
        np.testing.assert_array_equal(command.values, position[:COUNT])
        takeover.sent(command)


def test_s5_a_hand_back_goes_on_within_a_second_after_time_has_jumped_back():
    loop = Loop()
    loop.time = 10.0
    loop.claim("engaged")
    loop.run(300, ARM.home[:COUNT] + AWAY)
    loop.claim("released")
    loop.run(3)
    assert loop.modes[-1] == "hand_back"
    loop.time = 0.0
    loop.run(300)
    assert loop.modes[-1] == "policy"


def test_c1_an_action_that_is_none_goes_on_to_the_guard_and_ends_no_hand_back():
    loop = Loop()
    loop.claim("engaged")
    loop.run(10, loop.policy)
    loop.claim("released")
    loop.time += ARM.period
    action = JointCommand(ARM.joint_names, np.full(COUNT, np.nan), loop.time, "policy")
    assert loop.takeover.hand_back(action) is action
    assert loop.takeover.mode == "hand_back"


def test_a_restart_starts_from_where_the_robot_is_and_takes_it_from_nobody():
    loop = Loop()
    loop.claim("engaged")
    loop.run(300, ARM.home[:COUNT] + AWAY)
    loop.takeover.restart()
    assert loop.takeover.mode == "hold"
    loop.position = ARM.home.copy()
    np.testing.assert_array_equal(loop.tick().values, ARM.home[:COUNT])
    loop.tick(ARM.home[:COUNT] + AWAY)
    assert loop.modes[-1] == "takeover"


def test_in_lock_step_an_engaged_device_is_waited_for_and_only_its_answer_counts():
    takeover = Takeover(ARM, timeout=0.5, lockstep=True)
    observation = Loop().observation
    takeover.claim("leader", "engaged", 0.0)
    takeover.observe(observation)
    assert takeover.waits(0.0)
    takeover.propose(JointCommand(ARM.joint_names, np.full(COUNT, np.nan), 0.0, "leader"))
    assert not takeover.waits(0.0)  # answered, if with nothing usable
    np.testing.assert_array_equal(takeover.command(1e6).values, ARM.home[:COUNT])  # no clock but the stamps counts
    takeover.claim("leader", "holding", 0.0)
    assert not takeover.waits(0.005)


def test_who_is_waited_for_in_vain_is_said():
    takeover = Takeover(ARM, timeout=0.5, lockstep=True)
    takeover.claim("leader", "engaged", 0.0)
    takeover.observe(Loop().observation)
    assert takeover.reason(0.4) == ""
    assert takeover.reason(0.6) == "waits for 'leader', which has been silent for more than 0.5 s"
    takeover.claim("leader", "released", 0.6)
    assert takeover.reason(1.0) == ""
    assert takeover.reason(1.2) == "the policy has not answered since 'leader' handed back"
    takeover.hand_back(JointCommand(ARM.joint_names, ARM.home[:COUNT] + AWAY, 0.0, "policy"))
    assert (takeover.mode, takeover.reason(1.2)) == ("hand_back", "")


def test_the_same_observation_again_gets_the_same_answer():
    loop = Loop()
    loop.claim("engaged")
    loop.run(50, ARM.home[:COUNT] + AWAY)
    assert loop.takeover.command(loop.time) is loop.commands[-1]
    loop.claim("released")
    assert loop.takeover.hand_back(JointCommand(ARM.joint_names, loop.policy, loop.time, "policy")) is None


def test_an_action_that_a_recovery_policy_has_forestalled_does_not_count():
    loop = Loop()
    loop.run(3)
    loop.claim("engaged")
    loop.tick(ARM.home[:COUNT] + AWAY)
    loop.takeover.sent(JointCommand(ARM.joint_names, loop.position[:COUNT], loop.time, "recovery:stopped"))
    loop.claim("released")
    for late in (0.0, ARM.period):
        assert loop.takeover.hand_back(JointCommand(ARM.joint_names, loop.policy, loop.time - late, "policy")) is None
    assert loop.takeover.hand_back(JointCommand(ARM.joint_names, loop.policy, loop.time + ARM.period, "policy")) is not None


def test_an_action_of_another_time_does_not_keep_the_hand_back_from_ending():
    loop = Loop()
    loop.claim("engaged")
    loop.run(10, loop.policy)
    loop.claim("released")
    for stamp in (loop.time + 1e6, loop.time - 10.0, float("nan")):
        assert loop.takeover.hand_back(JointCommand(ARM.joint_names, loop.policy, stamp, "policy")) is None
    loop.run(1)
    assert loop.modes[-1] == "policy"


def test_hand_back_before_the_first_observation_lets_the_policy_act_at_once():
    takeover = Takeover(ARM, timeout=0.5)
    takeover.claim("leader", "engaged", 0.0)
    takeover.claim("leader", "released", 0.1)
    action = JointCommand(ARM.joint_names, ARM.home[:COUNT], 5.0, "policy")
    assert takeover.hand_back(action) is action
    assert takeover.mode == "policy"


def test_an_effort_controlled_robot_is_held_by_its_hold_command():
    takeover = Takeover(CARTPOLE, timeout=0.5)
    takeover.claim("scripted", "engaged", 0.0)
    takeover.observe(Observation(0.0, np.array([0.1, 0.2]), np.zeros(2), np.zeros(2)))
    takeover.propose(JointCommand(("slider",), np.array([3.0]), 0.0, "scripted"))
    assert takeover.command(0.0).values == [3.0]
    assert takeover.mode == "teleop"
    takeover.claim("scripted", "holding", 0.01)
    takeover.observe(Observation(0.01, np.array([0.1, 0.2]), np.zeros(2), np.zeros(2)))
    assert takeover.command(0.01).values == [0.0]


def test_the_guard_has_nothing_to_cut_in_a_takeover():
    loop, guard = Loop(), Guard(ARM)
    guard.reset(loop.observation)
    loop.run(1)
    guard.check(loop.commands[-1], loop.observation, loop.time)
    loop.claim("engaged")
    for _ in range(300):
        seen = Observation(round(loop.time + ARM.period, 9), loop.position.copy(), *2 * [np.zeros_like(loop.position)])
        command = loop.tick(ARM.home[:COUNT] + 0.9 * AWAY)
        target, report = guard.check(command, seen, seen.stamp)
        assert report.limited == ()
        np.testing.assert_array_equal(target, command.values)


def test_an_unknown_claim_is_refused():
    with pytest.raises(UserError, match="unknown claim 'engage', did you mean 'engaged'"):
        Takeover(ARM, timeout=0.5).claim("joy", "engage", 0.0)
    with pytest.raises(UserError, match="needs a name"):
        Takeover(ARM, timeout=0.5).claim("", "engaged", 0.0)
