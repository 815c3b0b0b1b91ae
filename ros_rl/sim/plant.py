"""A simulated robot as a function: states and commands in, the states after one control period out."""

from collections.abc import Callable

import mujoco
import numpy as np

from ros_rl.errors import UserError
from ros_rl.sim.build import SimModel
from ros_rl.sim.coordinates import Coordinates
from ros_rl.sim.reset import reset

# (states (k, n), inputs (k, m)) to the next states (k, n); deviations from the equilibrium, physical units.
Step = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Plant:
    """Steps a simulated robot from any state, without memory; what the coordinates leave out is at home and at rest."""

    def __init__(self, model: SimModel, coordinates: Coordinates, action_equilibrium: np.ndarray):
        """
        Args:
            model: robot and world.
            coordinates: of the states.
            action_equilibrium: command at which the input is zero, shape (m,).

        Raises:
            UserError: the IMU is turned against the base, so that its gyro is none of the base's axes.
        """
        self.coordinates = coordinates
        self.action_equilibrium = np.array(action_equilibrium, dtype=float)
        self._model = model
        self._data = mujoco.MjData(model.mj)
        reset(model, self._data, None, 0)
        self._home = self._data.qpos.copy()
        if model.spec.imu_frame is not None and "base_gyro" in coordinates.reads:
            turned = self._data.body(model.spec.imu_frame).xmat - self._data.xmat[model.base]
            if np.abs(turned).max() > 1e-9:
                raise UserError(f"robot '{model.spec.name}': its IMU is turned against its base; base_gyro needs them aligned")

    def step(self, states: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """Returns the states one control period later, shape (k, n).

        Args:
            states: deviations from the equilibrium, shape (k, n).
            inputs: physical deviations from `action_equilibrium`, shape (k, m); the robot's command limits hold.
        """
        commands = np.clip(self.action_equilibrium + inputs, *self._model.spec.command_limits)
        return np.array([self._step(state, command) for state, command in zip(states, commands, strict=True)])

    def _step(self, state: np.ndarray, command: np.ndarray) -> np.ndarray:
        model, data = self._model, self._data
        data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = self._home, 0.0, 0.0
        self.coordinates.place(model, data, state)
        data.ctrl[model.actuators] = command
        mujoco.mj_step(model.mj, data, model.substeps)
        return self.coordinates.measure(model, data)
