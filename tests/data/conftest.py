import shutil
from pathlib import Path

import pytest
from sample_episodes import LENGTHS, SPEC, make_columns, make_videos

from ros_rl.data.dataset import DatasetWriter


@pytest.fixture(scope="session")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "set"
    for index, rows in enumerate(LENGTHS):
        with DatasetWriter(folder, SPEC) as writer:  # opened anew for each, as by one program run after the other
            task = "push" if index == 1 else "lift"
            assert writer.commit(make_columns(rows, index), make_videos(rows, index), task, "success") == index
    return folder


@pytest.fixture
def root(_written: Path, tmp_path: Path) -> Path:
    """A dataset of three episodes, the caller's to damage."""
    return Path(shutil.copytree(_written, tmp_path / "set"))
