import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from sample_episodes import SPEC, make_columns, make_videos, shade
from token_samples import make_model, turning

from ros_rl.data.dataset import Dataset, DatasetWriter
from ros_rl.errors import RobotFault, UserError
from ros_rl.learning import demonstrations
from ros_rl.learning.demonstrations import (
    Demonstrations,
    Demonstrator,
    Episode,
    Noise,
    Sampling,
    Source,
    collect,
    from_dataset,
    waypoints_after,
)
from ros_rl.policies.vla import scaled, spec_for
from ros_rl.robots.spec import load_robot
from ros_rl.sim.task import load_task

SAMPLING = Sampling(("front", "wrist"), (16, 16), 3, 0.1)


class Shell:
    """As much of a robot as the data's columns speak of."""

    name = "arm"
    measured_names, joint_names = SPEC.measured, SPEC.commanded


def make_episode(seed=0, rows=4):
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, (rows, 2, 16, 16, 3)).astype(np.uint8)
    return Episode(f"do {seed}", images, draw.normal(size=(rows, 5)), draw.normal(size=(rows, 3, 4)))


def test_waypoints_are_the_last_commands_of_their_lines():
    commands = np.arange(10.0)[:, None]
    # Lines of 2 rows: at row 0 those that end with rows 1, 3, 5; past the end the last one goes on.
    assert waypoints_after(commands, 2, 3)[:, :, 0].tolist() == [[1, 3, 5], [3, 5, 7], [5, 7, 9], [7, 9, 9], [9, 9, 9]]


def test_an_episode_comes_back_from_its_file(tmp_path):
    episode = make_episode()
    episode.save(tmp_path / "e.safetensors")
    loaded = Episode.load(tmp_path / "e.safetensors")
    assert loaded.instruction == "do 0" and np.array_equal(loaded.images, episode.images)
    np.testing.assert_allclose(loaded.waypoints, episode.waypoints, rtol=1e-6)
    (tmp_path / "e.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(UserError, match="no demonstration, or damaged"):
        Episode.load(tmp_path / "e.safetensors")


def test_episodes_are_put_together_if_they_fit(tmp_path):
    data = Demonstrations.of([make_episode(0), make_episode(1, rows=2)])
    assert len(data) == 6 and data.instructions == ["do 0"] * 4 + ["do 1"] * 2 and data.images.shape[0] == 6
    other = make_episode(2)
    with pytest.raises(UserError, match=r"has images of \(1, 2, 16, 16, 3\), others of \(2, 16, 16, 3\) for each sample"):
        Demonstrations.of([make_episode(0), replace(other, images=other.images[:1])])
    with pytest.raises(UserError, match="others of"):
        Demonstrations.of([make_episode(0), Episode("x", other.images[:, :1], other.position, other.waypoints)])
    for seed, rows in ((0, 4), (1, 2)):
        make_episode(seed, rows).save(tmp_path / f"{seed}.safetensors")
    read = Demonstrations.load(tmp_path)
    assert read.instructions == data.instructions and read.last.tolist() == data.last.tolist() == [3, 3, 3, 3, 5, 5]
    assert np.array_equal(read.images, data.images) and read.images.dtype == np.uint8
    np.testing.assert_allclose(read.waypoints, data.waypoints, rtol=1e-6)
    (tmp_path / "2.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(UserError, match=r"2\.safetensors: is no demonstration, or damaged"):
        Demonstrations.load(tmp_path)
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()
    with pytest.raises(UserError, match="no demonstrations"):
        Demonstrations.load(tmp_path)


def test_where_the_arm_will_be_later_stays_within_the_episode():
    data = Demonstrations.of([make_episode(0), make_episode(1, rows=2)])
    first = data.waypoints[:, 0]
    assert np.array_equal(data.later(1), first)
    assert np.array_equal(data.later(3), first[[2, 3, 3, 3, 5, 5]])


def write_dataset(root, seed=0, success=True):
    with DatasetWriter(root, SPEC) as writer:
        for episode, rows in enumerate((12, 9)):
            columns = make_columns(rows, seed + episode)
            if episode and not success:
                columns["next.success"][:] = False
            writer.commit(columns, make_videos(rows, episode), f"task {episode}")
    return Dataset.open(root)


def test_a_dataset_is_cut_into_samples(tmp_path):
    dataset = write_dataset(tmp_path / "set")
    first, second = from_dataset(dataset, SAMPLING, Shell())
    columns = dataset.columns(0)
    assert first.instruction == "task 0" and first.images.shape == (4, 2, 16, 16, 3) and len(second.position) == 3
    np.testing.assert_allclose(first.position, columns["observation.state"][::3])
    np.testing.assert_allclose(first.waypoints[0], columns["action"][[2, 5, 8]])
    np.testing.assert_allclose(first.waypoints[3], columns["action"][[11, 11, 11]])
    for sample in range(4):
        assert np.abs(first.images[sample].astype(int) - shade(0, 3 * sample)).max() <= 4  # the encoding loses a little


def test_failed_episodes_are_left_out_and_what_does_not_fit_is_refused(tmp_path):
    dataset = write_dataset(tmp_path / "set", success=False)
    assert len(from_dataset(dataset, SAMPLING, Shell())) == 1
    with pytest.raises(UserError, match=r"takes no whole number"):
        from_dataset(dataset, Sampling(("front",), (16, 16), 3, 0.05), Shell())
    with pytest.raises(UserError, match=r"unknown camera .*'top'"):
        from_dataset(dataset, Sampling(("top",), (16, 16), 3, 0.1), Shell())
    with pytest.raises(UserError, match="robot 'arm' commands joint1"):
        from_dataset(dataset, SAMPLING, load_robot("arm"))


def small_push(folder):
    """Writes the task of pushing a button, seen by cameras of 32 x 32 pixels."""
    text = load_task("push_button").path.read_text()
    (folder / "scene.xml").write_text(
        (load_task("push_button").path.parents[1] / "scenes/tabletop.xml").read_text().replace("640 480", "32 32")
    )
    (folder / "push.yaml").write_text(text.replace("scene: tabletop", f"scene: {folder}/scene.xml"))
    return load_task(folder / "push.yaml")


def test_collecting_goes_on_where_it_was_stopped_and_keeps_to_its_sampling(tmp_path):
    task, sampling = small_push(tmp_path), Sampling(("overhead",), (32, 32), 5, 0.1)
    assert collect(task, [7], sampling, tmp_path / "demos") == 1
    path = tmp_path / "demos/push-000007.safetensors"
    written = path.read_bytes()
    path.unlink()
    assert collect(task, [7], sampling, tmp_path / "demos") == 1
    assert path.read_bytes() == written  # the same again, bit for bit
    episode = Episode.load(path)
    assert episode.instruction == (task.instruction, *task.paraphrases)[7 % 4]
    # The commands do what was shown: where a sample's first waypoint is, there the joints are at the next one.
    assert np.abs(episode.waypoints[:-1, 0, :7] - episode.position[1:, :7]).max() < 0.05
    assert episode.images.std() > 10
    with pytest.raises(UserError, match=r"holds demonstrations with image \(32, 32\), not \(16, 16\)"):
        collect(task, [8], Sampling(("overhead",), (16, 16), 5, 0.1), tmp_path / "demos")
    (tmp_path / "other.yaml").write_text((tmp_path / "push.yaml").read_text().replace("scene.xml", "larger.xml"))
    (tmp_path / "larger.xml").write_text((tmp_path / "scene.xml").read_text().replace("32 32", "64 48"))
    with pytest.raises(UserError, match=r"with sizes {'overhead': \(32, 32\)}, not {'overhead': \(48, 64\)}"):
        collect(load_task(tmp_path / "other.yaml"), [8], sampling, tmp_path / "demos")
    with pytest.raises(UserError, match=r"with noise 0.0, not 0.05"):
        collect(task, [8], sampling, tmp_path / "demos", noise=0.05)
    with pytest.raises(UserError, match="with robot arm, not panda"):
        replace(Source.of(tmp_path / "demos"), robot="panda").mark(tmp_path / "demos")
    with pytest.raises(UserError, match=r"period is 0.0125 s, it must be a multiple"):
        collect(task, [8], replace(sampling, period=0.0125), tmp_path / "more")
    with pytest.raises(UserError, match="unknown camera"):
        collect(task, [8], Sampling(("nose",), (16, 16), 5, 0.1), tmp_path / "more")
    assert not (tmp_path / "more").exists()
    assert Source.of(tmp_path / "demos") == Source("arm", {"overhead": (32, 32)}, sampling)


def test_the_expert_begins_where_a_policy_was_left_whose_time_was_up(tmp_path):
    sampling = Sampling(("overhead",), (32, 32), 2, 0.1)
    task = replace(small_push(tmp_path), time_limit=8.0)
    model = turning(make_model(), 0.02)
    model = replace(model, spec=spec_for(load_robot("arm"), {"overhead": (32, 32)}, 2, 0.1))
    seeds = [7, 8]
    assert collect(task, seeds, sampling, tmp_path / "plain") == 2
    counted = []
    assert collect(task, seeds, sampling, tmp_path / "after", update=lambda: counted.append(1), after=model) == len(counted) == 2
    for seed in seeds:
        (path,) = (tmp_path / "after").glob(f"push-{seed:06d}-after-*.safetensors")
        plain, after = Episode.load(tmp_path / f"plain/push-{seed:06d}.safetensors"), Episode.load(path)
        turned = after.position[0] - plain.position[0]
        # 40 chunks of 0.2 s in 8 s, each some 0.02 rad further.
        assert turned[0] == pytest.approx(40 * 0.02, abs=0.1) and np.abs(turned[1:7]).max() < 0.03
        assert len(after.position) < 8.0 / 0.1, "the time is the expert's own, and what the policy did is no part of the episode"
        assert after.instruction == plain.instruction and not np.array_equal(after.images[0], plain.images[0])
    written = path.read_bytes()
    path.unlink()
    assert collect(task, seeds, sampling, tmp_path / "after", after=model) == 2 and path.read_bytes() == written
    # Policies with other ranges leave other states, though their weights are the same; in half a second the expert can do nothing.
    assert collect(replace(task, time_limit=0.5), seeds, sampling, tmp_path / "after", after=turning(model, 0.01)) == 0
    assert len(list((tmp_path / "after").glob("*.failed"))) == 2


def test_what_a_policy_did_itself_gives_no_demonstration_nor_does_a_state_in_which_it_holds_something(tmp_path, monkeypatch):
    task, sampling = small_push(tmp_path), Sampling(("overhead",), (32, 32), 2, 0.1)
    with closing(Demonstrator(task, sampling)) as demonstrator:
        demonstrator._robot.reset(7)
        begins = demonstrator._simulation.snapshot().physics
        model = demonstrator._simulation.model.mj
        assert demonstrator.demonstrate(7, task.instruction, begins) is not None
        half = begins.copy()
        for name in ("finger_joint1", "finger_joint2"):
            half[1 + model.jnt_qposadr[model.joint(name).id]] = 0.02  # the state is time, then the positions
        assert demonstrator.demonstrate(7, task.instruction, half) is None
    monkeypatch.setattr(demonstrations, "left_behind", lambda *_: iter([(7, None), (8, begins), (9, half)]))
    assert collect(task, [7, 8, 9], sampling, tmp_path / "after", after=make_model()) == 1
    assert [path.name[:11] for path in sorted((tmp_path / "after").glob("*.failed"))] == ["push-000007", "push-000009"]


def test_demonstrations_can_begin_above_the_objects_beside_those_from_home(tmp_path):
    task, sampling = small_push(tmp_path), Sampling(("overhead",), (32, 32), 2, 0.1)
    assert collect(task, [7], sampling, tmp_path / "demos") == collect(task, [7], sampling, tmp_path / "demos", scatter=True) == 1
    home, scattered = (Episode.load(tmp_path / f"demos/push-000007{kind}.safetensors") for kind in ("", "-scattered"))
    spec = load_robot("arm")
    assert np.abs(home.position[0] - spec.home).max() < 0.03 and np.abs(scattered.position[0] - spec.home)[:7].max() > 0.2


def test_an_episode_whose_simulation_diverges_gives_no_demonstration(tmp_path, monkeypatch):
    def blow_up(*_):
        raise RobotFault("the simulation diverged")

    monkeypatch.setattr(demonstrations, "run_episode", blow_up)
    assert collect(small_push(tmp_path), [7], Sampling(("overhead",), (32, 32), 2, 0.1), tmp_path / "demos") == 0
    assert (tmp_path / "demos/push-000007.failed").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"image": (50, 50)}, "multiple of 16, got 50"), ({"ticks": 0}, "ticks must be 1 or more"), ({"cameras": ()}, "at least one")],
)
def test_a_sampling_that_no_policy_can_have_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        replace(SAMPLING, **change)


def test_a_folder_that_does_not_say_what_it_holds_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"lacks source.json"):
        Source.of(tmp_path)
    make_episode().save(tmp_path / "0.safetensors")
    with pytest.raises(UserError, match=r"lacks source.json"):
        Source("arm", {}, SAMPLING).mark(tmp_path)
    (tmp_path / "source.json").write_text('{"robot": "arm"}')
    with pytest.raises(UserError, match=r"source.json: is damaged"):
        Source.of(tmp_path)


def test_a_folder_of_before_there_was_noise_has_none(tmp_path):
    source = Source("arm", {"front": (32, 32)}, SAMPLING)
    source.mark(tmp_path)
    said = json.loads((tmp_path / "source.json").read_text())
    del said["noise"]
    (tmp_path / "source.json").write_text(json.dumps(said))
    assert Source.of(tmp_path) == source
    source.mark(tmp_path)
    with pytest.raises(UserError, match=r"with noise 0.0, not 0.05"):
        replace(source, noise=0.05).mark(tmp_path)


def test_images_shrink_by_the_mean_over_areas():
    image = np.zeros((4, 4, 3), np.uint8)
    image[:2, :2] = 200
    assert scaled(image, (2, 2))[..., 0].tolist() == [[200, 0], [0, 0]]
    assert scaled(image, (1, 1))[0, 0, 0] == 50


def test_noise_has_the_size_that_it_says_moves_smoothly_and_spares_the_gripper():
    robot = load_robot("arm")
    values = []
    for seed in range(200):
        noise = Noise(robot, 0.1, seed)
        drawn = np.random.default_rng([seed, 7]).uniform()  # the share of the largest size that this episode has
        path = np.array([noise.next() for _ in range(900)])[300:] / drawn
        assert not path[:, robot.joint_names.index(robot.gripper.joint)].any()
        assert np.abs(np.diff(path[:, :7], axis=0)).max() < 0.01  # 2 rad/s, for the largest of all
        values.append(path[:, :7])
    assert np.std(values) == pytest.approx(0.1, rel=0.05)
    assert np.array_equal(Noise(robot, 0.1, 3).next(), Noise(robot, 0.1, 3).next())


def test_an_expert_that_is_led_off_its_path_shows_the_way_back():
    """Where the noise has led the arm, the waypoints are those of the way without noise, so that they lead back to it."""
    task, sampling = load_task("push_button"), Sampling(("wrist",), (16, 16), 5, 0.1)
    found = {}
    for noise in (0.0, 0.04):
        with closing(Demonstrator(task, sampling, noise)) as demonstrator:
            found[noise] = demonstrator.demonstrate(3, "push the button")
    clean, led = found[0.0], found[0.04]
    rows = range(1, 12)  # both are on the first motion
    off = np.array([led.position[row, :7] - clean.position[row, :7] for row in rows])
    ahead = np.array([led.waypoints[row, 0, :7] - clean.waypoints[row, 0, :7] for row in rows])
    assert np.abs(off).max() > 0.02
    assert np.abs(ahead).max() < 0.3 * np.abs(off).max()
