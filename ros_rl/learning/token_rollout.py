"""Episodes of token policies on the batched simulator: many at once, each with random numbers of its own, from seeds or snapshots."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np
from mujoco import mjtStage

from ros_rl.errors import unknown
from ros_rl.hardware.limits import CommandLimits
from ros_rl.policies.token_network import Scored
from ros_rl.policies.vla import VlaModel
from ros_rl.robots.spec import RobotSpec
from ros_rl.sim.batch import BatchSim
from ros_rl.sim.build import build
from ros_rl.sim.camera import CameraRenderer
from ros_rl.sim.observe import measured_positions, measured_velocities
from ros_rl.sim.task import BatchMonitor, Task


@dataclass(frozen=True, eq=False)
class Start:
    """From where an episode begins: MuJoCo's integration state, as from `ModelBatch.snapshot`, and the last target (n,)."""

    physics: np.ndarray
    target: np.ndarray


@dataclass(frozen=True)
class Request:
    """An episode to run.

    Attributes:
        start: the state that it begins in.
        instruction: what is said.
        stream: seeds of its random numbers, which are its own wherever it runs.
        group: episodes that are compared.
    """

    start: Start
    instruction: str
    stream: tuple[int, ...]
    group: int = 0


@dataclass(eq=False)
class Trace:
    """What an episode was, K decisions long; lists have an entry for each.

    Attributes:
        request: that it answers.
        images: (cameras, height, width, 3) uint8.
        position: (s,) of the measured joints.
        tokens, log_prob, entropy: (L,) each.
        success, terminated, truncated: how it ended.
        diverged: whether its simulation blew up; it has failed then.
        reason: why it ended, in words.
        seconds: of robot time.
        limited: control periods in which the limits cut a command.
    """

    request: Request
    images: list[np.ndarray] = field(default_factory=list)
    position: list[np.ndarray] = field(default_factory=list)
    tokens: list[np.ndarray] = field(default_factory=list)
    log_prob: list[np.ndarray] = field(default_factory=list)
    entropy: list[np.ndarray] = field(default_factory=list)
    success: bool = False
    terminated: bool = False
    truncated: bool = False
    diverged: bool = False
    reason: str = ""
    seconds: float = 0.0
    limited: int = 0


class TokenWorld:
    """n copies of a task's world, in which a token policy acts as a `VlaPolicy` does behind the guard of one robot."""

    def __init__(self, task: Task, robot: RobotSpec, copies: int, threads: int | None = None):
        """Builds the copies."""
        self.task, self.robot = task, robot
        self.sim = BatchSim(build(robot, task.scene), copies, threads)
        self._monitor = BatchMonitor(task, robot, (copies,))
        self._limits = CommandLimits(robot)
        self._target = np.zeros((copies, len(robot.joints)))
        self._posed = mujoco.MjData(self.sim.mj)
        self._renderer = CameraRenderer(self.sim.model)

    def close(self) -> None:
        """Frees the renderer."""
        self._renderer.close()

    def starts(self, seeds: Sequence[int]) -> list[Start]:
        """Returns the initial states that the task draws from seeds."""
        copy = np.array([0])
        found = []
        for seed in seeds:
            self.sim.reset(copy, np.array([seed]), self.task)
            found.append(Start(self.sim.snapshot(copy)[0], self.robot.rest(measured_positions(self.sim.model, self.sim.qpos[0]))))
        return found

    def begin(self, copies: np.ndarray, starts: Sequence[Start]) -> None:
        """Puts copies into states, for new episodes."""
        self.sim.restore(np.stack([start.physics for start in starts]), copies)
        self._target[copies] = [start.target for start in starts]
        self._monitor.reset(copies)

    def images(self, copies: np.ndarray, cameras: Sequence[str]) -> dict[str, np.ndarray]:
        """Returns what cameras see in some copies, name to (k, height, width, 3).

        Raises:
            UserError: there is no such camera.
        """
        for name in cameras:
            if name not in self.sim.model.cameras:
                raise unknown("camera", name, self.sim.model.cameras)
        seen: dict[str, list[np.ndarray]] = {name: [] for name in cameras}
        for copy in copies:
            self.sim.copy_into(self._posed, int(copy))
            for name in cameras:
                seen[name].append(self._renderer.render(self._posed, name))
        return {name: np.stack(images) for name, images in seen.items()}

    def position(self, copies: np.ndarray) -> np.ndarray:
        """Returns the measured positions in some copies, (k, s)."""
        return measured_positions(self.sim.model, self.sim.qpos[copies])

    def judge(self, traces: dict[int, Trace]) -> None:
        """Ends the traces, by copy, whose episodes have ended, and takes them out."""
        seen = self.sim.observe(self.task, forces=False)
        now = self._monitor.update(seen)
        for copy in [copy for copy in traces if now.done[copy]]:
            trace = traces.pop(copy)
            trace.success, trace.terminated, trace.truncated = (bool(part[copy]) for part in (now.success, now.terminated, now.truncated))
            trace.reason = self._monitor.reason(seen, now, copy)

    def play(self, rows: np.ndarray, traces: dict[int, Trace]) -> None:
        """Plays a row of rows (copies, T, n) in each control period; takes the traces out whose episodes end, and stops those.

        An episode whose simulation diverges has failed; the others do not notice.
        """
        for row in range(rows.shape[1]):
            if traces:
                running = np.array(sorted(traces))
                cut = self._step(running, rows[running, row])
                for copy, limited in zip(running.tolist(), cut.tolist(), strict=True):
                    traces[copy].seconds += self.robot.period
                    traces[copy].limited += limited
                for copy in running[self.sim.diverged[running]].tolist():
                    trace = traces.pop(copy)
                    trace.terminated = trace.diverged = True
                    trace.reason = "its simulation diverged"
                self.judge(traces)

    def _step(self, copies: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Plays a control period with targets (k, n); returns in which copies the limits cut one, (k,)."""
        joints = len(self.robot.joints)
        position = measured_positions(self.sim.model, self.sim.qpos[copies])[:, :joints]
        velocity = measured_velocities(self.sim.model, self.sim.qvel[copies])[:, :joints]
        self._target[copies] = self._limits.apply(wanted, self._target[copies], position, velocity)
        self.sim.command(self._target[copies], copies)
        self.sim.advance(self.sim.model.substeps, copies, mjtStage.mjSTAGE_NONE)
        cut: np.ndarray = (np.abs(self._target[copies] - wanted) > 1e-9).any(1)
        return cut


def run_requests(model: VlaModel, world: TokenWorld, requests: Sequence[Request], temperature: float) -> list[Trace]:
    """Runs episodes, as many at once as the world has copies; the answer to each does not depend on the others.

    Args:
        model: that acts.
        world: where.
        requests: the episodes.
        temperature: at which tokens are drawn; 0 draws none and takes what the model's `choice` says.
    """
    traces = [Trace(request) for request in requests]
    size = len(world.sim)
    for first in range(0, len(traces), size):
        _run(model, world, traces[first : first + size], temperature)
    return traces


def left_behind(model: VlaModel, world: TokenWorld, instructions: Mapping[int, str]) -> Iterator[tuple[int, np.ndarray | None]]:
    """Yields the states in which a policy that draws no tokens was left when its time was up.

    Args:
        model: that acts.
        world: where.
        instructions: what is said in the episode of each seed.

    Yields:
        seeds, with MuJoCo's integration state, or None where the episode ended otherwise, in success or failure.
    """
    size = len(world.sim)
    for first in range(0, len(instructions), size):
        seeds = list(instructions)[first : first + size]
        starts = zip(seeds, world.starts(seeds), strict=True)
        traces = run_requests(model, world, [Request(start, instructions[seed], (seed,)) for seed, start in starts], 0.0)
        states = world.sim.snapshot(np.arange(len(traces)))
        yield from ((seed, state if trace.truncated else None) for seed, state, trace in zip(seeds, states, traces, strict=True))


def _run(model: VlaModel, world: TokenWorld, traces: Sequence[Trace], temperature: float) -> None:
    joints = len(model.spec.joint_names)
    running = dict(enumerate(traces))
    world.begin(np.arange(len(traces)), [trace.request.start for trace in traces])
    draws = [np.random.default_rng(_seed(trace.request.stream)) for trace in traces]
    world.judge(running)
    last = np.full((len(world.sim), joints), np.nan)
    lower, upper = world.robot.command_limits
    while running:
        copies = np.array(sorted(running))
        images, position = world.images(copies, model.spec.cameras), world.position(copies)
        inputs = model.inputs(images, position, [running[copy].request.instruction for copy in copies])
        chosen = model.decide(inputs, temperature, [draws[copy] for copy in copies])
        seen = inputs.images.cpu().numpy()
        for i, copy in enumerate(copies):
            _note(running[copy], seen[i], position[i], chosen, i)
        start = np.where(np.isnan(last[copies]), position[:, :joints], last[copies])
        rows = np.zeros((len(world.sim), model.spec.chunk, joints))
        rows[copies] = np.clip(model.targets(chosen.tokens.cpu().numpy(), position, start), lower, upper)
        last[copies] = rows[copies, -1]
        world.play(rows, running)


def _note(trace: Trace, images: np.ndarray, position: np.ndarray, chosen: Scored, row: int) -> None:
    trace.images.append(images)
    trace.position.append(position)
    for name in ("tokens", "log_prob", "entropy"):
        getattr(trace, name).append(getattr(chosen, name)[row].cpu().numpy())


def _seed(stream: tuple[int, ...]) -> int | list[int]:
    """A stream of one number is what a `VlaPolicy` has for that seed."""
    return stream[0] if len(stream) == 1 else list(stream)
