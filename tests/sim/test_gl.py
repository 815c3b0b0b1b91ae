"""Tests of ros_rl.sim.gl; those that render do so in a process of their own, as `MUJOCO_GL` is read once per process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ros_rl.errors import UserError
from ros_rl.sim import gl


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """No choice made yet, and an empty cache."""
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DISPLAY", raising=False)
    # The context of this process stays as it is.
    monkeypatch.delitem(sys.modules, "mujoco.rendering.classic.gl_context", raising=False)


@pytest.fixture
def working(monkeypatch):
    """Lets the given backends work; returns the list of those that were tried."""
    tried: list[str] = []

    def install(*backends: str) -> list[str]:
        def renders(backend: str) -> str | None:
            tried.append(backend)
            return None if backend in backends else "no such library"

        monkeypatch.setattr(gl, "renders", renders)
        return tried

    return install


def test_a_value_set_by_the_user_is_respected_untried(monkeypatch, working):
    tried = working()
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert gl.choose_gl() == "osmesa"
    assert tried == []


def test_the_first_backend_that_renders_is_set_for_this_process_and_its_children(working):
    tried = working("osmesa", "glfw")
    assert gl.choose_gl() == "osmesa"
    assert tried == ["egl", "osmesa"]
    assert os.environ["MUJOCO_GL"] == "osmesa"


def test_glfw_is_tried_only_with_a_display(monkeypatch, working):
    tried = working("glfw")
    with pytest.raises(UserError):
        gl.choose_gl()
    assert "glfw" not in tried
    monkeypatch.setenv("DISPLAY", ":0")
    assert gl.choose_gl() == "glfw"


def test_the_answer_is_remembered_until_the_machine_changes(monkeypatch, working):
    tried = working("egl")
    for _ in range(2):
        monkeypatch.setenv("MUJOCO_GL", "")
        assert gl.choose_gl() == "egl"
    assert tried == ["egl"]
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.setattr(gl, "_machine", lambda: "another machine")
    gl.choose_gl()
    assert tried == ["egl", "egl"]


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_broken_cache_is_replaced(content, tmp_path, working):
    cache = tmp_path / "ros_rl" / "gl.json"
    cache.parent.mkdir()
    cache.write_text(content)
    working("egl")
    assert gl.choose_gl() == "egl"
    assert "egl" in cache.read_text()
    assert [path.name for path in cache.parent.iterdir()] == ["gl.json"]


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, working):
    working("egl")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert gl.choose_gl() == "egl"


def test_failure_names_every_error_and_the_command_and_is_not_remembered(monkeypatch, working):
    working()
    with pytest.raises(UserError, match=r"egl: no such library; osmesa: no such library.*apt-get install .*libegl1"):
        gl.choose_gl()
    working("egl")
    assert gl.choose_gl() == "egl"


def test_a_backend_that_does_not_exist_does_not_render():
    assert "invalid value" in gl.renders("nonsense")


def test_choosing_works_after_mujoco_was_imported():
    script = gl._PROBE.replace("import mujoco", "import mujoco\nfrom ros_rl.sim.gl import choose_gl\nprint(choose_gl())", 1)
    environment = {key: value for key, value in os.environ.items() if key not in ("MUJOCO_GL", "DISPLAY")}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() in ("egl", "osmesa")


def test_setup_installs_the_same_packages():
    setup = (Path(__file__).parents[2] / "scripts" / "setup.sh").read_text()
    assert " ".join(gl.APT_PACKAGES) in setup


@pytest.mark.parametrize(
    ("value", "message"), [("foo", "MUJOCO_GL='foo' is none of egl, osmesa, glfw"), ("osmesa", "apt-get install -y libosmesa6")]
)
def test_a_variable_that_was_set_wrong_is_named(monkeypatch, value, message):
    monkeypatch.setenv("MUJOCO_GL", value)
    monkeypatch.setattr(gl.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(UserError, match=message):
        gl.check_variable()


@pytest.mark.parametrize("value", ["", "off", "EGL"])
def test_a_variable_that_may_be_set_passes(monkeypatch, value):
    monkeypatch.setenv("MUJOCO_GL", value)
    monkeypatch.setattr(gl.ctypes.util, "find_library", lambda name: f"lib{name}.so")
    gl.check_variable()
