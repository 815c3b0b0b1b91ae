"""Tests of ros_rl.policies.quadruped_walk: on the robot it does what it did in training, and bundles that do not fit are refused."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.ppo import Ppo
from ros_rl.learning.rollout import Step, run_episode
from ros_rl.learning.walk import PPO, bundled, tensors_of
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import Bundle, load_bundle, save_bundle
from ros_rl.policies.quadruped_walk import correction_in, walk_in
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.robots.walking import Mirror
from ros_rl.safety.interface import PassThrough
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.task import load_task
from ros_rl.sim.walk_env import NOMINAL, WalkVectorEnv, walk

ROBOT = load_robot("quadruped")


def network(seed: int = 0, size: int = 16) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    weights = {"weight0": (47, size), "bias0": (size,), "weight1": (size, 12), "bias1": (12,)}
    found = {name: (0.3 * draw.standard_normal(shape)).astype(np.float32) for name, shape in weights.items()}
    return found | {"mean": draw.standard_normal(47), "variance": draw.uniform(1.0, 2.0, 47)}


def bundle_of(seed: int = 0) -> Bundle:
    return bundled(network(seed), {})


def episode(bundle: Bundle, seed: int, ticks: int) -> list[Step]:
    robot = GuardedRobot(MujocoRobot(ROBOT, load_task("quadruped_walk")), Guard(ROBOT))
    steps: list[Step] = []
    run_episode(robot, PolicyRunner(load_policy(bundle, ROBOT)), SafetyStage(ROBOT, PassThrough()), seed, ticks, None, steps.append)
    return steps


@pytest.mark.parametrize("bundle", [bundle_of(), load_bundle("quadruped_walk")], ids=["drawn", "shipped"])
def test_on_the_robot_it_sends_the_joint_targets_of_training(bundle):
    settling = round(walk().settle * ROBOT.control_rate)
    steps = episode(bundle, 7, settling + 200)
    environment, act = WalkVectorEnv(walk_in(bundle), 1, replace(NOMINAL, spread=False)), correction_in(bundle)
    environment.tell(load_task("quadruped_walk").command)
    sent: list[np.ndarray] = []
    command = environment.copies.command
    environment.copies.command = lambda target, copies: (sent.append(target[0].copy()), command(target, copies))
    seen, _ = environment.reset(seed=7)
    for _ in range(50):
        seen, *_ = environment.step(act(seen))
    np.testing.assert_allclose([step.sent.values for step in steps], sent, atol=1e-9)
    pose = steps[-1].observation.privileged["base_pose"]
    assert pose[2] > 0.2 and np.abs(sent[settling + 1] - sent[-1]).max() > 0.05, "it stands, and moves its legs"


def test_it_acts_as_the_learner_does():
    learner = Ppo(replace(PPO, copies=2, rollout=8, batch=8), WalkVectorEnv(walk(), 2), 3, seed=0)
    learner.iterate()
    bundle = bundled(tensors_of(learner), {})
    act = correction_in(replace(bundle, parameters=bundle.parameters | {"symmetric": False}))
    seen = np.random.default_rng(0).standard_normal((20, 47)) * 3
    np.testing.assert_allclose(act(seen), learner.policy(seen), atol=1e-5)
    assert np.abs(act(seen)).max() > 1e-4


def test_a_symmetric_one_does_in_the_mirror_what_it_does():
    bundle, mirror = bundle_of(), Mirror(ROBOT.joint_names)
    act, plain = correction_in(bundle), correction_in(replace(bundle, parameters=bundle.parameters | {"symmetric": False}))
    seen = np.random.default_rng(0).standard_normal((20, 47))
    np.testing.assert_array_equal(act(mirror.observation(seen)), mirror.action(act(seen)))
    np.testing.assert_allclose(act(seen), 0.5 * (plain(seen) + mirror.action(plain(mirror.observation(seen)))))
    assert np.abs(act(seen) - plain(seen)).max() > 0.1


@pytest.mark.parametrize(("name", "row", "value"), [("phase", 1, 0.4), ("stance", (0, 1), 0.15)])
def test_a_trot_that_has_no_mirror_image_cannot_be_made_symmetric(name, row, value):
    bundle = bundle_of()
    changed = bundle.tensors[name].copy()
    changed[row] = value
    with pytest.raises(UserError, match="symmetric needs a stance that is, and legs that step half a stride after those opposite"):
        load_policy(replace(bundle, tensors=bundle.tensors | {name: changed}), ROBOT)


def test_a_bundle_holds_the_walk_it_was_made_with(tmp_path):
    save_bundle(tmp_path / "walk", bundle_of())
    found, made = walk_in(load_bundle(tmp_path / "walk")), walk()
    assert (found.rate, found.correction, found.settle) == (made.rate, made.correction, made.settle)
    assert (found.gait.frequency, found.gait.duty, found.gait.lift) == (made.gait.frequency, made.gait.duty, made.gait.lift)
    np.testing.assert_array_equal(found.gait.stance, made.gait.stance)
    np.testing.assert_array_equal(found.velocity_limit, made.velocity_limit)


def test_a_second_episode_is_as_the_first():
    runner = PolicyRunner(load_policy(bundle_of(), ROBOT))
    robot = GuardedRobot(MujocoRobot(ROBOT, load_task("quadruped_walk")), Guard(ROBOT))
    sent = []
    for _ in range(2):
        steps: list[Step] = []
        run_episode(robot, runner, SafetyStage(ROBOT, PassThrough()), 3, 150, None, steps.append)
        sent.append([step.sent.values for step in steps])
    np.testing.assert_array_equal(*sent)


@pytest.mark.parametrize(("silence", "anew"), [(0.4, False), (0.6, True)])
def test_after_a_long_silence_it_begins_anew_from_the_posture_it_finds(silence, anew):
    observations = [step.observation for step in episode(bundle_of(), 0, 240)][::4]
    policy, fresh = (load_policy(bundle_of(), ROBOT) for _ in range(2))
    for observation in observations:
        policy.act(observation)
    assert policy.walker.velocity[0, 0] > 0.4
    first, last = observations[-40].stamp, observations[-1].stamp
    later = [replace(seen, stamp=seen.stamp - first + last + silence, command=np.zeros(3)) for seen in observations[-40:]]
    chunks = [(policy.act(seen).values, fresh.act(seen).values) for seen in later]
    assert np.array_equal(*chunks[0]) == np.array_equal(*chunks[30]) == anew
    assert np.array_equal(chunks[0][0][0], later[0].joint_position) == anew


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight0": None}, "no tensor 'weight0'"),
        ({"bias1": np.zeros(11, np.float32)}, r"'bias1' has shape \(11,\), needed is \(12,\)"),
        ({"weight1": np.zeros((15, 12), np.float32)}, r"'weight1' has shape \(15, 12\), needed is \(16, 12\)"),
        ({"weight1": np.zeros((16, 3), np.float32), "bias1": np.zeros(3, np.float32)}, "3 outputs, needed are 12"),
        ({"variance": np.full(47, np.nan)}, "'variance' is not finite"),
        ({"velocity_limit": -walk().velocity_limit}, "velocity_limit must go from below to above zero, acceleration_limit be above it"),
        ({"acceleration_limit": np.array([1.0, 1.0, 0.0])}, "acceleration_limit be above it"),
    ],
)
def test_an_incomplete_bundle_is_refused(change, message):
    bundle = bundle_of()
    tensors = {name: value for name, value in (bundle.tensors | change).items() if value is not None}
    with pytest.raises(UserError, match=message):
        load_policy(replace(bundle, tensors=tensors), ROBOT)


def test_a_bundle_for_another_rate_is_refused():
    bundle = bundle_of()
    odd = replace(bundle, parameters=bundle.parameters | {"rate": 60.0}, spec=replace(bundle.spec, chunk=3))
    with pytest.raises(UserError, match="rate of 60 Hz does not divide that of its joint targets, 200 Hz"):
        load_policy(odd, ROBOT)
    with pytest.raises(UserError, match="100 Hz in chunks of 4, needed is 200 Hz in chunks of 4"):
        load_policy(replace(bundle, spec=replace(bundle.spec, rate=100.0)), ROBOT)
