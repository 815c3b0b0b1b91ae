"""An actor for tests that reads a camera: the images that it saw show in its commands."""

import numpy as np

from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.robots.spec import RobotSpec


class ImagePolicy:
    """Commands the home pose, off by a weighted sum of all pixels of the wrist camera."""

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        self.spec = bundle.spec
        self._home = robot.home[: len(robot.joints)]

    def reset(self, seed: int, instruction: str) -> None:
        pass

    def act(self, observation: Observation) -> ActionChunk:
        image = observation.images["wrist"].astype(float)
        offset = (image * np.arange(1, image.size + 1).reshape(image.shape)).sum() / (255.0 * image.size**2)
        return ActionChunk(self.spec.joint_names, (self._home + 0.01 * offset)[None], 1.0 / self.spec.rate, observation.stamp, "image")
