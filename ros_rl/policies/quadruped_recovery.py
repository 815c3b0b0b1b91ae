"""Catches a quadruped that is about to fall: a trot that steps where it is falling to, corrected by a small perceptron."""

from collections.abc import Mapping

import numpy as np

from ros_rl.policies.quadruped_walk import QuadrupedWalk
from ros_rl.robots.walking import Catcher


class QuadrupedRecovery(QuadrupedWalk):
    """Brings a robot back that was pushed, from the state on in which it is first asked: without a command and without standing up first.

    The tensors of its bundle are those of `QuadrupedWalk`, the outputs of the network those that `Catcher` takes.
    """

    walker_class = Catcher

    def _begin(self, seen: Mapping[str, np.ndarray]) -> None:
        self.walker.go_on([0], seen["joint_position"][None], seen["joint_velocity"][None])

    def _rows(self, seen: Mapping[str, np.ndarray]) -> np.ndarray:
        return self._walk_on(seen)
