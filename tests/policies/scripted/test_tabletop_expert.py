"""Tests of ros_rl.policies.scripted.tabletop_expert."""

import dataclasses

import pytest

from ros_rl.errors import UserError
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.scripted.tabletop_expert import TabletopExpert, known_plans
from ros_rl.robots.spec import load_robot
from ros_rl.sim.plan import Press, Put


def test_it_knows_every_wording_of_every_task():
    plans = known_plans("tabletop_blocks", "arm")
    assert plans["put the red block in the bowl"] == plans["deposit the red cube in the white dish"]
    assert plans["put the red block in the bowl"][0].what == Put("red_block", "bowl")
    assert plans["put the yellow block in the bowl"][0].what == Put("yellow_block", "bowl")
    assert [step.what for step in known_plans("tabletop_fixtures", "arm")["press the green button"]] == [Press("green_button")]


def test_an_instruction_that_it_does_not_know_is_refused_with_the_nearest():
    policy = load_policy("tabletop_blocks", load_robot("arm"))
    with pytest.raises(UserError, match="knows no instruction 'put the red block in a bowl', did you mean 'put the red block in the bowl'"):
        policy.reset(0, "put the red block in a bowl")


def test_a_robot_without_gripper_is_refused():
    with pytest.raises(UserError, match=r"robot 'arm' has no gripper in its robot\.yaml, which 'tabletop_blocks' needs"):
        TabletopExpert(load_bundle("tabletop_blocks"), dataclasses.replace(load_robot("arm"), gripper=None))
