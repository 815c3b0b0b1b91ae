"""Tasks: which robots do what in which world, how an episode starts, and when it has succeeded or failed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic

from ros_rl import paths
from ros_rl.config import STRICT, Finite, NotNegative, Positive, Vector3, read_yaml
from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.robots.spec import RobotSpec
from ros_rl.sim.quantities import check_name, quantity, simulator_state

TASK_FILES = "sim/tasks/*.yaml"

_QuantityName = Annotated[str, pydantic.AfterValidator(check_name)]


def _ordered(bounds: list[float]) -> list[float]:
    if not bounds[0] <= bounds[1]:
        raise ValueError("must be [lower, upper] with lower not above upper")
    return bounds


_Bounds = Annotated[list[float], pydantic.Field(min_length=2, max_length=2), pydantic.AfterValidator(_ordered)]
_Range = Annotated[list[Finite], pydantic.Field(min_length=2, max_length=2), pydantic.AfterValidator(_ordered)]


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Within:
    """A quantity (see `ros_rl.sim.quantities`) lies within [lower, upper]."""

    quantity: _QuantityName
    bounds: _Bounds


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Inside:
    """An object's centre is at most `radius` from a container's vertical axis and below `height` above its origin, m."""

    object: str
    container: str
    radius: Positive
    height: Positive


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Stacked:
    """An object's centre is `height` above another's, give or take `tolerance` (m), and at most `radius` beside it."""

    object: str
    support: str
    height: Positive
    radius: Positive
    tolerance: Positive = 0.01


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Pressed:
    """A joint of the scene is pushed in by at least `depth`, m."""

    joint: str
    depth: Positive


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class OnCircle:
    """The tool is at most `tolerance` from a circle about `centre` in the plane that `normal` stands on, m, root link's frame."""

    centre: Vector3
    normal: Vector3
    radius: Positive
    tolerance: Positive


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Condition:
    """Exactly one of these."""

    within: Within | None = None
    outside: Within | None = None
    inside: Inside | None = None
    stacked: Stacked | None = None
    pressed: Pressed | None = None
    on_circle: OnCircle | None = None

    def __post_init__(self) -> None:
        kinds = ("within", "outside", "inside", "stacked", "pressed", "on_circle")
        if sum(getattr(self, kind) is not None for kind in kinds) != 1:
            raise ValueError(f"a condition is exactly one of {', '.join(kinds)}")


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Success:
    """All conditions hold for `hold` seconds on end."""

    all: Annotated[list[Condition], pydantic.Field(min_length=1)]
    hold: NotNegative = 0.0


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class RewardTerm:
    """`weight` times a number in [0, 1]: 1 while the quantity is within `bounds`, falling to 0.1 at `margin` beyond them."""

    quantity: _QuantityName
    bounds: _Bounds
    margin: Positive
    weight: Positive


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Reward:
    """Per control step: the sum of `terms`; `success` is added once, when the task is done."""

    success: NotNegative = 1.0
    terms: list[RewardTerm] = field(default_factory=list)


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class PoseRange:
    """Where an object is put: uniform x, y (m, world) and yaw (rad). Its height is the one it has in the scene."""

    x: _Range
    y: _Range
    yaw: _Range = field(default_factory=lambda: [0.0, 0.0])


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class BaseRange:
    """How far a floating base starts from its home: uniform offsets, m and rad (yaw)."""

    x: _Range = field(default_factory=lambda: [0.0, 0.0])
    y: _Range = field(default_factory=lambda: [0.0, 0.0])
    z: _Range = field(default_factory=lambda: [0.0, 0.0])
    yaw: _Range = field(default_factory=lambda: [0.0, 0.0])


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Reset:
    """What the initial state is drawn from.

    Attributes:
        joint_noise: joint name pattern (such as ``joint*``) to the largest offset from home, rad (m). A pattern leaves a
            gripper's joint alone, unless it is that joint's name.
        base: offsets of a floating base.
        objects: where objects of the scene are put; those not named stay where the scene has them.
        min_distance: horizontal distance that objects keep from each other, m.
    """

    joint_noise: dict[str, NotNegative] = field(default_factory=dict)
    base: BaseRange = field(default_factory=BaseRange)
    objects: dict[str, PoseRange] = field(default_factory=dict)
    min_distance: NotNegative = 0.0


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class _RobotEntry:
    """The bundle that does the task on one robot; reset and success replace the task's, where the robot needs its own."""

    policy: str
    reset: Reset | None = None
    success: Success | None = None


def _entry(value: Any) -> Any:
    return {"policy": value} if isinstance(value, str) else value


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class _TaskFile:
    """The contents of a task file."""

    robots: Annotated[dict[str, Annotated[_RobotEntry, pydantic.BeforeValidator(_entry)]], pydantic.Field(min_length=1)]
    scene: str
    instruction: str
    time_limit: Positive
    success: Success
    paraphrases: list[str] = field(default_factory=list)
    command: Vector3 = field(default_factory=lambda: [0.0, 0.0, 0.0])
    reset: Reset = field(default_factory=Reset)
    failure: list[Condition] = field(default_factory=list)
    reward: Reward = field(default_factory=Reward)


@dataclass(frozen=True)
class Task:
    """What one robot is to do. A task file may be for several; for each of them it makes another task.

    Attributes:
        name: the file's name without ``.yaml``.
        path: the file.
        robot: name of the robot.
        robots: names of all robots that the file is for.
        scene: name of the world.
        instruction: what to do, in words; `paraphrases` say the same in other words.
        policy: name of the policy bundle that does it on this robot.
        time_limit: s of robot time after which an episode is truncated.
        command: target velocity (forward m/s, left m/s, turn rad/s).
        failure: the episode ends when any of these holds.
    """

    name: str
    path: Path
    robot: str
    robots: tuple[str, ...]
    scene: str
    instruction: str
    paraphrases: tuple[str, ...]
    policy: str
    time_limit: float
    command: tuple[float, float, float]
    reset: Reset
    success: Success
    failure: tuple[Condition, ...]
    reward: Reward

    def check_robot(self, name: str) -> None:
        """Refuses another robot than the task's.

        Raises:
            UserError: names the file and both robots.
        """
        if name != self.robot:
            raise _not_for(self.path, [self.robot], name)


def _not_for(path: Path, robots: Sequence[str], name: str) -> UserError:
    those = f"robot '{robots[0]}'" if len(robots) == 1 else f"robots {', '.join(sorted(robots))}"
    return UserError(f"{path}: task '{path.stem}' is for the {those}, not for '{name}'")


@dataclass(frozen=True)
class TaskState:
    """How an episode stands after one observation.

    `terminated` means that the task ended (it succeeded or failed), `truncated` that only the time ran out; never both.
    `reason` says in words why the episode ended, else it is empty.
    """

    reward: float
    success: bool
    terminated: bool
    truncated: bool
    reason: str = ""

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


def task_names() -> list[str]:
    """Returns the names of the tasks that ship."""
    return paths.names(TASK_FILES)


def load_task(name: str | Path, robot: str | None = None) -> Task:
    """Reads a task by name, or from a path to its file.

    Args:
        name: of a task that ships, or the path.
        robot: name of the robot that shall do it; None: the first that the file is for.

    Raises:
        UserError: there is no such task, its file is wrong (the message starts with ``file:line``), or it is for other robots.
    """
    path = paths.find("task", TASK_FILES, name)
    file = read_yaml(path, _TaskFile)
    robot = next(iter(file.robots)) if robot is None else robot
    if robot not in file.robots:
        raise _not_for(path, list(file.robots), robot)
    entry = file.robots[robot]
    return Task(
        name=path.stem,
        path=path,
        robot=robot,
        robots=tuple(file.robots),
        scene=file.scene,
        instruction=file.instruction,
        paraphrases=tuple(file.paraphrases),
        policy=entry.policy,
        time_limit=float(file.time_limit),
        command=(file.command[0], file.command[1], file.command[2]),
        reset=entry.reset or file.reset,
        success=entry.success or file.success,
        failure=tuple(file.failure),
        reward=file.reward,
    )


class TaskMonitor:
    """Judges an episode from its observations alone, so that it also runs beside a robot, from topics.

    Conditions on objects and scene joints read `Observation.privileged`, so they need a simulation.
    """

    def __init__(self, task: Task, spec: RobotSpec):
        """Prepares a task's conditions for one robot.

        Raises:
            UserError: the task is another robot's, or speaks of a joint that the robot does not have.
        """
        task.check_robot(spec.name)
        try:
            self._success = [_condition(entry, spec) for entry in task.success.all]
            self._failure = [_condition(entry, spec) for entry in task.failure]
            self._terms = [(quantity(term.quantity, spec), term) for term in task.reward.terms]
        except UserError as error:
            raise UserError(f"{task.path}: {error}") from None
        self.task = task
        self.reset()

    def reset(self) -> None:
        """Starts a new episode: its time runs from the next observation on."""
        self._start: float | None = None
        self._held_since: float | None = None

    def update(self, observation: Observation) -> TaskState:
        """Judges the newest observation; observations come in the order of their stamps.

        Raises:
            UserError: a condition needs simulator state or odometry that the observation does not have.
        """
        now = observation.stamp
        if self._start is None:
            self._start = now
        failure = next((text for holds, text in (check(observation) for check in self._failure) if holds), None)
        success = failure is None and self._succeeded(observation)
        # Half a nanosecond: stamps are whole nanoseconds, so that 5 s are reached at 5 s and not one step later.
        truncated = now - self._start >= self.task.time_limit - 5e-10
        reward = sum(term.weight * tolerance(read(observation), term.bounds, term.margin) for read, term in self._terms)
        reward += self.task.reward.success * success
        terminated = success or failure is not None
        reason = failure or ("success" if success else f"time limit of {self.task.time_limit:g} s" if truncated else "")
        return TaskState(float(reward), success, terminated, truncated and not terminated, reason)

    def _succeeded(self, observation: Observation) -> bool:
        if not all(check(observation)[0] for check in self._success):
            self._held_since = None
            return False
        if self._held_since is None:
            self._held_since = observation.stamp
        return observation.stamp - self._held_since >= self.task.success.hold - 5e-10


def tolerance(value: float, bounds: list[float], margin: float) -> float:
    """Returns 1 within `bounds` and a Gaussian beyond them that is 0.1 at `margin`; the result is in [0, 1].

    The shape is `dm_control.utils.rewards.tolerance` with the sigmoid "gaussian" and value_at_margin 0.1.
    """
    beyond = max(bounds[0] - value, value - bounds[1], 0.0) / margin
    return float(np.exp(np.log(0.1) * beyond * beyond))


_Check = Callable[[Observation], tuple[bool, str]]


def _condition(entry: Condition, spec: RobotSpec) -> _Check:
    """Returns the function that tells whether a condition holds, and describes what it found."""
    if entry.within is not None:
        return _in_bounds(entry.within, spec, wanted=True)
    if entry.outside is not None:
        return _in_bounds(entry.outside, spec, wanted=False)
    if entry.inside is not None:
        return _inside(entry.inside)
    if entry.stacked is not None:
        return _stacked(entry.stacked)
    if entry.pressed is not None:
        return _pressed(entry.pressed)
    assert entry.on_circle is not None  # a condition is exactly one of these
    return _on_circle(entry.on_circle, spec)


def _in_bounds(entry: Within, spec: RobotSpec, wanted: bool) -> _Check:
    read = quantity(entry.quantity, spec)
    lower, upper = entry.bounds

    def check(observation: Observation) -> tuple[bool, str]:
        value = read(observation)
        inside = lower <= value <= upper
        return inside == wanted, f"{entry.quantity} is {value:.3g}, {'within' if inside else 'outside'} {lower:g} to {upper:g}"

    return check


def _inside(entry: Inside) -> _Check:
    def check(observation: Observation) -> tuple[bool, str]:
        offset = simulator_state(observation, entry.object)[:3] - simulator_state(observation, entry.container)[:3]
        holds = np.hypot(offset[0], offset[1]) <= entry.radius and 0.0 <= offset[2] <= entry.height
        return bool(holds), f"{entry.object} is in {entry.container}"

    return check


def _stacked(entry: Stacked) -> _Check:
    def check(observation: Observation) -> tuple[bool, str]:
        offset = simulator_state(observation, entry.object)[:3] - simulator_state(observation, entry.support)[:3]
        holds = np.hypot(offset[0], offset[1]) <= entry.radius and abs(offset[2] - entry.height) <= entry.tolerance
        return bool(holds), f"{entry.object} is on {entry.support}"

    return check


def _pressed(entry: Pressed) -> _Check:
    def check(observation: Observation) -> tuple[bool, str]:
        return bool(simulator_state(observation, entry.joint)[0] >= entry.depth), f"{entry.joint} is pressed"

    return check


def _on_circle(entry: OnCircle, spec: RobotSpec) -> _Check:
    axes = [quantity(f"tool_position.{axis}", spec) for axis in "xyz"]
    centre, normal = np.array(entry.centre), np.array(entry.normal) / np.linalg.norm(entry.normal)

    def check(observation: Observation) -> tuple[bool, str]:
        offset = np.array([read(observation) for read in axes]) - centre
        above = float(offset @ normal)
        error = np.hypot(above, np.linalg.norm(offset - above * normal) - entry.radius)
        return bool(error <= entry.tolerance), f"the tool is {error:.3g} m from the circle"

    return check
