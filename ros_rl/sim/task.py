"""Tasks: which robots do what in which world, how an episode starts, and when it has succeeded or failed."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic

from ros_rl import paths
from ros_rl.config import STRICT, Finite, NotNegative, Positive, Vector3, read_yaml
from ros_rl.errors import UserError, unknown
from ros_rl.hardware.interface import Observation
from ros_rl.robots.spec import RobotSpec
from ros_rl.sim.plan import Skill
from ros_rl.sim.quantities import Quantity, check_name, quantity, simulator_state, tool_position

SCENE_FILES = "sim/scenes/*.xml"
TASK_FILES = "sim/tasks/*.yaml"
SUITE_FILES = "sim/tabletop/*.yaml"

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

_QuantityName = Annotated[str, pydantic.AfterValidator(check_name)]


def _ordered(bounds: list[float]) -> list[float]:
    if not bounds[0] <= bounds[1]:
        raise ValueError("must be [lower, upper] with lower not above upper")
    return bounds


_Names = str | Annotated[list[str], pydantic.Field(min_length=1)]  # of one, or of any of several
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
    """An object's centre is `height` above another's, or any of several's, give or take `tolerance` (m), and at most `radius` beside it."""

    object: str
    support: _Names
    height: Positive
    radius: Positive
    tolerance: Positive = 0.01


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Placed:
    """The centre of an object, or of any of several, is in a box: between `lower` and `upper`, m, each with x, y and z.

    They are counted from another object's origin (`of`), along the world's axes or along that object's own (`turned`); without
    `of` from the world's origin.
    """

    object: _Names
    lower: Vector3
    upper: Vector3
    of: str | None = None
    turned: bool = False


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Pressed:
    """A joint of the scene, or any of several, is pushed in by at least `depth`, m."""

    joint: _Names
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
    placed: Placed | None = None
    pressed: Pressed | None = None
    on_circle: OnCircle | None = None

    def __post_init__(self) -> None:
        kinds = ("within", "outside", "inside", "stacked", "placed", "pressed", "on_circle")
        if sum(getattr(self, kind) is not None for kind in kinds) != 1:
            raise ValueError(f"a condition is exactly one of {', '.join(kinds)}")


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Stage:
    """All conditions hold for `hold` seconds on end. While it is awaited, the episode fails when any of `failure` holds."""

    all: Annotated[list[Condition], pydantic.Field(min_length=1)]
    hold: NotNegative = 0.0
    failure: list[Condition] = field(default_factory=list)


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Success(Stage):
    """All conditions hold for `hold` seconds on end, once the stages in `after` have come to pass one after the other."""

    after: list[Stage] = field(default_factory=list)


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
class Clear:
    """No other object is put within `radius` (m) of the place `offset` (x, y; m, along the world's axes) from an object."""

    object: str
    offset: Annotated[list[Finite], pydantic.Field(min_length=2, max_length=2)]
    radius: Positive


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Reset:
    """What the initial state is drawn from. Objects are drawn again and again until no two are too near, nor any in a clear place.

    Attributes:
        joint_noise: joint name pattern (such as ``joint*``) to the largest offset from home, rad (m). A pattern leaves a
            gripper's joint alone, unless it is that joint's name.
        base: offsets of a floating base.
        objects: where objects of the scene are put; those not named stay where the scene has them.
        min_distance: horizontal distance that objects keep from each other, m.
        scene_joints: ranges of joints of the scene, rad (m); those not named are where the scene has them.
        clear: places that are kept clear.
    """

    joint_noise: dict[str, NotNegative] = field(default_factory=dict)
    base: BaseRange = field(default_factory=BaseRange)
    objects: dict[str, PoseRange] = field(default_factory=dict)
    min_distance: NotNegative = 0.0
    scene_joints: dict[str, _Range] = field(default_factory=dict)
    clear: list[Clear] = field(default_factory=list)


@pydantic.dataclasses.dataclass(config=STRICT, frozen=True)
class Unseen:
    """What training leaves out, so that a policy can be judged on it.

    Attributes:
        variants: variants of the task.
        paraphrases: wordings.
        objects: ranges of objects, in place of those in the reset.
    """

    variants: list[str] = field(default_factory=list)
    paraphrases: list[str] = field(default_factory=list)
    objects: dict[str, PoseRange] = field(default_factory=dict)


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
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    unseen: Unseen = field(default_factory=Unseen)
    long_horizon: bool = False
    plan: list[Skill] = field(default_factory=list)


@dataclass(frozen=True)
class Task:
    """What one robot is to do. A task file may be for several robots and in several variants; each of them is another task.

    Attributes:
        name: the file's name without ``.yaml``, with ``:variant`` where it has variants.
        path: the file, with ``:variant`` where it has variants: `load_task` loads the task from it.
        robot: name of the robot.
        robots: names of all robots that the file is for.
        scene: name of the world.
        instruction: what to do, in words; `paraphrases` say the same in other words.
        policy: name of the policy bundle that does it on this robot.
        time_limit: s of robot time after which an episode is truncated.
        command: target velocity (forward m/s, left m/s, turn rad/s).
        failure: the episode ends when any of these holds, as it does by those of the stage of success that is awaited.
        variants: names of all variants of the file.
        unseen: what training leaves out.
        long_horizon: whether it is a chain of tasks, which training leaves out.
        plan: what a scripted expert does, one after the other.
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
    variants: tuple[str, ...] = ()
    unseen: Unseen = field(default_factory=Unseen)
    long_horizon: bool = False
    plan: tuple[Skill, ...] = ()

    def check_robot(self, name: str) -> None:
        """Refuses another robot than the one that the task was loaded for.

        Raises:
            UserError: names the file and both robots.
        """
        if name == self.robot:
            return
        if name in self.robots:
            mend = f"load_task(..., '{name}') loads it for that one"
            raise UserError(f"{self.path}: task was loaded for robot '{self.robot}', not for '{name}'; {mend}")
        raise _not_for(self.path, self.robots, name)


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
    """Returns the names of the tasks that ship, without those of the tabletop suite."""
    return paths.names(TASK_FILES)


def suite_names() -> list[str]:
    """Returns the names of the tasks of the tabletop suite, without their variants."""
    return paths.names(SUITE_FILES)


def load_task(name: str | Path, robot: str | None = None) -> Task:
    """Reads a task by name, or from a path to its file.

    Args:
        name: of a task that ships, or the path, with ``:variant`` where it has several; the first variant by default.
        robot: name of the robot that shall do it; None: the first that the file is for.

    Raises:
        UserError: there is no such task, its file is wrong (the message starts with ``file:line``), or it is for other robots.
    """
    path, wanted = _find(name)
    variant = ""

    def fill(values: dict[str, Any]) -> dict[str, Any]:
        nonlocal variant
        variant, filled = _of_variant(path, values, wanted)
        return filled

    file = read_yaml(path, _TaskFile, fill)
    robot = next(iter(file.robots)) if robot is None else robot
    if robot not in file.robots:
        raise _not_for(path, list(file.robots), robot)
    entry = file.robots[robot]
    return Task(
        name=path.stem + variant,
        path=path.with_name(path.name + variant),
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
        variants=tuple(file.variants),
        unseen=file.unseen,
        long_horizon=file.long_horizon,
        plan=tuple(file.plan),
    )


def _find(name: str | Path) -> tuple[Path, str]:
    """Returns the file and the variant, "" where none is named."""
    text, variant = str(name), ""
    if ":" in text and not Path(text).is_file():  # a path may have a colon of its own
        text, _, variant = text.rpartition(":")
    pattern = SUITE_FILES if text in suite_names() else TASK_FILES
    return paths.find("task", pattern, text), variant


def _of_variant(path: Path, values: dict[str, Any], wanted: str) -> tuple[str, dict[str, Any]]:
    """Returns ``:variant``, or "" where the file has none, and the file's values with the words of the variant in place."""
    variants = values.get("variants") or {}
    if wanted and wanted not in variants:
        raise unknown(f"variant of '{path.stem}'", wanted, variants)
    if not isinstance(variants, dict) or not variants:
        return "", values
    name = wanted or next(iter(variants))
    words = variants[name] if isinstance(variants[name], dict) else {}

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            return {put(key): put(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [put(entry) for entry in value]
        if not isinstance(value, str):
            return value
        alone = _PLACEHOLDER.fullmatch(value)
        return word(alone) if alone else _PLACEHOLDER.sub(lambda match: str(word(match)), value)

    def word(match: re.Match[str]) -> Any:
        if match[1] not in words:
            raise UserError(f"{path}: variant '{name}' has no '{match[1]}', which the file speaks of")
        return words[match[1]]

    return f":{name}", {key: entry if key == "variants" else put(entry) for key, entry in values.items()}


@dataclass(frozen=True, eq=False)
class Judgement:
    """What `TaskState` says of one episode, for many: arrays with an entry for each."""

    reward: np.ndarray
    success: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @property
    def done(self) -> np.ndarray:
        """Which episodes are over."""
        return self.terminated | self.truncated


class BatchMonitor:
    """Judges many episodes at once, from observations whose arrays have the episodes along their leading axes."""

    def __init__(self, task: Task, spec: RobotSpec, shape: tuple[int, ...]):
        """Prepares a task's conditions for one robot.

        Args:
            task: what is judged.
            spec: the robot.
            shape: the leading axes of the observations; () for a single episode.

        Raises:
            UserError: the task is made for another robot, or speaks of a joint that the robot does not have.
        """
        task.check_robot(spec.name)
        try:
            read = _reader(spec)
            stages = [*task.success.after, task.success]
            self._stages = [([_condition(entry, spec, read) for entry in stage.all], stage.hold) for stage in stages]
            self._failure = [[_condition(entry, spec, read) for entry in [*task.failure, *stage.failure]] for stage in stages]
            self._terms = [(read(term.quantity), term) for term in task.reward.terms]
        except UserError as error:
            raise UserError(f"{task.path}: {error}") from None
        self.task = task
        self._start = np.full(shape, np.nan)
        self._held_since = np.full(shape, np.nan)
        self._stage = np.zeros(shape, dtype=int)

    def reset(self, episodes: Any = ...) -> None:
        """Starts new episodes: their time runs from the next observation on. `episodes` is any index; all by default."""
        self._start[episodes] = np.nan
        self._held_since[episodes] = np.nan
        self._stage[episodes] = 0

    def update(self, observation: Observation) -> Judgement:
        """Judges the newest observations; those of an episode come in the order of their stamps.

        Raises:
            UserError: a condition needs simulator state or odometry that the observation does not have.
        """
        now = np.asarray(observation.stamp)
        self._start = np.where(np.isnan(self._start), now, self._start)
        failed = np.zeros(now.shape, dtype=bool)
        for number, conditions in enumerate(self._failure):
            there = self._stage == number
            for condition in conditions if there.any() else ():
                failed = failed | (there & condition.holds(observation))
        success = self._succeeded(observation, now, ~failed)
        # Half a nanosecond: stamps are whole nanoseconds, so that 5 s are reached at 5 s and not one step later.
        late = now - self._start >= self.task.time_limit - 5e-10
        reward = np.zeros(now.shape)
        for read, term in self._terms:
            reward = reward + term.weight * tolerance(read(observation), term.bounds, term.margin)
        terminated = success | failed
        return Judgement(reward + self.task.reward.success * success, success, terminated, late & ~terminated)

    def reason(self, observation: Observation, judgement: Judgement, episode: Any = ()) -> str:
        """Says in words why an episode, named by its index, ended; empty if it did not."""
        if judgement.success[episode]:
            return "success"
        if judgement.terminated[episode]:
            awaited = self._failure[self._stage[episode]]
            return next(check.describe(observation, episode) for check in awaited if check.holds(observation)[episode])
        return f"time limit of {self.task.time_limit:g} s" if judgement.truncated[episode] else ""

    def _succeeded(self, observation: Observation, now: np.ndarray, going_on: np.ndarray) -> np.ndarray:
        """Returns which of the episodes that go on have come through their last stage; each goes on by at most one stage at a time."""
        passed = np.zeros(now.shape, dtype=bool)
        for number, (conditions, hold) in enumerate(self._stages):
            there = (self._stage == number) & ~passed & going_on
            if not there.any():
                continue
            holds = there.copy()
            for condition in conditions:
                holds = holds & condition.holds(observation)
            since = np.where(np.isnan(self._held_since), now, self._held_since)
            self._held_since = np.where(there, np.where(holds, since, np.nan), self._held_since)
            passed = passed | (holds & (now - since >= hold - 5e-10))
        last = self._stage == len(self._stages) - 1
        onwards = passed & ~last
        self._stage = np.where(onwards, self._stage + 1, self._stage)
        self._held_since = np.where(onwards, np.nan, self._held_since)
        return passed & last


class TaskMonitor:
    """Judges an episode from its observations alone, so that it also runs beside a robot, from topics.

    Conditions on objects and scene joints read `Observation.privileged`, so they need a simulation.
    """

    def __init__(self, task: Task, spec: RobotSpec):
        """Prepares a task's conditions for one robot.

        Raises:
            UserError: the task is another robot's, or speaks of a joint that the robot does not have.
        """
        self._monitor = BatchMonitor(task, spec, ())
        self.task = task

    def reset(self) -> None:
        """Starts a new episode: its time runs from the next observation on."""
        self._monitor.reset()

    def update(self, observation: Observation) -> TaskState:
        """Judges the newest observation; observations come in the order of their stamps.

        Raises:
            UserError: a condition needs simulator state or odometry that the observation does not have.
        """
        now = self._monitor.update(observation)
        reason = self._monitor.reason(observation, now)
        return TaskState(float(now.reward), bool(now.success), bool(now.terminated), bool(now.truncated), reason)


def tolerance(value: np.ndarray | float, bounds: list[float], margin: float) -> np.ndarray:
    """Returns 1 within `bounds` and a Gaussian beyond them that is 0.1 at `margin`; the result is in [0, 1].

    The shape is `dm_control.utils.rewards.tolerance` with the sigmoid "gaussian" and value_at_margin 0.1.
    """
    beyond = np.maximum(np.maximum(bounds[0] - value, value - bounds[1]), 0.0) / margin
    return np.exp(np.log(0.1) * beyond * beyond)


@dataclass(frozen=True)
class _Check:
    """Tells for which episodes a condition holds, and describes what it found in one of them, named by its index."""

    holds: Callable[[Observation], np.ndarray]
    describe: Callable[[Observation, Any], str]


def _reader(spec: RobotSpec) -> Callable[[str], Quantity]:
    """Returns the function that gives a robot's quantities by name, each worked out once for an observation, by whomever it is asked."""

    @cache
    def remembered(name: str) -> Quantity:
        return lru_cache(maxsize=1)(quantity(name, spec))

    return remembered


def _condition(entry: Condition, spec: RobotSpec, read: Callable[[str], Quantity]) -> _Check:
    """Returns the check of a condition."""
    if entry.within is not None:
        return _in_bounds(entry.within, read(entry.within.quantity), wanted=True)
    if entry.outside is not None:
        return _in_bounds(entry.outside, read(entry.outside.quantity), wanted=False)
    if entry.inside is not None:
        return _inside(entry.inside)
    if entry.stacked is not None:
        return _stacked(entry.stacked)
    if entry.placed is not None:
        return _placed(entry.placed)
    if entry.pressed is not None:
        return _pressed(entry.pressed)
    assert entry.on_circle is not None  # a condition is exactly one of these
    return _on_circle(entry.on_circle, spec)


def _in_bounds(entry: Within, read: Quantity, wanted: bool) -> _Check:
    lower, upper = entry.bounds

    def inside(observation: Observation) -> np.ndarray:
        value = read(observation)
        return (lower <= value) & (value <= upper)

    def describe(observation: Observation, episode: Any) -> str:
        where = "within" if inside(observation)[episode] else "outside"
        return f"{entry.quantity} is {read(observation)[episode]:.3g}, {where} {lower:g} to {upper:g}"

    return _Check(lambda observation: inside(observation) == wanted, describe)


def _offset(observation: Observation, one: str, other: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns how far one object is from another's vertical axis and how far above its origin, m."""
    offset = simulator_state(observation, one)[..., :3] - simulator_state(observation, other)[..., :3]
    return np.hypot(offset[..., 0], offset[..., 1]), offset[..., 2]


def _inside(entry: Inside) -> _Check:
    def holds(observation: Observation) -> np.ndarray:
        beside, above = _offset(observation, entry.object, entry.container)
        return (beside <= entry.radius) & (above >= 0.0) & (above <= entry.height)

    return _Check(holds, lambda *_: f"{entry.object} is in {entry.container}")


def _stacked(entry: Stacked) -> _Check:
    def on(observation: Observation, support: str) -> np.ndarray:
        beside, above = _offset(observation, entry.object, support)
        return (beside <= entry.radius) & (np.abs(above - entry.height) <= entry.tolerance)

    return _any_of(entry.support, on, lambda support: f"{entry.object} is on {support}")


def _placed(entry: Placed) -> _Check:
    lower, upper = np.array(entry.lower), np.array(entry.upper)

    def there(observation: Observation, name: str) -> np.ndarray:
        position = simulator_state(observation, name)[..., :3]
        if entry.of is not None:
            other = simulator_state(observation, entry.of)
            position = position - other[..., :3]
            if entry.turned:
                position = _unturned(position, other[..., 3:])
        return np.all((lower <= position) & (position <= upper), axis=-1)

    return _any_of(
        entry.object, there, lambda name: f"{name} is between {entry.lower} and {entry.upper}" + (f" of {entry.of}" if entry.of else "")
    )


def _any_of(names: str | list[str], holds: Callable[[Observation, str], np.ndarray], text: Callable[[str], str]) -> _Check:
    """Returns the check of what holds of one thing, or of any of several."""
    several = [names] if isinstance(names, str) else names

    def describe(observation: Observation, episode: Any) -> str:
        return text(next((name for name in several if holds(observation, name)[episode]), several[0]))

    return _Check(lambda observation: np.any([holds(observation, name) for name in several], axis=0), describe)


def _unturned(vector: np.ndarray, quat: np.ndarray) -> np.ndarray:
    """Returns vectors (..., 3) of the world along the axes of a frame with the attitude (w, x, y, z), (..., 4)."""
    scalar, axis = quat[..., :1], -quat[..., 1:]
    across = 2.0 * np.cross(axis, vector)
    return vector + scalar * across + np.cross(axis, across)


def _pressed(entry: Pressed) -> _Check:
    def pressed(observation: Observation, joint: str) -> np.ndarray:
        return simulator_state(observation, joint)[..., 0] >= entry.depth

    return _any_of(entry.joint, pressed, lambda joint: f"{joint} is pressed")


def _on_circle(entry: OnCircle, spec: RobotSpec) -> _Check:
    tool = tool_position(spec)
    centre, normal = np.array(entry.centre), np.array(entry.normal) / np.linalg.norm(entry.normal)

    def error(observation: Observation) -> np.ndarray:
        offset = tool(observation) - centre
        above = (offset * normal).sum(axis=-1)
        within = offset - above[..., None] * normal
        return np.hypot(above, np.linalg.norm(within, axis=-1) - entry.radius)

    return _Check(
        lambda observation: error(observation) <= entry.tolerance,
        lambda observation, episode: f"the tool is {error(observation)[episode]:.3g} m from the circle",
    )
