"""Tests of ros_rl.nodes.environment: what a process takes from its environment, and what it sets for a check."""

import os

import pytest

from ros_rl.errors import UserError
from ros_rl.nodes.environment import isolate, ros_domain


@pytest.mark.parametrize(("text", "domain"), [("", 0), ("0", 0), ("7", 7), ("07", 7), ("232", 232)])
def test_the_domain_is_a_number(monkeypatch, text, domain):
    monkeypatch.setenv("ROS_DOMAIN_ID", text)
    assert ros_domain() == domain


@pytest.mark.parametrize("text", ["233", "-1", "1.5", "abc", "٣"])
def test_what_is_no_domain_is_named(monkeypatch, text):
    monkeypatch.setenv("ROS_DOMAIN_ID", text)
    with pytest.raises(UserError, match=f"ROS_DOMAIN_ID='{text}' is no whole number from 0 to 232"):
        ros_domain()


def test_a_check_keeps_to_itself_and_to_the_domain_that_was_chosen(monkeypatch):
    for name in ("ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_DOMAIN_ID"):
        monkeypatch.setenv(name, "")  # so that it is as before after the test
        monkeypatch.delenv(name)
    isolate()
    assert os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"
    assert 1 <= ros_domain() <= 100
    monkeypatch.setenv("ROS_DOMAIN_ID", "42")
    isolate()
    assert ros_domain() == 42
