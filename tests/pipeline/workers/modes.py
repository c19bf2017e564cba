"""Trains several small runs in one process, each under a umask of its own."""

import contextlib
import gc
import io
import os

from pipeline import finetune, pretrain


def train_each(commands: list[tuple[int, str, list[str]]]) -> list[tuple[int, str]]:
    """Returns the exit status and stderr of each (umask, "pretrain" or "finetune", command line)."""
    found = []
    for umask, name, words in commands:
        before = os.umask(umask)
        stderr = io.StringIO()
        try:
            with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(io.StringIO()):
                found.append(((pretrain if name == "pretrain" else finetune).main(words), stderr.getvalue()))
        finally:
            os.umask(before)
        gc.collect()  # an engine refers to itself
    return found
