"""docs/plan.md lists every file of ds_configs/, with the batches, memory and hours that the plan computes."""

import re

import pytest

from pipeline import plan
from tests.docs.pages import REPOSITORY, blocks_of

PAGE = REPOSITORY / "docs" / "plan.md"
FILES = sorted(path.name for path in (REPOSITORY / "ds_configs").glob("*.json"))
KINDS = {"A10": "a10", "T4": "t4", "H100 SXM 80 GB": "h100"}


def rows():
    """The cells of the table of files, one list a file."""
    lines = [line for block in blocks_of(PAGE) if block.kind == "table" for line in block.lines]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == 7 and row[0].endswith(".json")]


def test_every_file_is_on_the_page():
    assert sorted([row[0] for row in rows()] + ["demo.json", "student.json", "tiny.json"]) == FILES


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_figures_are_those_of_the_plan(row):
    name, *cells, kind, hours = row
    micro_batch, gpus, *per_number = ([part.strip() for part in cell.split("/")] for cell in (*cells, hours))
    micro_batch = micro_batch if len(micro_batch) > 1 else micro_batch * len(gpus)
    model = "albert-" + re.match(r"[a-z]+", name).group()
    for number, *wanted in zip(map(int, gpus), micro_batch, *per_number, strict=True):
        nodes = max(1, number // 8)
        words = ["--model", model, "--deepspeed_config", str(REPOSITORY / "ds_configs" / name), "--nodes", str(nodes)]
        words += ["--gpus-per-node", str(number // nodes), "--gpu", KINDS[kind]]
        planned = plan.resolve(plan.parse(words))
        engine = planned.engine
        found = [str(engine.micro_batch_size), str(engine.accumulation_steps), f"{planned.memory.total / 1e9:.1f}"]
        assert [*found, f"{24 * planned.days:,.0f}"] == wanted, f"{name} on {number} GPUs"
        assert engine.train_batch_size == 4096
        assert planned.fits
