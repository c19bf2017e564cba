"""One fine-tuning run on two ranks: what it leaves, a lost rank, and a second start."""

import os
import signal

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline import finetune
from pipeline.checkpoint.files import load_weights
from pipeline.checkpoint.initial_weights import exported_checkpoint
from pipeline.tasks import metrics
from pipeline.tasks.files import reading
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS
from tests.pipeline.conftest import await_step
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
    be_no_rank(monkeypatch)
    assert finetune.main(words(data, "sst2", output, *SST2)) == 0
    assert "nothing to do" in capsys.readouterr().out
    for more, message in (
        (("--steps", "25"), "steps: 24 -> 25"),
        (("--steps", "24", "--seeds", "2"), "holds a run of one seed"),
    ):
        with pytest.raises(SystemExit) as left:
            finetune.main(words(data, "sst2", output, *SST2, *more))
        assert left.value.code == 2
        assert message in capsys.readouterr().err
