"""Tests of ros_rl.sim.tabletop: every task of the suite, swept, and that no split knows anything of another."""

import dataclasses
import itertools

import mujoco
import numpy as np
import pytest

from ros_rl.errors import UserError
from ros_rl.robots.spec import load_robot
from ros_rl.sim.batch import BatchSim
from ros_rl.sim.build import build
from ros_rl.sim.gym import task_id
from ros_rl.sim.reset import reset
from ros_rl.sim.tabletop import CAMERAS, SPLITS, load_split, variants
from ros_rl.sim.task import BatchMonitor, PoseRange, TaskMonitor, load_task, suite_names, task_names
from ros_rl.sim.task_env import TaskEnv, TaskVectorEnv

SCENES = ("tabletop_blocks", "tabletop_fixtures")


@pytest.fixture(scope="module")
def models():
    return {scene: build(load_robot("arm"), scene) for scene in SCENES}


@pytest.fixture(scope="module")
def splits():
    return {name: load_split(name) for name in SPLITS}


def test_there_are_enough_tasks_and_none_has_the_name_of_another(splits):
    chains = {item.family for item in splits["long_horizon"]}
    assert len(set(suite_names()) - chains) >= 16
    assert all(2 <= len(item.task.plan) <= 4 for item in splits["long_horizon"])
    ids = [task_id(name) for name in (*task_names(), *suite_names())]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("family", suite_names())
def test_every_variant_is_a_task_with_wordings_of_its_own(family):
    seen = set()
    for task in variants(family):
        TaskMonitor(task, load_robot("arm"))
        texts = (task.instruction, *task.paraphrases, *task.unseen.paraphrases)
        assert len(set(texts)) == len(texts)
        assert not seen & set(texts) and not any("{" in text for text in texts)
        seen |= set(texts)
        assert len(task.paraphrases) >= (3 if task.long_horizon else 6)
        assert task.long_horizon or len(task.unseen.paraphrases) >= 3
        assert set(task.unseen.variants) < {*task.variants, ""}


def test_splits_are_disjoint(splits):
    """In (variant, instruction, seed) all of them; beyond that, each in what it is there for."""
    whole = {name: {(item.task.name, item.task.instruction) for item in items} for name, items in splits.items()}
    seeds = {name: {(item.seeds.start, item.seeds.stop) for item in items} for name, items in splits.items()}
    for one, other in itertools.combinations(SPLITS, 2):
        assert all(a[1] <= b[0] or b[1] <= a[0] for a in seeds[one] for b in seeds[other])
        if {one, other} != {"train", "unseen_positions"}:
            assert not whole[one] & whole[other]
    wordings = {name: {text for _, text in pairs} for name, pairs in whole.items()}
    tasks = {name: {task for task, _ in pairs} for name, pairs in whole.items()}
    for name in set(SPLITS) - {"train", "unseen_positions"}:
        assert not wordings[name] & wordings["train"]
    assert not tasks["unseen_pairings"] & tasks["train"] and not tasks["long_horizon"] & tasks["train"]
    assert tasks["unseen_paraphrases"] == tasks["unseen_positions"] == tasks["train"]


def test_unseen_positions_are_where_training_puts_nothing(splits):
    """Neither the task itself nor any other of its scene, in training, puts the object there."""

    def apart(one: PoseRange, other: PoseRange) -> bool:
        return any(a[1] < b[0] or b[1] < a[0] for a, b in ((one.x, other.x), (one.y, other.y)))

    trained = {item.task.name: item.task for item in splits["train"]}
    for item in splits["unseen_positions"]:
        moved = item.task.unseen.objects
        assert moved
        for name, where in moved.items():
            assert item.task.reset.objects[name] == where
            for other in trained.values():
                if other.scene == item.task.scene and name in other.reset.objects:
                    assert apart(where, other.reset.objects[name]), (item.task.name, name, other.name)


def test_no_task_of_training_asks_for_all_of_an_unseen_pairing(splits):
    asked = {item.task.name: item.task.plan for item in splits["train"]}
    for item in splits["unseen_pairings"]:
        for name, plan in asked.items():
            assert not all(skill in plan for skill in item.task.plan), (item.task.name, name)


@pytest.mark.parametrize(
    ("name", "thing", "state"),
    [
        ("press_button:green", "red_button", [0.008]),
        ("press_two_buttons:green_red", "red_button", [0.008]),
        ("press_two_buttons:green_red", "yellow_button", [0.008]),
        ("store_and_press:red_green", "yellow_button", [0.008]),
        ("slide:left", "lever", [-0.06]),
        ("turn_knob:clockwise", "knob", [1.4]),
        ("slide_and_turn:left_clockwise", "knob", [1.4]),
        ("slide_and_turn:left_clockwise", "knob", [-1.4]),
        ("wipe:leftwards", "sponge", [0.45, -0.07, 0.015]),
        ("put_on_square:red_purple", "red_block", [0.66, -0.13, 0.02]),
        ("push_past_line:red", "blue_block", [0.63, 0.0, 0.02]),
    ],
)
def test_doing_something_else_fails(models, name, thing, state):
    """Else a policy that does all that a scene offers, one after the other, would succeed without reading."""
    task = load_task(name)
    batch, monitor = BatchSim(models[task.scene], 1, threads=1), BatchMonitor(task, load_robot("arm"), (1,))
    batch.reset([0], [5], task)
    seen = batch.observe(task)
    assert not monitor.update(seen).done.any()
    seen.privileged[thing][0, : len(state)] = state
    judged = monitor.update(seen)
    assert judged.terminated.all() and not judged.success.any()
    assert thing in monitor.reason(seen, judged, 0) or "scene_joint" in monitor.reason(seen, judged, 0)


@pytest.mark.parametrize("family", suite_names())
def test_picking_up_another_block_fails(models, family):
    for task in variants(family):
        named = {word for skill in task.plan for word in vars(skill.what).values() if isinstance(word, str)}
        blocks = {name for name in models[task.scene].objects if name.endswith("_block")}
        wrong = sorted(blocks - named) if blocks & named else []
        batch = BatchSim(models[task.scene], max(1, len(wrong)), threads=1)
        batch.reset(range(len(batch)), [5] * len(batch), task)
        seen, monitor = batch.observe(task), BatchMonitor(task, load_robot("arm"), (len(batch),))
        for copy, name in enumerate(wrong):
            seen.privileged[name][copy, 2] = 0.15
        assert monitor.update(seen).terminated.tolist() == [bool(wrong)] * len(batch), task.name


def test_unseen_pairings_ask_for_what_training_shows(splits):
    """The same scene and ranges of the same objects as in training: only what is asked for differs."""
    trained = {item.family: item.task for item in splits["train"]}
    for item in splits["unseen_pairings"]:
        assert item.task.scene == trained[item.family].scene
        assert item.task.reset.objects.keys() == trained[item.family].reset.objects.keys()


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(UserError, match="unknown split 'test'"):
        load_split("test")


@pytest.mark.parametrize("family", suite_names())
def test_initial_states_are_finite_repeat_and_are_not_solved_yet(models, family):
    for task in variants(family):
        model = models[task.scene]
        spec = model.spec
        batch, monitor = BatchSim(model, 2, threads=1), BatchMonitor(dataclasses.replace(task, time_limit=100.0), spec, (2,))
        batch.reset([0, 1], [5, 5], task)
        seen = batch.observe(task)
        for name, value in {"joints": seen.joint_position, **seen.privileged}.items():
            assert np.isfinite(value).all()
            np.testing.assert_array_equal(value[0], value[1], err_msg=name)
            assert not np.shares_memory(value, batch.qpos)
        assert not monitor.update(seen).success.any()
        data = mujoco.MjData(model.mj)
        for ranges in (task.reset, dataclasses.replace(task.reset, objects={**task.reset.objects, **task.unseen.objects})):
            for seed in range(3):
                reset(model, data, dataclasses.replace(task, reset=ranges), seed)
                assert data.contact.dist.min(initial=0.0) > -2e-3, (task.name, seed)


def test_a_batch_holds_several_tasks_of_a_scene(models):
    tasks = [load_task("put_in_bowl:red"), load_task("left_of:green_yellow"), load_task("tower_of_three")]
    batch = BatchSim(models["tabletop_blocks"], 3, threads=1)
    for copy, task in enumerate(tasks):
        batch.reset([copy], [copy], task)
    for copy, task in enumerate(tasks):
        data = mujoco.MjData(batch.mj)
        reset(batch.model, data, task, copy)
        np.testing.assert_array_equal(batch.qpos[copy], data.qpos)


def test_an_environment_takes_a_variant_and_shows_both_cameras():
    env = TaskEnv("put_in_bowl:yellow", cameras=CAMERAS)
    first, _ = env.reset(seed=1)
    again, _ = env.reset(seed=1)
    for camera in CAMERAS:
        assert first[camera].shape == (128, 128, 3) and first[camera].std() > 20
        np.testing.assert_array_equal(first[camera], again[camera])
        assert not np.shares_memory(first[camera], again[camera])
    assert "yellow" in env.vector.task.instruction
    assert "privileged" not in " ".join(env.vector.fields)
    env.close()
    vector = TaskVectorEnv("open_drawer", num_envs=2, threads=1)
    seen, _ = vector.reset(seed=0)
    assert np.isfinite(seen).all() and seen.shape == (2, 16)


@pytest.mark.parametrize(("scene", "colours"), [(SCENES[0], ("red", "green", "blue", "yellow")), (SCENES[1], ("red", "blue"))])
def test_blocks_are_told_apart_by_colour_in_the_front_picture(models, scene, colours):
    """The pixels of each block, found by moving it away, are nearest to its own colour among all of the scene's blocks."""
    from ros_rl.sim.camera import CameraRenderer

    model = models[scene]
    renderer, data = CameraRenderer(model), mujoco.MjData(model.mj)
    reset(model, data, None, 0)
    picture = renderer.render(data, "front").astype(int)
    paint = {colour: 255 * model.mj.material(colour).rgba[:3] for colour in colours}
    hue = np.array([value / np.linalg.norm(value) for value in paint.values()])
    for index, colour in enumerate(colours):
        where = model.free_qpos(model.object_joint(f"{colour}_block"))
        kept = data.qpos[where].copy()
        data.qpos[where][:3] = [0.0, 5.0, 0.0]
        mujoco.mj_forward(model.mj, data)
        pixels = picture[np.abs(renderer.render(data, "front") - picture).sum(axis=-1) > 30]
        data.qpos[where] = kept
        assert len(pixels) >= 20
        nearest = np.argmax(pixels @ hue.T / np.linalg.norm(pixels, axis=-1, keepdims=True), axis=-1)
        assert (nearest == index).mean() > 0.9
    renderer.close()
