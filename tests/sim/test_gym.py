"""Tests of ros_rl.sim.gym: what is registered, and that the page about it tells the truth."""

import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from ros_rl.sim.gym import environment_ids, suite_ids, task_id
from ros_rl.sim.task import suite_names, task_names

PAGE = (Path(__file__).parents[2] / "docs" / "gymnasium.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_every_task_is_registered_in_both_forms():
    assert task_id("put_red_block_in_bowl") == "ros_rl/PutRedBlockInBowl-v0"
    assert set(environment_ids()) == {task_id(name) for name in task_names()} | {"ros_rl/HalfCheetah-v0", "ros_rl/Ant-v0"}
    assert set(suite_ids()) == {task_id(name) for name in suite_names()}
    for name in [*environment_ids(), *suite_ids()]:
        spec = gymnasium.spec(name)
        assert spec.entry_point and spec.vector_entry_point


def test_the_name_alone_is_enough_in_a_fresh_process():
    code = "import gymnasium; print(gymnasium.make('ros_rl.sim.gym:ros_rl/CartpoleBalance-v0').reset(seed=0)[0].shape)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout == "(4,)\n", result.stderr


@pytest.mark.filterwarnings("ignore:.*A Box observation space m")  # Gymnasium's own have infinite bounds too
@pytest.mark.parametrize("name", ["HalfCheetah", "Ant"])
def test_gymnasiums_checker_passes(name):
    check_env(gymnasium.make(f"ros_rl/{name}-v0").unwrapped, skip_render_check=True)


def test_the_page_lists_every_environment_with_its_sizes():
    rows = {name: (int(seen), int(acted)) for name, seen, acted in re.findall(r"^\| `(ros_rl/\S+)` \|.*\| (\d+) \| (\d+) \|$", PAGE, re.M)}
    assert list(rows) == environment_ids()
    for name, sizes in rows.items():
        env = gymnasium.make(name)
        assert sizes == (env.observation_space.shape[0], env.action_space.shape[0])


def test_the_code_on_the_page_runs():
    *examples, training = BLOCKS
    names: dict = {}
    for example in examples:
        exec(example, names)
    assert names["envs"].num_envs == 64 and names["picture"].std() > 10
    assert "stable_baselines3" in training
    compile(training, "docs/gymnasium.md", "exec")
