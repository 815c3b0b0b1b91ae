"""With a stand-in for the package `lerobot` that has the functions which the adapter calls."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.policies import lerobot
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.robots.spec import load_robot

ROBOT = load_robot("arm")


class FakePolicy:
    """Gives the state back for each tick, plus the mean of the image and 1 if it is told to go up."""

    def __init__(self, joints, reads):
        self.config = SimpleNamespace(output_features={"action": SimpleNamespace(shape=(joints,))}, n_obs_steps=reads)
        self.resets = 0

    def to(self, device):
        return self

    def eval(self):
        return self

    def reset(self):
        self.resets += 1

    def select_action(self, batch):
        return batch["observation.state"][:, :8] + 0.25

    def predict_action_chunk(self, batch):
        assert self.config.n_obs_steps == 1  # with more, the queue that select_action fills is empty
        offset = batch["observation.images.top"].mean() + float(batch["task"] == ["up"])
        return (batch["observation.state"][:, None, :8] + offset).repeat(1, 5, 1)


@pytest.fixture
def package(monkeypatch):
    """Puts the stand-in where `import lerobot` finds it; returns a function that sets how many joints its policy has."""
    made = {"joints": 8, "reads": 1, "state": 8, "error": None}
    config = SimpleNamespace(type="act", device="")
    names = ["lerobot", "lerobot.configs", "lerobot.configs.policies", "lerobot.policies", "lerobot.policies.factory"]
    modules = {name: ModuleType(name) for name in names}
    modules["lerobot"].__spec__ = SimpleNamespace(name="lerobot")
    modules["lerobot.configs.policies"].PreTrainedConfig = SimpleNamespace(from_pretrained=lambda folder, local_files_only: config)
    factory = modules["lerobot.policies.factory"]
    cls = SimpleNamespace(from_pretrained=lambda folder, config, local_files_only: FakePolicy(made["joints"], made["reads"]))
    factory.get_policy_class = lambda kind: {"act": cls}[kind]

    def make_pre_post_processors(config, pretrained_path, preprocessor_overrides):
        assert Path(pretrained_path).is_absolute()  # a relative one may be the name of a repository, which it would ask a server for
        if made["error"]:
            raise made["error"]
        made["device"] = preprocessor_overrides["device_processor"]["device"]

        def before(batch):
            if batch["observation.state"].shape[1] != made["state"]:
                raise RuntimeError(f"The size of tensor a (8)\nmust match the size of tensor b ({made['state']})")
            return batch

        return before, lambda chunk: chunk * 1.0

    factory.make_pre_post_processors = make_pre_post_processors
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def make_bundle(folder, chunk=3, cameras=(("front", "top"),)):
    keys = (ObservationKey("joint_position", (len(ROBOT.measured_names),)), ObservationKey("images.front", (4, 6, 3)))
    spec = PolicySpec("arm", ROBOT.joint_names, (*keys, ObservationKey("instruction", ())), 20.0, chunk)
    return Bundle("theirs", "lerobot", "act", spec, {"folder": str(folder), "cameras": dict(cameras)})


@pytest.fixture
def folder(tmp_path):
    for name in ("config.json", "model.safetensors", "policy_preprocessor.json", "policy_postprocessor.json"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def test_a_policy_of_lerobot_gives_chunks_for_the_robot(folder, package):
    policy = load_policy(make_bundle(folder), ROBOT)
    zero = np.zeros(len(ROBOT.measured_names))
    image = np.full((4, 6, 3), 51, np.uint8)
    observation = Observation(1.5, ROBOT.home, zero, zero, images={"front": image})
    policy.reset(0, "stay")
    chunk = policy.act(observation)
    assert chunk.values.shape == (3, 8) and (chunk.dt, chunk.stamp) == (0.05, 1.5)
    np.testing.assert_allclose(chunk.values[0], np.clip(ROBOT.home[:8] + 0.2, ROBOT.lower, ROBOT.upper), atol=1e-6)
    policy.reset(0, "up")
    assert policy.act(observation).values[0, 0] == pytest.approx(1.2, abs=1e-6)
    assert torch.is_grad_enabled()
    assert package["device"] == "cpu"  # whatever it was trained on


def test_a_policy_that_reads_several_observations_is_asked_for_one_action_at_a_time(folder, package):
    package["reads"] = 2
    with pytest.raises(UserError, match="reads 2 observations in a row; the bundle's chunk must be 1, not 3"):
        load_policy(make_bundle(folder), ROBOT)
    policy = load_policy(make_bundle(folder, chunk=1), ROBOT)
    zero = np.zeros(len(ROBOT.measured_names))
    chunk = policy.act(Observation(1.5, ROBOT.home, zero, zero, images={"front": np.zeros((4, 6, 3), np.uint8)}))
    assert chunk.values.shape == (1, 8)
    np.testing.assert_allclose(chunk.values[0], np.clip(ROBOT.home[:8] + 0.25, ROBOT.lower, ROBOT.upper), atol=1e-6)


def test_a_bundle_that_stacks_observations_is_refused(folder, package):
    bundle = make_bundle(folder)
    keys = (replace(bundle.spec.observation[0], history=2), *bundle.spec.observation[1:])
    with pytest.raises(UserError, match="bundle 'theirs': its history of 'joint_position' must be 1, a policy of LeRobot keeps"):
        load_policy(replace(bundle, spec=replace(bundle.spec, observation=keys)), ROBOT)


def test_what_is_no_policy_or_another_robots_is_refused(folder, package):
    package["joints"] = 6
    with pytest.raises(UserError, match="gives 6 numbers, the bundle commands 8 joints"):
        load_policy(make_bundle(folder), ROBOT)
    (folder / "policy_preprocessor.json").unlink()
    with pytest.raises(UserError, match=r"lacks policy_preprocessor.json"):
        load_policy(make_bundle(folder), ROBOT)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"lacks model.safetensors"):
        load_policy(make_bundle(folder), ROBOT)


def test_what_does_not_fit_the_bundle_shows_when_it_is_loaded(folder, package, monkeypatch):
    """The package raises what it likes, over many lines; here it is one that names the folder."""
    for trained, change, message in (
        (8, {"cameras": ()}, "does not take what the bundle reads (KeyError: 'observation.images.top')"),
        (8, {"chunk": 6}, "gives chunks of 5 rows, the bundle's chunk is 6"),
        (9, {}, "does not take what the bundle reads (RuntimeError: The size of tensor a (8) must match the size of tensor b (9))"),
    ):
        package["state"] = trained
        with pytest.raises(UserError) as caught:
            load_policy(make_bundle(folder, **change), ROBOT)
        assert str(caught.value) == f"{folder}: {message}"
    package["state"] = 8
    package["error"] = ValueError("Config file 'policy_preprocessor.json' is not\na valid processor configuration")
    with pytest.raises(UserError, match=r"cannot load it on 'cpu' \(ValueError: Config file 'policy_preprocessor.json' is not a valid"):
        load_policy(make_bundle(folder), ROBOT)
    package["error"] = None
    monkeypatch.chdir(folder.parent)
    assert load_policy(make_bundle(folder.name), ROBOT).spec.chunk == 3


def test_a_policy_that_gives_no_numbers_is_refused_when_it_acts(folder, package, monkeypatch):
    policy = load_policy(make_bundle(folder), ROBOT)
    monkeypatch.setattr(FakePolicy, "predict_action_chunk", lambda self, batch: torch.full((1, 3, 8), float("nan")))
    zero = np.zeros(len(ROBOT.measured_names))
    with pytest.raises(UserError, match="policy 'theirs' gives actions that are not finite"):
        policy.act(Observation(1.5, ROBOT.home, zero, zero, images={"front": np.zeros((4, 6, 3), np.uint8)}))


def test_without_the_package_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.setattr(lerobot.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install lerobot"):
        load_policy(make_bundle(folder), ROBOT)
