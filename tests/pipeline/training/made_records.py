"""Records of a pre-training run as a trainer logs them, and a log that takes them."""

import dataclasses
from types import SimpleNamespace

from pipeline.training.callbacks import MetricsLog
from pipeline.training.training_run import Evaluation, TrainingRun, TrainState
from tests.pipeline.records import finetune_settings, pretrain_settings, write

RECORD = pretrain_settings(precision="fp16", json={"optimizer": {"type": "Lamb", "params": {"lr": 0.001}}}, steps=100)
TASK_RECORD = finetune_settings()


def training(step):
    """A training record with every key that a trainer on a GPU writes."""
    return {
        "mlm_loss": 7.0 - step / 100, "mlm_accuracy": step / 1000, "loss": 7.7 - step / 100, "sop_loss": 0.7,
        "sop_accuracy": 0.5, "pairs": 9, "predictions": 99, "interval_tokens": 200, "epochs": step / 50,
        "samples": 8 * step, "tokens": 20 * step, "learning_rate": 1e-3, "grad_norm": 1.5, "loss_scale": 1024.0,
        "overflow_steps": 1, "tokens_per_second": 50.0, "rows_per_second": 5.0, "tokens_per_second_per_gpu": 50.0,
        "rows_per_second_per_gpu": 5.0, "data_wait_share": 0.01, "tflops_per_gpu": 400.0, "peak_share": 0.4,
        "peak_memory_gb": 3.5, "seconds": float(step), "trust_ratios": {"a": 0.25, "b": 2.0, "c": float("nan")},
    }  # fmt: skip


def evaluation(step):
    """An evaluation's record of a run that trains SOP."""
    found = {
        "mlm_loss": 6.5, "mlm_accuracy": 0.1, "mlm_accuracy_low": 0.08, "mlm_accuracy_high": 0.12, "loss": 7.2,
        "mlm_unigram_entropy": 6.0, "mlm_below_unigram": -0.1, "predictions": 900, "pairs": 40, "samples": 8 * step,
    }  # fmt: skip
    for task in ("sop", "nsp"):
        found |= {f"{task}_loss": 0.6, f"{task}_accuracy": 0.6}
        found |= {f"{task}_accuracy_low": 0.5, f"{task}_accuracy_high": 0.7}
    return found


def open_log(directory, step=0, record=TASK_RECORD, rank=0):
    """The `MetricsLog` of a run that starts at `step`, and the run."""
    given = dataclasses.replace(record, flags=dataclasses.replace(record.flags, output=directory))
    engine = SimpleNamespace(device=SimpleNamespace(type="cpu"))
    run = TrainingRun(given, SimpleNamespace(rank=rank), engine, TrainState(step=step))
    return MetricsLog(run), run


def log_run(directory, first, last, more=0.0):
    """Logs a run from step `first`, exclusive, to `last`: training every 10 steps, evaluations every 20.

    more: is added to the losses of training.
    """
    write(directory, RECORD)
    log, _ = open_log(directory, first, RECORD)
    log.on_trial(Evaluation(evaluation(0), 0.5, "mlm_loss"), 0.1)
    for step in range(first + 10, last + 1, 10):
        log.log(step, training(step) | {"loss": training(step)["loss"] + more})
        if step % 20 == 0:
            log.log(step, evaluation(step), "eval")
    log.on_end()
