"""An export of a small model with random weights, and the files of every task of the paper."""

from types import SimpleNamespace

import pytest

from tests.pipeline.pretraining.trained_models import export
from tests.pipeline.tasks import task_files


@pytest.fixture(scope="session")
def data(corpus, tmp_path_factory):
    """An export of a small model with random weights, and every task's files."""
    root = tmp_path_factory.mktemp("finetune")
    task_files.write_all(root)
    return SimpleNamespace(
        root=root,
        init=export(root / "export", corpus.vocabulary),
        glue=root / "glue",
        squad=root / "squad",
        race=root / "race",
    )
