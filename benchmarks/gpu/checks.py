"""Runs the tests of tests/gpu/ and reports the outcome of each one."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from benchmarks.gpu.place import Place

FILES = ("kernels", "models", "training")
TESTS = Path(__file__).resolve().parents[2] / "tests" / "gpu"


def run(place: Place, name: str) -> dict[str, Any]:
    """The outcome of each test, "passed", "failed: ..." or "skipped: ...", those of a processor if the place is one."""
    report = place.out / f"tests-{name}.xml"
    which = "gpu" if place.on_gpu else "not gpu"
    words = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-m", which, str(TESTS / f"test_{name}.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=TESTS.parents[1], capture_output=True, text=True
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
    return {"tests": outcomes(report)}


def outcomes(report: Path) -> dict[str, str]:
    """The outcome of each test in a JUnit file that pytest wrote."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        told = "passed"
        for kind in ("failure", "error", "skipped"):
            for one in case.findall(kind):
                told = f"{'skipped' if kind == 'skipped' else 'failed'}: {one.get('message', '').splitlines()[0][:200]}"
        found[case.get("name", "")] = told
    return found
