"""The parts of `make gpu`. Each measures one thing in less than ten minutes and yields what goes into its file."""

import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from xml.etree import ElementTree

from benchmarks.gpu import runs, speed
from benchmarks.gpu.place import PRECISIONS, Place
from benchmarks.shared.job import one_card_backend
from benchmarks.shared.texts import REPOSITORY

Result = dict[str, Any]
MODELS = ("albert-base", "albert-xxlarge")


@dataclass(frozen=True)
class Part:
    """One part.

    Attributes:
        run: yields what has been measured so far.
        gpus: that it needs.
    """

    run: Callable[[Place], Iterator[Result]]
    gpus: int = 1


def run_tests(place: Place, name: str, kind: str = "") -> Iterator[Result]:
    """Runs a file of tests/gpu/: the tests of a GPU, or of a processor if the place is one.

    Of the tests of a GPU, those whose names match `kind`. Yields the outcomes so far: "passed", "skipped: ..." or
    "failed: ...", and in the end what tests have recorded, by test.
    """
    words = ["-v", "-p", "no:cacheprovider", "-m", "gpu" if place.on_gpu else "not gpu", f"tests/gpu/test_{name}.py"]
    only = f"({' or '.join(place.only)})" if place.only else ""
    words += ["-k", " and ".join(filter(None, [kind if place.on_gpu else "", only]))]
    result: Result = {"backend": one_card_backend(place.device.type)} if kind == "one_card" else {}
    variables = {**os.environ, "COLUMNS": "300"}  # else pytest would cut its messages
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        command = [sys.executable, "-m", "pytest", f"--junitxml={file.name}", *words]
        with subprocess.Popen(command, cwd=REPOSITORY, env=variables, text=True, stdout=subprocess.PIPE) as process:
            for found in outcomes(process.stdout or ()):
                yield (result := result | {"tests": found})
        if process.returncode not in (0, 1):
            raise RuntimeError(f"pytest ended with {process.returncode}")
        tests = ElementTree.parse(file.name).iter("testcase")
        noted = {test.attrib["name"]: [one.attrib for one in test.iter("property")] for test in tests}
        yield result | {"recorded": {name: properties for name, properties in noted.items() if properties}}


def outcomes(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yields the outcomes so far by the test's name, after each line of `pytest -v` that has one. Prints all lines."""
    found = dict[str, str]()
    for line in lines:
        print(line.rstrip(), flush=True)
        if told := re.match(r"\S+?::(.+?) (PASSED|SKIPPED)\b *(.*?) *(\[ *\d+%\])?$", line):
            found[told[1]] = ": ".join(filter(None, [told[2].lower(), told[3]]))
        elif told := re.match(r"\S+?::(.+?) (?:FAILED|ERROR)\b|(?:FAILED|ERROR) \S+?::(.+?) - (.*)", line):
            found[told[1] or told[2]] = ": ".join(filter(None, ["failed", told[3]]))
        else:
            continue
        yield found


PARTS = {
    **{f"run-{model}": Part(partial(runs.train_preset, model=model)) for model in MODELS},
    **{f"profile-{model}": Part(partial(runs.profile_preset, model=model)) for model in MODELS},
    **{f"tests-{name}": Part(partial(run_tests, name=name)) for name in ("kernels", "models", "training")},
    "tests-several_devices": Part(partial(run_tests, name="several_devices", kind="not one_card"), gpus=4),
    "several-ranks": Part(partial(run_tests, name="several_devices", kind="one_card")),
    **{
        f"speed-{model}-{length}-{precision}": Part(
            partial(speed.measure, model=model, length=length, precision=precision)
        )
        for model, length, precision in itertools.product(MODELS, speed.LENGTHS, PRECISIONS)
    },
    "scaling": Part(runs.scaling, gpus=2),
}
"""All parts by name, in their order."""
