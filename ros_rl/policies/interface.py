"""What every policy offers, whether it is scripted, planned or learned."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ros_rl.errors import RobotFault
from ros_rl.hardware.interface import ActionChunk, Observation
from ros_rl.robots.spec import CommandMode


class PolicyUnavailable(RobotFault):
    """A policy cannot answer now, but may again: its server is away, or was too slow."""


@dataclass(frozen=True)
class ObservationKey:
    """One thing a policy reads: a field of `Observation` (or ``images.<camera>``, ``privileged.<name>``) and its size.

    ``instruction`` has the shape () and is text. `history` is the number of newest observations stacked along a new first axis; 1
    means the newest alone.
    """

    name: str
    shape: tuple[int, ...]
    history: int = 1


@dataclass(frozen=True)
class PolicySpec:
    """What a policy reads and commands.

    Attributes:
        robot: name of the robot it was made for.
        joint_names: the joints it commands, in the order of its output.
        observation: what it reads.
        rate: how often it acts, in Hz: rows of a chunk are 1/rate apart.
        chunk: rows T in the chunks it returns.
        command_mode: what its output means.
    """

    robot: str
    joint_names: tuple[str, ...]
    observation: tuple[ObservationKey, ...]
    rate: float
    chunk: int = 1
    command_mode: CommandMode = "position"

    @property
    def reads_instruction(self) -> bool:
        """Whether it needs to be told what to do."""
        return any(key.name == "instruction" for key in self.observation)

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras whose images it reads."""
        return tuple(key.name.removeprefix("images.") for key in self.observation if key.name.startswith("images."))

    @property
    def privileged(self) -> bool:
        """Whether it reads simulator state, and so runs in simulation only."""
        return any(key.name.startswith("privileged.") for key in self.observation)


@runtime_checkable
class Policy(Protocol):
    """From observations to chunks of joint commands."""

    spec: PolicySpec

    def reset(self, seed: int, instruction: str) -> None:
        """Starts an episode: clears all memory, seeds all randomness, takes the instruction to carry out."""

    def act(self, observation: Observation) -> ActionChunk:
        """Returns what to do from `observation.stamp` on, in the robot's command mode."""


@runtime_checkable
class ReportingPolicy(Policy, Protocol):
    """A policy that has something to say of its last action."""

    def report(self) -> Mapping[str, float]:
        """Returns what it watches, by name, for the diagnostics; empty before the first action."""


@runtime_checkable
class ClosingPolicy(Policy, Protocol):
    """A policy that holds something outside of this process, such as a connection."""

    def close(self) -> None:
        """Gives it back; the next question takes it anew. A thread that waits for an answer gets an exception."""
