"""The tasks that AutoSafe is measured on: plant, safe prior, goals and the settings of SAC, the same for every method."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from ros_rl.errors import unknown
from ros_rl.learning.sac import SacArgs
from ros_rl.safety.certify import certify, certify_robot
from ros_rl.safety.prior import LmiPrior
from ros_rl.safety.safe_set import SafeSet
from ros_rl.safety.stance import quadruped_prior
from ros_rl.sim.goals import cartpole, glucose, quadrotor, quadruped
from ros_rl.sim.goals.interface import GoalEnvironment

VARIANTS = ("nominal", "rough")  # of plants


@dataclass(frozen=True, eq=False)
class GoalTask:
    """A task at three levels of conflict between its goal and its safe set.

    Attributes:
        name: of the task.
        goals: level to goal, from low to high conflict.
        make_prior: certifies the safe prior.
        environments: of `VARIANTS` those that there are, each from goals (n,) and the prior; all methods train in "nominal".
        args: settings of SAC, for all methods.
        steps: of training.
    """

    name: str
    goals: Mapping[str, float]
    make_prior: Callable[[], LmiPrior]
    environments: Mapping[str, Callable[[np.ndarray, LmiPrior], GoalEnvironment]]
    args: SacArgs
    steps: int


@cache
def glucose_prior() -> LmiPrior:
    """Certifies the insulin pump: 70 to 150 mg/dL."""
    safe = SafeSet(
        state_names=glucose.STATE,
        action_names=("infusion",),
        state_equilibrium=np.array([glucose.BASAL_GLUCOSE, 0.0, glucose.BASAL_INSULIN]),
        action_equilibrium=np.array([glucose.BASAL_RATE]),
        action_range=np.array([glucose.RATE]),
        bounds={"glucose": glucose.BOUNDS},
        scale=glucose.SCALE,
        contraction=0.85,
        period=glucose.PERIOD,
    )
    return certify(safe, glucose.advance)[0]


TASKS = {
    task.name: task
    for task in (
        GoalTask(
            "cartpole",
            cartpole.GOALS,
            lambda: certify_robot("cartpole", cartpole.RATE).prior,
            {
                "nominal": cartpole.CartpoleGoal,
                "rough": lambda goals, prior: cartpole.CartpoleGoal(goals, prior, "cartpole_rough"),
            },
            SacArgs(learning_rate=1e-3, batch=128, hidden=(64, 64)),
            30_000,
        ),
        GoalTask(
            "quadrotor",
            quadrotor.GOALS,
            lambda: certify_robot(quadrotor.ROBOT, quadrotor.RATE).prior,
            {"nominal": quadrotor.QuadrotorGoal},
            SacArgs(batch=128, hidden=(64, 64)),
            60_000,
        ),
        GoalTask(
            "glucose",
            glucose.GOALS,
            glucose_prior,
            {"nominal": glucose.GlucoseGoal},
            SacArgs(batch=128, hidden=(64, 64)),
            30_000,
        ),
        GoalTask(
            "quadruped",
            quadruped.GOALS,
            quadruped_prior,
            {"nominal": quadruped.QuadrupedGoal},
            SacArgs(learning_rate=1e-3, batch=128, hidden=(64, 64), correction=quadruped.CORRECTION),
            100_000,
        ),
    )
}


def task_named(name: str) -> GoalTask:
    """Returns a task.

    Raises:
        UserError: there is none of that name.
    """
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]
