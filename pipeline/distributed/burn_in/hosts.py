"""Starts the burn-in's program on all hosts over ssh, and receives what it measured."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from pipeline.distributed.burn_in import program
from pipeline.distributed.burn_in.program import Measured, Task
from pipeline.distributed.hosts.query import RemotePython, line_of_json

_START_SECONDS = 300.0  # imports from a cold network disk, and the pairs' connections
_PAIR_SECONDS = 10.0


def run(
    slots: Mapping[str, int], environment: Mapping[str, str], address: str, port: int, seconds: float
) -> tuple[list[Measured], list[str]]:
    """Runs the burn-in on all hosts at once.

    Args:
        slots: number of processes by host; the first host has rank 0.
        environment: the variables that DeepSpeed will export there.
        address, port: of rank 0.
        seconds: of matrix products.
    Returns:
        What each rank measured, and a line for each host that failed. One of the two is empty.
    """
    accelerator = "cpu" if environment.get("DS_ACCELERATOR") == "cpu" else "cuda"
    text = Path(program.__file__).read_text(encoding="utf-8")
    tasks = [Task(number, list(slots.values()), address, port, seconds, accelerator) for number in range(len(slots))]
    remotes = [RemotePython(host, environment, text, json.dumps(asdict(task))) for host, task in zip(slots, tasks)]
    limit = _START_SECONDS + seconds + _PAIR_SECONDS * len(slots)
    with ThreadPoolExecutor(len(remotes)) as pool:
        ended = list(pool.map(lambda remote: remote.finish(limit), remotes))
    problems = [
        f"{host}: the burn-in failed ({problem}); see that host" for host, (_, problem) in zip(slots, ended) if problem
    ]
    if problems:
        return [], problems
    printed, _ = ended[0]
    return [Measured(**one) for one in json.loads(line_of_json(printed.splitlines(), "[{"))], []
