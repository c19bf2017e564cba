"""The page of the paper's claims in small: what each side learned, and the differences with their 95 % intervals."""

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic, owned
from common.files.json_files import read_object
from pipeline.analysis.intervals import seeds_interval
from pipeline.paper.claim_runs import SETTINGS, candidates, results
from pipeline.paper.claims import BASE, CHANCE, CLAIMS, METRICS, MLM, SIDES, Claim, Difference, sides_of

_RECORDED = ("tokens", "mlm_loss", "mlm_unigram_entropy", *METRICS, "pairs", "predictions")
"""The figures of an evaluation that the JSON has."""
_READING = (
    "MLM: % below the unigram entropy of the same held-out tokens. SOP and NSP: % of the held-out pairs. Each value is "
    "the mean over the seeds with its 95 % interval (Student's t). A difference is computed seed by seed: both sides "
    "read the same rows in the same order as far as their batches allow, and are evaluated on the same rows. The sides "
    "of a claim train with the same number of floating-point operations."
)


@dataclass(frozen=True)
class Measured:
    """A side's runs.

    Attributes:
        key: of `SIDES`.
        rate: peak learning rate; None if it is not chosen yet.
        runs: held-out metrics and "tokens", by seed.
    """

    key: str
    rate: float | None
    runs: Mapping[int, Mapping[str, Any]]

    def values(self, metric: str, seeds: Sequence[int]) -> list[float]:
        """The metric, in percent, of these seeds; empty if the side has none."""
        found = [self.runs[seed].get(metric) for seed in seeds]
        return [] if None in found else [100 * value for value in found if value is not None]


@dataclass(frozen=True)
class Compared:
    """A measured difference.

    Attributes:
        difference: what is compared.
        seeds: the seeds that both sides have.
        points: mean difference in percentage points.
        half: half of its 95 % interval; NaN for one seed.
    """

    difference: Difference
    seeds: tuple[int, ...]
    points: float
    half: float

    @property
    def verdict(self) -> str:
        """What the interval shows."""
        if math.isnan(self.half):
            return "one seed"
        if abs(self.points) <= self.half:
            return "no difference shown"
        return "higher" if self.points > 0 else "lower"


def measure(root: Path) -> dict[str, Measured]:
    """The runs of all sides below `root`. Raises UserError if `root` holds no claims."""
    if not (root / SETTINGS).exists():
        raise UserError(f"{root} has no {SETTINGS}; name the directory DIR/small of `pipeline.reproduce`")
    return {key: Measured(key, *results(key, root)) for key in SIDES}


def compare(difference: Difference, measured: Mapping[str, Measured]) -> Compared | None:
    """A difference over the seeds that both sides have; None if there are none."""
    first = measured[difference.first]
    seeds = sorted(first.runs)
    if difference.second is None:
        gains = [value - 100 * CHANCE for value in first.values(difference.metric, seeds)]
    else:
        second = measured[difference.second]
        seeds = [seed for seed in seeds if seed in second.runs]
        values = first.values(difference.metric, seeds), second.values(difference.metric, seeds)
        gains = [ours - theirs for ours, theirs in zip(*values)]
    return Compared(difference, tuple(seeds), *seeds_interval(gains)) if gains else None


def _shown(values: Sequence[float]) -> str:
    if not values:
        return "not run"
    mean, half = seeds_interval(values)
    return f"{mean:.1f}" if math.isnan(half) else f"{mean:.1f} ± {half:.1f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def section(claim: Claim, measured: Mapping[str, Measured]) -> str:
    """The tables of one claim."""
    lines = [f"## {claim.caption}", "", *textwrap.wrap(f"The paper: {claim.paper}.", 120), ""]
    lines += [
        _line(["side", "seeds", "rate", "million tokens", *METRICS.values()]),
        "|---|" + "---:|" * (3 + len(METRICS)),
    ]
    for one in (measured[key] for key in claim.sides):
        seeds = sorted(one.runs)
        rate = "not chosen" if one.rate is None else f"{one.rate:g}"
        tokens = f"{one.runs[seeds[0]]['tokens'] / 1e6:.2f}" if seeds else ""
        values = [_shown(one.values(metric, seeds)) for metric in METRICS]
        lines.append(_line([SIDES[one.key].title, str(len(seeds)), rate, tokens, *values]))
    lines += [
        "",
        _line(["difference", "metric", "seeds", "points", "verdict"]),
        "|---|---|---:|---:|---|",
    ]
    for difference in claim.differences:
        second = "chance" if difference.second is None else SIDES[difference.second].title
        name = f"{SIDES[difference.first].title} - {second}"
        found = compare(difference, measured)
        if found is None:
            lines.append(_line([name, METRICS[difference.metric], "0", "not run", ""]))
            continue
        half = "" if math.isnan(found.half) else f" ± {found.half:.1f}"
        points = f"{found.points:+.1f}{half}"
        lines.append(_line([name, METRICS[difference.metric], str(len(found.seeds)), points, found.verdict]))
    return "\n".join(lines)


def rates_section(root: Path, claims: Sequence[Claim]) -> str:
    """The candidates of every side with a choice of learning rates; empty without one."""
    lines = []
    for key in sides_of(claims):
        for run in candidates(key):
            result = run.result(root)
            below = None if result is None else result[MLM]
            value = "not run" if result is None else "diverged" if below is None else f"{100 * below:.1f}"
            lines.append(_line([SIDES[key].title, f"{run.rate:g}", value]))
    if not lines:
        return ""
    text = "The rate with the lowest held-out loss is taken. Its seed is not one of the seeds above."
    head = [_line(["side", "rate", "MLM"]), "|---|---:|---:|"]
    return "\n".join(["## The choice of the learning rates", "", text, "", *head, *lines])


def as_json(root: Path, claims: Sequence[Claim], measured: Mapping[str, Measured]) -> dict[str, Any]:
    """All figures as plain values."""
    sides = [measured[key] for key in sides_of(claims)]
    return {
        "format": "claims 1",
        "settings": _settings(root),
        "sides": [
            {
                **asdict(SIDES[one.key]),
                "key": one.key,
                "rate": one.rate,
                "candidates": [
                    {"rate": run.rate, "seed": run.seed, **_figures(run.result(root) or {})}
                    for run in candidates(one.key)
                ],
                "runs": [{"seed": seed, **_figures(result)} for seed, result in sorted(one.runs.items())],
            }
            for one in sides
        ],
        "claims": [
            {
                "name": claim.name,
                "caption": claim.caption,
                "differences": [
                    {**asdict(found), "half": None if math.isnan(found.half) else found.half, "verdict": found.verdict}
                    for difference in claim.differences
                    if (found := compare(difference, measured)) is not None
                ],
            }
            for claim in claims
        ],
    }


def _figures(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in _RECORDED if name in result}


def _settings(root: Path) -> dict[str, Any]:
    """What the claims were made with; the documents by name, because their directories say nothing elsewhere."""
    found = read_object(root / SETTINGS, "restore it, or start again with another --out")
    del found["sides"]  # the page has them with their runs
    return found | {"documents": [Path(path).name for path in found["documents"]] or ["the sample"]}


def _setup(settings: Mapping[str, Any]) -> str:
    """The settings that all sides share, unless a side says otherwise."""
    fields = ", ".join(f"{name} {value}" for name, value in settings["model"].items())
    return (
        f"Base: albert-tiny with {fields}; {settings['tokens'] / 1e6:g} million tokens in rows of "
        f"{BASE.length}; vocabulary {settings['vocabulary_size']:,}; text: {', '.join(settings['documents'])}."
    )


def write(root: Path, out: Path) -> list[Path]:
    """Writes `claims.md` and `claims.json` into `out`, with every claim of which something can be compared.

    Raises:
        UserError: `root` holds no claims, or `out` has files of these names that this command did not write.
    """
    measured = measure(root)
    claims = [claim for claim in CLAIMS.values() if any(compare(one, measured) for one in claim.differences)]
    texts = ("\n".join(textwrap.wrap(text, 120)) for text in (_READING, _setup(_settings(root))))
    sections = ["# The paper's claims in small", *texts]
    sections += [section(claim, measured) for claim in claims]
    if rates := rates_section(root, claims):
        sections.append(rates)
    names = ["claims.md", "claims.json"]
    owned.check_addable(out, names)
    with owned.adding_files(out, "pipeline.evaluate claims") as place:
        atomic.write_text(place / names[0], "\n\n".join(sections) + "\n")
        atomic.write_text(place / names[1], json.dumps(as_json(root, claims, measured), indent=1) + "\n")
    return [out / name for name in names]
