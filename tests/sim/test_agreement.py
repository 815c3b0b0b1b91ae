"""Tests of ros_rl.sim.agreement: MuJoCo and Pinocchio read every robot that ships alike, and a difference is found."""

import pytest

from ros_rl.robots.spec import load_robot, robot_names
from ros_rl.sim.agreement import compare, reading_at_home


@pytest.mark.parametrize("name", robot_names())
def test_mujoco_and_pinocchio_agree(name):
    agreement = compare(load_robot(name))
    assert agreement.fk < 1e-9
    assert agreement.mass_matrix < 1e-6
    assert agreement.inverse_dynamics < 1e-6


OVERLAPS = {"so101": [("base_link", "shoulder_link")], "go2": [("FL_thigh", "base"), ("FR_thigh", "base")]}


@pytest.mark.parametrize("name", robot_names())
def test_no_links_overlap_at_home_but_those_that_we_know(name):
    assert reading_at_home(load_robot(name)).overlaps() == OVERLAPS.get(name, [])


def test_disagreement_is_found(tmp_path):
    """Pinocchio does not read MuJoCo's extension, so that a model changed by it must be reported."""
    spec = load_robot("cartpole")
    urdf = tmp_path / "cartpole.urdf"
    urdf.write_text(spec.urdf.read_text().replace("</robot>", '<mujoco><compiler boundmass="2"/></mujoco></robot>'))
    yaml = tmp_path / "robot.yaml"
    yaml.write_text((spec.urdf.parent / "robot.yaml").read_text())
    agreement = compare(load_robot(yaml))
    assert agreement.fk < 1e-9
    assert agreement.mass_matrix > 0.1
    assert agreement.inverse_dynamics > 0.01
