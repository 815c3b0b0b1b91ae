"""A quadruped that is about to fall, many times: episodes begin in states of other robots that were pushed, and are for getting back up.

What is observed is what the robot measures; velocity and height are for reward and judgement only.
"""

import numpy as np
from gymnasium.vector import AutoresetMode

from ros_rl.robots.walking import Catcher, Walk
from ros_rl.sim.vector_env import Judged
from ros_rl.sim.walk_env import NOMINAL, Conditions, WalkVectorEnv, walk

_REST = 0.5  # m/s and rad/s at which the reward for being at rest is 1/e
_SCALE = 0.1  # of the reward, so that returns are of the order of 10
_FALL = 5.0  # what a fall costs beside all that is lost with it, before the scale


def catch() -> Walk:
    """Returns the trot of the robot that is told where to go by the policy itself, and how much may be added to it."""
    walked = walk()
    fastest = np.array([1.5, 1.2, 2.0])
    return Walk(walked.gait, walked.rate, 0.6, 0.0, np.stack([-fastest, fastest]), 20.0 * fastest)


class CatchVectorEnv(WalkVectorEnv):
    """n robots that are about to fall.

    An action is what `Catcher` takes. An episode begins in one of the given states, with friction, load and delay drawn anew.
    Infos hold ``rho`` (1: it has fallen, which terminates) and ``velocity``.
    """

    walker_class = Catcher

    def __init__(
        self,
        walk: Walk,
        states: np.ndarray,
        uneven: np.ndarray,
        region: float,
        num_envs: int = 1,
        conditions: Conditions = NOMINAL,
        max_episode_steps: int = 80,
    ):
        """Builds the copies, with autoreset off.

        Args:
            walk: settings of `Catcher`.
            states: of the simulation, to begin in, (k, nstate).
            uneven: which of them are on uneven ground, (k,).
            region: ρ below which a robot is where it should be.
            num_envs: how many copies.
            conditions: what is drawn for every episode.
            max_episode_steps: actions until an episode is cut off.
        """
        super().__init__(walk, num_envs, conditions, max_episode_steps, AutoresetMode.DISABLED)
        self._states, self._region = (states[~uneven], states[uneven]), region

    def begin(self, copies: np.ndarray, seeds: list[int | None]) -> None:
        """Starts episodes, each in one of the states."""
        del seeds  # of the copies' generators, which the state is drawn with
        chosen = []
        for copy in copies:
            draw, states = self.generator(copy), self._states[int(self.uneven[copy])]
            self._draw(copy, draw)
            chosen.append(states[draw.integers(len(states))])
        self._fit(copies)
        self._elapsed[copies], self._changed[copies] = 0, 0.0
        self.resume(copies, np.stack(chosen))

    def judge(self) -> Judged:
        """Rewards standing in the region, at rest; less for action and torque. A fall terminates."""
        rho, velocity = self.instability(), self.velocity
        at_rest = np.exp(-np.square(velocity).sum(axis=1) / _REST**2)
        reward = (rho < self._region) * (0.5 + at_rest) - rho - _FALL * (rho >= 1.0)
        reward -= 0.02 * np.square(self.walker.action).sum(axis=1) + 0.01 * self._changed
        reward -= 1e-5 * np.square(self.copies.actuator_force).sum(axis=1)
        return _SCALE * reward, rho >= 1.0, self._elapsed >= self._episode_steps, {"rho": rho, "velocity": velocity}
