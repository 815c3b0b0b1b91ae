"""The safety filters by name, as the parameter `filter` of the safety node knows them."""

from collections.abc import Callable, Mapping

from ros_rl.safety.interface import PassThrough, SafetyFilter

FILTERS: Mapping[str, Callable[[], SafetyFilter]] = {"none": PassThrough}
