import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save

from ros_rl.errors import UserError
from ros_rl.learning.bc import BcArgs, Cloner, Train, cloning_loss, continued_model, main, new_model, schedule
from ros_rl.learning.demonstrations import Demonstrations, Episode, Sampling, Source
from ros_rl.policies.bundle import load_bundle, save_bundle
from ros_rl.policies.embedded_vla import EmbeddedConfig
from ros_rl.policies.vla import VlaModel, digest
from ros_rl.robots.spec import load_robot
from ros_rl.sim.tabletop import JUDGING_SEEDS, SPLITS, TRAINING_SEEDS, load_split, training_tasks

SAMPLING = Sampling(("small",), (32, 32), 2, 0.1)
SOURCE = Source("arm", {"small": (32, 32)}, SAMPLING)
ARGS = BcArgs(steps=120, batch=32, learning_rate=3e-3, ahead_weight=0.0, seed=0)
ROBOT = load_robot("arm")


def make_episode(seed, rows=20):
    """The image (a bright side) says how the first joint turns, the instruction how the second does."""
    draw = np.random.default_rng(seed)
    images = np.zeros((rows, 1, 32, 32, 3), np.uint8)
    side = draw.integers(0, 2, rows)
    images[side == 0, :, :, :16], images[side == 1, :, :, 16:] = 200, 200
    sign = 1 if seed % 2 else -1
    position = ROBOT.home + draw.normal(size=(rows, len(ROBOT.home))) * 0.05
    waypoints = np.repeat(position[:, None, :8], 2, axis=1)
    turn = np.stack([(2 * side - 1) * 0.1, np.full(rows, sign * 0.1)], axis=-1)
    waypoints[:, 0, :2] += turn / 2
    waypoints[:, 1, :2] += turn
    waypoints[..., 2:7] += draw.uniform(-0.02, 0.02, (rows, 2, 5))
    waypoints[..., 7] = 0.04
    return Episode("turn left" if sign > 0 else "turn right", images, position, waypoints)


@pytest.fixture(scope="module")
def data():
    return Demonstrations.of([make_episode(seed) for seed in range(8)])


def make(data, seed=0, words=("left", "right", "turn")):
    torch.manual_seed(seed)
    network = EmbeddedConfig([32, 32], "words", list(words), "parallel", 32, 2, 2)
    return new_model(SOURCE, data, network)


@pytest.mark.filterwarnings("ignore:.*hardly moves")
def test_image_and_instruction_are_learned(data):
    model = make(data)
    cloner = Cloner(model, data, ARGS)
    first = cloner.update()
    for _ in range(ARGS.steps - 1):
        last = cloner.update()
    assert first["log_prob"] == pytest.approx(-np.log(256), abs=0.3)
    assert last["log_prob"] > first["log_prob"] + 0.5
    fresh = make_episode(101)
    inputs = model.inputs({"small": fresh.images[:, 0]}, fresh.position, [fresh.instruction] * 20)
    tokens = model.network.decode(inputs).tokens.numpy()
    turned = model.code.decode(tokens, fresh.position[:, :8])[:, 1, :2] - fresh.position[:, :2]
    np.testing.assert_allclose(turned, fresh.waypoints[:, 1, :2] - fresh.position[:, :2], atol=0.05)


@pytest.mark.filterwarnings("ignore:.*hardly moves")
def test_where_the_arm_will_be_later_is_learned_beside_the_chunk_and_leaves_no_trace_in_its_network(data):
    cloner = Cloner(make(data), data, replace(ARGS, ahead=(0.2, 0.4), ahead_weight=1.0))
    figures = [cloner.update() for _ in range(40)]
    assert figures[-1]["ahead"] < 0.7 * figures[0]["ahead"]
    assert set(cloner.model.network.state_dict()) == set(make(data).network.state_dict())
    # The chunk does not see the questions that come after it.
    inputs = cloner._augmented(np.arange(4), np.random.default_rng(0))
    with torch.no_grad():
        logits, later = cloner._answers(inputs, cloner._tokens[:4])
        torch.testing.assert_close(logits, cloner.model.network.logits(inputs, cloner._tokens[:4]), rtol=1e-4, atol=1e-5)
    assert later.shape == (4, 2, 32)
    without = Cloner(make(data), data, ARGS)
    assert without.update()["ahead"] == 0.0
    with pytest.raises(UserError, match=r"ahead must be times of at least 0\.1 s, got 0\.01"):
        Cloner(make(data), data, replace(ARGS, ahead=(0.01,), ahead_weight=1.0))


@pytest.mark.filterwarnings("ignore:.*hardly moves")
def test_bfloat16_learns_the_same_within_its_digits_and_keeps_weights_in_float32(data):
    logs = {}
    for precision in ("float32", "bfloat16"):
        cloner = Cloner(make(data), data, replace(ARGS, precision=precision))
        logs[precision] = [cloner.update()["log_prob"] for _ in range(40)]
        assert {value.dtype for value in cloner.model.network.parameters()} == {torch.float32}
        fused = cloner.model.network.trunk.config._attn_implementation != "eager"
        assert fused == (precision == "float32"), "the plain attention is faster in bfloat16 only"
    assert logs["float32"] != logs["bfloat16"]
    np.testing.assert_allclose(logs["bfloat16"], logs["float32"], atol=0.1)


@pytest.mark.filterwarnings("ignore:.*hardly moves")
def test_a_compiled_network_learns_the_same(data, monkeypatch):
    logs = []
    for compiled in (False, True):
        model = make(data)
        asked = []
        monkeypatch.setattr(torch.nn.Module, "compile", lambda part, asked=asked: asked.append(type(part).__name__))
        cloner = Cloner(model, data, replace(ARGS, compile=compiled))
        assert asked == (["_Camera", "LlamaModel"] if compiled else [])
        monkeypatch.undo()
        for part in (*model.network.cameras, model.network.trunk) if compiled else ():
            part.compile(backend="aot_eager")  # traced and differentiated as compiled code is, without a C++ compiler
        logs.append([cloner.update()["log_prob"] for _ in range(5)])
    np.testing.assert_allclose(logs[0], logs[1], atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*hardly moves")
def test_a_stopped_training_goes_on_as_if_it_had_not_been(data, tmp_path):
    def run(cloner, steps):
        for _ in range(steps):
            cloner.update()
        return digest(cloner.model.network)

    args = replace(ARGS, ahead=(0.2,), ahead_weight=1.0)
    whole = run(Cloner(make(data), data, args), 6)
    half = Cloner(make(data), data, args)
    run(half, 3)
    half.save(tmp_path / "c.safetensors")
    rest = Cloner(make(data, seed=5), data, args)
    rest.load(tmp_path / "c.safetensors")
    assert rest.step == 3 and run(rest, 3) == whole
    with pytest.raises(UserError, match="batch=32, not 64"):
        Cloner(make(data), data, replace(args, batch=64)).load(tmp_path / "c.safetensors")
    moved = replace(data, waypoints=data.waypoints + 0.01)
    wider = replace(data, waypoints=data.waypoints * 2)
    others = {
        "demonstrations=": Cloner(make(data), moved, args),
        "ranges=": Cloner(make(wider), data, args),
        "network=": Cloner(make(data, words=["turn"]), data, args),
    }
    for message, other in others.items():
        before = digest(other.model.network)
        with pytest.raises(UserError, match=f"is of a training with {message}"):
            other.load(tmp_path / "c.safetensors")
        assert other.step == 0 and digest(other.model.network) == before
    (tmp_path / "c.safetensors").write_bytes(b"x")
    with pytest.raises(UserError, match="damaged checkpoint"):
        rest.load(tmp_path / "c.safetensors")


@pytest.mark.filterwarnings("ignore:.*hardly moves")
def test_a_checkpoint_that_says_nothing_of_use_is_refused(data, tmp_path):
    path = tmp_path / "c.safetensors"
    for damaged in ('{"what": "[]"}', '{"what": "3", "counters": "{}"}'):
        path.write_bytes(save({}, json.loads(damaged)))
        with pytest.raises(UserError, match="damaged checkpoint"):
            Cloner(make(data), data, ARGS).load(path)


def test_the_loss_without_smoothing_is_the_likelihood_and_with_it_neighbours_are_nearly_right():
    logits, tokens = torch.randn(2, 5, 256), torch.tensor([[0, 3, 255, 100, 7], [9, 9, 9, 9, 9]])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    torch.testing.assert_close(cloning_loss(logits, tokens, 0.0), expected)
    near, far = torch.full((2, 256), -9.0), torch.full((2, 256), -9.0)
    near[:, 101], far[:, 140] = 9.0, 9.0
    target = torch.tensor([100, 100])
    assert cloning_loss(near, target, 1.0) < cloning_loss(far, target, 1.0) - 1
    assert cloning_loss(near, target, 0.0) == pytest.approx(float(cloning_loss(far, target, 0.0)))


def test_the_learning_rate_rises_and_falls():
    values = [schedule(step, 100) for step in range(100)]
    assert values[0] == pytest.approx(0.2) and max(values) == 1.0 and values[-1] < 0.012
    assert np.argmax(values) == 4 or values[5] == 1.0


def test_ranges_come_from_the_data_and_what_does_not_move_is_named(data):
    with pytest.warns(UserWarning, match="finger_joint1"):
        model = make(data)
    assert model.code.ranges.upper[0] == pytest.approx(0.1, abs=0.002) and model.code.ranges.lower[0] == pytest.approx(-0.1, abs=0.002)
    assert model.code.relative.tolist() == [True] * 7 + [False]
    data.waypoints[0, 0, 2] = np.nan
    with pytest.raises(UserError, match="joint3' is not finite"):
        make(data)
    data.waypoints[0, 0, 2] = data.position[0, 2]


def test_the_command_writes_a_bundle(tmp_path, capsys, data):
    folder = tmp_path / "demos"
    SOURCE.mark(folder)
    for seed in range(2):
        make_episode(seed).save(folder / f"{seed}.safetensors")
    words = ["train", "--demos", str(folder), "--out", str(tmp_path / "vla"), "--bc.steps", "2", "--bc.batch", "4"]
    assert main(words) == 0
    assert "finger_joint1: hardly moves" in capsys.readouterr().err
    bundle = load_bundle(tmp_path / "vla")
    assert bundle.method == "bc" and bundle.training["data"].startswith("40 samples")
    assert digest(VlaModel.from_bundle(bundle).network) == bundle.metrics["digest"]
    made = make_episode(2)
    replace(made, waypoints=made.waypoints + 0.4, instruction="say it in other words").save(folder / "2.safetensors")
    assert main(words) == 2
    assert "vla.checkpoint.safetensors: is of a training with demonstrations=" in capsys.readouterr().err
    assert load_bundle(tmp_path / "vla").tensors.keys() == bundle.tensors.keys()
    assert main(["train", "--demos", str(tmp_path / "none"), "--out", str(tmp_path / "x")]) == 2
    assert "holds no demonstrations" in capsys.readouterr().err
    assert Train(folder, tmp_path).language == "words"


@pytest.mark.filterwarnings("ignore:.*hardly moves")
def test_training_goes_on_from_a_bundle_with_its_network_and_its_ranges(tmp_path, capsys, data):
    folder, first, second = (tmp_path / name for name in ("demos", "first", "second"))
    replace(SOURCE, sizes={"small": (64, 64)}).mark(folder)
    for seed in range(2):
        make_episode(seed).save(folder / f"{seed}.safetensors")
    model = make(data)
    save_bundle(first, model.to_bundle("first", "bc", {}, {}))
    words = ["train", "--demos", str(folder), "--policy", str(first), "--out", str(second), "--bc.batch", "4", "--bc.steps"]
    # The first step of a training is a twentieth of the largest: with that at almost nothing the weights are the bundle's.
    assert main([*words, "2", "--bc.learning-rate", "1e-12", "--bc.weight-decay", "0"]) == 0
    bundle = load_bundle(second)
    assert bundle.metrics["started_from"] == digest(model.network)
    assert all(np.allclose(bundle.tensors[name], value, atol=1e-9) for name, value in model.to_bundle("", "bc", {}, {}).tensors.items())
    # Its cameras are those of the demonstrations, though the network reads 32 x 32 still.
    assert ("images.small", (64, 64, 3)) in [(key.name, key.shape) for key in bundle.spec.observation]
    assert VlaModel.from_bundle(bundle).network.image == (32, 32)

    capsys.readouterr()
    save_bundle(first, make(data, seed=1).to_bundle("first", "bc", {}, {}))
    assert main([*words, "2", "--bc.learning-rate", "1e-12", "--bc.weight-decay", "0"]) == 2
    assert f"second.checkpoint.safetensors: is of a training with policy={digest(model.network)}, not " in capsys.readouterr().err
    bundles = {
        "swapped": replace(bundle, spec=replace(bundle.spec, joint_names=bundle.spec.joint_names[::-1])),
        "mute": make(data, words=["turn"]).to_bundle("mute", "bc", {}, {}),
    }
    for name, other in bundles.items():
        save_bundle(tmp_path / name, replace(other, name=name))
    for extra, message in {
        ("--language", "sentence"): "language: leave it out, the policy",
        ("--lora", "4"): "lora: leave it out, the policy",
        ("--policy", "arm_circle"): "bundle 'arm_circle' is played by",
        ("--policy", str(tmp_path / "none")): "unknown policy bundle",
        ("--policy", str(tmp_path / "third")): "out: ",
        ("--policy", str(tmp_path / "swapped")): "bundle 'swapped' commands the joints",
        ("--policy", str(tmp_path / "mute")): "the vocabulary of 'mute' lacks left, right; ",
        ("--policy", "tabletop_vla"): "bundle 'tabletop_vla' has cameras ('front', 'hand'), the demonstrations have ('small',)",
    }.items():
        assert main([*words, "2", "--out", str(tmp_path / "third"), *extra]) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1, said
    assert not (tmp_path / "third").exists()


@pytest.mark.filterwarnings("ignore:.*hardly moves")
def test_a_new_training_does_not_go_on_with_the_checkpoint_of_one_that_began_with_a_policy(data, tmp_path):
    path = tmp_path / "c.safetensors"
    Cloner(make(data), data, ARGS, start="0123").save(path)
    with pytest.raises(UserError, match="is of a training with policy=0123, not ;"):
        Cloner(make(data), data, ARGS).load(path)
    Cloner(make(data, seed=1), data, ARGS, start="0123").load(path)


@pytest.mark.filterwarnings("ignore:.*hardly moves")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cameras": ("large",)}, r"cameras \('small',\), the demonstrations have \('large',\)"),
        ({"image": (64, 64)}, r"image \(32, 32\), the demonstrations have \(64, 64\)"),
        ({"ticks": 3}, "ticks 2, the demonstrations have 3"),
        ({"period": 0.2}, r"period 0\.1, the demonstrations have 0\.2"),
    ],
)
def test_demonstrations_that_are_cut_otherwise_than_a_policy_acts_are_refused(data, change, message):
    with pytest.raises(UserError, match="bundle 'first' has " + message):
        continued_model(make(data).to_bundle("first", "bc", {}, {}), replace(SOURCE, sampling=replace(SAMPLING, **change)), data)


def test_targets_beyond_the_ranges_of_a_policy_are_named(data):
    with pytest.warns(UserWarning, match="hardly moves"):
        bundle = make(data).to_bundle("first", "bc", {}, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        continued_model(bundle, SOURCE, data)
    far = data.waypoints.copy()
    far[:16, :, 2] += 0.5  # a tenth of the 160 samples, beyond ±0.02
    with pytest.warns(UserWarning, match=r"targets outside of the policy's ranges are cut: joint3 1\d\.\d%$"):
        continued_model(bundle, SOURCE, replace(data, waypoints=far))


@pytest.mark.filterwarnings("ignore:.*hardly moves")
def test_the_command_shortens_a_policy(data, tmp_path, capsys):
    whole, short = tmp_path / "whole", tmp_path / "short"
    model = make(data)
    save_bundle(whole, model.to_bundle("whole", "bc", {"command": "train"}, {"tabletop": {"success_rate": 0.5}}))
    assert main(["shorten", str(whole), "--ticks", "1", "--out", str(short)]) == 0
    bundle = load_bundle(short)
    found = VlaModel.from_bundle(bundle)
    assert found.settings.ticks == 1 and bundle.spec.chunk == found.rows == 20
    assert bundle.training["command"] == "train; shortened to 1 waypoints"
    # What was measured of the whole policy is not true of this one.
    assert bundle.metrics == {"digest": digest(found.network), "started_from": digest(model.network)}
    assert main(["shorten", str(whole), "--ticks", "3", "--out", str(tmp_path / "more")]) == 2
    assert "ticks must be from 1 to the 2 of bundle 'whole', got 3" in capsys.readouterr().err and not (tmp_path / "more").exists()


def test_bad_words_are_one_line_before_anything_is_collected_or_trained(tmp_path, capsys):
    folder, bundle = tmp_path / "demos", tmp_path / "vla"
    folder.mkdir()
    make_episode(0).save(folder / "0.safetensors")
    collect, train = ["collect", "push_button", "--folder", str(tmp_path / "more")], ["train", "--demos", str(folder), "--out", str(bundle)]
    for words, message in {
        (*collect, "--image", "50"): "image must be a multiple of 16, got 50",
        (*collect, "--period", "0"): "period is 0 s, it must be a multiple of the control period",
        (*collect, "--episodes", "0"): "episodes must be 1 or more",
        (*collect, "--first-seed", "999999", "--episodes", "2"): "with seeds from 0 to 999999, got 2 from 999999 on",
        ("collect", "put_in_bowl:yellow", *collect[2:]): "'put_in_bowl:yellow' is kept for the split unseen_pairings",
        ("collect", "tower_of_three", *collect[2:]): "'tower_of_three' is kept for the split long_horizon",
        (*collect, "--after", "arm_circle"): "bundle 'arm_circle' is played by",
        (*collect, "--after", "tabletop_vla"): "has cameras ('front', 'hand'), the demonstrations have ('overhead', 'wrist')",
        (
            *collect,
            "--after",
            "tabletop_vla",
            "--cameras",
            "front",
            "hand",
            "--robot",
            "panda",
        ): "bundle 'tabletop_vla' commands the joints",
        (*collect, "--after", "tabletop_vla", "--scatter"): "scatter: leave it out with --after",
        tuple(train): "lacks source.json",
        (*train, "--lora", "-1"): "lora must be 0 or more",
        ("evaluate", "arm_circle", "--tasks", "push_button", "--episodes", "0"): "episodes must be from 1",
        ("evaluate", "arm_circle", "--tasks", "push_button"): "bundle 'arm_circle'",
    }.items():
        assert main(list(words)) == 2, words
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1, said
    assert not (tmp_path / "more").exists() and not bundle.exists()
    for word in ("--decoding", "--language"):
        with pytest.raises(SystemExit):
            main([*train, word, "foo"])


def test_what_is_trained_on_is_never_what_is_judged_by():
    """Demonstrations and GRPO have the seeds of the split `train`; no other split and no evaluation has any of them."""
    assert {item.seeds for item in load_split("train")} == {TRAINING_SEEDS}
    others = [JUDGING_SEEDS, *(load_split(name)[0].seeds for name in SPLITS if name != "train")]
    assert not any(set(seeds) & set(TRAINING_SEEDS) for seeds in others)
    assert len({seed for seeds in others for seed in seeds}) == sum(map(len, others))
    trained = {item.task.name for item in load_split("train") if item.family == "put_in_bowl"}
    assert {task.name for task in training_tasks("put_in_bowl")} == trained == {f"put_in_bowl:{c}" for c in ("red", "green", "blue")}
    assert [task.name for task in training_tasks("stack:blue_green")] == ["stack:blue_green"]
    assert [task.name for task in training_tasks("push_button")] == ["push_button"]
