"""The page of the paper's claims in small: what each side learned, and the differences with their 95 % intervals."""

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common.files import atomic, owned
from common.files.json_files import read_object
from common.text import markdown_table
from pipeline.paper.claims import BASE, CHANCE, CLAIMS, METRICS, SETTINGS, SIDES, Claim, Difference, results, sides_of
from pipeline.tasks.metrics import seeds_interval

_RECORDED = ("tokens", "mlm_loss", "mlm_unigram_entropy", *METRICS, "pairs", "predictions")
"""The figures of an evaluation that the JSON has."""
_READING = (
    "MLM: % below the unigram entropy of the same held-out tokens. SOP and NSP: % of the held-out pairs. Each value is "
    "the mean over the seeds with its 95 % interval (Student's t). A difference is computed seed by seed: both sides "
    "read the same rows in the same order as far as their batches allow, and are evaluated on the same rows. The sides "
    "of a claim train with the same number of floating-point operations."
)


Runs = Mapping[int, Mapping[str, Any]]
"""Held-out metrics and "tokens" of a side's runs, by seed."""


def percentages(runs: Runs, metric: str, seeds: Sequence[int]) -> list[float]:
    """The metric, in percent, of these seeds; empty if the side has none."""
    values = [runs[seed].get(metric) for seed in seeds]
    return [] if None in values else [100 * value for value in values if value is not None]


def compare(difference: Difference, measured: Mapping[str, Runs]) -> dict[str, Any] | None:
    """A difference over the seeds that both sides have; None if there are none.

    Returns:
        The `difference`, the `seeds`, the mean in percentage `points`, `half` of its 95 % interval (None for one seed),
        and the `verdict` that the interval allows.
    """
    first = measured[difference.first]
    second = None if difference.second is None else measured[difference.second]
    seeds = [seed for seed in sorted(first) if second is None or seed in second]
    ours = percentages(first, difference.metric, seeds)
    theirs = [100 * CHANCE] * len(ours) if second is None else percentages(second, difference.metric, seeds)
    if not (gains := [here - there for here, there in zip(ours, theirs)]):
        return None
    points, half = seeds_interval(gains)
    verdict = "higher" if points > 0 else "lower"
    if abs(points) <= half:
        verdict = "no difference shown"
    found = {"difference": asdict(difference), "seeds": seeds, "points": points}
    if math.isnan(half):
        return found | {"half": None, "verdict": "one seed"}
    return found | {"half": half, "verdict": verdict}


def _interval_text(values: Sequence[float]) -> str:
    """The mean with half of its 95 % interval."""
    if not values:
        return "not run"
    mean, half = seeds_interval(values)
    return f"{mean:.1f}" if math.isnan(half) else f"{mean:.1f} ± {half:.1f}"


def section(claim: Claim, measured: Mapping[str, Runs]) -> str:
    """The tables of one claim."""
    sides = []
    for key in claim.sides:
        runs, seeds = measured[key], sorted(measured[key])
        tokens = f"{runs[seeds[0]]['tokens'] / 1e6:.2f}" if seeds else ""
        values = [_interval_text(percentages(runs, metric, seeds)) for metric in METRICS]
        sides.append([SIDES[key].title, len(seeds), tokens, *values])
    differences = []
    for difference in claim.differences:
        second = "chance" if difference.second is None else SIDES[difference.second].title
        name = f"{SIDES[difference.first].title} - {second}"
        compared = compare(difference, measured)
        if compared is None:
            differences.append([name, METRICS[difference.metric], 0, "not run", ""])
            continue
        half = "" if compared["half"] is None else f" ± {compared['half']:.1f}"
        points = f"{compared['points']:+.1f}{half}"
        differences.append([name, METRICS[difference.metric], len(compared["seeds"]), points, compared["verdict"]])
    titles = ["side", "seeds", "million tokens", *METRICS.values()]
    return "\n\n".join(
        [
            f"## {claim.caption}",
            textwrap.fill(f"The paper: {claim.paper}.", 120),
            markdown_table(titles, sides, "lrrrrr"),
            markdown_table(["difference", "metric", "seeds", "points", "verdict"], differences, "llrrl"),
        ]
    )


def as_json(settings: Mapping[str, Any], claims: Sequence[Claim], measured: Mapping[str, Runs]) -> dict[str, Any]:
    """All figures as plain values."""
    sides = [
        {
            **asdict(SIDES[key]),
            "key": key,
            "runs": [
                {"seed": seed, **{name: result[name] for name in _RECORDED if name in result}}
                for seed, result in sorted(measured[key].items())
            ],
        }
        for key in sides_of(claims)
    ]
    values = [
        {
            "name": claim.name,
            "caption": claim.caption,
            "differences": list(filter(None, (compare(difference, measured) for difference in claim.differences))),
        }
        for claim in claims
    ]
    return {"format": "claims 1", "settings": settings, "sides": sides, "claims": values}


def write(root: Path, out: Path) -> list[Path]:
    """Writes `claims.md` and `claims.json` into `out`, with every claim of which something can be compared.

    Raises:
        UserError: `root` holds no claims, or `out` has files of these names that this command did not write.
    """
    settings = read_object(root / SETTINGS, "name the directory DIR/small of `pipeline.reproduce`")
    del settings["sides"]  # the page has them with their runs
    # By name, because their directories say nothing elsewhere.
    settings["documents"] = [Path(path).name for path in settings["documents"]] or ["the sample"]
    fields = ", ".join(f"{name} {value}" for name, value in settings["model"].items())
    setup = (
        f"Base: albert-tiny with {fields}; {settings['tokens'] / 1e6:g} million tokens in rows of "
        f"{BASE.length}; vocabulary {settings['vocabulary_size']:,}; text: {', '.join(settings['documents'])}."
    )
    measured = {key: results(key, root) for key in SIDES}
    claims = [claim for claim in CLAIMS.values() if any(compare(one, measured) for one in claim.differences)]
    sections = ["# The paper's claims in small", textwrap.fill(_READING, 120), textwrap.fill(setup, 120)]
    sections += [section(claim, measured) for claim in claims]
    names = ["claims.md", "claims.json"]
    with owned.adding_files(out, "pipeline.evaluate claims") as place:
        atomic.write_text(place / names[0], "\n\n".join(sections) + "\n")
        atomic.write_text(place / names[1], json.dumps(as_json(settings, claims, measured), indent=1) + "\n")
    return [out / name for name in names]
