"""Which OpenGL MuJoCo renders with: found out once by really rendering, so that a machine without a display just works."""

import contextlib
import ctypes.util
import importlib
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from ros_rl.errors import UserError
from ros_rl.paths import write_atomically

# What software rendering through EGL needs on Debian and Ubuntu; a GPU driver brings its own.
APT_PACKAGES = ("libegl1", "libgl1", "libgl1-mesa-dri")
APT_COMMAND = "apt-get install -y " + " ".join(APT_PACKAGES)

_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 3"/><geom size="1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    assert renderer.render().any(), "the picture is black"
"""
_PROBE_SECONDS = 60.0


# What a person may set `MUJOCO_GL` to, with the library that it needs and its Debian package.
_LIBRARIES = {"egl": ("EGL", "libegl1"), "osmesa": ("OSMesa", "libosmesa6"), "glfw": ("GL", "libgl1")}
_OFF = ("disable", "disabled", "off", "false", "0")


def check_variable() -> None:
    """Checks a `MUJOCO_GL` that was set by hand: with a wrong one, MuJoCo cannot even be imported.

    Raises:
        UserError: it names no way to render, or one whose library is missing.
    """
    chosen = os.environ.get("MUJOCO_GL", "").lower()
    if not chosen or chosen in _OFF:
        return
    if chosen not in _LIBRARIES:
        raise UserError(f"MUJOCO_GL='{chosen}' is none of {', '.join(_LIBRARIES)}; unset it, and what works is found")
    library, package = _LIBRARIES[chosen]
    if ctypes.util.find_library(library) is None:
        raise UserError(f"MUJOCO_GL={chosen} needs a library that is missing: apt-get install -y {package}, or unset it")


def choose_gl() -> str:
    """Makes `mujoco.Renderer` work in this process, and in those it starts; to be called before the first one is made.

    A value that `MUJOCO_GL` already has is respected. Otherwise EGL, OSMesa and, where there is a display, GLFW are tried in
    this order, each in a process of its own, because a failed attempt can take the interpreter down. The answer is kept in
    the user's cache until MuJoCo, the system's libraries or its graphics devices change.

    Returns:
        the value of `MUJOCO_GL`.

    Raises:
        UserError: nothing renders; the message says what to install.
    """
    if chosen := os.environ.get("MUJOCO_GL"):
        return chosen
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ros_rl" / "gl.json"
    machine = _machine()
    chosen = _recall(cache, machine) or _search()
    _remember(cache, machine, chosen)
    os.environ["MUJOCO_GL"] = chosen
    # MuJoCo reads the variable when it is imported, which may have happened long ago; the renderer takes its context from here.
    if module := sys.modules.get("mujoco.rendering.classic.gl_context"):
        importlib.reload(module)
    return chosen


def renders(backend: str) -> str | None:
    """Tries to render a picture with `MUJOCO_GL` set to `backend`; returns None if that worked, else the error."""
    command = [sys.executable, "-c", _PROBE]
    environment = os.environ | {"MUJOCO_GL": backend}
    try:
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no picture within {_PROBE_SECONDS:.0f} s"
    if result.returncode == 0:
        return None
    errors = [line for line in result.stderr.splitlines() if line and not line.startswith((" ", "Exception ignored", "Traceback"))]
    return errors[0] if errors else f"exit code {result.returncode}"


def _search() -> str:
    failures = []
    for backend in ("egl", "osmesa", *(["glfw"] if os.environ.get("DISPLAY") else [])):
        error = renders(backend)
        if error is None:
            return backend
        failures.append(f"{backend}: {error}")
    raise UserError(f"cannot render ({'; '.join(failures)}); install OpenGL with: {APT_COMMAND}")


def _machine() -> str:
    """Describes what the answer depends on. The linker's cache is rewritten whenever a library is installed."""
    libraries = Path("/etc/ld.so.cache")
    stamp = libraries.stat().st_mtime_ns if libraries.exists() else 0
    devices = sorted(path.name for pattern in ("nvidia*", "dri/*") for path in Path("/dev").glob(pattern))
    return " ".join([platform.node(), sys.prefix, version("mujoco"), str(stamp), os.environ.get("DISPLAY", ""), *devices])


def _recall(cache: Path, machine: str) -> str | None:
    try:
        chosen: str | None = json.loads(cache.read_text()).get(machine)
    except (OSError, ValueError, AttributeError):
        return None
    return chosen


def _remember(cache: Path, machine: str, chosen: str) -> None:
    """Replaces the cache file whole, so that processes that start together never read half of it; a cache is optional."""
    with contextlib.suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(cache, json.dumps({machine: chosen}).encode())
