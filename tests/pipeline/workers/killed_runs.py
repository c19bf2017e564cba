"""Kills a run many times at random moments.

After each kill the same command is started again. SIGKILL for all ranks comes at any moment (also during the start),
for one rank, and while a checkpoint is written; SIGTERM and SIGUSR1 come for all ranks, and SIGTERM for one. SIGTERM
and SIGUSR1 must end every rank with status 75. After each kill every visible checkpoint must be complete.
"""

import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.shared.job import Job
from pipeline.checkpoint.manifest import check
from pipeline.checkpoint.retention import find_latest, tags
from pipeline.distributed.exits import EXIT_STOPPED

SAVE_INTERVAL = 5
CONFIG = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Lamb", "params": {"lr": 0.02}},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 100000},
}
FLAGS = [
    *["--model", "albert-tiny", "--log-interval", "4", "--eval-interval", "50", "--eval-batches", "2"],
    *["--save-interval", str(SAVE_INTERVAL), "--model-args", "num_hidden_layers=2", "hidden_size=32"],
    *["num_attention_heads=4", "intermediate_size=64", "embedding_size=16", "hidden_dropout_prob=0.1"],
]


def kill_once(job: Job, chance: random.Random) -> str:
    """Starts the job, kills it in a random way, and returns that way.

    Raises RuntimeError if a stop signal does not end every rank with status 75, or a checkpoint is damaged.
    """
    processes = job.start()
    how = chance.choice(
        ["starting", "all", "all", "one rank", "saving", "saving", "SIGTERM", "SIGUSR1", "SIGTERM to one"]
    )
    if how == "starting":
        time.sleep(chance.uniform(0.0, 5.0))
    else:
        before = find_latest(job.checkpoints)
        wait_until(lambda: find_latest(job.checkpoints) != before, processes)
        time.sleep(chance.uniform(0.0, 0.5))
    if how == "saving":
        wait_until(lambda: any(job.checkpoints.glob(".step-*.tmp/*")), processes)
        time.sleep(chance.uniform(0.0, 0.02))
    number = {"SIGUSR1": signal.SIGUSR1}.get(how, signal.SIGTERM if "SIGTERM" in how else signal.SIGKILL)
    chosen = [chance.choice(processes)] if how in ("one rank", "SIGTERM to one") else processes
    for process in chosen:
        process.send_signal(number)
    if how == "one rank":  # a launcher would end the others
        chosen[0].wait()
        for process in processes:
            process.kill()
    statuses = {process.wait() for process in processes}
    if number != signal.SIGKILL and statuses not in ({EXIT_STOPPED}, {0}):
        raise RuntimeError(f"{how}: the ranks ended with {statuses}, not with {EXIT_STOPPED}")
    for tag in tags(job.checkpoints):
        check(tag)
    return how


def wait_until(condition: Any, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Returns as soon as `condition()` is true or a process has ended."""
    while not condition() and all(process.poll() is None for process in processes):
        time.sleep(0.001)


def survive(job: Job, kills: int, seed: int) -> Counter[str]:
    """Kills the job `kills` times, then lets it finish. Returns how often it was killed in each way."""
    chance = random.Random(seed)
    killed: Counter[str] = Counter()
    while killed.total() < kills and not (job.output / "done").exists():
        killed[kill_once(job, chance)] += 1
    job.finish()
    return killed


def flags(data: Path, eval_data: Path, precision: str, steps: int, folder: Path) -> list[str]:
    """The command line of the runs, without `--output`. Writes the DeepSpeed JSON into `folder`."""
    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    where = ["--data", str(data), "--eval-data", str(eval_data), "--deepspeed_config", str(config)]
    return [*FLAGS, *where, "--precision", precision, "--steps", str(steps)]
