"""A tiny world and tiny token policies for it, for tests: an arm on a floor, a camera of 32 pixels, episodes of 0.6 s."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ros_rl.policies.action_tokens import Ranges, WaypointCode
from ros_rl.policies.embedded_vla import EmbeddedConfig
from ros_rl.policies.vla import Parameters, VlaModel, spec_for
from ros_rl.policies.vla_backbone import BackboneConfig
from ros_rl.robots.spec import load_robot
from ros_rl.sim.task import Task, load_task

SCENE = """<mujoco>
  <worldbody>
    <light pos="0 0 2"/>
    <geom type="plane" size="2 2 0.1" rgba="0.5 0.6 0.5 1"/>
    <camera name="small" pos="1.2 0 0.9" xyaxes="0 1 0 -0.6 0 0.8" resolution="32 32"/>
    <frame name="robot"/>
    <body name="ball" pos="0.6 0 0.05"><freejoint/><geom size="0.05" rgba="1 0 0 1"/></body>
  </worldbody>
</mujoco>
"""
TASK = """robots: {arm: arm_circle}
scene: SCENE
instruction: turn to the left
paraphrases: [swing left]
time_limit: 0.6
reset:
  joint_noise: {"joint*": 0.02}
  objects: {ball: {x: [0.5, 0.7], y: [-0.2, 0.2]}}
success:
  all: [{within: {quantity: joint_position.joint1, bounds: [0.12, .inf]}}]
"""
TICKS, PERIOD = 2, 0.1


def make_task(folder: Path) -> Task:
    """Writes scene and task: the first joint has to turn."""
    (folder / "scene.xml").write_text(SCENE)
    (folder / "turn.yaml").write_text(TASK.replace("SCENE", str(folder / "scene.xml")))
    return load_task(folder / "turn.yaml")


def make_model(decoding: str = "parallel", backbone: Path | None = None, temperature: float = 0.0, seed: int = 0) -> VlaModel:
    """Makes a policy with random weights, of the small network or of a backbone's folder."""
    robot = load_robot("arm")
    torch.manual_seed(seed)
    if backbone is None:
        network = {"embedded": EmbeddedConfig([32, 32], "words", ["left", "turn"], decoding, 32, 2, 2)}
    else:
        network = {"backbone": BackboneConfig(str(backbone), [32, 32], 2, decoding)}
    settings = Parameters(TICKS, PERIOD, list(robot.joint_names[:-1]), temperature, **network)
    joints = len(robot.joints)
    state = Ranges(robot.measured_names, np.full(len(robot.measured_names), -3.0), np.full(len(robot.measured_names), 3.0))
    action = Ranges(robot.joint_names, np.full(joints, -0.1), np.full(joints, 0.1))
    return VlaModel.new(spec_for(robot, {"small": (32, 32)}, TICKS, PERIOD), settings, state, action)


def turning(model: VlaModel, angle: float) -> VlaModel:
    """Returns a model that turns the first joint by `angle` (rad) in each chunk, whatever its network says; other joints hardly move."""
    lower = np.full(len(model.spec.joint_names), -1e-4)
    upper = -lower
    lower[0], upper[0] = angle - 1e-4, angle + 1e-4
    return replace(model, code=WaypointCode(Ranges(model.spec.joint_names, lower, upper), model.code.relative, model.code.ticks))
