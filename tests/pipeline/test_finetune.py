"""Fine-tuning as a user runs it: real processes on official files, stopped and started again, on one rank and three."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from data_prep.vocabulary import Vocabulary
from model import AlbertConfig, AlbertForPreTraining, huggingface
from pipeline import checkpoint_files, checkpoints, export, finetune
from pipeline.finetuning import score_name
from pipeline.prediction import batches_of
from pipeline.tasks import metrics, reading
from pipeline.tasks.predictions import Logits, load_answers
from pipeline.tasks.task import TASKS
from tests.pipeline.conftest import REPOSITORY, run
from tests.pipeline.tasks import task_files
from tests.pipeline.test_pretrain import await_step
from tests.pipeline.workers import processes
from tests.pipeline.workers.finetune_tasks import Start, finetune_each
from tests.pipeline.workers.processes import free_port

QUICK = ["--learning-rate", "0.003", "--warmup-steps", "2", "--log-interval", "5"]


@pytest.fixture(scope="module")
def data(corpus, tmp_path_factory):
    """An export of a small model with random weights, and every task's files."""
    root = tmp_path_factory.mktemp("finetune")
    task_files.write_all(root)
    fields = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    config = AlbertConfig.preset(
        "albert-tiny", **fields, embedding_size=16, vocab_size=len(Vocabulary.load(corpus.vocabulary)),
        max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    huggingface.save(AlbertForPreTraining(config), root / "export", corpus.vocabulary)
    return SimpleNamespace(
        root=root, init=root / "export", glue=root / "glue", squad=root / "squad", race=root / "race"
    )


def words(data, task, output, *more):
    where = {"squad1": data.squad, "squad2": data.squad, "race": data.race}.get(task, data.glue)
    given_words = ["--task", task, "--init", data.init, "--data", where, "--output", output, *QUICK, *more]
    return [str(word) for word in given_words]


def start_ranks(count, arguments):
    """The processes that a launcher would start, which takes longer than what they have to do."""
    shared = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "pipeline.finetune", *arguments],
            cwd=REPOSITORY, env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(count)
    ]  # fmt: skip


def end_of(ranks, status=0):
    """Waits for the ranks to end, each with this status."""
    try:
        printed = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()  # where another has hung
    assert [rank.returncode for rank in ranks] == [status] * len(ranks), printed


def records(output):
    """The metrics of training and evaluations, without what depends on the clock."""
    timed = ("second", "wait", "mfu", "tflop", "share", "memory", "checkpoint")
    lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {name: value for name, value in record.items() if not any(word in name for word in timed)}
        for record in map(json.loads, lines)
        if record["split"] != "save"
    ]


def be_no_rank(monkeypatch):
    """What a start without a launcher finds; and what it sets is gone after the test."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # so that it is known to be undone
        monkeypatch.delenv(name)


def results(output):
    return json.loads((output / "results.json").read_text())


SST2 = ("--steps", "40", "--eval-interval", "10", "--batch-size", "16", "--classifier-dropout", "0.1")


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """A run on two ranks that nothing disturbed."""
    output = tmp_path_factory.mktemp("run") / "sst2"
    launcher = ["deepspeed", "--quiet", "--num_accelerators", 2, "--master_port", free_port(), "--module"]
    return output, run(*launcher, "pipeline.finetune", *words(data, "sst2", output, *SST2))


def test_a_run_leaves_what_it_promises(finished, data):
    output, printed = finished
    assert "warning" not in printed.stderr.lower()
    found = results(output)
    assert (found["task"], found["seed"], found["steps"]) == ("sst2", 0, 40)
    assert found["examples"] == {"train": 96, "dev": 37, "test": 11}
    assert found["hyperparameters"]["train_batch_size"] == 16
    assert (output / "done").read_text() == "40\n"
    dev = Logits.load(output / "logits" / "dev.npz")
    examples = reading.read(TASKS["sst2"], str(data.glue))
    assert dict(zip(dev.ids.tolist(), dev.labels.tolist())) == {one.id: one.label for one in examples["dev"]}
    assert found["metrics"]["dev"] == metrics.compute("sst2", dev.predictions(), dev.labels)
    lines = (output / "submission" / "SST-2.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["index", *map(str, range(11))]
    evaluations = [record for record in records(output) if record["split"] == "eval"]
    assert [record["step"] for record in evaluations] == [10, 20, 30, 40]
    # The newest of the best evaluations is the result.
    best = max(evaluations, key=lambda record: (record["accuracy"], record["step"]))
    assert (found["best_step"], found["metrics"]["dev"]["accuracy"]) == (best["step"], best["accuracy"])
    training = [record for record in records(output) if record["split"] == "train"]
    assert training[-1]["loss"] < training[0]["loss"]
    events = EventAccumulator(str(output / "tensorboard"))
    events.Reload()
    assert {"train/loss", "train/accuracy", "train/learning_rate", "eval/accuracy"} <= set(events.Tags()["scalars"])


def test_transformers_opens_the_export_and_agrees(finished, data):
    output, _ = finished
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(output / "export").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(output / "export")
    assert theirs.config.id2label == {0: "0", 1: "1"}
    dev = Logits.load(output / "logits" / "dev.npz")
    with torch.no_grad():
        for example, logits in zip(reading.read(TASKS["sst2"], str(data.glue))["dev"], dev.logits):
            reference = theirs(**tokenizer(example.first, return_tensors="pt")).logits[0]
            np.testing.assert_allclose(logits, reference.numpy(), atol=1e-4)


def test_a_lost_rank_ends_the_others_and_the_run_goes_on_bit_for_bit(finished, data, tmp_path):
    output = tmp_path / "killed"
    command = words(data, "sst2", output, *SST2)
    ranks = start_ranks(2, command)
    await_step(ranks[0], output, 10)
    ranks[1].kill()
    said, _ = ranks[0].communicate(timeout=60)
    assert (ranks[0].returncode, ranks[1].wait()) == (69, -signal.SIGKILL), said
    assert f"error: lost rank 1 on host {os.uname().nodename}: its process ended without a word" in said
    assert not (output / "done").exists()
    end_of(start_ranks(2, command))
    undisturbed, _ = finished
    assert records(output) == records(undisturbed)
    assert results(output) == results(undisturbed)
    expected = checkpoints.load_weights(export.best_checkpoint(undisturbed))
    found = checkpoints.load_weights(export.best_checkpoint(output))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


SQUAD2 = ("--steps", "6", "--eval-interval", "3", "--batch-size", "12", "--classifier-dropout", "0")


def test_one_rank_and_three_give_the_same(all_tasks, data, tmp_path):
    """Training follows the same path, and an evaluation of 37 questions in uneven batches counts each once: on one rank
    and, for each of two seeds, on three. What these find wrong, and on what they differ, rank 0 says for all."""
    outputs, _ = all_tasks
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
    assert mistaken[0][1].startswith("error: --init nowhere holds no model; ")
    assert differing[0][1].startswith(f"error: rank 1 on host {host}: the setting seed is 1, and 0 on host {host}; ")
    assert [status for status, _ in trained] == [0, 0, 0]

    one_rank, three_ranks = outputs / "one-rank", output / "seed-0"
    one, three = (load_answers(directory / "logits" / "dev.json") for directory in (one_rank, three_ranks))
    assert one.keys() == three.keys() == {f"dev-{number}" for number in range(37)}
    for question, answers in one.items():
        other = three[question]
        assert answers.null_score == pytest.approx(other.null_score, abs=1e-4)
        assert [span.score for span in answers.nbest] == pytest.approx([span.score for span in other.nbest], abs=1e-3)
    assert results(one_rank)["metrics"] == results(three_ranks)["metrics"]
    losses = [
        [record["loss"] for record in records(directory) if record["split"] == "train"]
        for directory in (one_rank, three_ranks)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    seeds = [results(output / f"seed-{seed}")["metrics"] for seed in range(2)]
    assert [seed["metrics"] for seed in results(output)["seeds"]] == seeds


@given(st.lists(st.integers(3, 300), max_size=60), st.integers(1, 5), st.integers(1, 900))
def test_every_unit_is_evaluated_once_and_all_ranks_have_as_many_batches(lengths, world_size, tokens):
    features = SimpleNamespace(lengths=np.array(lengths, dtype=np.int64))
    parts = [list(batches_of(features, rank, world_size, tokens)) for rank in range(world_size)]
    assert len({len(part) for part in parts}) == 1
    units = [unit for part in parts for batch in part for unit in batch]
    assert sorted(units) == list(range(len(lengths)))
    for batch in (batch for part in parts for batch in part):
        assert len(batch) <= 1 or sum(lengths[unit] for unit in batch) <= tokens


@pytest.fixture(scope="module")
def all_tasks(data, tmp_path_factory):
    """Every task trained and evaluated in one process; and what only some of them are asked."""
    outputs = tmp_path_factory.mktemp("tasks")
    starts = [
        Start(words(data, task, outputs / task, "--steps", "3", "--batch-size", "4", "--max-length", "48"))
        for task in TASKS
    ]
    mnli = [*words(data, "rte", outputs / "rte-from-mnli", "--steps", "2", "--batch-size", "4")]
    mnli[mnli.index("--init") + 1] = str(outputs / "mnli")
    squad2 = [*words(data, "squad2", outputs / "squad2-again", "--steps", "2", "--learning-rate", "0")]
    squad2[squad2.index("--init") + 1] = os.path.relpath(outputs / "squad2", REPOSITORY)
    seeds = words(
        data, "mrpc", outputs / "seeds", "--steps", "4", "--batch-size", "4", "--seeds", "3", "--random-weights"
    )
    patient = words(data, "cola", outputs / "patient", "--steps", "50", "--eval-interval", "2", "--patience", "3",
                    "--learning-rate", "0")  # fmt: skip
    twice = words(data, "cola", outputs / "stopped-twice", "--steps", "6", "--eval-interval", "2")
    starts += [
        Start(words(data, "squad2", outputs / "one-rank", *SQUAD2)),
        Start(mnli),
        Start(squad2),
        Start(seeds, stop_in_results=True),
        Start(seeds),
        Start(seeds, without=str(outputs / "seeds" / "results.json")),  # as if killed between the last seed and it
        Start(patient, stop_at=4),
        Start(patient),
        Start(twice, stop_at=2),
        Start(twice, stop_at=2),
    ]
    file = outputs / "starts.json"
    file.write_text(json.dumps(starts))
    printed = run(sys.executable, "-m", "tests.pipeline.workers.finetune_tasks", file)
    return outputs, printed


def test_the_first_metric_chooses_the_best_step():
    assert {name: score_name(task) for name, task in TASKS.items()} == {
        "cola": "matthews", "stsb": "pearson", "sst2": "accuracy", "mnli": "accuracy", "qnli": "accuracy",
        "qqp": "accuracy", "rte": "accuracy", "mrpc": "accuracy", "wnli": "accuracy", "squad1": "f1",
        "squad2": "best_f1", "race": "accuracy",
    }  # fmt: skip


@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_trains_and_evaluates(all_tasks, name):
    outputs, _ = all_tasks
    found = results(outputs / name)
    task = TASKS[name]
    assert set(found["metrics"]) == set(task.dev_splits) | ({"test"} if name in ("squad1", "squad2", "race") else set())
    assert np.isfinite(found["metrics"][task.dev_splits[0]][score_name(task)])
    predicted = {path.stem for path in (outputs / name / "logits").iterdir()}
    assert predicted == set(found["examples"]) - {"train"}
    if name == "mnli":
        assert predicted == {"dev_matched", "dev_mismatched", "test_matched", "test_mismatched", "diagnostic"}
        assert (outputs / name / "submission" / "AX.tsv").exists()
    if name == "race":
        assert set(found["metrics"]["dev"]) == {"accuracy", "middle", "high"}
    config = json.loads(
        (outputs / name / "export" / ("albert.json" if name == "squad2" else "config.json")).read_text()
    )
    assert name == "squad2" or config["finetuning_task"] == name


def test_weights_of_another_task_lose_their_head_and_those_of_the_same_keep_it(all_tasks):
    outputs, printed = all_tasks
    mnli = export.load_finetuned(outputs / "mnli").state_dict()
    rte = export.load_finetuned(outputs / "rte-from-mnli").state_dict()
    assert rte["classifier.weight"].shape[0] == 2
    assert rte["albert.pooler.dense.weight"].sub(mnli["albert.pooler.dense.weight"]).abs().max() < 0.01
    assert f"weights from {outputs / 'mnli'}; new: classifier.weight, classifier.bias" in printed.stdout
    before = export.load_finetuned(outputs / "squad2").state_dict()
    after = export.load_finetuned(outputs / "squad2-again").state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    # Wherever they are looked for from, and however the command line put it.
    assert results(outputs / "squad2-again")["init"] == str(outputs / "squad2")


def test_several_seeds_give_median_and_spread(all_tasks):
    outputs, _ = all_tasks
    summary = results(outputs / "seeds")
    assert (summary["init"], summary["random_weights"]) == (None, True)
    values = [results(outputs / "seeds" / f"seed-{seed}")["metrics"]["dev"]["f1"] for seed in range(3)]
    assert summary["median"]["dev"]["f1"] == sorted(values)[1]
    assert summary["spread"]["dev"]["f1"] == [min(values), max(values)]
    weights = [export.load_finetuned(outputs / "seeds" / f"seed-{seed}").state_dict() for seed in range(2)]
    name = "albert.embeddings.word_embeddings.weight"
    assert not torch.equal(weights[0][name], weights[1][name])


def test_training_ends_when_patience_does_also_in_a_run_that_was_stopped(all_tasks):
    outputs, _ = all_tasks
    # Nothing is learnt: the first evaluation, after two steps, is the best, and three more are waited for.
    assert results(outputs / "patient")["steps"] == 8


def test_a_run_that_is_stopped_before_its_next_step_keeps_the_score_it_had(all_tasks):
    outputs, _ = all_tasks
    best = checkpoint_files.find_best(outputs / "stopped-twice" / "checkpoints")
    assert best is not None
    assert checkpoint_files.step_of(best) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--task": "sst3"}, "there is no task 'sst3'; choose one of cola, stsb"),
        ({"--init": "nowhere"}, "--init nowhere holds no model; name an exported model"),
        ({"--data": "./nowhere"}, "--data ./nowhere does not exist; name a directory"),
        ({"--max-length": "65"}, "--max-length 65 is more than the 64 positions of the model"),
        ({"--batch-size": "0"}, "0 is not at least 1"),
        ({"--steps": "1"}, "2 warm-up steps do not fit into 1 steps; lower --warmup-steps"),
        ({"--data": "{root}/no-dev", "--patience": "2"}, "--patience waits for a better evaluation, but --data"),
        ({"--stepz": "3"}, "unknown argument --stepz; did you mean --steps?"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(data, tmp_path, monkeypatch, capsys, change, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    be_no_rank(monkeypatch)
    line = words(data, "sst2", tmp_path / "run")
    (data.root / "no-dev").mkdir(exist_ok=True)
    (data.root / "no-dev" / "train.tsv").write_text("sentence\tlabel\nfine\t1\n")
    for flag, value in change.items():
        line = [*line[: line.index(flag)], *line[line.index(flag) + 2 :]] if flag in line else line
        line += [flag, value.format(root=data.root)]
    with pytest.raises(SystemExit) as left:
        finetune.main(line)
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_finished_run_has_nothing_left_to_do_and_another_one_is_refused(finished, data, monkeypatch, capsys):
    output, _ = finished
    be_no_rank(monkeypatch)
    assert finetune.main(words(data, "sst2", output, *SST2)) == 0
    assert "nothing to do" in capsys.readouterr().out
    for more, message in (
        (("--steps", "41"), "hyperparameters.steps: 40 -> 41"),
        (("--steps", "40", "--seeds", "2"), "holds a run of one seed"),
    ):
        with pytest.raises(SystemExit) as left:
            finetune.main(words(data, "sst2", output, *SST2, *more))
        assert left.value.code == 2
        assert message in capsys.readouterr().err
