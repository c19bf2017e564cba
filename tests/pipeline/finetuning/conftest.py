"""An export of a small model with random weights, and the files of every task of the paper."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pipeline.pretraining.trained_models import export
from tests.pipeline.tasks import task_files


class Data(NamedTuple):
    """Where the files are. Many tests share them, so a test that needs others makes a copy with `_replace`."""

    root: Path
    init: Path
    glue: Path
    squad: Path
    race: Path


@pytest.fixture(scope="session")
def data(corpus, tmp_path_factory):
    """An export of a small model with random weights, and every task's files."""
    root = tmp_path_factory.mktemp("finetune")
    task_files.write_all(root)
    return Data(root, export(root / "export", corpus.vocabulary), root / "glue", root / "squad", root / "race")
