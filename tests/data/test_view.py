import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from sample_episodes import SPEC, shade

from ros_rl.data.dataset import Dataset
from ros_rl.data.view import draw


def test_the_picture_has_the_frames_of_every_camera_and_the_plots(root):
    figure = draw(Dataset.open(root), 2)
    images = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(images) == 8 * len(SPEC.cameras)
    greys = [image.mean() for image in images[:8]]
    assert np.abs(np.array(greys) - [shade(2, row) for row in np.linspace(0, 29, 8).round()]).max() < 3
    assert "lift (30 rows, 1.0 s, success)" in figure.get_suptitle()
    plots = [axes for axes in figure.axes if axes.lines]
    state = Dataset.open(root).columns(2)["observation.state"]
    assert np.array_equal(plots[0].lines[0].get_ydata(), state[:, 0])
    commands = Dataset.open(root).columns(2)["action"]
    drawn = [line.get_ydata() for axes in plots for line in axes.lines]
    assert all(any(np.array_equal(line, values) for line in drawn) for values in commands.T)
    FigureCanvasAgg(figure).draw()


def test_an_episode_of_one_row_is_drawn(root):
    from sample_episodes import make_columns, make_videos

    from ros_rl.data.dataset import DatasetWriter

    with DatasetWriter(root, SPEC) as writer:
        writer.commit(make_columns(1), make_videos(1), "lift")
    FigureCanvasAgg(draw(Dataset.open(root), 3)).draw()
