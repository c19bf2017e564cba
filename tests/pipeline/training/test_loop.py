"""The training loop: its results do not depend on how it runs, and its log agrees with the rows."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from data_prep.format.shards import open_shards
from data_prep.text.load_vocabulary import load_vocabulary
from model.distillation import PARTS
from pipeline.checkpoint.checkpoint_manifest import check
from pipeline.checkpoint.files import read_state, read_whole
from pipeline.checkpoint.initial_weights import load_run
from pipeline.checkpoint.retention import find_latest, step_of, tag_name, tags
from pipeline.data import sampler
from pipeline.data.collate import BatchShape, Collator
from pipeline.data.masking import MaskingSettings
from pipeline.distributed.exits import EXIT_STOPPED
from tests.pipeline import outcome
from tests.pipeline.pretraining import trained_models
from tests.pipeline.training import loop_runs
from tests.pipeline.training.loop_runs import BATCH, HOURS, LOGGED, SPLITS, STANDING, STEPS, TIMED, UNEVEN, Run
from tests.pipeline.workers import processes
from tests.pipeline.workers import runs as workers
from tests.pipeline.workers.runs import Ended

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(corpus, tmp_path_factory):
    made = tmp_path_factory.mktemp("runs")
    trained_models.export(made / "teacher", corpus.vocabulary)
    return made


Ends = Callable[[Run], Ended]


@pytest.fixture(scope="module")
def ended(corpus, folder):
    """A function that returns how a run ended. The first call for a number of ranks makes all its runs."""
    found = {}

    def end_of(run):
        if run.name not in found:
            runs = [other for other in loop_runs.RUNS if (other.world, other.later) == (run.world, run.later)]
            for other in runs:
                if other.goes_on is not None:
                    assert end_of(other.goes_on).status == EXIT_STOPPED
            work = [(other.command(corpus, folder), other.stopped_after) for other in runs]
            ends = processes.run(run.world, workers.run_each, work, scratch=folder)
            found.update(zip((other.name for other in runs), ends))
        return found[run.name]

    return end_of


def records(folder: Path, run: Run, split: str) -> list[dict[str, Any]]:
    lines = (folder / run.directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["split"] == split]


MASKING = MaskingSettings()


def reader(corpus: Any, directory: Path, objective: str) -> Collator:
    shards = open_shards(directory)
    continues = load_vocabulary(corpus.train / "spiece.model").continues_word
    return Collator(shards, BatchShape.of(shards, masking=MASKING), continues, objective, seed=0, masking=MASKING)


MEANS = {f"distil_{name}" for name in PARTS} | {
    *("loss", "mlm_loss", "sop_loss", "mlm_accuracy", "sop_accuracy", "grad_norm")
}


@pytest.mark.parametrize(("alone", "run"), loop_runs.ALIKE, ids=lambda run: run.name)
def test_how_it_runs_does_not_change_what_it_computes(ended, folder, alone, run):
    for made in (alone, run):
        assert ended(made).status == 0, ended(made).stderr
    check_equal(folder, alone, run)


def check_equal(folder: Path, alone: Run, run: Run) -> None:
    """Both runs logged the same numbers, and the same means up to rounding."""
    for split in ("train", "eval"):
        wanted = records(folder, alone, split)
        for found, record in zip(records(folder, run, split), wanted, strict=True):
            for name in MEANS & set(record):
                # Distances are taken from unit vectors in fp32.
                rounding = 1e-7 if name.startswith("distil_") else 0.0
                assert found[name] == pytest.approx(record[name], rel=1e-5, abs=rounding), (split, name)
            for name in ("step", "samples", "tokens", "interval_tokens", "predictions", "pairs"):
                assert found.get(name) == record.get(name), (split, name)


def test_flash_attention_changes_nothing_at_any_stage(ended, folder, corpus):
    assert ended(SPLITS[0]).status == 0
    runs = [Run(f"flash at stage {stage}", stage=stage) for stage in (1, 2, 3)]
    ends = processes.run(2, workers.run_with_flash, [run.command(corpus, folder) for run in runs], scratch=folder)
    for run, end in zip(runs, ends, strict=True):
        assert end.status == 0, end.stderr
        check_equal(folder, SPLITS[0], run)


def gradients(tag: Path) -> dict[str, Tensor]:
    """The first moments in a checkpoint, which are sums of gradients."""
    return read_whole(tag, check(tag), "exp_avg")


@pytest.mark.parametrize("run", loop_runs.UNEVEN_SPLITS, ids=lambda run: run.name)
def test_the_gradients_of_an_uneven_batch_are_those_of_one_rank(ended, folder, run):
    """Of the first two steps, whose weights are the same. A key's bias has a gradient of zero, up to rounding."""
    for made in (SPLITS[0], run):
        assert ended(made).status == 0, ended(made).stderr
    tag = Path("checkpoints") / tag_name(2)
    wanted, found = (gradients(folder / made.directory / tag) for made in (SPLITS[0], run))
    whole = torch.cat([gradient.flatten() for gradient in wanted.values()]).norm()
    for name, gradient in wanted.items():
        assert (found[name] - gradient).norm() <= 1e-5 * max(gradient.norm(), 1e-4 * whole), name


def test_deepspeed_prints_no_memory(ended):
    end = ended(loop_runs.SUMMED_IN_FP32)
    assert (end.status, end.stdout.partition(":")[0]) == (0, "model"), end.stderr
    assert "GB" not in end.stdout


def test_a_run_says_what_its_empty_rows_cost(ended, folder):
    run = loop_runs.UNEVEN_SPLITS[0]
    said = ended(run).stdout
    assert "batch: 12 rows = 2 x 2 accumulated x 5 ranks - 8 empty (40.0 % of the computation); 10 steps = " in said
    newest = find_latest(folder / run.directory / "checkpoints")
    assert read_state(newest)["samples"] == STEPS * BATCH, "empty rows are no samples"


@pytest.mark.parametrize(("run", "kept"), [(STANDING, [10, 8]), (UNEVEN[0], [10, 8, 6, 4, 2])], ids=["two", "five"])
def test_as_many_checkpoints_are_kept_as_the_flag_says(ended, folder, run, kept):
    assert ended(run).status == 0, ended(run).stderr
    assert [step_of(tag) for tag in tags(folder / run.directory / "checkpoints")] == kept


def test_time_ends_schedule_and_run(corpus, folder):
    """By a clock that goes on by the same time at each look, so that the speed of the machine does not matter."""
    (end,) = processes.run(1, workers.run_by_a_counted_clock, [TIMED.command(corpus, folder)], 0.03, scratch=folder)
    assert end.status == 0, end.stderr
    assert re.search(rf"finished after \d+ steps of 100000, because --max-hours {HOURS:g} are over: ", end.stdout)
    run = folder / TIMED.directory
    newest = find_latest(run / "checkpoints")
    position = read_state(newest)["client_state"]
    training = records(folder, TIMED, "train")
    assert (run / "done").read_text() == f"{position['step']}\n"
    assert STEPS < position["step"] == training[-1]["step"] < 100_000
    assert position["seconds"] < 3600 * HOURS
    assert position["finished"]
    rates = [record["learning_rate"] for record in training]
    assert max(rates) > 0.8 * loop_runs.PEAK
    assert rates[-1] < 0.2 * loop_runs.PEAK


def on_a_disk_that_fills_up(run: Run, folder: Path, corpus: Any, *steps: int) -> tuple[Path, Ended]:
    """The disk, and how the run ended; from the first to the second of the `steps` nothing can be written."""
    place = folder / f"disk full from {steps[0]}" / "mounted"
    place.mkdir(parents=True)
    command = [
        str(place / "run") if word == str(folder / run.directory) else word for word in run.command(corpus, folder)
    ]
    return place, processes.run(1, workers.run_on_a_disk_that_fills_up, command, place, *steps, scratch=folder)


def test_a_disk_that_stays_full_ends_the_run(folder, corpus):
    """No save succeeds: those of steps 2, 4 and 6 fail."""
    _, end = on_a_disk_that_fills_up(UNEVEN[0], folder, corpus, 2, STEPS + 1)
    assert end.status == 1
    assert end.stdout.count("training goes on") == 2
    (line,) = (line for line in end.stderr.splitlines() if "saves" in line)
    assert line.startswith("error: all 3 saves of this start have failed: rank 0: ")
    assert line.endswith("goes on from the beginning")


def test_a_full_disk_fails_saves_and_records_but_not_the_run(ended, folder, corpus):
    """From the second of the five saves to the fourth nothing can be written, neither checkpoints nor records."""
    run = UNEVEN[0]
    assert ended(run).status == 0
    place, end = on_a_disk_that_fills_up(run, folder, corpus, 4, 8)
    assert end.status == 0, end.stderr
    for step in (4, 6):
        assert f"checkpoint of step {step} failed, training goes on: rank 0: " in end.stdout
    assert end.stdout.count("training goes on") == 2
    found, wanted = outcome.records(place.parent), outcome.records(folder / run.directory)
    for split in ("train", "eval"):
        assert [r for r in found if r["split"] == split] == [r for r in wanted if r["split"] == split]


def means(model: Any, source: Collator, epochs: list[int], rows: list[int], task: str) -> dict[str, float]:
    """Losses and accuracies in fp32, one row at a time and without the engine."""
    sums = torch.zeros(6, dtype=torch.float64)
    for epoch, row in zip(epochs, rows):
        batch = {name: torch.from_numpy(value) for name, value in source.read([epoch], [row])._asdict().items()}
        with torch.no_grad():
            found = model(**batch)
        figures = [found.mlm_loss_sum, found.mlm_correct, found.mlm_count]
        sums += torch.stack([*figures, found.sentence_loss_sum, found.sentence_correct, found.sentence_count]).double()
    loss, correct, count, sentence_loss, sentence_correct, pairs = sums.tolist()
    return {
        "mlm_loss": loss / count,
        "mlm_accuracy": correct / count,
        "predictions": count,
        f"{task}_loss": sentence_loss / pairs,
        f"{task}_accuracy": sentence_correct / pairs,
        "pairs": pairs,
    }


def test_logged_means_are_those_of_the_rows(ended, folder, corpus):
    assert ended(STANDING).status == 0, ended(STANDING).stderr
    model = load_run(folder / STANDING.name)
    source, so_far = reader(corpus, corpus.train, "sop"), 0
    for interval, logged in enumerate(records(folder, STANDING, "train")):
        positions = torch.arange(interval * LOGGED * BATCH, (interval + 1) * LOGGED * BATCH).numpy()
        epochs, rows = sampler.rows_at(positions, len(source.shards), seed=0)
        wanted = means(model, source, epochs.tolist(), rows.tolist(), "sop")
        assert {name: logged[name] for name in wanted} == pytest.approx(wanted, rel=1e-6)
        assert logged["loss"] == pytest.approx(wanted["mlm_loss"] + wanted["sop_loss"], rel=1e-6)
        tokens = sum(int((source.read([e], [r]).sequence_ids >= 0).sum()) for e, r in zip(epochs, rows))
        so_far += tokens
        assert (logged["interval_tokens"], logged["tokens"]) == (tokens, so_far)


@pytest.mark.parametrize("run", UNEVEN, ids=lambda run: run.name)
def test_an_evaluation_scores_both_sentence_tasks_over_all_held_out_rows(ended, folder, corpus, run):
    """The micro-batches of the ranks do not divide the held-out rows. Each row counts once, for both tasks."""
    assert ended(run).status == 0
    model = load_run(folder / run.directory)
    rows = list(range(len(open_shards(corpus.held_out))))
    assert len(rows) % (run.world * run.micro), "some batches must be filled up"
    assert open_shards(corpus.held_out).manifest.counts.max_pairs_in_row > 1
    logged = records(folder, run, "eval")[-1]
    learned = "nsp" if run in loop_runs.OBJECTIVES else "sop"
    for task in ("sop", "nsp"):
        wanted = means(model, reader(corpus, corpus.held_out, task), [0] * len(rows), rows, task)
        if task != learned:
            wanted = {name: value for name, value in wanted.items() if "mlm" not in name and name != "predictions"}
        assert {name: logged[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)
        assert logged[f"{task}_accuracy_low"] < logged[f"{task}_accuracy"] < logged[f"{task}_accuracy_high"]
    assert logged["sop_loss"] != logged["nsp_loss"]


@pytest.mark.parametrize("run", loop_runs.OBJECTIVES, ids=lambda run: run.name)
def test_other_objectives_sharing_and_optimizers(ended, folder, run):
    assert ended(run).status == 0
    assert {"config.json", "tokenizer.json"} <= {path.name for path in (folder / run.directory / "export").iterdir()}
    training = records(folder, run, "train")
    assert training[-1]["mlm_loss"] < training[0]["mlm_loss"]
    assert ("trust_ratios" in training[-1]) == (run.name == "nsp")


def test_overflows_are_counted_logged_and_explained_once(ended, folder):
    end = ended(loop_runs.OVERFLOWING)
    assert end.status == 0, end.stderr
    training = records(folder, loop_runs.OVERFLOWING, "train")
    overflows = [record["overflow_steps"] for record in training]
    assert overflows[0] > 0
    assert overflows[-1] < 20
    # Without hysteresis every overflow halves the scale.
    assert [record["loss_scale"] for record in training] == [2.0 ** (30 - count) for count in overflows]
    assert end.stdout.count("fp16: gradients overflowed in") == 1
    assert f"in {overflows[0]} of {LOGGED} steps" in end.stdout
    assert training[-1]["mlm_loss"] < training[0]["mlm_loss"]


def test_a_loss_scale_at_its_floor_ends_the_run(ended):
    end = ended(loop_runs.AT_ITS_FLOOR)
    assert end.status == 1
    (line,) = end.stderr.splitlines()
    assert "the fp16 loss scale at its floor, 5.36871e+08; lower the learning rate" in line
    assert "--precision bf16" in line


def test_a_loss_that_stays_no_number_ends_the_run_and_is_never_saved(ended, folder):
    end = ended(loop_runs.DIVERGING)
    assert end.status == 1
    (line,) = end.stderr.splitlines()
    assert "the loss has been infinite or no number for 10 steps or more at step 12" in line
    assert "lower the learning rate" in line
    assert "no checkpoint of step 4: the loss is infinite or no number" in end.stdout
    assert "fp16" not in end.stdout
    weights = load_run(folder / loop_runs.DIVERGING.name).state_dict()
    assert all(tensor.isfinite().all() for tensor in weights.values())
    assert records(folder, loop_runs.DIVERGING, "train")[-1]["loss"] is None
