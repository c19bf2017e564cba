"""Compares the end of the run with that of an undisturbed one, and writes the page."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos.faults import KINDS
from benchmarks.chaos.training import SAVE_INTERVAL
from pipeline.checkpoint.files import load_weights
from pipeline.training import metrics_file

EXACT = ("samples", "tokens", "epochs", "learning_rate")
"""Keys of a record that must be the same."""
ROUNDED = ("loss", "mlm_loss", "grad_norm")
"""Those that may differ by `ROUNDING` of their value."""
ROUNDING = 1e-4
WEIGHTS_APART = 1e-5
"""The most by which weights may differ."""
_SHOWN = 150


ABOUT = (
    "`python -m benchmarks.chaos` trains a tiny model in fp32 at ZeRO stage 1, with one rank on each of three hosts. "
    "The hosts are network namespaces of one machine. torchrun's elastic agent starts the ranks again, and a "
    f"supervisor the agents. The run saves every {SAVE_INTERVAL} steps. `--hang-timeout` is {{hang}} s, "
    "`--host-timeout` {host} s, and `--rdzv-conf` `{rendezvous}`.",
    "",
    "The host of the rendezvous is never lost, but its agent is killed. At least two hosts train at any time. Nobody "
    "does anything while the run goes on.",
    "",
    "The undisturbed run has one rank.",
)
"""The first lines of the page, with the limits of `training.Limits`."""


def compare(run: Path, undisturbed: Path, start: Path, steps: int) -> dict[str, Any]:
    """What differs between the ends of two runs, and by how much.

    Args:
        start: the run whose model both went on from.
        steps: of each run.
    """
    records, wanted = (metrics_file.read_records(one, "train") for one in (run, undisturbed))
    differences = []
    if any([one["step"] for one in logged] != list(range(1, steps + 1)) for logged in (records, wanted)):
        differences.append("the logged steps")
    pairs = list(zip(records, wanted))
    differences += [name for name in EXACT if any(one.get(name) != other.get(name) for one, other in pairs)]
    rounding = {
        name: max((abs(one[name] - other[name]) / abs(other[name]) for one, other in pairs), default=0.0)
        for name in ROUNDED
    }
    differences += [name for name, value in rounding.items() if value > ROUNDING]
    weights, others, first = (load_weights(one / "checkpoints") for one in (run, undisturbed, start))
    apart = max(float((weights[name] - other).abs().max()) for name, other in others.items())
    moved = max(float((other - first[name]).abs().max()) for name, other in others.items())
    if apart > WEIGHTS_APART:
        differences.append("the weights")
    return {
        "differences": differences,
        "steps": len(records),
        "rounding": rounding,
        "weights_apart": apart,
        "weights_moved": moved,
    }


def line(number: int, cost: dict[str, Any]) -> str:
    """A fault and its cost, for the progress."""
    return (
        f"{number:3}  step {cost['step']:,}: {cost['kind']} on {cost['host']}, noticed after {cost['noticed']:.1f} s, "
        f"{cost['steps_again']} steps again, {cost['lost']:.1f} s lost: {cost['line'][:_SHOWN]}"
    )


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    end, costs = result["end"], result["costs"]
    steps_again, lost = sum(cost["steps_again"] for cost in costs), sum(cost["lost"] for cost in costs)
    lines = [
        f"# {len(costs)} random faults in one training",
        "",
        f"{result['machine']}; {result['date']}; {result['load']}.",
        "",
        *(line.format(**result["limits"]) for line in ABOUT),
        "",
        f"The run made {end['steps']:,} steps. {steps_again:,} steps were made again, and {lost / 60:.0f} minutes of "
        "training were lost in all.",
        "",
        _end(end),
        "",
        "| fault | times | s until noticed | steps again | s lost |",
        "|---|---:|---:|---:|---:|",
    ]
    kinds = [kind for kind in KINDS if any(cost["kind"] == kind for cost in costs)]
    for kind in kinds:
        of_kind = [cost for cost in costs if cost["kind"] == kind]
        cells = [_cell([cost[key] for cost in of_kind], form) for key, form in _COLUMNS]
        lines.append(f"| {' | '.join([kind, str(len(of_kind)), *cells])} |")
    lines += [
        "",
        "Median, and the largest in brackets. Seconds lost: from the fault until all hosts that were there trained "
        "again and were further than before, less the usual time of the new steps.",
        "",
        "What named each kind, the first time:",
        "",
    ]
    return "\n".join([*lines, *(f"- {kind}: `{_first_line(costs, kind)}`" for kind in kinds)])


_COLUMNS = (("noticed", ".1f"), ("steps_again", "g"), ("lost", ".1f"))


def _end(end: dict[str, Any]) -> str:
    """How the end compares with that of the undisturbed run."""
    rounding = max(end["rounding"].values())
    figures = (
        f"Losses and gradient norms of all steps differ by at most {rounding:.1e} of their value. The weights differ "
        f"by at most {end['weights_apart']:.1e}, and training has changed them by up to {end['weights_moved']:.1e}."
    )
    if end["differences"]:
        return f"**The end differs from that of the undisturbed run: {', '.join(end['differences'])}.** {figures}"
    return (
        "**The end equals that of the undisturbed run.** Every step is logged once, with the same learning "
        f"rate, samples and tokens. {figures}"
    )


def _cell(values: Sequence[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({max(values):{form}})"


def _first_line(costs: Sequence[dict[str, Any]], kind: str) -> str:
    named: str = next(cost["line"] for cost in costs if cost["kind"] == kind).replace("`", "'")
    return named if len(named) <= _SHOWN else f"{named[:_SHOWN]} ..."
