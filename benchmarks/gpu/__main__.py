"""Measures everything that a page about this machine's GPUs holds: `make gpu`.

    python -m benchmarks.gpu [--part NAME[:SECONDS] ...] [--out gpu-results] [--page benchmarks/results]

Every part runs in a process of its own for less than ten minutes, and leaves a file in --out. A second start does what
is missing or has failed. Each start ends with the page gpu-NAME.md of all parts that there are. docs/gpu.md describes
the parts and the page. Without a GPU it says so and does nothing. The exit status is 1 if a part has failed.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import page
from benchmarks.gpu.parts import PARTS
from benchmarks.gpu.place import Place
from benchmarks.shared import report
from benchmarks.shared.commands import check_packages
from common.command_line import Parser, entry_point
from common.errors import UserError, one_line
from common.files import atomic
from pipeline.engine.hardware import check_gpus_are_usable

LIMIT_SECONDS = 590  # after which a part is ended


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    p.add_argument("--part", nargs="+", metavar="NAME[:SECONDS]", help="only these, in this order, also if done (all)")
    p.add_argument("--out", type=Path, default=Path("gpu-results"), metavar="DIR", help="(gpu-results)")
    p.add_argument("--page", type=Path, default=Path("benchmarks/results"), metavar="DIR", help="(benchmarks/results)")
    p.add_argument("--device", choices=("cuda", "cpu"), help="(cuda; cpu to try the parts)")
    p.add_argument("--scale", choices=("real", "tiny"), default="real", help="tiny: seconds a part, for tests (real)")
    p.add_argument("--only", nargs="+", metavar="WORD", help="only variants and tests with one of these words (all)")
    p.add_argument("--text", type=Path, metavar="FILE", help='train on JSON Lines of {"text": ...} (made-up text)')
    p.add_argument("--here", metavar="NAME", help="run this part in this process")
    return p


@entry_point
def main(argv: Sequence[str]) -> int:
    """Runs the command line."""
    args = parser().parse_all(argv)
    limits = {name: _limit(seconds) for name, _, seconds in (word.partition(":") for word in args.part or [])}
    for name in [*limits, *filter(None, [args.here])]:
        if name not in PARTS:
            raise UserError(f"--part {name} is not known; choose from {', '.join(PARTS)}")
    if args.text is not None and not args.text.is_file():
        raise UserError(f"--text {args.text}: there is no such file; correct it")
    if args.device != "cpu":
        check_gpus_are_usable()
        if not torch.cuda.is_available():
            if args.device == "cuda":
                raise UserError("--device cuda: this machine has no GPU; leave the flag out")
            print("no GPU here: nothing to measure")
            return 0
    check_packages("transformers", "pytest", "hypothesis")
    text, only = args.text and args.text.absolute(), tuple(args.only or ())
    place = Place(torch.device(args.device or "cuda"), args.scale == "tiny", args.out.absolute(), only, text)
    place.out.mkdir(parents=True, exist_ok=True)
    if args.here is not None:
        return _run_here(args.here, place)
    count = torch.cuda.device_count() if place.on_gpu else 4
    chosen = [name for name, part in PARTS.items() if part.gpus <= count]
    if short := [name for name in limits if name not in chosen]:
        raise UserError(f"--part {short[0]} needs more GPUs than the {count} of this machine; leave it out")
    for name in limits or [name for name in chosen if "error" in _read(name, place, {"error": "missing"})]:
        _run_alone(name, place, limits.get(name, LIMIT_SECONDS), argv)
        _write_page(args.page, place, chosen)
    failed = _write_page(args.page, place, chosen)
    print(f"{len(chosen)} parts, failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _limit(seconds: str) -> int:
    """The seconds after the colon of --part; the usual limit without any. Raises UserError."""
    if seconds and not (seconds.isdecimal() and 0 < int(seconds) <= LIMIT_SECONDS):
        raise UserError(f"--part NAME:{seconds}: give 1 to {LIMIT_SECONDS} seconds")
    return int(seconds or LIMIT_SECONDS)


def _read(name: str, place: Place, default: dict[str, Any]) -> dict[str, Any]:
    path = place.out / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else default


def _write(name: str, place: Place, result: dict[str, Any]) -> None:
    atomic.write_text(place.out / f"{name}.json", json.dumps(result, indent=2) + "\n")


def _write_page(folder: Path, place: Place, chosen: Sequence[str]) -> list[str]:
    """Writes the page of all parts that there are, and returns the names of those that failed."""
    parts = {name: found for name in chosen if (found := _read(name, place, {}))}
    result = report.describe(place.device) | {"parts": parts}
    hardware = re.sub(r"[^a-z0-9]+", "-", result["hardware"]["name"].lower()).strip("-")
    report.write(folder / f"gpu-{hardware}", result, page.markdown(result))
    return [name for name, one in parts.items() if "error" in one]


def _run_alone(name: str, place: Place, limit: int, argv: Sequence[str]) -> None:
    """Runs a part in a process of its own, so that no fault reaches the next part, and ends it after its time."""
    began, log = time.perf_counter(), place.out / f"{name}.log"
    print(name, end=" ", flush=True)
    (place.out / f"{name}.json").unlink(missing_ok=True)
    words = [sys.executable, "-m", "benchmarks.gpu", *argv, "--here", name]
    variables = {**os.environ, "DS_ACCELERATOR": place.device.type}
    with log.open("wb") as output:
        process = subprocess.Popen(words, env=variables, stdout=output, stderr=output, start_new_session=True)
        try:
            status = process.wait(limit)
            error = f"ended with {status}; see {log.name}" if status else ""
        except subprocess.TimeoutExpired:
            error = f"took more than {limit} seconds"
        finally:
            with contextlib.suppress(ProcessLookupError):  # everything that it has started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    result = _read(name, place, {})  # what was measured before the end
    if error:
        result.setdefault("error", error)
    result["seconds"] = time.perf_counter() - began
    _write(name, place, result)
    print(f"{result.get('error', 'done')} ({result['seconds']:.0f} s)", flush=True)


def _run_here(name: str, place: Place) -> int:
    """Writes the part's file after each of its measurements."""
    result: dict[str, Any] = {}
    try:
        for result in PARTS[name].run(place):
            _write(name, place, result)
        if failed := result.get("failed"):
            result["error"] = "; ".join(f"{variant}: {problem}" for variant, problem in failed.items())
    except Exception as error:  # of any measured program; the page names it
        result |= {"error": one_line(error) or repr(error)}
        sys.excepthook(*sys.exc_info())
    _write(name, place, result)
    return 1 if "error" in result else 0


if __name__ == "__main__":
    sys.exit(main())
