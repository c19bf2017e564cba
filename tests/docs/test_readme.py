"""`make demo` of the README, and the notebooks of examples/ in Jupyter's client with fewer steps, do what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from datasets import Dataset
from nbclient import NotebookClient
from transformers import AlbertForPreTraining, AutoTokenizer

from pipeline.distributed.rendezvous import reserve_port
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
    words += [f"DEMO={directory}", "DEMO_STEPS=30", "SOURCES=wikipedia", f"PORT={reserve_port()}"]
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


EXAMPLES = REPOSITORY / "examples"


def stored(name):
    """The lines that a notebook shows without being run."""
    return lines_of(nbformat.read(EXAMPLES / name, as_version=4))


def lines_of(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.get("text", "") for output in outputs).splitlines()


def run(name, place, replaced=()):
    """The lines that the cells of a notebook print in a kernel whose working directory is `place`."""
    content = (EXAMPLES / name).read_text(encoding="utf-8")
    for given, smaller in replaced:
        assert given in content
        content = content.replace(given, smaller)
    searched = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    without = os.pathsep.join(one for one in searched if one != str(REPOSITORY))
    environment = os.environ | {"PYTHONPATH": without, "DS_ACCELERATOR": "cpu"}
    notebook = nbformat.reads(content, as_version=4)
    client = NotebookClient(notebook, timeout=1500, kernel_name="python3", resources={"metadata": {"path": str(place)}})
    client.execute(env=environment)
    return lines_of(notebook)


def test_the_masks_are_those_of_the_epoch_and_the_loss_falls():
    name = "from_text_to_fill_mask.ipynb"
    printed = run(name, EXAMPLES, [("steps = 400", "steps = 100")])
    first, second, again = [line.partition(": ")[2] for line in printed if line.startswith("epoch ")]
    assert first == again != second
    assert "[MASK]" in first
    losses = [float(line.split("MLM loss ")[1].split()[0]) for line in printed if "MLM loss" in line]
    assert losses[-1] < 0.5 * losses[0]
    assert len([line for line in printed if "[MASK]" in line and " -> " in line]) == 3
    shown = stored(name)
    made = ("epoch ", "labels of", "3906 rows")  # before any training: the same on every machine
    assert len(wanted := [line for line in shown if line.startswith(made)]) == 5
    assert [line for line in printed if line.startswith(made)] == wanted
    assert [line.split(" -> ")[1].split()[0] for line in shown if " -> " in line] == ["cave", "horse", "cow"]
    assert "100% of the pairs" in next(line for line in shown if line.startswith("step 400"))


def test_the_commands_train_and_their_models_predict():
    name = "finetune_and_predict.ipynb"
    lines = run(name, EXAMPLES, [("--steps 600", "--steps 20"), ("--eval-interval 600", "--eval-interval 20")])
    made = ("model: 2 layers", "labels: ", "batch: 32 samples")
    assert [line for line in lines if line.startswith(made)] == [line for line in stored(name) if line.startswith(made)]
    (loss,) = (line for line in lines if line.startswith("held-out MLM loss"))
    assert 0 < float(loss.split()[3]) < 5
    for shown in (lines, stored(name)):
        (accuracy,) = (float(line.split()[1]) for line in shown if line.startswith("accuracy"))
        assert accuracy > 0.9
        assert [line.partition(" -> ")[2].split()[0] for line in shown if " -> " in line] == ["noon", "night"]
    assert next(line.split()[0] for line in stored(name) if line.endswith(" %") and " -> " not in line) == "cave"
    assert not [line for line in stored(name) if line.startswith("note:")]
