"""Trains several small runs in one process, each under a umask of its own."""

import os

from pipeline import finetune, pretrain
from tests.pipeline.workers.runs import run_command


def train_each(commands: list[tuple[int, str, list[str]]]) -> list[tuple[int, str]]:
    """Returns the exit status and stderr of each (umask, "pretrain" or "finetune", command line)."""
    found = []
    for umask, name, words in commands:
        before = os.umask(umask)
        try:
            ended = run_command((pretrain if name == "pretrain" else finetune).main, words)
        finally:
            os.umask(before)
        found.append((ended.status, ended.stderr))
    return found
