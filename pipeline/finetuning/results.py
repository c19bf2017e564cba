"""Writes the results of a fine-tuning run: predictions, submissions, and `results.json`."""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from common.errors import UserError
from common.files import atomic
from pipeline.analysis.comparison import estimate_of
from pipeline.checkpoint.run_records import RESULTS, OneRunRecord, read_results
from pipeline.distributed.control import ControlGroup
from pipeline.finetuning.fine_tuning import predict
from pipeline.tasks.kind import Features
from pipeline.tasks.own_tasks import RECORD, record_of
from pipeline.tasks.task import Task

if TYPE_CHECKING:
    from pipeline.finetuning.resolve import FinetuneSettings


def write_results(
    settings: "FinetuneSettings",
    model: nn.Module,
    features: Mapping[str, Features],
    examples: Mapping[str, int],
    control: ControlGroup,
    steps: int,
    best_step: int,
    predicted_data: str,
) -> None:
    """Predicts every split but "train" and writes logits/, submission/ and results.json. Collective.

    Args:
        examples: number of examples in each split.
        steps: all steps of the run.
        best_step: the step of the weights in `model`.
        predicted_data: digest of all splits.
    Raises:
        UserError: on all ranks, if rank 0 cannot write. The training is kept; the same command writes them again.
    """
    device = next(model.parameters()).device
    metrics: dict[str, dict[str, float]] = {}
    problems: list[str] = []
    for split in features:
        if split == "train":
            continue
        found = predict(model, features[split], control, torch.device(device))
        if found is None:
            continue
        try:
            _write_split(settings.task, split, found, settings.output)
        except (OSError, UserError) as error:
            problems.append(str(error))
            continue
        if of_split := settings.task.kind.metrics(settings.task, found):
            metrics[split] = of_split
            _print_split(settings.task, split, of_split, found)

    def check_written() -> None:
        if problems:
            raise UserError(
                f"the predictions of {settings.output} were not written: {problems[0]}; training is done and saved, "
                "and the same command repeats only this"
            )

    control.all_or_raise(check_written)
    if control.rank == 0:
        results: dict[str, Any] = {
            "task": settings.task.name,
            **record_of(settings.task),
            "model": settings.model.to_dict(),
            "init": None if settings.random_weights else os.path.abspath(settings.init),
            "random_weights": settings.random_weights,
            "seed": settings.seed,
            "hyperparameters": settings.hyperparameters(),
            "steps": steps,
            "best_step": best_step,
            "examples": dict(examples),
            "metrics": metrics,
            "predicted_data": predicted_data,
        }
        atomic.write_text(settings.output / RESULTS, json.dumps(results, indent=1) + "\n")


def _write_split(task: Task, split: str, found: Any, output: Path) -> None:
    submission = output / "submission"
    submission.mkdir(exist_ok=True)
    (output / "logits").mkdir(exist_ok=True)
    found.save(output / "logits" / f"{split}{task.kind.ending}")
    task.write_submission(split, found, submission)


def _print_split(task: Task, split: str, metrics: Mapping[str, float], found: Any) -> None:
    print(f"{split}: {', '.join(f'{name} {value:.4g}' for name, value in metrics.items())}")
    if (estimate := estimate_of(task, found)) is not None:
        low, high = estimate.interval
        if task.kind.predicts_numbers:
            print(f"  95 % interval of {task.metrics[0]}: {low / 100:.3f} to {high / 100:.3f}")
            return
        majority = f"; majority class: {estimate.majority:.1f}" if estimate.majority else ""
        print(f"  {estimate.value:.1f} %, 95 % interval {low:.1f} to {high:.1f}{majority}")


def write_summary(output: Path, members: Sequence[Path]) -> None:
    """Writes `output/results.json` from those of several seeds: the median of every metric, and its spread.

    The spread is the lowest and the highest value.
    """
    results = [read_results(member / RESULTS, OneRunRecord) for member in members]
    for member, result in zip(members, results):
        if {split: set(of_split) for split, of_split in result["metrics"].items()} != {
            split: set(of_split) for split, of_split in results[0]["metrics"].items()
        }:
            raise UserError(f"{member / RESULTS} has other metrics than that of {members[0]}; run that seed again")
    values = {
        split: {name: [result["metrics"][split][name] for result in results] for name in of_split}
        for split, of_split in results[0]["metrics"].items()
    }
    median = {split: {name: statistics.median(found) for name, found in of.items()} for split, of in values.items()}
    spread = {split: {name: [min(found), max(found)] for name, found in of.items()} for split, of in values.items()}
    shared = {
        name: results[0][name]
        for name in ("task", RECORD, "model", "init", "random_weights", "hyperparameters", "examples")
        if name in results[0]
    }
    seeds = [
        {"directory": member.name, **{name: result[name] for name in ("seed", "best_step", "metrics")}}
        for member, result in zip(members, results)
    ]
    summary = {**shared, "seeds": seeds, "median": median, "spread": spread}
    atomic.write_text(output / RESULTS, json.dumps(summary, indent=1) + "\n")
    for split, of_split in median.items():
        for name, value in of_split.items():
            low, high = spread[split][name]
            print(f"{split}: {name} {value:.4g}, the median of {len(seeds)} seeds from {low:.4g} to {high:.4g}")
