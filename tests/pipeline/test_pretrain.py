"""Pre-training as a user runs it: `deepspeed` processes on shards, killed and started again.

Where the launcher has no part in what is shown, the ranks are forked.
"""

import json
import os
import shutil
import signal
import sys

import pytest

from benchmarks.shared import job
from data_prep.format.shards import open_shards
from pipeline.distributed.exits import EXIT_STOPPED
from pipeline.distributed.rendezvous import reserve_port
from tests.pipeline.conftest import data_prep, newest, run
from tests.pipeline.outcome import differences, outcome
from tests.pipeline.workers import killed_runs
from tests.pipeline.workers.forked import ForkedRank

pytestmark = pytest.mark.slow

CONFIG = killed_runs.CONFIG | {"bf16": {"enabled": True}}
SMALL = ("num_hidden_layers=2", "hidden_size=32", "num_attention_heads=4", "intermediate_size=64", "embedding_size=16")
# Small initial weights, as in the paper's recipe: the tests' tolerances are absolute.
SMALL += ("initial_attention=random", "embedding_initializer_range=0.02")


UMASK = 0o027


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "small.json"
    path.write_text(json.dumps(CONFIG))
    return path


def command(corpus, config, output, *more):
    """The module and the flags of each rank."""
    return [
        "pipeline.pretrain", "--model", "albert-tiny", "--model-args", *SMALL, "--data", str(corpus.train),
        "--eval-data", str(corpus.held_out), "--deepspeed_config", str(config), "--output", str(output),
        "--steps", "40", "--log-interval", "4", "--eval-interval", "20", "--save-interval", "5",
        *map(str, more),
    ]  # fmt: skip


class Job(job.Job):
    """Its ranks are forked. Those in fp16 claim that the processor has it, which DeepSpeed denies."""

    def start_rank(self, environment):
        claiming = ["tests.pipeline.workers.with_fp16"] if "fp16" in self.flags else []
        module, *words = [*claiming, *self.module, *self.flags, "--output", str(self.output)]
        return ForkedRank(self.log, module, words, environment)

    @property
    def log(self):
        return self.output.with_suffix(".err")


@pytest.fixture(scope="module")
def finished(corpus, config, tmp_path_factory):
    """An undisturbed run, under a umask."""
    output = tmp_path_factory.mktemp("run") / "finished"
    before = os.umask(UMASK)
    try:
        launcher = ["deepspeed", "--quiet", "--num_accelerators", 2, "--master_port", reserve_port(), "--module"]
        return output, run(*launcher, *command(corpus, config, output))
    finally:
        os.umask(before)


def test_a_run_leaves_what_it_promises(finished):
    output, result = finished
    assert {"settings.json", "spiece.model", "metrics.jsonl", "tensorboard", "checkpoints", "export", "done"} <= {
        path.name for path in output.iterdir()
    }
    assert (output / "done").read_text() == "40\n"
    assert "warning" not in result.stderr.lower()
    evaluations = [record for record in outcome(output)[0] if record["split"] == "eval"]
    assert [record["step"] for record in evaluations] == [20, 40]
    training = [record for record in outcome(output)[0] if record["split"] == "train"]
    assert [record["step"] for record in training] == list(range(4, 41, 4))
    assert training[-1]["samples"] == 640
    recorded = (output / "metrics.jsonl").read_text()
    for name in (
        *("loss", "mlm_loss", "sop_loss", "mlm_accuracy", "sop_accuracy", "learning_rate", "grad_norm", "trust_ratios"),
        *("mlm_accuracy_low", "sop_accuracy_high", "tokens_per_second", "data_wait_share", "peak_memory_gb"),
    ):
        assert f'"{name}": ' in recorded
    assert training[-1]["loss"] < training[0]["loss"]
    # 5 steps lie behind the one that made the last update: 1 - 39/40 of the peak.
    assert training[-1]["learning_rate"] == pytest.approx(0.02 / 40)


def test_its_files_have_the_modes_of_the_umask(finished):
    paths = [path for path in (finished[0], *finished[0].rglob("*")) if not path.is_symlink()]
    usual = {path: (0o777 if path.is_dir() else 0o666) & ~UMASK for path in paths}
    assert [path for path in paths if path.stat().st_mode & 0o777 != usual[path]] == []


def test_the_log_is_short_and_says_what_is_left(finished):
    _, result = finished
    lines = [line for line in result.stdout.splitlines() if line.startswith("step ")]
    assert any(line.startswith("step  4/40  loss ") and " left" in line for line in lines)
    assert any(line.startswith("step 40/40  loss ") and " left" not in line for line in lines)
    assert all(len(line) <= 100 and "nsp" not in line and "FLOP" not in line for line in lines)


def test_a_finished_run_has_nothing_left_to_do(finished, corpus, config):
    output, _ = finished
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    result = run(sys.executable, "-m", *command(corpus, config, output))
    assert "nothing to do" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before


def test_a_mixture_of_corpora_is_counted_evaluated_apart_and_resumed_exactly(corpus, config, tmp_path):
    output, second, other = tmp_path / "run", tmp_path / "second", tmp_path / "other"
    shutil.copytree(corpus.train, second)
    data_prep(
        "shards", "--documents", corpus.documents, "--vocab", corpus.vocabulary, "--out", other,
        "--split", "held_out", "--max-seq-length", "32",
    )  # fmt: skip
    words = [
        sys.executable, "-m", "pipeline.pretrain", "--model", "albert-tiny", "--model-args", *SMALL,
        "--data", f"{corpus.train}:3", f"{second}:1", "--eval-data", corpus.held_out, other,
        "--deepspeed_config", config, "--output", output, "--steps", "8", "--log-interval", "4",
        "--eval-interval", "4", "--save-interval", "3", "--eval-batches", "2",
    ]  # fmt: skip
    result = run(*words)
    batch = CONFIG["train_batch_size"]
    assert "corpus train: 75.00% of the samples" in result.stdout
    undisturbed, _ = outcome(output)
    training = [record for record in undisturbed if record["split"] == "train"]
    for record, steps in zip(training, (4, 8), strict=True):
        assert record["samples/train"] == 3 * record["samples/second"] == 3 * steps * batch // 4
        assert record["epochs/train"] == record["samples/train"] / len(open_shards(corpus.train))
    evaluations = [record for record in undisturbed if record["split"] == "eval"]
    assert [record["step"] for record in evaluations] == [4, 8]
    for record in evaluations:
        assert record["mlm_loss"] != record["other/mlm_loss"]
    # Every evaluation is of the same rows, the last one included.
    for name in ("predictions", "other/predictions", "pairs", "mlm_unigram_entropy"):
        assert evaluations[0][name] == evaluations[1][name]
    held_out = open_shards(corpus.held_out)
    assert evaluations[0]["predictions"] <= 2 * batch * 10 < 10 * len(held_out)

    # As if the last two steps had not been.
    (output / "done").unlink()
    shutil.rmtree(output / "checkpoints" / "step-00000008")
    assert "resuming from step 6" in run(*words).stdout
    assert outcome(output)[0] == undisturbed


def test_a_run_that_is_stopped_and_killed_in_a_save_goes_on_to_the_same_end(finished, corpus, config, tmp_path):
    output = tmp_path / "killed"
    job = Job(command(corpus, config, output)[1:], output, 2)
    processes = job.start()
    killed_runs.wait_until(lambda: newest(output), processes)
    processes[1].send_signal(signal.SIGTERM)
    assert [process.wait() for process in processes] == [EXIT_STOPPED] * 2
    processes = job.start()
    killed_runs.wait_until(lambda: any(job.checkpoints.glob(".step-*.tmp/*")), processes)
    for process in processes:
        process.kill()
        process.wait()
    assert not (output / "done").exists()
    job.finish()
    assert differences(output, finished[0]) == []
