"""Tests of ros_rl.policies.bundle: what is saved is loaded bit for bit, and what does not fit is refused."""

import os
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.policies import bundle as bundles
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import Bundle, bundle_names, check_fits, load_bundle, save_bundle
from ros_rl.policies.interface import ObservationKey, PolicySpec
from ros_rl.robots.spec import load_robot

ARM = load_robot("arm")
KEYS = (ObservationKey("joint_position", (8,), 3), ObservationKey("images.wrist", (480, 640, 3)), ObservationKey("instruction", ()))
SPEC = PolicySpec("arm", ARM.joint_names, KEYS, 50.0, chunk=4)
BUNDLE = Bundle(
    name="pick",
    actor="mlp",
    method="bc",
    spec=SPEC,
    parameters={"hidden": [64, 64], "scale": 0.1},
    tensors={
        "single": np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32),
        "double": np.array([0.1, -0.0, 1e-310, np.inf]),
        "turned": np.arange(6).reshape(2, 3).T,
        "empty": np.zeros((0, 4), np.float32),
        "half": np.float16([1 / 3]),
    },
    training={"command": "ros-rl train bc", "revision": "abc", "data": "pick"},
    metrics={"success_rate": 0.5},
)


@pytest.fixture
def folder(tmp_path):
    save_bundle(tmp_path / "pick", BUNDLE)
    return tmp_path / "pick"


def assert_same(one: Bundle, other: Bundle) -> None:
    assert replace(one, tensors={}) == replace(other, tensors={})
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert (tensor.dtype, tensor.shape) == (other.tensors[name].dtype, other.tensors[name].shape)
        assert tensor.tobytes() == other.tensors[name].tobytes(), name


def test_a_round_trip_changes_no_bit(folder):
    assert_same(load_bundle(folder), BUNDLE)


def test_a_newer_bundle_takes_the_place_of_the_old_one_and_nothing_else_stays(folder):
    (folder / "left_over.txt").write_text("of the old one")
    newer = replace(BUNDLE, metrics={"success_rate": 0.9}, tensors={"single": np.ones(3)})
    save_bundle(folder, newer)
    assert_same(load_bundle(folder), newer)
    assert [path.name for path in folder.parent.iterdir()] == ["pick"]
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.json", "policy.yaml", "weights.safetensors"]


@pytest.mark.parametrize("call", [1, 2])
def test_a_failure_between_writing_and_renaming_leaves_the_old_bundle_whole(call, folder, monkeypatch):
    calls, rename = [], os.replace

    def fail(*arguments):
        calls.append(arguments)
        if len(calls) == call:
            raise OSError("no space")
        rename(*arguments)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        save_bundle(folder, replace(BUNDLE, metrics={"success_rate": 0.9}))
    assert_same(load_bundle(folder), BUNDLE)
    assert [path.name for path in folder.parent.iterdir()] == ["pick"]


def test_a_failure_while_writing_leaves_no_bundle_that_can_be_read(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr(bundles, "save_file", fail)
    with pytest.raises(OSError, match="no space"):
        save_bundle(tmp_path / "pick", BUNDLE)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_sees_only_whole_bundles(tmp_path, monkeypatch):
    seen, rename = [], os.replace

    def look(source, target):
        seen.append(sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")))
        rename(source, target)
        assert_same(load_bundle(target), BUNDLE)

    monkeypatch.setattr(os, "replace", look)
    save_bundle(tmp_path / "pick", BUNDLE)
    assert seen == [[]]


@pytest.mark.parametrize("file", ["policy.yaml", "weights.safetensors", "metrics.json"])
def test_a_missing_file_is_named(file, folder):
    (folder / file).unlink()
    with pytest.raises(UserError, match=f"pick: the bundle lacks {file}"):
        load_bundle(folder)


def test_an_unknown_bundle_lists_those_that_ship():
    with pytest.raises(UserError, match=r"unknown policy bundle 'arm_cirle', did you mean 'arm_circle'\? \(known: arm_circle, "):
        load_bundle("arm_cirle")


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("weights.safetensors", lambda data: b""),
        ("weights.safetensors", lambda data: data[:-1]),
        ("weights.safetensors", lambda data: b"\xff" * 8 + data[8:]),
        ("weights.safetensors", lambda data: b"PK\x03\x04" + data),
        ("metrics.json", lambda data: data[:-3]),
        ("metrics.json", lambda data: b"\xff\xfe"),
        ("metrics.json", lambda data: b"[]"),
    ],
)
def test_a_damaged_file_is_refused(file, change, folder):
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(change(data))
    with pytest.raises(UserError, match="pick: damaged bundle: "):
        load_bundle(folder)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("name", ["weights.pt", "weights.pkl", "weights.safetensors", "metrics.json"])
def test_no_pickle_is_ever_loaded(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / name).write_bytes(pickle.dumps(Bomb()))
    if name in ("weights.pt", "weights.pkl"):
        (folder / "weights.safetensors").unlink()
    with pytest.raises(UserError):
        load_bundle(folder)
    assert not (folder / "exploded").exists()


def test_policy_yaml_makes_no_python_objects(folder):
    path = folder / "policy.yaml"
    path.write_text(path.read_text().replace("scale: 0.1", "scale: !!python/object/apply:os.getcwd []"))
    with pytest.raises(UserError, match=r"policy\.yaml:\d+: not valid YAML"):
        load_bundle(folder)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("actor: mlp", "acter: mlp", "unknown key 'acter', did you mean 'actor'?"),
        ("method: bc\n", "", "key 'method' is missing"),
        ("rate: 50.0", "rate: fast", "'spec.rate' should be a valid number, got 'fast'"),
        ("rate: 50.0", "rate: 0", "'spec.rate' should be greater than 0, got 0"),
        ("chunk: 4", "chunk: 2.5", "'spec.chunk' should be a valid integer"),
        ("chunk: 4", "chunk: 0", "'spec.chunk' should be greater than 0, got 0"),
        ("history: 3", "history: 0", "'spec.observation.0.history' should be greater than 0, got 0"),
        ("- 480", "- -480", "'spec.observation.1.shape.0' should be greater than or equal to 0, got -480"),
        ("    history: 3", "    histori: 3", "unknown key 'spec.observation.0.histori'"),
        ("robot: arm", "robot: a: b", "not valid YAML: mapping values are not allowed here"),
    ],
)
def test_a_mistake_in_policy_yaml_is_named_with_its_line(right, wrong, message, folder):
    path = folder / "policy.yaml"
    text = path.read_text()
    assert text.count(right) == 1
    path.write_text(text.replace(right, wrong))
    with pytest.raises(UserError) as caught:
        load_bundle(folder)
    line = 1 if "missing" in message else text[: text.index(right)].count("\n") + 1
    assert str(caught.value).startswith(f"{path}:{line}: {message}")


def test_a_bundle_for_the_robot_fits():
    check_fits(BUNDLE, ARM)
    check_fits(replace(BUNDLE, spec=replace(SPEC, rate=200.0)), ARM)
    check_fits(replace(BUNDLE, spec=replace(SPEC, robot="another")), ARM)


@pytest.mark.parametrize("joints", [ARM.joint_names[:-1], (*ARM.joint_names[:-1], "finger"), ARM.joint_names[::-1]])
def test_c2_a_bundle_for_other_joints_is_refused_with_both_lists(joints):
    with pytest.raises(UserError) as caught:
        check_fits(replace(BUNDLE, spec=replace(SPEC, joint_names=joints)), ARM)
    lists = f"{', '.join(joints)} (robot 'arm'), robot 'arm' has {', '.join(ARM.joint_names)}"
    assert str(caught.value) == f"bundle 'pick' commands the joints {lists}"


@pytest.mark.parametrize("rate", [30.0, 400.0, 150.0, 0.3, float("inf"), 200.001])
def test_a_rate_that_does_not_divide_the_robots_is_refused_with_both(rate):
    with pytest.raises(UserError, match=f"'pick' acts at {rate:g} Hz, which does not divide the 200 Hz of robot 'arm'"):
        check_fits(replace(BUNDLE, spec=replace(SPEC, rate=rate)), ARM)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (ObservationKey("joint_position", (7,)), r"reads 'joint_position' with shape \(7,\), robot 'arm' measures it with shape \(8,\)"),
        (ObservationKey("base_quat", (4,)), r"reads 'base_quat' with shape \(4,\), robot 'arm' does not measure it"),
        (ObservationKey("command", (2,)), r"reads 'command' with shape \(2,\), robot 'arm' measures it with shape \(3,\)"),
        (ObservationKey("images.wrist", (96, 96, 3)), r"'images\.wrist' with shape \(96, 96, 3\), robot 'arm' .*\(480, 640, 3\)"),
    ],
)
def test_other_dimensions_are_refused_with_both(key, message):
    with pytest.raises(UserError, match=message):
        check_fits(replace(BUNDLE, spec=replace(SPEC, observation=(key,))), ARM)


def test_a_bundle_of_another_robot_is_refused_before_it_can_act(tmp_path):
    with pytest.raises(UserError, match="bundle 'cartpole_lqr' commands the joints slider"):
        load_policy("cartpole_lqr", ARM)
    with pytest.raises(UserError, match="unknown actor in bundle 'pick' 'mlp'"):
        load_policy(BUNDLE, ARM)


def test_what_is_left_of_a_killed_save_is_not_listed(tmp_path, monkeypatch):
    names = bundle_names()
    shutil.copytree(load_bundle_folder("cartpole_lqr"), tmp_path / "policies" / "cartpole_lqr")
    shutil.copytree(load_bundle_folder("cartpole_lqr"), tmp_path / "policies" / ".cartpole_lqr.x1y2")
    monkeypatch.setattr(bundles.paths, "share_dir", lambda: tmp_path)
    assert bundle_names() == ["cartpole_lqr"]
    assert "cartpole_lqr" in names


def load_bundle_folder(name: str):
    return bundles.paths.find("policy bundle", bundles.BUNDLE_FILES, name).parent


@pytest.mark.parametrize("name", bundle_names())
def test_bundles_that_ship_fit_their_robot_and_say_how_they_were_made(name):
    bundle = load_bundle(name)
    check_fits(bundle, load_robot(bundle.spec.robot))
    assert {"command", "revision", "data"} <= bundle.training.keys()
    assert bundle.metrics
