"""Stand-ins for Slurm's commands, for a job on two "nodes" of this machine."""

import os
import random
from pathlib import Path

# The names of the job's nodes are in $NODES. What is put back into the queue goes into a file in $FOLDER.
SCONTROL = """#!/bin/bash
case "$1 $2" in
"show hostnames") [ "$3" = "node[1-2]" ] && printf '%s\\n' $NODES ;;
"requeue $SLURM_JOB_ID") echo "$2" >>"$FOLDER/requeued" ;;
*) exit 1 ;;
esac
"""


def environment(folder: Path, nodes: str, **programs: str) -> dict[str, str]:
    """The environment of a job on node[1-2], with `scontrol` and these programs, by name, first on PATH."""
    place = folder / "programs"
    place.mkdir()
    for name, text in {"scontrol": SCONTROL, **programs}.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return os.environ | {
        "PATH": f"{place}:{os.environ['PATH']}",
        "FOLDER": str(folder),
        "NODES": nodes,
        "SLURM_JOB_ID": str(random.randrange(10**6)),
        "SLURM_JOB_NODELIST": "node[1-2]",
    }
