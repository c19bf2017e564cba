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
    """

    flags: list[str]
    output: Path
    ranks: int
    device: str = "cpu"
    module: tuple[str, ...] = ("pipeline.pretrain",)

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
        return [
            self.start_rank({**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(self.ranks)
        ]

    def start_rank(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Starts one rank with this environment."""
        words = [sys.executable, "-m", *self.module, *self.flags, "--output", str(self.output)]
        with self.log.open("ab") as log:
            return subprocess.Popen(words, env=environment, stdout=log, stderr=log)

    def finish(self) -> None:
        """Runs to the end. Raises RuntimeError with the ranks' last output if one of them fails."""
        statuses = [process.wait() for process in self.start()]
        if any(statuses) or not (self.output / "done").exists():
            said = self.log.read_text(encoding="utf-8")[-2000:]
            raise RuntimeError(f"{self.output} ended with {statuses}: {said}")
