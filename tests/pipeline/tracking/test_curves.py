"""Which numbers become curves."""

import pytest

from pipeline.tracking.curves import Curves
from pipeline.tracking.tracker import TrackedRun
from tests.pipeline.tracking.made_records import SETTINGS, evaluation, training


def tags(tmp_path, split, metrics, everything=False, on_gpu=True, **settings):
    run = TrackedRun(tmp_path, 0, {**SETTINGS, **settings}, on_gpu=on_gpu)
    return {tag.partition("/")[2] for tag in Curves(run, everything).make_scalars(10, split, metrics).values}


TRAINING = {
    *("loss", "mlm_loss", "mlm_accuracy", "sop_accuracy", "learning_rate", "grad_norm", "loss_scale"),
    *("overflow_steps", "trust_ratio_min", "trust_ratio_max", "tokens_per_second", "peak_share", "data_wait_share"),
    "peak_memory_gb",
}
HELD_OUT = {f"{task}_accuracy{end}" for task in ("mlm", "sop") for end in ("", "_low", "_high")} | {"mlm_loss"}


def test_a_run_in_fp16_on_gpus(tmp_path):
    assert tags(tmp_path, "train", training(10)) == TRAINING
    assert tags(tmp_path, "eval", evaluation(10)) == HELD_OUT


def test_constants_are_left_out(tmp_path):
    bf16 = {**training(10), "overflow_steps": 0}
    assert tags(tmp_path, "train", bf16, precision="bf16") == TRAINING - {"loss_scale", "overflow_steps"}


def test_what_is_not_trained_is_left_out(tmp_path):
    sentences = {name for name in TRAINING | HELD_OUT if name.startswith("sop")}
    assert tags(tmp_path, "train", training(10), objective="mlm") == TRAINING - sentences
    assert tags(tmp_path, "eval", evaluation(10), objective="mlm") == HELD_OUT - sentences
    assert "nsp_accuracy" in tags(tmp_path, "eval", evaluation(10), objective="nsp")


def test_a_processor_has_no_flops(tmp_path):
    unknown = {name: value for name, value in training(10).items() if name != "peak_share"}
    assert "tflops_per_gpu" in tags(tmp_path, "train", unknown)
    assert "tflops_per_gpu" not in tags(tmp_path, "train", unknown, on_gpu=False)


def test_of_further_corpora_only_the_losses_and_accuracies(tmp_path):
    further = {f"books/{name}": value for name, value in evaluation(10).items()}
    assert tags(tmp_path, "eval", further) == {"books/mlm_loss", "books/mlm_accuracy"}
    assert tags(tmp_path, "train", {"samples/books": 5, "epochs/books": 0.1}) == set()


def test_fine_tuning_keeps_the_metrics_of_every_split(tmp_path):
    run = TrackedRun(tmp_path, 0, {"task": "mnli"})
    found = Curves(run).make_scalars(10, "eval", {"accuracy": 0.5, "dev_mm/accuracy": 0.4, "samples": 80})
    assert found.values == {"eval/accuracy": 0.5, "eval/dev_mm/accuracy": 0.4}


def test_all_curves_have_every_number_and_every_trust_ratio(tmp_path):
    found = tags(tmp_path, "train", training(10), everything=True)
    assert {"rows_per_second", "tflops_per_gpu", "sop_loss", "a", "b"} <= found
    assert "c" not in found


def test_tokens_and_epochs_of_an_evaluation_are_those_of_the_training_before_it(tmp_path):
    curves = Curves(TrackedRun(tmp_path, 0, SETTINGS))
    assert curves.make_scalars(0, "eval", evaluation(0)).consumed == {"tokens": 0, "epochs": 0.0}
    assert curves.make_scalars(20, "eval", evaluation(20)).consumed == {}  # nothing is known yet
    assert curves.make_scalars(20, "train", training(20)).consumed["tokens"] == 400
    assert curves.make_scalars(30, "eval", evaluation(30)).consumed == {"tokens": 600, "epochs": pytest.approx(0.6)}
