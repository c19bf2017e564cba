"""Measures the detector of spikes on the loss curves of real runs: false alarms, and which added spikes it finds.

    python -m benchmarks.spikes --runs RUN... [--out benchmarks/results/spikes]

The runs are pre-training runs with `--log-interval 1`, so that each step has its loss and its gradient norm. First the
detector reads the curves as they are: each alarm is a false one. Then spikes are added to the losses of 100 places of
each curve, and the gradient norms stay as they are. Writes NAME.json, which holds the curves, and NAME.md.
"""

import json
import math
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files import atomic
from pipeline.checkpoint import run_directory
from pipeline.training.divergence import spikes
from pipeline.training.divergence.spikes import SpikeDetector
from pipeline.training.reporting import metrics_log

PLACES = 100
RISES = (0.05, 0.1, 0.25, 0.5, 1.0)
"""Of the added spikes, as parts of the median loss."""
LENGTHS = (1, 3, 10, 40)
"""Of the added spikes, in steps."""


def curve(run: Path) -> dict[str, Any]:
    """The curve of a run: hundredths of its losses, and of the logarithms of its gradient norms.

    Raises:
        UserError: a step is missing.
    """
    settings, records = run_directory.read_settings(run), metrics_log.read_records(run, "train")
    if [record["step"] for record in records] != list(range(1, len(records) + 1)):
        raise UserError(f"{run} has not logged every step; train it with --log-interval 1")
    model = settings["model"]
    return {
        **{name: settings[name] for name in ("train_batch_size", "objective", "optimizer")},
        "model": f"{model['num_hidden_layers']} layers of {model['hidden_size']}",
        "losses": [round(100 * record["loss"]) for record in records],
        "log_norms": [round(100 * math.log(record["grad_norm"])) for record in records],
    }


def values(found: dict[str, Any]) -> list[tuple[float, float]]:
    """Loss and gradient norm of each step of a curve."""
    return [(loss / 100, math.exp(norm / 100)) for loss, norm in zip(found["losses"], found["log_norms"], strict=True)]


def judge(steps: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The steps of alarms, and the most evidence of any step."""
    detector, alarms, most = SpikeDetector(), [], 0.0
    for step, (loss, norm) in enumerate(steps, 1):
        spike = detector.add(step, loss, norm)
        most = max(most, detector.state.evidence)
        if spike is not None:
            alarms.append(spike.last_step)
    return {"steps": len(steps), "alarms": alarms, "most_evidence": round(most, 2)}


def find_added(steps: Sequence[tuple[float, float]], rise: float, length: int, seed: int = 0) -> dict[str, Any]:
    """Adds a spike at each of `PLACES` places. Returns the fraction that is found, and the median delay in steps."""
    draw, delays = random.Random(seed), []
    added = rise * statistics.median(loss for loss, _ in steps)
    for place in draw.sample(range(spikes.WINDOW, len(steps) - length), PLACES):
        piece = [*steps[place - spikes.WINDOW : place], *((loss + added, n) for loss, n in steps[place:][:length])]
        if alarms := judge(piece)["alarms"]:
            delays.append(alarms[0] - spikes.WINDOW)
    return {
        "rise": rise,
        "length": length,
        "found": len(delays) / PLACES,
        "delay": statistics.median(delays) if delays else None,
    }


def measure(curves: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the detector makes of each curve, and of the spikes that are added to it."""
    results = [
        {
            "as_it_is": judge(values(found)),
            "added": [find_added(values(found), rise, length) for rise in RISES for length in LENGTHS],
        }
        for found in curves
    ]
    return {"format": "spikes 1", "curves": list(curves), "results": results}


def markdown(result: dict[str, Any]) -> str:
    """The results as tables."""
    lines = ["| run | steps | alarms | most evidence (an alarm needs " + f"{spikes.ALARM:g}) |", "|---|---|---|---|"]
    for number, (found, measured) in enumerate(zip(result["curves"], result["results"], strict=True), 1):
        own, optimizer, batch = measured["as_it_is"], found["optimizer"]["type"], found["train_batch_size"]
        title = f"{number}: {found['model']}, {optimizer}, batch {batch}, {found['objective']}"
        lines.append(f"| {title} | {own['steps']:,} | {len(own['alarms'])} | {own['most_evidence']:g} |")
    lines += [
        "",
        f"Spikes that were added to the loss at {PLACES} places: the part that is found, and the median delay.",
    ]
    for number, measured in enumerate(result["results"], 1):
        head = " | ".join(f"{length} step{'s' * (length > 1)}" for length in LENGTHS)
        lines += ["", f"| run {number}, rise of the loss | {head} |", "|---|" + "---|" * len(LENGTHS)]
        for rise in RISES:
            cells = [
                f"{100 * one['found']:.0f} %" + (f", {one['delay']:g} steps" if one["delay"] is not None else "")
                for one in measured["added"]
                if one["rise"] == rise
            ]
            lines.append(f"| {100 * rise:g} % | {' | '.join(cells)} |")
    return "\n".join(lines)


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    p = Parser(prog="python -m benchmarks.spikes", description=__doc__.splitlines()[0])
    p.add_argument("--runs", nargs="+", required=True, type=Path, metavar="RUN", help="runs with --log-interval 1")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    args = p.parse_all(argv)
    result = measure([curve(run) for run in args.runs])
    page = "# Spikes: false alarms, and spikes that are found\n\n" + markdown(result) + "\n"
    print(page)
    if args.out is not None:
        text = json.dumps({**result, "curves": []}, indent=1)
        curves = ",\n".join(json.dumps(found, separators=(",", ":")) for found in result["curves"])
        atomic.write_text(args.out.with_suffix(".json"), text.replace('"curves": []', f'"curves": [\n{curves}]') + "\n")
        atomic.write_text(args.out.with_suffix(".md"), page)


if __name__ == "__main__":
    sys.exit(main())
