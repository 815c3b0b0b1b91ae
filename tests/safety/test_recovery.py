"""Tests of ros_rl.safety.recovery: when the switch is thrown and when it goes back, and what then acts."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import ActionChunk, JointCommand, Observation
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.policies.bundle import load_bundle, save_bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.robots.spec import load_robot
from ros_rl.safety.interface import NoSafeAction, PassThrough, SafetyFilter, UrgentFilter
from ros_rl.safety.recovery import RecoveryFilter, RecoverySettings, RecoverySwitch, load_recovery
from ros_rl.safety.region import Region
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.task import load_task

SPEC = load_robot("quadruped")
REGION = Region(0.4, 1.0)  # ρ is the tilt in rad
SETTINGS = RecoverySettings(d_exit=0.3, dwell=0.1, stuck_after=0.5, stop_after=0.05)
TASK, STAND = np.full(12, 0.25), np.full(12, 0.5)


def modes(*rhos: float, settings: RecoverySettings = SETTINGS, period: float = 0.01) -> list[str]:
    """What the switch makes of a sequence of ρ, from stamp 0 on."""
    switch = RecoverySwitch(0.4, settings)
    return [switch.update(period * index, rho) for index, rho in enumerate(rhos)]


def test_recovery_begins_in_the_state_in_which_rho_reaches_d():
    assert modes(0.0, 0.39, 0.4) == ["task", "task", "recovery"]
    assert modes(0.4)[0] == modes(1.5)[0] == "recovery"  # in the very first state, too
    assert modes(math.nextafter(0.4, 0.0)) == ["task"]


def test_recovery_ends_below_d_exit_and_not_in_between():
    no_dwell = replace(SETTINGS, dwell=0.0)
    assert modes(0.4, 0.35, 0.3, 0.29, 0.35, 0.39, settings=no_dwell) == ["recovery"] * 3 + ["task"] * 3
    assert modes(0.4, 0.33, 0.31, settings=RecoverySettings(dwell=0.0)) == ["recovery", "recovery", "task"]  # 0.8·d is 0.32


def test_recovery_lasts_for_the_dwell_time_at_least():
    assert modes(0.4, *[0.0] * 10) == ["recovery"] * 10 + ["task"]
    assert modes(0.4, *[0.0] * 8, 0.35, 0.0) == ["recovery"] * 10 + ["task"]


def test_a_robot_that_is_stuck_is_stopped_for_good():
    found = modes(*[0.5] * 51, 0.0, 0.0)
    assert found == ["recovery"] * 50 + ["stopped"] * 3
    # What counts is how long it is since it was calm.
    assert modes(0.4, *[0.0] * 5, *[0.5] * 49, settings=replace(SETTINGS, dwell=0.3)) == ["recovery"] * 55


def test_without_rho_recovery_acts_for_a_while_and_then_nothing_does():
    assert modes(0.0, *[math.nan] * 6, 0.0) == ["task"] + ["recovery"] * 5 + ["stopped"] * 2
    assert modes(math.nan) == ["recovery"]
    # It comes again in time: what was missed counts no more.
    assert modes(0.0, *[math.nan] * 4, 0.35, *[math.nan] * 4) == ["task"] + ["recovery"] * 9
    assert modes(math.inf, 0.0)[0] == "recovery"


def test_without_an_action_recovery_acts_however_long_it_takes():
    switch = RecoverySwitch(0.4, SETTINGS)
    assert [switch.update(0.01 * index, 0.0, action=False) for index in range(200)] == ["recovery"] * 200
    assert switch.reason == "there is no action"
    assert switch.update(2.0, 0.0) == "task"


def test_the_same_state_again_changes_nothing_but_what_its_action_does():
    switch = RecoverySwitch(0.4, SETTINGS)
    assert [switch.update(0.0, 0.1) for _ in range(3)] == ["task"] * 3
    assert switch.update(0.0, 0.1, action=False) == "recovery"
    assert [switch.update(0.0, 0.1) for _ in range(3)] == ["recovery"] * 3
    assert (switch.triggers, switch.time) == (1, 0.0)
    assert switch.update(0.0, math.nan) == switch.update(0.0, math.nan) == "recovery"  # no time has passed


def test_a_clock_that_is_set_back_takes_nothing_from_what_has_lasted():
    switch = RecoverySwitch(0.4, SETTINGS)
    stamps = [5.0 + 0.01 * index for index in range(30)] + [1.0 + 0.01 * index for index in range(40)]
    found = [switch.update(stamp, 0.5) for stamp in stamps]
    assert found == ["recovery"] * 51 + ["stopped"] * 19
    assert switch.update(0.0, 0.1) == "stopped"
    blind = RecoverySwitch(0.4, SETTINGS)
    assert [blind.update(stamp, math.nan) for stamp in (5.0, 5.03, 1.0, 1.01)] == ["recovery"] * 4
    assert blind.update(1.021, math.nan) == "stopped"


def test_a_reset_begins_anew_and_counts_go_on():
    switch = RecoverySwitch(0.4, SETTINGS)
    for index in range(60):
        switch.update(5.0 + 0.01 * index, 1.2)
    assert (switch.mode, switch.triggers, switch.falls, switch.time) == ("stopped", 1, 1, pytest.approx(0.5))
    switch.reset()
    assert switch.update(0.0, 0.1) == "task"
    assert switch.update(0.01, 0.5) == "recovery"
    assert switch.update(0.03, 0.5) == "recovery"
    assert (switch.triggers, switch.falls, switch.time) == (2, 1, pytest.approx(0.52))


class Standing:
    """Commands the same always; says what it was asked."""

    def __init__(self, *keys: ObservationKey, values: np.ndarray = STAND):
        self.spec = PolicySpec("quadruped", SPEC.joint_names, keys, 200.0)
        self.values, self.asked, self.resets = values, [], 0

    def reset(self, seed, instruction):
        self.resets += 1

    def act(self, observation):
        self.asked.append(observation)
        return ActionChunk(SPEC.joint_names, self.values[None], 0.005, observation.stamp, "standing")


def seen(stamp: float, tilt: float | None, joints=SPEC.home) -> Observation:
    quat = None if tilt is None else np.array([np.cos(tilt / 2), np.sin(tilt / 2), 0.0, 0.0])
    return Observation(stamp, joints, np.zeros(12), np.zeros(12), base_quat=quat, command=np.ones(3))


@pytest.fixture
def standing() -> Standing:
    return Standing()


@pytest.fixture
def recovery(standing) -> RecoveryFilter:
    return RecoveryFilter(SPEC, standing, REGION, SETTINGS, "standing")


def test_the_filter_is_one_and_reads_what_it_needs(recovery):
    assert isinstance(recovery, SafetyFilter) and isinstance(recovery, UrgentFilter)
    assert recovery.reads == ("base_quat",)
    keys = ObservationKey("joint_position", (12,)), ObservationKey("command", (3,))
    assert RecoveryFilter(SPEC, Standing(*keys), REGION, SETTINGS).reads == ("base_quat", "joint_position")


def test_inside_the_region_the_action_passes_bit_for_bit(recovery, standing):
    action = np.random.default_rng(0).normal(size=12)
    given, report = recovery.filter(seen(0.0, 0.39), action)
    assert given is action
    assert (report.intervened, report.source, report.warning, report.fault) == (False, "", "", "")
    assert report.values == {"mode": "task", "rho": 0.39, "d": 0.4, "d_exit": 0.3, "triggers": 0, "falls": 0, "recovery_time": 0.0}
    assert not standing.asked


def test_outside_the_recovery_policy_acts_in_the_same_tick_started_anew_and_told_to_stand(recovery, standing):
    stage = SafetyStage(SPEC, recovery)
    for start in (0.0, 1.0):
        command, report = stage.apply(seen(start, 0.1), JointCommand(SPEC.joint_names, TASK, start, "task"))
        assert (command.source, command.values.tolist()) == ("task", TASK.tolist())
        resets = standing.resets
        for tick in (0.005, 0.010):
            command, report = stage.apply(seen(start + tick, 0.41), JointCommand(SPEC.joint_names, TASK, start + tick, "task"))
            assert (command.source, command.stamp, command.values.tolist()) == ("recovery:standing", start + tick, STAND.tolist())
            assert (report.intervened, report.warning, report.instead) == (True, "ρ reached d = 0.4", "")
        assert standing.resets == resets + 1
        assert standing.asked[-1].command.tolist() == [0.0, 0.0, 0.0]
        stage.apply(seen(start + 0.5, 0.1), JointCommand(SPEC.joint_names, TASK, start + 0.5, "task"))


def test_an_answer_is_urgent_where_the_action_does_not_matter(recovery):
    stage = SafetyStage(SPEC, recovery)
    assert [stage.urgent(seen(0.005 * index, tilt)) for index, tilt in enumerate((0.1, 0.5, 0.1))] == [False, True, True]
    assert not stage.urgent(seen(0.2, 0.1))
    assert stage.urgent(seen(0.0, 0.5))  # a new episode
    command, _ = stage.safe(seen(0.0, 0.5), 0.0, "")
    assert command.source == "recovery:standing"
    assert recovery.filter(seen(0.0, 0.5), None)[1].values["triggers"] == 2  # each state counts once


def test_a_policy_that_acts_no_more_does_not_get_the_robot_back(recovery):
    stage = SafetyStage(SPEC, recovery)
    stage.apply(seen(0.0, 0.1), JointCommand(SPEC.joint_names, TASK, 0.0, "task"))
    assert not stage.urgent(seen(0.005, 0.1), acting=False)  # it is waited for
    stage.safe(seen(0.005, 0.1), 0.005, "no action comes")
    stamps = [0.01 + 0.005 * index for index in range(200)]
    assert all(stage.urgent(seen(stamp, 0.1), acting=False) for stamp in stamps)
    _, report = stage.safe(seen(stamps[-1], 0.1), stamps[-1], "no action comes")
    assert report.values["triggers"] == 1
    assert not stage.urgent(seen(1.02, 0.1))


def test_a_robot_that_is_stuck_is_held_where_it_is_until_the_filter_is_reset(recovery):
    for index in range(120):
        joints = SPEC.home + 0.001 * index
        given, report = recovery.filter(seen(0.005 * index, 0.5, joints), TASK)
    assert report.values["mode"] == "stopped"
    assert report.source == "recovery:stopped"
    assert report.fault == "ρ did not come below 0.3 within 0.5 s of recovery"
    np.testing.assert_allclose(given, SPEC.home + 0.1)  # as it was measured after 0.5 s
    recovery.reset()
    given, report = recovery.filter(seen(0.6, 0.1), TASK)
    assert given is TASK and report.values["triggers"] == 1


def stopped(stage: SafetyStage, tilt: float = 0.5) -> float:
    """Has the filter stop a robot that does not come up, and returns the stamp of the last observation."""
    for index in range(120):
        command, report = stage.apply(seen(0.005 * index, tilt), JointCommand(SPEC.joint_names, TASK, 0.005 * index, "task"))
    assert report.fault and command.source == "recovery:stopped"
    return 0.005 * index


def test_an_action_that_answers_an_older_observation_does_not_free_a_robot_that_is_held(recovery):
    stage = SafetyStage(SPEC, recovery)
    last = stopped(stage)
    for source in ("task", "teleop:joy"):
        command, report = stage.apply(seen(last, 0.1), JointCommand(SPEC.joint_names, TASK, last - 0.005, source))
        assert (command.source, bool(report.fault)) == ("recovery:stopped", True)
    command, report = stage.apply(seen(last, 0.1), JointCommand(SPEC.joint_names, np.full(12, np.nan), last - 0.01, "task"))
    assert (command.source, bool(report.fault)) == ("recovery:stopped", True)


def test_time_that_jumps_back_frees_a_simulated_robot_and_not_one_whose_clock_is_set_back(recovery):
    for episodes, source in ((True, "task"), (False, "recovery:stopped")):
        stage = SafetyStage(SPEC, recovery, episodes)
        stage.reset()
        stopped(stage)
        command, _ = stage.apply(seen(0.0, 0.1), JointCommand(SPEC.joint_names, TASK, 0.0, "task"))
        assert command.source == source
        assert stage.urgent(seen(0.005, 0.1)) == (not episodes)


@pytest.mark.parametrize("lost", [None, math.nan])
def test_without_an_attitude_the_recovery_policy_acts_on_the_last_one(lost):
    standing = Standing(ObservationKey("base_quat", (4,)), ObservationKey("base_gyro", (3,)))
    recovery = RecoveryFilter(SPEC, standing, REGION, SETTINGS)
    first = replace(seen(0.0, 0.1), base_gyro=np.array([1.0, 2.0, 3.0]))
    recovery.filter(first, TASK)
    given, report = recovery.filter(seen(0.005, lost), TASK)
    assert (given.tolist(), report.warning) == (STAND.tolist(), "ρ cannot be told")
    np.testing.assert_array_equal(standing.asked[0].base_quat, first.base_quat)
    assert (standing.asked[0].base_gyro.tolist(), standing.asked[0].stamp) == ([1.0, 2.0, 3.0], 0.005)
    assert recovery.filter(seen(0.06, lost), TASK)[1].fault == "ρ could not be told for 0.05 s"


def test_without_news_the_recovery_policy_acts_on_the_last_state(recovery, standing):
    assert recovery.fallback() is None
    recovery.filter(seen(0.0, 0.1), TASK)
    assert [recovery.fallback().tolist() for _ in range(3)] == [STAND.tolist()] * 3
    assert len(standing.asked) == 1
    given, report = recovery.filter(seen(0.3, 0.1), TASK)
    assert given is TASK and report.values["triggers"] == 1


def test_a_recovery_policy_that_cannot_act_leaves_no_safe_action():
    broken = RecoveryFilter(SPEC, Standing(values=np.full(12, np.nan)), REGION, SETTINGS)
    with pytest.raises(NoSafeAction, match=r"the recovery policy cannot act: the command for FL_hip_joint.* is not finite"):
        broken.filter(seen(0.0, 0.5), TASK)
    recovery = load_recovery(SPEC, "quadruped_stand", RecoverySettings())
    with pytest.raises(NoSafeAction, match=r"'joint_position' is not finite"):
        recovery.filter(seen(0.0, 0.0, np.full(12, np.nan)), TASK)
    assert recovery.fallback() is None


def test_the_region_can_be_set_while_it_runs_and_is_never_wider_than_the_bundles(recovery):
    recovery.filter(seen(0.0, 0.35), TASK)
    with pytest.raises(UserError, match=r"d may be at most 0.4"):
        recovery.set(replace(SETTINGS, d=0.5))
    with pytest.raises(UserError, match=r"d_exit must be at most d, 0.2, got 0.3"):
        recovery.set(replace(SETTINGS, d=0.2))
    assert recovery.filter(seen(0.005, 0.35), TASK)[1].values["mode"] == "task"
    recovery.set(replace(SETTINGS, d=0.3, d_exit=0.2))
    values = recovery.filter(seen(0.010, 0.35), TASK)[1].values
    assert (values["mode"], values["d"], values["d_exit"]) == ("recovery", 0.3, 0.2)
    recovery.set(replace(SETTINGS, tilt_limit=0.5))
    assert recovery.filter(seen(0.015, 0.35), TASK)[1].values["rho"] == 0.7


def test_a_region_without_the_poses_about_home_is_refused_and_one_that_lacks_some_is_said():
    low = Region(0.35, 1.0, 0.15, height=0.3)
    assert RecoveryFilter(SPEC, Standing(), low, SETTINGS).remark == ""
    some = RecoveryFilter(SPEC, Standing(), replace(low, d=0.08), RecoverySettings())
    share, mean = some._instability.excluded()
    assert 0.0 < share <= 0.5
    assert some.remark == f"the region ρ < 0.08 excludes {share:.0%} of upright poses about home; mean ρ {mean:.3g}"
    with pytest.raises(UserError, match=r"the region ρ < 0.05 excludes 73% of upright poses about home; mean ρ 0.0657"):
        RecoveryFilter(SPEC, Standing(), replace(low, d=0.05), RecoverySettings())


def test_other_joints_and_bundles_that_say_no_region_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"a recovery policy for other joints: bundle 'arm_circle' commands joint1.*quadruped' has FL_hip"):
        load_recovery(SPEC, "arm_circle", RecoverySettings())
    with pytest.raises(UserError, match=r"bundle 'quadruped_trot' says no region that it recovers from"):
        load_recovery(SPEC, "quadruped_trot", RecoverySettings())
    with pytest.raises(UserError, match=r"name the bundle of the recovery policy with recovery:="):
        load_recovery(SPEC, "", RecoverySettings())
    seeing = load_bundle("quadruped_stand")
    seeing = replace(seeing, spec=replace(seeing.spec, observation=(ObservationKey("privileged.base_pose", (7,)),)))
    with pytest.raises(UserError, match=r"reads privileged.base_pose, which a recovery policy must do without"):
        load_recovery(SPEC, seeing, RecoverySettings())


def test_a_region_is_written_into_a_bundle_and_read_back(tmp_path):
    stand = load_bundle("quadruped_stand")
    assert stand.region == Region(0.2, 1.047, 0.15)
    save_bundle(tmp_path / "mine", replace(stand, region=Region(0.25, 0.9)))
    assert load_bundle(tmp_path / "mine").region == Region(0.25, 0.9)
    path = tmp_path / "mine" / "policy.yaml"
    path.write_text(path.read_text().replace("d: 0.25", "d: 1.2"))
    with pytest.raises(UserError, match=r"policy.yaml: region: d must be between 0 and 1, got 1.2"):
        load_bundle(tmp_path / "mine")


def test_settings_are_read_from_the_parameters_of_the_node():
    names = ("d", "d_exit", "tilt_limit", "drop_limit", "dwell", "stuck_after", "stop_after")
    values = {f"recovery_{name}": 0.01 * index for index, name in enumerate(names)}
    assert RecoverySettings.of(values) == RecoverySettings(*[0.01 * index for index in range(7)])
    assert RecoverySettings.of(values.get) == RecoverySettings.of(values)


def test_the_shipped_stance_keeps_a_robot_up_that_its_policy_would_lay_down():
    task, worst = load_task("quadruped_stand", "quadruped"), []
    robot = GuardedRobot(MujocoRobot(SPEC, task), Guard(SPEC))
    recovery = load_recovery(SPEC, "quadruped_stand", RecoverySettings())
    lying = np.tile([0.0, 1.35, -2.7], 4)
    for stage in (SafetyStage(SPEC, PassThrough()), SafetyStage(SPEC, recovery)):
        robot.reset(0)
        rhos = []
        for _ in range(600):
            observation = robot.read()
            rhos.append(float(recovery._instability(observation)))
            share = min(1.0, observation.stamp)
            wanted = SPEC.home + share * (lying - SPEC.home)
            command, report = stage.apply(observation, JointCommand(SPEC.joint_names, wanted, observation.stamp, "bad"))
            robot.write(command)
            robot.step()
        worst.append(max(rhos))
    robot.close()
    assert worst[0] >= 1.0 > 0.5 > worst[1]
    assert report.values["triggers"] >= 2  # the policy gets the robot back, and goes on as before
