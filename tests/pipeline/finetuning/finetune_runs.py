"""What the tests of fine-tuning share: command lines, ranks without a launcher, and what a run has written."""

import json
import os

from pipeline.distributed.rendezvous import reserve_port
from tests.pipeline.workers.forked import ForkedRank

QUICK = ["--learning-rate", "0.003", "--warmup-steps", "2", "--log-interval", "5"]


def words(data, task, output, *more):
    where = {"squad1": data.squad, "squad2": data.squad, "race": data.race}.get(task, data.glue)
    given_words = ["--task", task, "--init", data.init, "--data", where, "--output", output, *QUICK, *more]
    return [str(word) for word in given_words]


def start_ranks(folder, count, arguments):
    """Starts the ranks of a job as the launcher `deepspeed` does. Their output goes into files in `folder`."""
    shared = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": str(reserve_port()), "WORLD_SIZE": str(count)}
    return [
        ForkedRank(
            folder / f"rank-{rank}", "pipeline.finetune", [f"--local_rank={rank}", *arguments],
            {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(count)
    ]  # fmt: skip


def be_no_rank(monkeypatch):
    """Removes the variables of a launcher. The test's end undoes what the command sets."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # so that it is known to be undone
        monkeypatch.delenv(name)


def results(output):
    return json.loads((output / "results.json").read_text())
