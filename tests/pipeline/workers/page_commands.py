"""Runs the commands of a page of the documentation in one process, which saves their start."""

import os
from pathlib import Path

from data_prep.__main__ import main as data_prep
from tests.pipeline.workers.runs import run_one


def run_page(directory: Path, commands: list[tuple[str, list[str]]]) -> list[str]:
    """Runs (module, arguments) one after the other in `directory`. Returns what each training command printed."""
    os.chdir(directory)
    printed = []
    for module, arguments in commands:
        if module == "data_prep":
            data_prep(arguments)
            continue
        assert module == "pipeline.pretrain"
        ended = run_one(arguments)
        assert ended.status == 0, ended.stderr
        printed.append(ended.stdout)
    return printed
