"""What a fine-tuning run leaves when it ends: predictions, submissions, and `results.json`."""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from data_prep import atomic
from pipeline.control import Control
from pipeline.prediction import Predictions, predict
from pipeline.tasks import submissions
from pipeline.tasks.comparison import figure_of
from pipeline.tasks.ensemble import metrics_of
from pipeline.tasks.features import Features
from pipeline.tasks.predictions import Logits, save_answers
from pipeline.tasks.results import RESULTS, read_json

if TYPE_CHECKING:
    from pipeline.finetune_settings import FinetuneSettings


def write_results(
    settings: "FinetuneSettings",
    model: nn.Module,
    features: Mapping[str, Features],
    examples: Mapping[str, int],
    control: Control,
    steps: int,
    best_step: int,
) -> None:
    """Predicts every split but "train" and writes logits/, submission/ and results.json. Collective.

    Args:
        examples: how many each split has.
        steps: made in all.
        best_step: the one that the weights of `model` are of.
    """
    device = next(model.parameters()).device
    metrics: dict[str, dict[str, float]] = {}
    for split in features:
        if split == "train":
            continue
        found = predict(model, features[split], control, torch.device(device))
        if found is None:
            continue
        _write_split(settings.task.name, split, found, settings.output)
        if figures := metrics_of(settings.task.name, found):
            metrics[split] = figures
            _print_split(settings.task.name, split, figures, found)
    if control.rank == 0:
        results: dict[str, Any] = {
            "task": settings.task.name,
            "model": settings.model.to_dict(),
            "init": None if settings.random_weights else os.path.abspath(settings.init),
            "random_weights": settings.random_weights,
            "seed": settings.seed,
            "hyperparameters": settings.hyperparameters(),
            "steps": steps,
            "best_step": best_step,
            "examples": dict(examples),
            "metrics": metrics,
        }
        atomic.write_text(settings.output / RESULTS, json.dumps(results, indent=1) + "\n")


def _write_split(task: str, split: str, found: Predictions, output: Path) -> None:
    logits, submission = output / "logits", output / "submission"
    logits.mkdir(exist_ok=True)
    submission.mkdir(exist_ok=True)
    if isinstance(found, Logits):
        found.save(logits / f"{split}.npz")
        submissions.write_logits(task, split, found, submission)
    else:
        save_answers(logits / f"{split}.json", found)
        submissions.write_answers(task, split, found, submission)


def _print_split(task: str, split: str, figures: Mapping[str, float], found: Predictions) -> None:
    print(f"{split}: {', '.join(f'{name} {value:.4g}' for name, value in figures.items())}")
    if (figure := figure_of(task, found)) is not None:
        low, high = figure.interval
        print(
            f"  {figure.value:.1f} %, 95 % interval {low:.1f} to {high:.1f}; one answer to all: {figure.majority:.1f}"
        )


def is_summed_up(output: Path, members: Sequence[Path]) -> bool:
    """Whether `output/results.json` is that of these seeds: a kill may have come between the last one and it."""
    path = output / RESULTS
    return path.exists() and [seed["directory"] for seed in read_json(path)["seeds"]] == [one.name for one in members]


def write_summary(output: Path, members: Sequence[Path]) -> None:
    """Writes `output/results.json` from those of several seeds: the median of every figure, and its spread.

    The spread is the lowest and the highest value.
    """
    results = [json.loads((member / RESULTS).read_text(encoding="utf-8")) for member in members]
    values: dict[str, dict[str, list[float]]] = {}
    for split, figures in results[0]["metrics"].items():
        values[split] = {name: [result["metrics"][split][name] for result in results] for name in figures}
    median = {
        split: {name: statistics.median(found) for name, found in figures.items()} for split, figures in values.items()
    }
    spread = {
        split: {name: [min(found), max(found)] for name, found in figures.items()} for split, figures in values.items()
    }
    shared = {
        name: results[0][name] for name in ("task", "model", "init", "random_weights", "hyperparameters", "examples")
    }
    seeds = [
        {
            "seed": result["seed"],
            "directory": member.name,
            "best_step": result["best_step"],
            "metrics": result["metrics"],
        }
        for member, result in zip(members, results)
    ]
    summary = {**shared, "seeds": seeds, "median": median, "spread": spread}
    atomic.write_text(output / RESULTS, json.dumps(summary, indent=1) + "\n")
    for split, figures in median.items():
        for name, value in figures.items():
            low, high = spread[split][name]
            print(f"{split}: {name} {value:.4g}, the median of {len(seeds)} seeds from {low:.4g} to {high:.4g}")
