"""A pre-training run whose ranks are started again and again."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.distributed.rendezvous import reserve_port


@dataclass(frozen=True)
class Job:
    """A run of `pipeline.pretrain` that can be started again and again.

    Attributes:
        flags: of `pipeline.pretrain`, without `--output`.
        output: of the run.
        ranks: how many.
        device: "cpu" or "cuda".
        module: what each rank runs, with the words before `flags`.
        one_card: "nccl" or "gloo": all ranks share the first device, and talk by this; None: each has its own device.
    """

    flags: list[str]
    output: Path
    ranks: int
    device: str = "cpu"
    module: tuple[str, ...] = ("pipeline.pretrain",)
    one_card: str | None = None

    @property
    def checkpoints(self) -> Path:
        """The directory of its checkpoints."""
        return self.output / "checkpoints"

    @property
    def log(self) -> Path:
        """The file that the ranks' output goes into, beside the run."""
        return self.output.with_suffix(".log")

    def start(self) -> list[subprocess.Popen[bytes]]:
        """Starts the ranks as a launcher does. Their output goes into `log`."""
        shared = {"WORLD_SIZE": str(self.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port())}
        shared |= {"DS_ACCELERATOR": self.device, "OMP_NUM_THREADS": "1"}
        own = variables_on_one_card if self.one_card else lambda rank: {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}"}
        return [self.start_rank({**os.environ, **shared, **own(rank)}) for rank in range(self.ranks)]

    def start_rank(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Starts one rank with this environment."""
        over = ("benchmarks.shared.over_gloo",) if self.one_card == "gloo" else ()
        words = [sys.executable, "-m", *over, *self.module, *self.flags, "--output", str(self.output)]
        with self.log.open("ab") as log:
            return subprocess.Popen(words, env=environment, stdout=log, stderr=log)

    def finish(self) -> None:
        """Runs to the end. Raises RuntimeError with the ranks' last output if one of them fails."""
        statuses = [process.wait() for process in self.start()]
        if any(statuses) or not (self.output / "done").exists():
            said = self.log.read_text(encoding="utf-8")[-2000:]
            raise RuntimeError(f"{self.output} ended with {statuses}: {said}")


def variables_on_one_card(rank: int) -> dict[str, str]:
    """The environment of a rank that shares the first device with the others.

    NCCL refuses two ranks on one device of one host. With a host id of its own, each rank is a host to NCCL, and they
    talk over sockets: slow, and otherwise what happens between hosts.
    """
    nccl = {"NCCL_HOSTID": f"rank-{rank}", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"}
    return {"RANK": str(rank), "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": "lo", **nccl}


_PROBE = """
import torch
torch.distributed.init_process_group("nccl")
total = torch.ones(1, device="cuda:0")
torch.distributed.all_reduce(total)
assert total.item() == 2
"""


def one_card_backend(device: str) -> str:
    """Returns what ranks on one device can talk by: "nccl", or "gloo" on a processor and where NCCL refuses."""
    if device == "cpu":
        return "gloo"
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port())}
    words = [sys.executable, "-c", _PROBE]
    ranks = [subprocess.Popen(words, env={**shared, **variables_on_one_card(rank)}) for rank in range(2)]
    try:
        return "gloo" if any(rank.wait(timeout=60) for rank in ranks) else "nccl"
    except subprocess.TimeoutExpired:
        return "gloo"
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
