"""Runs several command lines of pipeline.finetune in one process. Argument: a JSON file of argument lists."""

import json
import sys
from pathlib import Path

from pipeline import finetune
from pipeline.control import run_and_leave


def main() -> int:
    """Returns the first exit status that is not 0."""
    for arguments in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        if status := finetune.main(arguments):
            return status
    return 0


if __name__ == "__main__":
    run_and_leave(main)
