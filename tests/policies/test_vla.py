from dataclasses import replace

import numpy as np
import pytest
import tiny_backbones
import torch
from token_samples import make_model

from ros_rl.errors import UserError
from ros_rl.hardware.interface import Observation
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle, save_bundle
from ros_rl.policies.interface import Policy
from ros_rl.policies.vla import VlaModel, VlaPolicy, digest, scaled, shortened, spec_for
from ros_rl.robots.spec import load_robot

ROBOT = load_robot("arm")


def make_observation(stamp=0.0, size=(32, 32), seed=0):
    draw = np.random.default_rng(seed)
    zeros = np.zeros(len(ROBOT.measured_names))
    images = {"small": draw.integers(0, 256, (*size, 3)).astype(np.uint8)}
    return Observation(stamp, ROBOT.home, zeros, zeros, images=images, instruction="turn left")


def save(model, folder):
    save_bundle(folder, model.to_bundle(folder.name, "random", {"command": "none"}, {}))
    return folder


@pytest.mark.parametrize("family", [None, "smolvlm", "qwen2_5_vl", "paligemma"])
def test_a_bundle_acts_as_the_model_that_it_was_written_of(family, tmp_path):
    backbone = tiny_backbones.make(family, tmp_path / "backbone") if family else None
    model = make_model(backbone=backbone, temperature=1.0)
    loaded = load_policy(save(model, tmp_path / "vla"), ROBOT)
    assert isinstance(loaded, Policy) and isinstance(loaded, VlaPolicy)
    assert digest(loaded.model.network) == digest(model.network)
    chunks = []
    for policy in (VlaPolicy(load_bundle(tmp_path / "vla"), ROBOT, model), loaded):
        policy.reset(3, "turn left")
        chunks.append(policy.act(make_observation()).values)
    assert np.array_equal(*chunks)
    assert chunks[0].shape == (model.spec.chunk, 8) == (40, 8)


@pytest.mark.parametrize("decoding", ["parallel", "autoregressive"])
def test_a_shortened_policy_begins_its_chunks_as_the_whole_one(decoding):
    whole = make_model(decoding).to_bundle("whole", "random", {}, {})
    short = shortened(whole, 1)
    plans = []
    for bundle in (whole, short):
        policy = VlaPolicy(bundle, ROBOT)
        policy.reset(3, "turn left")
        plans.append(policy.act(make_observation()).values)
    assert plans[0].shape == (40, 8) and plans[1].shape == (20, 8)
    np.testing.assert_array_equal(plans[1], plans[0][:20])
    for ticks in (0, 3):
        with pytest.raises(UserError, match=f"ticks must be from 1 to the 2 of bundle 'whole', got {ticks}"):
            shortened(whole, ticks)


def test_it_has_answered_once_before_the_robot_asks(tmp_path, monkeypatch):
    """The first answer takes seconds, in which a robot would wait."""
    asked = []

    class Watched(type(make_model().network)):
        def decode(self, inputs, *rest):
            asked.append((tuple(inputs.images.shape), tuple(inputs.state.shape)))
            return super().decode(inputs, *rest)

    model = make_model(temperature=1.0)
    model.network.__class__ = Watched
    policy = VlaPolicy(load_bundle(save(model, tmp_path / "vla")), ROBOT, model)
    assert asked == [((1, 1, 32, 32, 3), (1, len(ROBOT.measured_names)))]
    chunks = []
    for _ in range(2):
        policy.reset(3, "turn left")
        chunks.append(policy.act(make_observation()).values)
    assert np.array_equal(*chunks) and len(asked) == 3, "what it was asked at first changes nothing"


def test_the_same_seed_gives_the_same_chunks_and_another_one_others(tmp_path):
    policy = load_policy(save(make_model(temperature=1.0), tmp_path / "vla"), ROBOT)
    values = []
    for seed in (1, 1, 2):
        policy.reset(seed, "turn left")
        values.append(np.stack([policy.act(make_observation(stamp)).values for stamp in (0.0, 0.2)]))
    assert np.array_equal(values[0], values[1]) and not np.array_equal(values[0], values[2])


@pytest.mark.parametrize("decoding", ["parallel", "autoregressive"])
def test_without_chance_the_mode_or_the_median_is_taken(decoding):
    """Of 0.4 on bin 10 and 0.2 each on the bins 200 to 202, the likeliest is 10, and half is passed in 200."""
    model = make_model(decoding)
    chances = torch.full((256,), 1e-9)
    chances[10], chances[200:203] = 0.4, 0.2
    model.network.head = lambda hidden: chances.log().expand(len(hidden), hidden.shape[1] * model.network.out.out_features // 256, 256)
    inputs = model.inputs({"small": make_observation().images["small"][None]}, ROBOT.home[None], ["turn left"])
    for choice, token, log_prob in (("mode", 10, np.log(0.4)), ("median", 200, np.log(0.2))):
        chosen = replace(model, settings=replace(model.settings, choice=choice)).decide(inputs, 0.0, [])
        assert (chosen.tokens == token).all() and chosen.tokens.shape == (1, model.network.length)
        assert np.allclose(chosen.log_prob, log_prob, atol=1e-5)
    with pytest.raises(UserError, match="temperature must be 0 or more, got -1"):
        model.decide(inputs, -1.0, [])


def test_a_bundle_says_what_is_taken(tmp_path):
    model = make_model()
    values = []
    for choice in ("mode", "median"):
        policy = load_policy(save(replace(model, settings=replace(model.settings, choice=choice)), tmp_path / choice), ROBOT)
        policy.reset(0, "turn left")
        values.append(policy.act(make_observation()).values)
    assert not np.array_equal(*values)
    bundle = load_bundle(tmp_path / "median")
    del bundle.parameters["choice"]  # as of a bundle that does not know of it
    silent = VlaPolicy(bundle, ROBOT)
    silent.reset(0, "turn left")
    assert np.array_equal(silent.act(make_observation()).values, values[1])


def test_a_chunk_goes_on_where_the_last_one_ended(tmp_path):
    policy = load_policy(save(make_model(temperature=1.0), tmp_path / "vla"), ROBOT)
    policy.reset(0, "turn left")
    first = policy.act(make_observation(0.0))
    assert first.dt == ROBOT.period and np.abs(first.values[0] - ROBOT.home[:8]).max() < 0.1 / 19
    second = policy.act(make_observation(0.2))
    steps = np.abs(np.diff(np.concatenate([first.values, second.values]), axis=0))
    assert steps.max() <= 0.2 / 20 + 1e-9  # waypoints are 20 rows and at most 0.2 rad apart
    late = policy.act(make_observation(5.0))
    assert np.abs(late.values[0] - ROBOT.home[:8]).max() < 0.1 / 19  # too long ago: begins at what is measured


def test_commands_stay_within_the_joints_limits(tmp_path):
    model = make_model(temperature=1.0)
    model.code.ranges.upper[:], model.code.ranges.lower[:] = 50.0, 49.0
    policy = VlaPolicy(model.to_bundle("wild", "", {}, {}), ROBOT)
    policy.reset(0, "turn left")
    assert (policy.act(make_observation()).values <= ROBOT.upper).all()


@pytest.mark.parametrize("family", [None, "smolvlm"])
def test_cameras_of_any_sizes_are_scaled_to_that_of_the_network(family, tmp_path):
    """As demonstrations are, so that a policy reads in training what it reads on the robot."""
    folder = tiny_backbones.make(family, tmp_path) if family else None
    model = make_model(backbone=folder)
    sizes = {"front": (128, 128), "wrist": (96, 64)}
    model = VlaModel.new(spec_for(ROBOT, sizes, 2, 0.1), model.settings, model.state, model.code.ranges)
    policy = VlaPolicy(model.to_bundle("two", "random", {}, {}), ROBOT)
    policy.reset(0, "turn left")
    draw, zeros = np.random.default_rng(0), np.zeros(len(ROBOT.measured_names))
    images = {name: draw.integers(0, 256, (*size, 3)).astype(np.uint8) for name, size in sizes.items()}
    assert np.isfinite(policy.act(Observation(0.0, ROBOT.home, zeros, zeros, images=images)).values).all()
    inputs = model.inputs({name: image[None] for name, image in images.items()}, ROBOT.home[None], ["turn left"])
    assert inputs.images.shape == (1, 2, 32, 32, 3)
    means = images["front"].reshape(32, 4, 32, 4, 3).mean(axis=(1, 3))
    assert np.abs(inputs.images[0, 0].numpy() - means).max() <= 0.5 + 1e-9
    shrunk = {name: scaled(image, (32, 32))[None] for name, image in images.items()}
    assert torch.equal(model.inputs(shrunk, ROBOT.home[None], ["turn left"]).images, inputs.images)


def test_an_image_of_another_size_is_refused(tmp_path):
    policy = load_policy(save(make_model(), tmp_path / "vla"), ROBOT)
    policy.reset(0, "turn left")
    with pytest.raises(UserError, match=r"'images.small' with shape \(32, 32, 3\), the robot gives \(48, 64, 3\)"):
        policy.act(make_observation(size=(48, 64)))


@pytest.mark.parametrize(("text", "message"), [("", "is empty"), ("x" * 10_000, "10000 characters")])
def test_instructions_that_say_nothing_or_too_much_are_refused(text, message, tmp_path):
    policy = load_policy(save(make_model(), tmp_path / "vla"), ROBOT)
    with pytest.raises(UserError, match=message):
        policy.reset(0, text)


def test_a_bundle_of_another_action_space_is_refused(tmp_path):
    folder = save(make_model(), tmp_path / "vla")
    with pytest.raises(UserError, match=r"commands the joints joint1.*robot 'ur5' has"):
        load_policy(folder, load_robot("ur5"))
    bundle = load_bundle(folder)
    with pytest.raises(UserError, match=r"'action.lower' has shape"):
        VlaModel.from_bundle(replace(bundle, tensors={**bundle.tensors, "action.lower": np.zeros(3)}))


def test_damaged_bundles_are_refused():
    bundle = make_model().to_bundle("b", "", {}, {})
    without = {name: value for name, value in bundle.tensors.items() if name != "network.start"}
    with pytest.raises(UserError, match=r"no tensor 'network.start'"):
        VlaModel.from_bundle(replace(bundle, tensors=without))
    with pytest.raises(UserError, match=r"'network.start' is not finite"):
        VlaModel.from_bundle(replace(bundle, tensors={**bundle.tensors, "network.start": np.full((2, 32), np.nan, np.float32)}))
    with pytest.raises(UserError, match=r"has the tensor 'network.more'"):
        VlaModel.from_bundle(replace(bundle, tensors={**bundle.tensors, "network.more": np.zeros(1)}))
    with pytest.raises(UserError, match=r"range of 'joint1' is 0 to 0"):
        VlaModel.from_bundle(replace(bundle, tensors={**bundle.tensors, "action.lower": np.zeros(8), "action.upper": np.zeros(8)}))
    with pytest.raises(UserError, match="parameter 'ticks'"):
        VlaModel.from_bundle(replace(bundle, parameters={**bundle.parameters, "ticks": 0}))


def test_a_period_that_the_robot_does_not_have_is_refused():
    with pytest.raises(UserError, match=r"period is 0.0125 s"):
        spec_for(ROBOT, {"small": (32, 32)}, 2, 0.0125)
    with pytest.raises(UserError, match="at least one camera"):
        spec_for(ROBOT, {}, 2, 0.1)


def test_confidence_is_reported(tmp_path):
    policy = load_policy(save(make_model(), tmp_path / "vla"), ROBOT)
    policy.reset(0, "turn left")
    assert policy.report() == {}
    policy.act(make_observation())
    assert policy.report()["entropy"] == pytest.approx(np.log(256), abs=0.1)


def test_networks_with_random_weights_are_the_same_for_the_same_seed():
    assert digest(make_model(seed=1).network) == digest(make_model(seed=1).network) != digest(make_model(seed=2).network)
    assert torch.is_grad_enabled()
