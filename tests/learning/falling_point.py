"""A point on a line that costs nothing to step: it falls where |x| reaches 1, and its reward draws it towards a goal."""

import json

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode


class FallingPoint:
    """n points; an action moves x by up to `reach`. The reward is 1 - (x - goal)²; ρ = |x|."""

    def __init__(self, copies=2, limit=20, reach=0.2, goal=0.5, spread=0.3):
        self.num_envs, self.limit, self.reach, self.goal, self.spread = copies, limit, reach, goal, spread
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = Box(-np.inf, np.inf, (2,)), Box(-1.0, 1.0, (1,), np.float32)
        self.x, self.elapsed = np.zeros(copies), np.zeros(copies, int)
        self.draws = [np.random.default_rng() for _ in range(copies)]

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.draws = [np.random.default_rng(number) for number in seed]
        for copy in np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool))):
            self.x[copy], self.elapsed[copy] = self.draws[copy].uniform(-self.spread, self.spread), 0
        return self.seen(), self.info()

    def step(self, actions):
        assert actions.shape == (self.num_envs, 1) and (np.abs(actions) <= 1.0).all()
        self.x = self.x + self.reach * actions[:, 0]
        self.elapsed += 1
        return self.seen(), 1.0 - (self.x - self.goal) ** 2, np.abs(self.x) >= 1.0, self.elapsed >= self.limit, self.info()

    def seen(self):
        return np.stack([self.x, np.full(self.num_envs, self.goal)], axis=1)

    def info(self):
        return {"rho": np.abs(self.x)}

    def state(self):
        draws = np.frombuffer(json.dumps([draw.bit_generator.state for draw in self.draws]).encode(), np.uint8)
        return {"x": self.x.copy(), "elapsed": self.elapsed.copy(), "draws": draws}

    def restore(self, state):
        self.x, self.elapsed = state["x"].copy(), state["elapsed"].copy()
        for draw, known in zip(self.draws, json.loads(state["draws"].tobytes()), strict=True):
            draw.bit_generator.state = known
