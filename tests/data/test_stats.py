import numpy as np
import pytest
from sample_episodes import make_columns

from ros_rl.data.dataset import table_stats
from ros_rl.data.stats import QUANTILES, aggregate, image_stats, sampled_frames, thinned, vector_stats


def test_moments_are_those_of_the_values_and_quantiles_are_right_to_a_bin():
    values = np.random.default_rng(0).normal(size=(4000, 2)) * [1.0, 1e-3] + [1e6, 0.0]
    stats = vector_stats(values)
    assert np.array_equal(stats["min"], values.min(0)) and np.array_equal(stats["max"], values.max(0))
    assert stats["mean"] == pytest.approx(values.mean(0))
    assert stats["std"] == pytest.approx(values.std(0), rel=1e-9)  # the mean of squares would lose this to the offset of 1e6
    assert stats["count"].tolist() == [4000]
    bins = np.ptp(values, axis=0) / 5000
    for key, q in QUANTILES.items():
        # Between neighbouring samples any value is a quantile.
        low, high = np.quantile(values, q, axis=0, method="lower"), np.quantile(values, q, axis=0, method="higher")
        assert (stats[key] >= low - 2 * bins).all() and (stats[key] <= high + 2 * bins).all()


def test_one_row_has_itself_as_every_quantile():
    stats = vector_stats(np.array([[3.0, -1.0]]))
    assert all(stats[key].tolist() == [3.0, -1.0] for key in ("min", "max", "mean", *QUANTILES))
    assert stats["std"].tolist() == [0.0, 0.0]


def test_a_constant_column_has_no_spread():
    stats = vector_stats(np.full((50, 1), 2.5))
    assert stats["std"][0] == 0 and all(abs(stats[key][0] - 2.5) < 1e-9 for key in QUANTILES)


def test_episodes_together_have_the_moments_of_all_rows():
    parts = [make_columns(rows, seed) for seed, rows in enumerate((1, 7, 200))]
    together = aggregate(map(table_stats, parts))
    for key in parts[0]:
        rows = np.concatenate([part[key].reshape(len(part[key]), -1) for part in parts]).astype(float)
        assert together[key]["mean"] == pytest.approx(rows.mean(0), abs=1e-12)
        assert together[key]["std"] == pytest.approx(rows.std(0), abs=1e-12)
        assert np.array_equal(together[key]["min"], rows.min(0)) and together[key]["count"] == [208]


def test_one_by_one_is_the_same_as_all_at_once():
    parts = [table_stats(make_columns(rows, rows)) for rows in (5, 9, 30, 2)]
    running = parts[0]
    for part in parts[1:]:
        running = aggregate([running, part])
    at_once = aggregate(parts)
    for key, entry in at_once.items():
        for name, value in entry.items():
            assert running[key][name] == pytest.approx(value, abs=1e-12), (key, name)


def test_images_are_per_channel_between_0_and_1():
    red = np.zeros((4, 6, 3), np.uint8)
    red[..., 0] = 255
    stats = image_stats([red, np.zeros_like(red)])
    assert stats["mean"].tolist() == [[[0.5]], [[0.0]], [[0.0]]]
    assert stats["std"].tolist() == [[[0.5]], [[0.0]], [[0.0]]]  # 255² does not fit into a byte
    assert stats["count"].tolist() == [2]


@pytest.mark.parametrize(("count", "sampled"), [(1, 1), (99, 99), (100, 100), (400, 100), (1000, 177), (10_000, 1000)])
def test_long_videos_are_sampled_from_the_first_frame_to_the_last(count, sampled):
    frames = sampled_frames(count)
    assert len(frames) == sampled and frames[0] == 0 and frames[-1] == count - 1


def test_large_images_are_thinned_evenly():
    image = np.arange(480 * 640 * 3, dtype=np.int64).reshape(480, 640, 3)
    assert np.array_equal(thinned(image), image[::4, ::4])  # 640 / 150 is 4.27
    assert thinned(image[:200, :299]).shape == (200, 299, 3)
