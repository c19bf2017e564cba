"""Fine-tuning runs: what one leaves, a lost rank, a second start, mistakes, and files that change."""

import os
import shutil
import signal
import sys

import numpy as np
import pytest
import torch
import transformers
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline import finetune
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import exported_checkpoint
from pipeline.tasks import metrics
from pipeline.tasks.files import reading
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS
from tests.pipeline.conftest import await_step, run
from tests.pipeline.finetuning.finetune_runs import be_no_rank, results, start_ranks, words
from tests.pipeline.outcome import records

pytestmark = pytest.mark.slow

SST2 = ("--steps", "24", "--eval-interval", "6", "--batch-size", "16", "--classifier-dropout", "0.1")


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """An undisturbed run on two ranks: its directory and the ranks."""
    output = tmp_path_factory.mktemp("run") / "sst2"
    ranks = start_ranks(output.parent, 2, words(data, "sst2", output, *SST2))
    assert [rank.wait() for rank in ranks] == [0, 0], ranks[0].stderr
    return output, ranks


def test_a_run_leaves_what_it_promises(finished, data):
    output, ranks = finished
    assert not any("warning" in rank.stderr.lower() for rank in ranks)
    last = ranks[0].stdout.splitlines()[-1]
    assert last == f"to predict: python -m pipeline.predict --run {output} --input FILE --out predicted.jsonl"
    found = results(output)
    assert (found["task"], found["seed"], found["steps"]) == ("sst2", 0, 24)
    assert found["examples"] == {"train": 96, "dev": 37, "test": 11}
    assert found["hyperparameters"]["train_batch_size"] == 16
    assert (output / "done").read_text() == "24\n"
    dev = Logits.load(output / "logits" / "dev.npz")
    examples = reading.read(TASKS["sst2"], str(data.glue))
    assert dict(zip(dev.ids.tolist(), dev.labels.tolist())) == {one.id: one.label for one in examples["dev"]}
    assert found["metrics"]["dev"] == {"accuracy": metrics.accuracy(dev.predictions(), dev.labels)}
    lines = (output / "submission" / "SST-2.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["index", *map(str, range(11))]
    evaluations = [record for record in records(output) if record["split"] == "eval"]
    assert [record["step"] for record in evaluations] == [6, 12, 18, 24]
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


def assert_same_run(output, undisturbed):
    """Metrics, results and weights are the same, bit for bit."""
    assert records(output) == records(undisturbed)
    assert results(output) == results(undisturbed)
    found, expected = (load_weights(exported_checkpoint(run)) for run in (output, undisturbed))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_lost_rank_ends_the_others_and_the_run_goes_on_bit_for_bit(finished, data, tmp_path):
    output = tmp_path / "killed"
    command = words(data, "sst2", output, *SST2)
    first, second = start_ranks(tmp_path, 2, command)
    await_step(first, output, 6)
    second.kill()
    assert (first.wait(), second.wait()) == (69, -signal.SIGKILL), first.stderr
    assert f"error: lost rank 1 on host {os.uname().nodename}: its process ended without notice" in first.stderr
    assert not (output / "done").exists()
    again = start_ranks(tmp_path, 2, command)
    assert [rank.wait() for rank in again] == [0, 0], again[0].stderr
    assert_same_run(output, finished[0])


def test_a_finished_run_has_nothing_left_to_do_and_another_one_is_refused(finished, data, monkeypatch, capsys):
    output, _ = finished
    for more, status, message in (
        ((), 0, "nothing to do"),
        (("--steps", "25"), 2, "steps: 24 -> 25"),
        (("--steps", "24", "--seeds", "2"), 2, "holds a run of one seed"),
    ):
        ended, *said = finetune_here(monkeypatch, capsys, words(data, "sst2", output, *SST2, *more))
        assert (ended, message in "".join(said)) == (status, True)


def test_a_mistake_is_one_line_and_nothing_is_written(data, tmp_path, monkeypatch, refusal):
    (tmp_path / "no-train").mkdir()
    (tmp_path / "no-train" / "dev.tsv").write_text("sentence\tlabel\nfine\t1\n")
    command = words(data._replace(glue=tmp_path / "no-train"), "sst2", tmp_path / "run")
    be_no_rank(monkeypatch)
    assert "holds no training examples of sst2; it has dev" in refusal(finetune.main, *command)
    assert not (tmp_path / "run").exists()


def own_files(data, directory):
    """Copies the files of SST-2, which a test may change. Returns their directory, a run's and its command line."""
    if not (directory / "SST-2").exists():
        shutil.copytree(data.glue / "SST-2", directory / "SST-2")
    short = ("--steps", "4", "--eval-interval", "2", "--batch-size", "8")
    where = data._replace(glue=directory / "SST-2")
    return directory / "SST-2", directory / "run", words(where, "sst2", directory / "run", *short)


def finetune_here(monkeypatch, capsys, command):
    """Runs a command in this process. Returns its status, stdout and stderr."""
    be_no_rank(monkeypatch)
    try:
        status = finetune.main(command)
    except SystemExit as left:
        status = left.code
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.fixture(scope="module")
def short(data, tmp_path_factory):
    """A short run on files of its own. A test must copy it before changing it."""
    root = tmp_path_factory.mktemp("short")
    run(sys.executable, "-m", "pipeline.finetune", *own_files(data, root)[2])
    return root


def test_what_is_only_predicted_makes_no_other_run(short, data, tmp_path):
    """A changed test file is predicted again, without training."""
    shutil.copytree(short, tmp_path / "copy")
    files, output, command = own_files(data, tmp_path / "copy")
    before, trained = records(output), results(output)
    lines = (files / "test.tsv").read_text().splitlines()
    (files / "test.tsv").write_text("\n".join(lines[:-2]) + "\n")
    line = [sys.executable, "-m", "pipeline.finetune", *command]
    run(*line)
    assert len((output / "submission" / "SST-2.tsv").read_text().splitlines()) == len(lines) - 2
    assert (records(output), results(output)["metrics"]) == (before, trained["metrics"])
    assert "nothing to do" in run(*line).stdout

    # What training has seen makes another run.
    (files / "dev.tsv").write_text("\n".join((files / "dev.tsv").read_text().splitlines()[:-1]) + "\n")
    assert "holds a run with other settings (other examples in --data)" in run(*line, status=2).stderr


def test_a_run_that_has_begun_needs_its_initial_model_no_more(data, tmp_path, monkeypatch, capsys, refusal):
    init = shutil.copytree(data.init, tmp_path / "init")
    files, output, command = own_files(data._replace(init=init), tmp_path)
    run(sys.executable, "-m", "pipeline.finetune", *command)
    moved = files.rename(tmp_path / "away")
    be_no_rank(monkeypatch)
    assert f"{files} does not exist" in refusal(finetune.main, *command)
    moved.rename(files)
    shutil.rmtree(init)
    for line in (command, ["--output", str(output)]):
        assert finetune_here(monkeypatch, capsys, line) == (0, f"{output} is finished: nothing to do\n", "")

    # A run with a checkpoint resumes from it.
    before = results(output)
    for name in ("done", "results.json"):
        (output / name).unlink()
    assert "resuming from step 4\n" in run(sys.executable, "-m", "pipeline.finetune", *command).stdout
    assert results(output) == before
    # One without needs the weights.
    shutil.rmtree(output)
    be_no_rank(monkeypatch)
    assert f"--init {init} is not a directory" in refusal(finetune.main, *command)


def test_a_failure_of_the_last_stage_keeps_the_training(short, data, tmp_path):
    """If rank 0 cannot write predictions, all ranks end with one line. The same command repeats only the writing."""
    shutil.copytree(short, tmp_path / "copy")
    _, output, command = own_files(data, tmp_path / "copy")
    before, expected = records(output), results(output)
    for name in ("done", "results.json"):
        (output / name).unlink()
    shutil.rmtree(output / "submission")
    (output / "submission").write_text("a file in the way")
    line = [sys.executable, "-m", "pipeline.finetune", *command]
    failed = run(*line, status=2)
    assert "training is done and saved, and the same command repeats only this" in failed.stderr
    assert "Traceback" not in failed.stdout + failed.stderr
    assert not (output / "done").exists()
    (output / "submission").unlink()
    run(*line)
    assert (records(output), results(output)["metrics"]) == (before, expected["metrics"])
    assert (output / "done").exists()
