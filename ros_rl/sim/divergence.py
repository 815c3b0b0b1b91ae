"""Finds a simulation that has blown up, so that it is reported and never goes on as if nothing had happened."""

import mujoco
import numpy as np

HIGHEST_SPEED = 1e3  # m/s or rad/s: far above what any robot reaches, far below where numbers overflow


def wild(qvel: np.ndarray, qacc: np.ndarray) -> np.ndarray:
    """Returns which degrees of freedom move absurdly fast or not by a finite number, shape (..., nv)."""
    return ~(np.abs(qvel) < HIGHEST_SPEED) | ~np.isfinite(qacc)  # written so that NaN counts as wild


def describe(model: mujoco.MjModel, qvel: np.ndarray, qacc: np.ndarray, warnings: np.ndarray) -> str | None:
    """Returns what is wrong with one simulation's state, naming a body, or None if nothing is.

    Args:
        model: the model.
        qvel: velocities, shape (nv,).
        qacc: accelerations, shape (nv,).
        warnings: for each kind of MuJoCo warning what it was last about and how often it came, shape (kinds, 2).
    """
    dofs = np.flatnonzero(wild(qvel, qacc))
    if dofs.size:
        return f"body '{_body_of(model, dofs[0])}' moves at {qvel[dofs[0]]:.3g}, accelerates at {qacc[dofs[0]]:.3g}"
    kinds = np.flatnonzero(warnings[:, 1])
    if not kinds.size:
        return None
    kind, about = int(kinds[0]), int(warnings[kinds[0], 0])
    by_dof = (mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)
    body = f" (body '{_body_of(model, about)}')" if kind in by_dof else ""
    return mujoco.mju_warningText(kind, about) + body


def _body_of(model: mujoco.MjModel, dof: int) -> str:
    return model.body(int(model.dof_bodyid[dof])).name
