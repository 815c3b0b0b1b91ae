"""Tests of ros_rl.web.plots: what is plotted is what was measured, and no history grows."""

import numpy as np
import pytest

from ros_rl.robots.spec import load_robot
from ros_rl.web.pilot import Pilot
from ros_rl.web.plots import History, JointPanel, LoopPanel, SafetyPanel
from ros_rl.web.server import WebServer
from ros_rl.web.view import View


@pytest.fixture
def served():
    server = WebServer(0, "token", Pilot(1.0))
    yield server
    server.stop()


@pytest.fixture
def tab(served):
    return served.viser.gui.add_tab_group().add_tab("tab")


def charts(tab) -> dict[str, dict[str, np.ndarray]]:
    """Returns the values of every plot in a tab, by its title and the label of the line; times as `s`."""
    found = {}
    for handle in tab._children.values():
        if hasattr(handle, "series"):
            found[handle.title] = {line["label"]: values for line, values in zip(handle.series, handle.data, strict=True)}
    return found


def test_a_history_gives_rows_in_order_with_times_before_the_newest():
    history = History(2, 10)
    for k in range(4):
        history.add(100.0 + k, [k, -k])
    times, first, second = history.columns()
    assert times.tolist() == [-3, -2, -1, 0]
    assert first.tolist() == [0, 1, 2, 3]
    assert second.tolist() == [0, -1, -2, -3]


@pytest.mark.parametrize("count", [9, 10, 11, 25, 40])
def test_a_history_keeps_the_newest_rows_and_does_not_grow(count):
    history = History(1, 10)
    size = history._rows.nbytes
    for k in range(count):
        history.add(float(k), [k])
    times, values = history.columns()
    kept = list(range(max(count - 10, 0), count))
    assert values.tolist() == kept
    assert times.tolist() == [k - kept[-1] for k in kept]
    assert history._rows.nbytes == size
    history.clear()
    assert all(len(column) == 0 for column in history.columns())


def test_a_joint_is_plotted_with_its_command_and_its_limits(served, tab):
    spec = load_robot("arm")
    panel = JointPanel(served.viser.gui, tab, spec)
    for k in range(3):
        panel.update(View(joint_position=spec.home + 0.1 * k, command=spec.home[: len(spec.joints)] - 0.1 * k), float(k))
    joint = spec.joints[0]
    chart = charts(tab)[f"{joint.name}, rad"]
    assert chart["s"].tolist() == [-2, -1, 0]
    assert chart["position"] == pytest.approx(joint.home + np.array([0.0, 0.1, 0.2]))
    assert chart["command"] == pytest.approx(joint.home - np.array([0.0, 0.1, 0.2]))
    assert set(chart["lower"]) == {joint.lower} and set(chart["upper"]) == {joint.upper}


def test_another_joint_can_be_chosen_and_has_its_past(served, tab):
    spec = load_robot("arm")
    panel = JointPanel(served.viser.gui, tab, spec)
    panel.update(View(joint_position=spec.home), 0.0)
    panel.update(View(joint_position=spec.home + 1), 1.0)
    panel._choice.value = spec.joints[2].name
    panel.update(View(joint_position=spec.home + 2), 2.0)
    assert list(charts(tab)) == [f"{spec.joints[2].name}, rad"]
    assert charts(tab)[f"{spec.joints[2].name}, rad"]["position"] == pytest.approx(spec.joints[2].home + np.array([0, 1, 2]))


def test_a_command_is_plotted_from_the_first_one_on_and_nothing_in_its_place_before(served, tab):
    spec = load_robot("arm")
    panel = JointPanel(served.viser.gui, tab, spec)
    for k in range(10):
        panel.update(View(joint_position=spec.home, command=None if k < 5 else spec.home[: len(spec.joints)] + 0.1), float(k))
        lines = charts(tab).get("joint1, rad", {})
        assert ("command" in lines) == (k > 5)  # one moment makes no line
    assert lines["command"].tolist() == pytest.approx([spec.joints[0].home + 0.1] * 5)


def test_a_value_that_is_not_finite_reaches_no_plot(served, tab):
    spec = load_robot("arm")
    panel = JointPanel(served.viser.gui, tab, spec)
    broken = spec.home.copy()
    broken[3] = np.nan
    command = spec.home[: len(spec.joints)]
    for k, (position, sent) in enumerate(
        [(spec.home, command), (broken, command), (spec.home, np.full_like(command, np.inf)), (spec.home, command)]
    ):
        panel.update(View(joint_position=position, command=sent), float(k))
    assert charts(tab)["joint1, rad"]["s"].tolist() == [-3, 0]
    assert np.isfinite([value for line in charts(tab)["joint1, rad"].values() for value in line]).all()


@pytest.mark.parametrize(
    ("robot", "joint", "titles"),
    [
        ("cartpole", "slider", {"slider, m", "slider, commanded effort"}),
        ("cartpole", "pole", {"pole, rad"}),  # passive: nothing is commanded
        ("quadrotor", "rotor_1", {"rotor_1, commanded effort"}),  # a thruster has no position
    ],
)
def test_what_a_joint_does_not_have_is_not_plotted(served, tab, robot, joint, titles):
    spec = load_robot(robot)
    panel = JointPanel(served.viser.gui, tab, spec)
    for k, chosen in enumerate([*spec.measured_names, joint]):
        panel._choice.value = chosen
        panel.update(View(joint_position=spec.home, command=np.zeros(len(spec.joints))), float(k))
    assert set(charts(tab)) == titles
    values = [value for chart in charts(tab).values() for line in chart.values() for value in line]
    assert np.isfinite(values).all()


def counts(**given: object) -> dict[str, str]:
    return {"overruns": "0", "limited": "0", "rejected": "0", "held": "0"} | {name: str(value) for name, value in given.items()}


def test_the_loop_and_the_guard_are_plotted_as_what_came_in_each_second(served, tab):
    panel = LoopPanel(served.viser.gui, tab, load_robot("arm", 200.0))
    for k, (limited, overruns) in enumerate([(5, 0), (5, 1), (8, 1), (0, 0), (2, 4)]):  # the hardware node started anew before the fourth
        panel.update(View(hardware=counts(limited=limited, overruns=overruns), period=0.005 + 0.001 * k), float(k))
    assert charts(tab)["guard interventions in 1 s"]["limited"].tolist() == [0, 3, 0, 2]
    assert charts(tab)["deadlines missed in 1 s"]["missed"].tolist() == [1, 0, 0, 4]
    assert charts(tab)["control period, ms"]["mean"] == pytest.approx([6, 7, 8, 9])
    assert set(charts(tab)["control period, ms"]["nominal"]) == {5.0}


@pytest.mark.parametrize("view", [View(), View(period=0.005), View(hardware=counts()), View(hardware=counts(held="?"), period=0.005)])
def test_a_loop_of_which_nothing_is_known_is_not_plotted(served, tab, view):
    panel = LoopPanel(served.viser.gui, tab, load_robot("arm"))
    for k in range(3):
        panel.update(view, float(k))
    assert charts(tab) == {}


def test_every_number_of_the_safety_status_is_plotted_and_the_rest_is_text(served, tab):
    panel = SafetyPanel(served.viser.gui, tab)
    for k in range(3):
        panel.update(View(safety={"filter": "cbf", "state": "active", "lambda": f"{0.1 * k}", "margin": "-1e-3"}), float(k))
    assert charts(tab)["lambda"]["lambda"] == pytest.approx([0.0, 0.1, 0.2])
    assert charts(tab)["margin"]["margin"] == pytest.approx([-1e-3] * 3)
    assert ">filter cbf · state active</div>" in panel._text.content
    panel.update(View(safety={"filter": "<b>*"}), 3.0)
    assert ">filter &lt;b&gt;*</div>" in panel._text.content
    panel.update(View(), 4.0)  # what was is not said to be so now
    assert ">no status</div>" in panel._text.content


def test_a_status_with_ever_new_names_does_not_fill_the_page(served, tab):
    panel = SafetyPanel(served.viser.gui, tab)
    for k in range(100):
        for _ in range(2):
            panel.update(View(safety={f"value{k}": "1.0", "nan": "nan"}), float(k))
    assert 0 < len(charts(tab)) <= 16


def test_a_page_that_is_opened_again_starts_without_a_past(served, tab):
    spec = load_robot("arm")
    panels = [JointPanel(served.viser.gui, tab, spec), LoopPanel(served.viser.gui, tab, spec), SafetyPanel(served.viser.gui, tab)]
    view = View(joint_position=spec.home, hardware=counts(), period=0.005, safety={"lambda": "1"})
    for k in range(10):
        for panel in panels:
            panel.update(view, float(k))
    for panel in panels:
        panel.start_over()
        for k in range(100, 103):
            panel.update(view, float(k))
    assert {len(chart["s"]) for chart in charts(tab).values()} == {2, 3}
    assert min(chart["s"].min() for chart in charts(tab).values()) == -2
