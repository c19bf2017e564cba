"""A small generated corpus, its vocabulary and its shards, made once for each test session."""

import shutil
from pathlib import Path

import pytest

from data_prep.__main__ import main
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.vocabulary import Vocabulary
from tests.data_prep import corpora


@pytest.fixture(scope="session")
def documents_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpora.write_documents(tmp_path_factory.mktemp("corpus") / "documents", corpora.make_documents(120))


@pytest.fixture(scope="session")
def vocabulary_file(documents_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    main(["vocab", "--documents", str(documents_directory), "--out", str(path), "--size", "400"])
    return path


@pytest.fixture(scope="session")
def vocabulary(vocabulary_file: Path) -> Vocabulary:
    return load_vocabulary(vocabulary_file)


@pytest.fixture(scope="session")
def shard_directory(documents_directory: Path, vocabulary_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of rows of 64 positions. Tests that change it work on a copy."""
    directory = tmp_path_factory.mktemp("shards") / "set"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.corpus.work_units.MIN_UNIT_BYTES", 100_000)
        words = ["shards", "--documents", documents_directory, "--vocab", vocabulary_file, "--out", directory]
        main([*map(str, words), "--max-seq-length", "64"])
    return directory


@pytest.fixture
def copy(shard_directory: Path, tmp_path: Path) -> Path:
    """A copy of the shards, which a test may change."""
    return Path(shutil.copytree(shard_directory, tmp_path / "copy"))
