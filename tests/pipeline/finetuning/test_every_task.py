"""Tasks of the paper are trained and evaluated, with one seed and several, on one rank and three."""

import json
import os
import sys

import numpy as np
import pytest
import torch

from pipeline import predict
from pipeline.analysis.comparison import read_predictions
from pipeline.checkpoint.initial_weights import load_run
from pipeline.checkpoint.retention import find_best, step_of
from pipeline.tasks.files import reading
from pipeline.tasks.kinds.answers import AnswersById
from pipeline.tasks.registry import TASKS
from tests.pipeline.conftest import REPOSITORY, run
from tests.pipeline.finetuning.finetune_runs import results, words
from tests.pipeline.outcome import records
from tests.pipeline.workers import processes
from tests.pipeline.workers.finetune_tasks import Start, finetune_each

pytestmark = pytest.mark.slow

TRAINED = ("mnli", "squad1", "squad2", "race")
"""Tasks with splits, metrics or files unlike the others'. test_own_tasks.py trains every kind of task."""
SQUAD2 = ("--steps", "6", "--eval-interval", "3", "--batch-size", "11", "--classifier-dropout", "0")
"""Three ranks cannot share this batch equally."""


@pytest.fixture(scope="module")
def all_tasks(data, tmp_path_factory):
    """Tasks trained and evaluated in one process, and further runs of some."""
    outputs = tmp_path_factory.mktemp("tasks")
    starts = [
        Start(words(data, task, outputs / task, "--steps", "3", "--batch-size", "4", "--max-length", "48"))
        for task in TRAINED
    ]
    squad2 = [*words(data, "squad2", outputs / "squad2-again", "--steps", "2", "--learning-rate", "0")]
    squad2[squad2.index("--init") + 1] = os.path.relpath(outputs / "squad2", REPOSITORY)
    several = ("--steps", "4", "--batch-size", "4", "--seeds", "3", "--random-weights")
    seeds = words(data, "mrpc", outputs / "seeds", *several)
    twice = words(data, "cola", outputs / "stopped-twice", "--steps", "6", "--eval-interval", "2")
    starts += [
        Start(words(data, "squad2", outputs / "one-rank", *SQUAD2)),
        Start(squad2),
        Start(seeds, stop_in_results=True),
        Start(seeds),
        Start(seeds, without=str(outputs / "seeds" / "results.json")),  # as if killed between the last seed and it
        Start(twice, stop_at=2),
        Start(twice, stop_at=2),
    ]
    file = outputs / "starts.json"
    file.write_text(json.dumps(starts))
    run(sys.executable, "-m", "tests.pipeline.workers.finetune_tasks", file)
    return outputs


@pytest.mark.parametrize("name", TRAINED)
def test_every_task_trains_and_evaluates(all_tasks, name):
    found = results(all_tasks / name)
    task = TASKS[name]
    assert set(found["metrics"]) == set(task.dev_splits) | ({"test"} if name in ("squad1", "squad2", "race") else set())
    assert np.isfinite(found["metrics"][task.dev_splits[0]][task.score])
    predicted = {path.stem for path in (all_tasks / name / "logits").iterdir()}
    assert predicted == set(found["examples"]) - {"train"}
    if name == "mnli":
        assert predicted == {"dev_matched", "dev_mismatched", "test_matched", "test_mismatched", "diagnostic"}
        assert (all_tasks / name / "submission" / "AX.tsv").exists()
    if name == "race":
        assert set(found["metrics"]["dev"]) == {"accuracy", "middle", "high"}
    head = "head.json" if name == "squad2" else "config.json"
    assert json.loads((all_tasks / name / "export" / head).read_text())["finetuning_task"] == name


@pytest.mark.parametrize("name", TRAINED)
def test_predict_equals_the_evaluation_of_training(all_tasks, data, name, tmp_path):
    task, split = TASKS[name], TASKS[name].dev_splits[0]
    examples = reading.read(task, str({"mnli": data.glue, "race": data.race}.get(name, data.squad)))[split]
    if name == "mnli":
        rows = [{"sentence1": one.first, "sentence2": one.second} for one in examples]
    elif name == "race":
        rows = [{"article": one.passage, "question": one.question, "options": one.options} for one in examples]
    else:
        rows = [{"question": one.text, "context": one.passage} for one in examples]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = ["--run", str(all_tasks / name), "--input", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.jsonl")]
    assert predict.main(line) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = task.kind.records(task, read_predictions(all_tasks / name, task)[split])
    assert len(rows) == len(examples) == len(expected)
    for example, row in zip(examples, rows):
        wanted = expected[example.id]
        assert row["prediction"] == wanted["prediction"]
        for key in set(wanted) & {"probability", "no_answer_score"}:
            assert row[key] == pytest.approx(wanted[key], abs=1e-4)


def test_weights_of_the_same_task_keep_their_head(all_tasks):
    before = load_run(all_tasks / "squad2").state_dict()
    after = load_run(all_tasks / "squad2-again").state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    # Wherever they are looked for from, and however the command line put it.
    assert results(all_tasks / "squad2-again")["init"] == str(all_tasks / "squad2")


def test_several_seeds_give_median_and_spread(all_tasks):
    summary = results(all_tasks / "seeds")
    assert (summary["init"], summary["random_weights"]) == (None, True)
    values = [results(all_tasks / "seeds" / f"seed-{seed}")["metrics"]["dev"]["f1"] for seed in range(3)]
    assert summary["median"]["dev"]["f1"] == sorted(values)[1]
    assert summary["spread"]["dev"]["f1"] == [min(values), max(values)]
    weights = [load_run(all_tasks / "seeds" / f"seed-{seed}").state_dict() for seed in range(2)]
    name = "albert.embeddings.word_embeddings.weight"
    assert not torch.equal(weights[0][name], weights[1][name])


def test_a_run_that_is_stopped_before_its_next_step_keeps_the_score_it_had(all_tasks):
    best = find_best(all_tasks / "stopped-twice" / "checkpoints")
    assert step_of(best) == 2


def test_one_rank_and_three_give_the_same(all_tasks, data, tmp_path):
    """One rank, and three ranks for each of two seeds, have the same losses and count each of 37 questions once.

    Rank 0 alone prints a mistake that the ranks find, and a setting in which they differ.
    """
    output = tmp_path / "three"
    right = words(data, "squad2", output, *SQUAD2, "--seeds", "2")
    wrong = [*right, "--init", "nowhere"]
    other = [*right, "--seed", "1"]
    commands = [(wrong, wrong), (right, other), (right, right)]
    mistaken, differing, trained = processes.run(3, finetune_each, commands, scratch=tmp_path)
    host = os.uname().nodename
    for (status, line), *others in (mistaken, differing):
        assert (status, line.count("\n")) == (2, 1)
        assert others == [(2, ""), (2, "")]
    assert mistaken[0][1].startswith("error: --init nowhere is not a directory; ")
    assert differing[0][1].startswith(f"error: rank 1 on host {host}: the setting seed is 1, and 0 on host {host}; ")
    assert [status for status, _ in trained] == [0, 0, 0]

    one_rank, three_ranks = all_tasks / "one-rank", output / "seed-0"
    one, three = (AnswersById.load(directory / "logits" / "dev.json") for directory in (one_rank, three_ranks))
    assert one.keys() == three.keys() == {f"dev-{number}" for number in range(37)}
    for question, answers in one.items():
        other = three[question]
        assert answers.null_score == pytest.approx(other.null_score, abs=1e-4)
        assert [span.score for span in answers.nbest] == pytest.approx([span.score for span in other.nbest], abs=1e-3)
    assert results(one_rank)["metrics"] == results(three_ranks)["metrics"]
    alone, shared = (
        [record["loss"] for record in records(directory) if record["split"] == "train"]
        for directory in (one_rank, three_ranks)
    )
    assert alone == pytest.approx(shared, rel=1e-4)
    seeds = [results(output / f"seed-{seed}")["metrics"] for seed in range(2)]
    assert [seed["metrics"] for seed in results(output)["seeds"]] == seeds
