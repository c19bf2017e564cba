"""Measures everything that a page about this machine's GPUs holds: `make gpu`.

    python -m benchmarks.gpu [--part NAME[:SECONDS] ...] [--list] [--out gpu-results] [--page benchmarks/results]

Every part runs in a process of its own for less than ten minutes, and leaves a file in --out. A second start does what
is missing or has failed. Each start ends with the page gpu-NAME.md of all parts that there are. docs/gpu.md describes
the parts and the page. Without a GPU it says so and does nothing. The exit status is 1 if a part has failed.
"""

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
from benchmarks.gpu.parts import LIMIT_SECONDS, Part, parts
from benchmarks.gpu.place import Place
from benchmarks.shared import report
from benchmarks.shared.commands import check_packages
from common.command_line import Parser, entry_point
from common.errors import UserError, one_line
from common.files import atomic
from common.text import quantity
from pipeline.engine.hardware import check_gpus_are_usable


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    p.add_argument(
        "--part", nargs="+", metavar="NAME[:SECONDS]", help="only these, in this order, also if they are there (all)"
    )
    p.add_argument("--list", action="store_true", help="print the parts and whether they are there")
    p.add_argument("--out", type=Path, default=Path("gpu-results"), metavar="DIR", help="(gpu-results)")
    p.add_argument("--page", type=Path, default=Path("benchmarks/results"), metavar="DIR", help="(benchmarks/results)")
    p.add_argument("--name", metavar="NAME", help="of the page, gpu-NAME (the GPU's)")
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
    known = {part.name: part for part in parts()}
    limits = {name: _limit(seconds) for name, _, seconds in (word.partition(":") for word in args.part or [])}
    for name in [*limits, *filter(None, [args.here])]:
        if name not in known:
            raise UserError(f"--part {name} is not known; `--list` prints the parts")
    if args.text is not None and not args.text.is_file():
        raise UserError(f"--text {args.text}: there is no such file; correct it")
    text, only = args.text and args.text.absolute(), tuple(args.only or ())
    place = Place(torch.device(args.device or "cuda"), args.scale == "tiny", args.out.absolute(), only, text)
    count = torch.cuda.device_count() if place.on_gpu else 2
    if args.list:
        for part in known.values():
            print(f"{part.name:32} {_state(part, place, count):8} {part.what}")
        return 0
    if args.device != "cpu":
        check_gpus_are_usable()
        if not torch.cuda.is_available():
            if args.device == "cuda":
                raise UserError("--device cuda: this machine has no GPU; leave the flag out")
            print("no GPU here: nothing to measure")
            return 0
    check_packages("transformers", "pytest", "hypothesis")
    if args.here is not None:
        return _run_here(known[args.here], place)
    chosen = [part for part in known.values() if part.gpus <= count]
    missing = [part.name for part in chosen if _state(part, place, count) != "done"]
    for name in limits or missing:
        if known[name] in chosen:
            _run_alone(known[name], place, limits.get(name, LIMIT_SECONDS))
    files = {part.name: found for part in chosen if (found := _read(part, place)) is not None}
    result = page.combine(report.describe(place.device), files)
    name = args.name or re.sub(r"[^a-z0-9]+", "-", result["hardware"]["name"].lower()).strip("-")
    report.write(args.page / f"gpu-{name}", result, page.markdown(result))
    failed = [name for name, one in files.items() if "error" in one]
    print(
        f"{args.page / f'gpu-{name}.md'}: {len(files) - len(failed)} of {len(chosen)} parts, failed: {failed or 'none'}"
    )
    return 1 if failed else 0


def _limit(seconds: str) -> int:
    """The seconds after the colon of --part; the usual limit without any. Raises UserError."""
    if seconds and not (seconds.isdecimal() and 0 < int(seconds) <= LIMIT_SECONDS):
        raise UserError(f"--part NAME:{seconds}: give 1 to {LIMIT_SECONDS} seconds")
    return int(seconds or LIMIT_SECONDS)


def _file(part: Part, place: Place) -> Path:
    return place.out / f"{part.name}.json"


def _read(part: Part, place: Place) -> dict[str, Any] | None:
    path = _file(part, place)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _state(part: Part, place: Place, count: int) -> str:
    found = _read(part, place)
    if found is not None:
        return "failed" if "error" in found else "done"
    return "missing" if part.gpus <= count else quantity(part.gpus, "GPU")


def _run_alone(part: Part, place: Place, limit: int) -> None:
    """Runs a part in a process of its own, so that no fault reaches the next part, and ends it after its time."""
    print(f"{part.name}: {part.what}", flush=True)
    words = ["--here", part.name, "--out", str(place.out), "--device", place.device.type]
    words += ["--scale", "tiny" if place.tiny else "real"]
    words += ["--text", str(place.text)] if place.text else []
    words += ["--only", *place.only] if place.only else []
    began, log = time.perf_counter(), place.out / f"{part.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    _file(part, place).unlink(missing_ok=True)
    variables = {**os.environ, "DS_ACCELERATOR": place.device.type}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu", *words],
            env=variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            status = process.wait(limit)
            error = f"ended with {status}; see {log.name}" if status else ""
        except subprocess.TimeoutExpired:
            error = f"took more than {limit} seconds"
        finally:
            _end_group(process)
    result = _read(part, place) or {}  # what was measured before the end
    if error:
        result.setdefault("error", error)
    result["seconds"] = time.perf_counter() - began
    atomic.write_text(_file(part, place), json.dumps(result, indent=2) + "\n")
    print(f"    {result.get('error', 'done')} ({result['seconds']:.0f} s)", flush=True)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and everything that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _run_here(part: Part, place: Place) -> int:
    """Writes the part's file, after each of its measurements if it has several."""

    def write(result: dict[str, Any]) -> None:
        atomic.write_text(_file(part, place), json.dumps(result, indent=2) + "\n")

    result: dict[str, Any] = {}
    try:
        found = part.run(place)
        for result in [found] if isinstance(found, dict) else found:
            write(result)
        if failed := result.get("failed"):
            result["error"] = "; ".join(f"{name}: {problem}" for name, problem in failed.items())
    except Exception as error:  # of any measured program; the page names it
        result |= {"error": one_line(error)}
        sys.excepthook(*sys.exc_info())
    write(result)
    return 1 if "error" in result else 0


if __name__ == "__main__":
    sys.exit(main())
