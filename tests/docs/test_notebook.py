"""The notebooks of examples/ run in Jupyter's own client, in their directory, and are committed without output."""

import os

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.pages import REPOSITORY

pytestmark = pytest.mark.slow

EXAMPLES = REPOSITORY / "examples"
FOODS = {"bone", "carrot", "seed", "turnip", "worm", "plum"}
HOMES = {"kennel", "burrow", "nest", "stable", "pond", "cave"}


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
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.get("text", "") for output in outputs).splitlines()


def test_the_masks_are_those_of_the_epoch_and_a_mask_is_filled():
    printed = run("from_text_to_fill_mask.ipynb", EXAMPLES)
    first, second, again = [line.partition(": ")[2] for line in printed if line.startswith("epoch ")]
    assert first == again != second
    assert "[MASK]" in first
    losses = [float(line.split("MLM loss ")[1].split()[0]) for line in printed if "MLM loss" in line]
    assert len(losses) > 3
    assert losses[-1] < 0.8 * losses[0]
    foods, homes = (set(line.partition(" -> ")[2].split()[::3]) for line in printed if "[MASK]. -> " in line)
    # Most of the three likeliest. Which of them comes first depends on the processor's arithmetic.
    assert len(foods & FOODS) >= 2
    assert len(homes & HOMES) >= 2


def test_the_functions_train_and_predict():
    lines = run(
        "finetune_and_predict.ipynb", EXAMPLES, [("steps=300", "steps=20"), ("eval_interval=300", "eval_interval=20")]
    )
    (loss,) = (line for line in lines if line.startswith("held-out MLM loss"))
    assert 0 < float(loss.split()[3]) < 5
    (accuracy,) = (float(line.split()[1]) for line in lines if line.startswith("accuracy"))
    assert accuracy > 0.9
    predicted = [line.partition(" -> ")[2].split()[0] for line in lines if " -> " in line]
    assert predicted == ["food", "home"]
