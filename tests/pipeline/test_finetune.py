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
from pipeline import checkpoints, export
from pipeline.prediction import batches_of
from pipeline.tasks import metrics, reading
from pipeline.tasks.predictions import Logits, load_answers
from pipeline.tasks.task import TASKS
from tests.pipeline.conftest import REPOSITORY, run
from tests.pipeline.tasks import task_files
from tests.pipeline.test_pretrain import free_port, signal_when

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


def launch(ranks, *arguments):
    launcher = ["deepspeed", "--quiet", "--num_accelerators", str(ranks), "--master_port", str(free_port())]
    return [*launcher, "--module", "pipeline.finetune", *arguments]


def records(output):
    """The metrics of training and evaluations, without what depends on the clock."""
    timed = ("second", "wait", "mfu", "tflop", "share", "memory", "checkpoint")
    lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {name: value for name, value in record.items() if not any(word in name for word in timed)}
        for record in map(json.loads, lines)
        if record["split"] != "save"
    ]


def results(output):
    return json.loads((output / "results.json").read_text())


SST2 = ("--steps", "40", "--eval-interval", "10", "--batch-size", "16", "--classifier-dropout", "0.1")


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """A run on two ranks that nothing disturbed."""
    output = tmp_path_factory.mktemp("run") / "sst2"
    return output, run(*launch(2, *words(data, "sst2", output, *SST2)))


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


def test_a_stopped_run_goes_on_bit_for_bit(finished, data, tmp_path):
    output = tmp_path / "stopped"
    command = launch(2, *words(data, "sst2", output, *SST2))
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert signal_when(process, output, 10, signal.SIGTERM) == 75
    assert not (output / "done").exists()
    run(*launch(2, *words(data, "sst2", output, *SST2)))
    undisturbed, _ = finished
    assert records(output) == records(undisturbed)
    assert results(output) == results(undisturbed)
    expected = checkpoints.load_weights(export.best_checkpoint(undisturbed))
    found = checkpoints.load_weights(export.best_checkpoint(output))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    again = run(sys.executable, "-m", "pipeline.finetune", *words(data, "sst2", output, *SST2))
    assert "nothing to do" in again.stdout


def test_one_rank_and_three_give_the_same(data, tmp_path):
    """Training follows the same path, and an evaluation of 37 questions in uneven batches counts each once."""
    found = []
    for ranks in (1, 3):
        output = tmp_path / str(ranks)
        more = ("--steps", "6", "--eval-interval", "3", "--batch-size", "12", "--classifier-dropout", "0")
        run(*launch(ranks, *words(data, "squad2", output, *more)))
        found.append((load_answers(output / "logits" / "dev.json"), results(output), records(output)))
    (one, results_of_one, records_of_one), (three, results_of_three, records_of_three) = found
    assert one.keys() == three.keys() == {f"dev-{number}" for number in range(37)}
    for question, answers in one.items():
        other = three[question]
        assert answers.null_score == pytest.approx(other.null_score, abs=1e-4)
        assert [span.score for span in answers.nbest] == pytest.approx([span.score for span in other.nbest], abs=1e-3)
    assert results_of_one["metrics"] == results_of_three["metrics"]
    losses = [
        [record["loss"] for record in given if record["split"] == "train"]
        for given in (records_of_one, records_of_three)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


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
    lines = [
        words(data, task, outputs / task, "--steps", "3", "--batch-size", "4", "--max-length", "48") for task in TASKS
    ]
    mnli = [*words(data, "rte", outputs / "rte-from-mnli", "--steps", "2", "--batch-size", "4")]
    mnli[mnli.index("--init") + 1] = str(outputs / "mnli")
    squad2 = [*words(data, "squad2", outputs / "squad2-again", "--steps", "2", "--learning-rate", "0")]
    squad2[squad2.index("--init") + 1] = str(outputs / "squad2")
    lines += [
        mnli,
        squad2,
        words(data, "mrpc", outputs / "seeds", "--steps", "4", "--batch-size", "4", "--seeds", "3", "--random-weights"),
        words(data, "cola", outputs / "patient", "--steps", "50", "--eval-interval", "2", "--patience", "3",
              "--learning-rate", "0"),
    ]  # fmt: skip
    file = outputs / "lines.json"
    file.write_text(json.dumps(lines))
    printed = run(sys.executable, "-m", "tests.pipeline.workers.finetune_tasks", file)
    return outputs, printed


@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_trains_and_evaluates(all_tasks, name):
    outputs, _ = all_tasks
    found = results(outputs / name)
    task = TASKS[name]
    assert set(found["metrics"]) == set(task.dev_splits) | ({"test"} if name in ("squad1", "squad2", "race") else set())
    main = {"squad1": "f1", "squad2": "best_f1"}.get(name) or metrics.METRICS[name][0]
    assert np.isfinite(found["metrics"][task.dev_splits[0]][main])
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


def test_training_ends_when_patience_does(all_tasks):
    outputs, _ = all_tasks
    # Nothing is learnt: the first evaluation, after two steps, is the best, and three more are waited for.
    assert results(outputs / "patient")["steps"] == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--task": "sst3"}, "there is no task 'sst3'; choose one of cola, stsb"),
        ({"--init": "nowhere"}, "--init nowhere holds no model; name an exported model"),
        ({"--data": "./nowhere"}, "--data ./nowhere does not exist; name a directory"),
        ({"--max-length": "65"}, "--max-length 65 is more than the 64 positions of the model"),
        ({"--batch-size": "0"}, "0 is not at least 1"),
        ({"--stepz": "3"}, "unknown argument --stepz; did you mean --steps?"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(data, tmp_path, monkeypatch, capsys, change, message):
    from pipeline import finetune

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    line = words(data, "sst2", tmp_path / "run")
    for flag, value in change.items():
        line = [*line[: line.index(flag)], *line[line.index(flag) + 2 :]] if flag in line else line
        line += [flag, value]
    with pytest.raises(SystemExit) as left:
        finetune.main(line)
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_another_run_s_directory_is_refused(finished, data, monkeypatch, capsys):
    from pipeline import finetune

    output, _ = finished
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for more, message in (
        (("--steps", "41"), "hyperparameters.steps: 40 -> 41"),
        (("--steps", "40", "--seeds", "2"), "holds a run of one seed"),
    ):
        with pytest.raises(SystemExit) as left:
            finetune.main(words(data, "sst2", output, *SST2, *more))
        assert left.value.code == 2
        assert message in capsys.readouterr().err
