"""The notebook of examples/ runs from its first cell to its last, and is committed without output."""

import json
import os
import subprocess
import sys

import pytest

from tests.docs.pages import REPOSITORY

pytestmark = pytest.mark.slow

NOTEBOOK = REPOSITORY / "examples" / "from_text_to_fill_mask.ipynb"
FOODS = {"bone", "carrot", "seed", "turnip", "worm", "plum"}
HOMES = {"kennel", "burrow", "nest", "stable", "pond", "cave"}
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def source(cell):
    return "".join(cell["source"])


def test_it_is_committed_without_output():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in CELLS}) == len(CELLS)
    for cell in CELLS:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the cells print, run in their order by a fresh interpreter, as a kernel would."""
    directory = tmp_path_factory.mktemp("notebook")
    script = directory / "cells.py"
    script.write_text("\n\n".join(source(cell) for cell in CELLS if cell["cell_type"] == "code"), encoding="utf-8")
    searched = os.pathsep.join((str(REPOSITORY), os.environ["PYTHONPATH"]))
    environment = os.environ | {"PYTHONPATH": searched, "TMPDIR": str(directory)}
    result = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=1500, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


def test_masks_are_those_of_the_epoch(printed):
    first, second, again = [line.partition(": ")[2] for line in printed if line.startswith("epoch ")]
    assert first == again != second
    assert "[MASK]" in first


def test_the_loss_falls_and_a_mask_is_filled(printed):
    losses = [float(line.split("MLM loss ")[1].split()[0]) for line in printed if "MLM loss" in line]
    assert len(losses) > 3
    assert losses[-1] < 0.8 * losses[0]
    food, home = (line.partition(" -> ")[2].split()[0] for line in printed if "[MASK]. -> " in line)
    assert food in FOODS
    assert home in HOMES
