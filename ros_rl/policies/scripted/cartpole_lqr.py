"""Balances a pole on a cart by linear state feedback."""

import numpy as np

from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.observation import ObservationBuilder
from ros_rl.policies.scripted.contents import tensor
from ros_rl.robots.spec import RobotSpec


class CartpoleLqr:
    """u = -K (x - x_home), with K from the discrete algebraic Riccati equation about the upright pole.

    Good where the linearisation is: it catches a leaning pole, it does not swing one up. The force is not clipped
    here; the guard does that.
    """

    def __init__(self, bundle: Bundle, robot: RobotSpec):
        """Reads the tensor ``gain``, shape (n, 2m), for n commanded and m measured joints: positions, then velocities."""
        self.spec = bundle.spec
        self._name = bundle.name
        self._home = robot.home
        self._turns = np.array([joint.kind == "continuous" for joint in robot.joints + robot.passive])
        self._gain = tensor(bundle, "gain", (len(robot.joints), 2 * len(robot.measured_names)))
        self._observations = ObservationBuilder(self.spec)

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode; the controller has neither memory nor randomness."""
        self._observations.reset()

    def act(self, observation: Observation) -> ActionChunk:
        """Returns the force on the cart, N."""
        seen = self._observations.build(observation)
        offset = seen["joint_position"] - self._home
        offset = np.where(self._turns, np.remainder(offset + np.pi, 2 * np.pi) - np.pi, offset)
        force = -self._gain @ np.concatenate([offset, seen["joint_velocity"]])
        return ActionChunk(self.spec.joint_names, force[None], 1.0 / self.spec.rate, observation.stamp, self._name)
