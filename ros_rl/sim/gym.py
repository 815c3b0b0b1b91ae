"""Registers this package's environments with Gymnasium when it is imported.

Every task is ``ros_rl/<Task>-v0``, its name in camel case: ``cartpole_balance`` is ``ros_rl/CartpoleBalance-v0``. Gymnasium 1
looks for no plugins, so this module is imported first, or named: ``gymnasium.make("ros_rl.sim.gym:ros_rl/CartpoleBalance-v0")``.
"""

import gymnasium

from ros_rl.sim.task import suite_names, task_names

NAMESPACE = "ros_rl"
_BENCHMARKS = ("HalfCheetah", "Ant")
_EPISODE_STEPS = 1000  # of a benchmark, as Gymnasium registers its own


def task_id(task: str) -> str:
    """Returns the name under which a task that ships is registered."""
    return f"{NAMESPACE}/{''.join(word.capitalize() for word in task.split('_'))}-v0"


def suite_ids() -> list[str]:
    """Returns the names of the environments of the tabletop suite."""
    return [task_id(task) for task in suite_names()]


def environment_ids() -> list[str]:
    """Returns the names of all environments of this package but those of the suite."""
    return [*map(task_id, task_names()), *(f"{NAMESPACE}/{name}-v0" for name in _BENCHMARKS)]


def _register() -> None:
    for task in [*task_names(), *suite_names()]:
        gymnasium.register(
            task_id(task),
            entry_point="ros_rl.sim.task_env:TaskEnv",
            vector_entry_point="ros_rl.sim.task_env:TaskVectorEnv",
            kwargs={"task": task},
        )
    for name in _BENCHMARKS:
        gymnasium.register(
            f"{NAMESPACE}/{name}-v0",
            entry_point=f"ros_rl.sim.locomotion_env:{name}Env",
            vector_entry_point=f"ros_rl.sim.locomotion_env:{name}VectorEnv",
            max_episode_steps=_EPISODE_STEPS,
        )


_register()
