"""Makes a row of a table by its commands, in forked processes: pre-training, fine-tuning, and its cell."""

import dataclasses
import json
import sys
from types import MappingProxyType

import pytest

from pipeline.analysis import finished_runs
from pipeline.paper import runner, tables
from pipeline.paper.experiments import Paths, stages
from pipeline.paper.printed_tables import TABLES
from pipeline.paper.runner import Runner
from pipeline.paper.scales import TINY
from pipeline.paper.tables import Evidence
from pipeline.reproduce import find_task_data
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.tasks import task_files
from tests.pipeline.workers.forked import ForkedCommands

pytestmark = pytest.mark.slow

COLUMNS = tuple(column for column in TABLES["7"].columns if column.name == "sst2")


@pytest.fixture
def scale(tmp_path):
    """A scale with just enough steps to have metrics."""
    json_file = tmp_path / "two_steps.json"
    config = json.loads((REPOSITORY / "ds_configs" / "tiny.json").read_text())
    json_file.write_text(json.dumps(config | {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 8}))
    return dataclasses.replace(
        TINY,
        batch=8,
        steps_per_125k=2,
        configs=dict.fromkeys(TINY.configs, json_file),
        finetuning=MappingProxyType({"steps": "4", "batch-size": "8", "eval-interval": "2", "max-length": "64"}),
    )


def test_a_row_is_made_from_nothing_and_only_once(corpus, scale, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "subprocess", ForkedCommands)
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    task_files.write_all(tmp_path / "tasks")
    table = dataclasses.replace(TABLES["7"], columns=COLUMNS, rows=TABLES["7"].rows[:1])
    python = (sys.executable, "-m")
    root = tmp_path / "out"
    paths = Paths(
        root, corpus.train, corpus.held_out, None, find_task_data(tmp_path / "tasks"), launcher=python, python=python
    )
    # Without the last stage: `evaluate tables` knows the paper's tables at its two scales.
    made = stages(table, scale, paths)[:-1]
    assert [len(stage) for stage in made] == [1, 1]
    assert Runner(root / "logs", 2).run(made) == 0, capsys.readouterr().out
    runs = finished_runs.find_runs([root])
    assert [run.task.name for run in runs] == ["sst2"]
    evidence = Evidence(runs, finished_runs.find_pretrained([root], runs))
    (row,) = tables.measure(table, evidence, scale)
    correct = row.cells["sst2"][0] / 100 * task_files.SIZES["dev"]
    assert correct == pytest.approx(round(correct))
    assert row.runs["sst2"] == str(root / "albert-base" / "sst2")
    capsys.readouterr()
    assert Runner(root / "logs", 2).run(made) == 0
    assert capsys.readouterr().out.count("done before") == 2
