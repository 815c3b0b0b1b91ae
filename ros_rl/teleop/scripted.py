"""Scripted demonstrators: a policy in the place of a person, so that data can be collected without one."""

from ros_rl.hardware.interface import Observation
from ros_rl.policies.interface import Policy
from ros_rl.policies.runner import PolicyRunner
from ros_rl.teleop.device import Sample


class Demonstrator:
    """The device: answers every observation, engaged as long as it is open."""

    name = "scripted"
    has_switch = False

    def __init__(self, policy: Policy, seed: int):
        """Takes a policy that is ready to act; episode k has the seed `seed` + k."""
        self._runner = PolicyRunner(policy, seed)

    def open(self) -> None:
        """Makes the next observation the first of an episode."""
        self._runner.restart()

    def read(self, observation: Observation, now: float) -> Sample:
        """Returns what the policy does.

        Raises:
            UserError: the observation lacks what the policy reads.
        """
        return Sample(now, True, joints=self._runner.command(observation))

    def close(self) -> None:
        """Has the policy give back what it holds outside of this process."""
        self._runner.close()
