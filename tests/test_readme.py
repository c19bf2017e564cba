"""The README does what it says: its two commands run. tests/docs/ checks what all pages have in common."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AlbertForPreTraining, AutoTokenizer

from tests.docs.pages import REPOSITORY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory, sample_corpus):
    """`make demo` with few steps in this environment, on a sample that is fetched once for all tests.

    Of its three collections, only the Wikipedia articles are in the vocabulary and the shards.
    """
    directory = tmp_path_factory.mktemp("demo")
    (directory / "sample").symlink_to(sample_corpus)
    words = ["make", "--no-print-directory", "demo", f"VENV={Path(sys.executable).parent.parent}"]
    words += [f"DEMO={directory}", "DEMO_STEPS=30", "SOURCES=wikipedia"]
    environment = os.environ | {"MAKEFLAGS": ""}
    result = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=1500)
    assert result.returncode == 0, result.stdout + result.stderr
    return directory, result


def test_the_demo_shows_its_commands_and_ends_with_the_table(demo):
    _, result = demo
    for command in ("extract --source wikipedia", "vocab", "mpirun -n 2 python -m data_prep shards", "verify"):
        assert command in result.stdout
    assert "deepspeed" in result.stdout
    assert len(re.findall(r"^ +\d+\.\d %  \S+$", result.stdout, re.MULTILINE)) == 9  # three masks, three pieces each
    for row in (
        "held-out MLM loss",
        "unigram entropy",
        "held-out SOP accuracy",
        "95 % interval",
        "tensorboard --logdir",
    ):
        assert row in result.stdout
    assert "warning" not in (result.stdout + result.stderr).lower()


def test_the_demo_s_model_and_shards_open_elsewhere(demo):
    directory, _ = demo
    model = AlbertForPreTraining.from_pretrained(directory / "albert-tiny").eval()
    tokenizer = AutoTokenizer.from_pretrained(directory / "albert-tiny")
    words = tokenizer("To be, or not to be: that is the question.", return_tensors="pt")
    with torch.no_grad():
        assert torch.isfinite(model(**words).prediction_logits).all()
    shard = Dataset.from_file(str(directory / "shards" / "train" / "shard-00000.arrow"))
    assert len(shard) > 100
    assert max(shard[0]["tokens"]) < 2000
