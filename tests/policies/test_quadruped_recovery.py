"""Tests of ros_rl.policies.quadruped_recovery: behind the filter it does what it did in training; what does not fit is refused."""

from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.learning.quadruped_recovery import bundled
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import Bundle, load_bundle
from ros_rl.policies.quadruped_walk import correction_in, walk_in
from ros_rl.policies.runner import PolicyRunner
from ros_rl.robots.spec import load_robot
from ros_rl.robots.walking import Catcher
from ros_rl.safety.recovery import RecoverySettings, load_recovery
from ros_rl.safety.stage import SafetyStage
from ros_rl.sim.catch_env import CatchVectorEnv
from ros_rl.sim.task import load_task
from ros_rl.sim.walk_env import NOMINAL

ROBOT = load_robot("quadruped")
TASK = load_task("quadruped_walk")
PUSHED = 301  # control periods, between two actions of the walk


def drawn() -> Bundle:
    draw = np.random.default_rng(0)
    shapes = {"weight0": (47, 16), "bias0": (16,), "weight1": (16, 15), "bias1": (15,)}
    tensors = {name: (0.1 * draw.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    return bundled(tensors | {"mean": draw.standard_normal(47), "variance": draw.uniform(1.0, 2.0, 47)}, {})


def pushed(recovery: Bundle, push: tuple[float, float, float], periods: int) -> tuple[list[str], np.ndarray, list[np.ndarray]]:
    """Has a robot walk and pushes it; returns the sources of the commands, what was sent, and the states, one for each period."""
    robot = GuardedRobot(MujocoRobot(ROBOT, TASK), Guard(ROBOT))
    runner = PolicyRunner(load_policy("quadruped_walk", ROBOT))
    stage = SafetyStage(ROBOT, load_recovery(ROBOT, recovery, RecoverySettings(dwell=0.5)))
    robot.reset(0)
    sources, sent, states = [], [], []
    for period in range(periods):
        if period == PUSHED:
            robot.robot.push(np.array(push))
        observation = robot.read()
        states.append(robot.robot.snapshot().physics)
        command, _ = stage.apply(observation, runner.command(observation))
        sources.append(command.source)
        sent.append(robot.write(command).values)
        robot.step()
    robot.close()
    return sources, np.array(sent), states


@pytest.mark.parametrize("bundle", [drawn(), load_bundle("quadruped_recovery")], ids=["drawn", "shipped"])
def test_behind_the_filter_it_sends_the_joint_targets_of_training(bundle):
    sources, sent, states = pushed(bundle, (0.0, 1.0, 0.0), PUSHED + 100)
    began = sources.index(f"recovery:{bundle.name}")
    assert began > PUSHED and set(sources[began : began + 60]) == {f"recovery:{bundle.name}"}
    environment = CatchVectorEnv(walk_in(bundle), np.array(states[began : began + 1]), np.zeros(1, bool), bundle.region.d, 1, NOMINAL)
    act, trained = correction_in(bundle, Catcher.actions), []
    command = environment.copies.command
    environment.copies.command = lambda target, copies: (trained.append(target[0].copy()), command(target, copies))
    seen, _ = environment.reset(seed=0)
    for _ in range(15):
        seen, *_ = environment.step(act(seen))
    np.testing.assert_allclose(sent[began : began + 60], trained, atol=1e-9)
    assert np.ptp(trained, axis=0).max() > 0.1, "it moves its legs"


def test_the_shipped_one_catches_a_robot_that_its_stance_does_not():
    tilts = {}
    for name in ("quadruped_recovery", "quadruped_stand"):
        _, _, states = pushed(load_bundle(name), (0.0, 1.0, 0.0), PUSHED + 400)
        x, y = states[-1][5:7]  # time, position, attitude
        tilts[name] = np.arccos(1.0 - 2.0 * (x * x + y * y))
    assert tilts["quadruped_recovery"] < 0.3 < 1.0 < tilts["quadruped_stand"]


def test_it_acts_anew_where_it_is_asked_anew():
    policy, robot = load_policy(drawn(), ROBOT), MujocoRobot(ROBOT, TASK)
    robot.reset(3)
    observation = robot.read()
    first = policy.act(observation).values
    assert np.abs(policy.act(observation).values - first).max() > 1e-3
    policy.reset(1, "")
    np.testing.assert_array_equal(policy.act(observation).values, first)
    assert "command" not in [key.name for key in policy.spec.observation]
    robot.close()


def test_other_joints_or_outputs_are_refused():
    bundle = load_bundle("quadruped_recovery")
    names = (*bundle.spec.joint_names[1:], bundle.spec.joint_names[0])
    other = replace(bundle, spec=replace(bundle.spec, joint_names=names))
    with pytest.raises(UserError, match=r"a recovery policy for other joints: bundle 'quadruped_recovery' commands FL_thigh_joint"):
        load_recovery(ROBOT, other, RecoverySettings())
    with pytest.raises(UserError, match=r"bundle 'quadruped_recovery'"):
        load_policy(bundle, load_robot("arm"))
    network = {name: load_bundle("quadruped_walk").tensors[name] for name in ("weight2", "bias2")}
    with pytest.raises(UserError, match="its network has 12 outputs, needed are 15"):
        load_policy(replace(bundle, tensors=bundle.tensors | network), ROBOT)
