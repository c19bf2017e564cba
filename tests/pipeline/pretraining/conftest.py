"""A correct command line, and a second corpus."""

import json
import shutil

import pytest

from tests.pipeline.pretraining.command_lines import CONFIG


@pytest.fixture
def words(corpus, tmp_path):
    """A correct command line, as a dictionary of flags."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    return {
        "--model": "albert-tiny",
        "--data": str(corpus.train),
        "--eval-data": str(corpus.held_out),
        "--deepspeed_config": str(config),
        "--output": str(tmp_path / "run"),
    }


@pytest.fixture
def second(corpus, tmp_path):
    """A second training corpus."""
    shutil.copytree(corpus.train, tmp_path / "second")
    return tmp_path / "second"
