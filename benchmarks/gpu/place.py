"""Where the parts work."""

from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.shared.examples import batch_of
from benchmarks.shared.texts import make_shards
from model import AlbertConfig
from pipeline.data.collate import Collator
from pipeline.run import attention_choice


@dataclass(frozen=True)
class Place:
    """A device, a size and a directory.

    Attributes:
        device: to measure.
        tiny: whether models and batches are so small that a processor has finished in seconds; for tests.
        out: directory of all results.
    """

    device: torch.device
    tiny: bool
    out: Path

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    def shards(self, length: int) -> Path:
        """Shards of rows of `length` tokens, or of 64 if everything is tiny. They are made at the first call."""
        return make_shards(self.out / "text", 64 if self.tiny else length, 60 if self.tiny else 2000)

    def kernel(self, config: AlbertConfig, precision: str, collator: Collator, rows: int) -> str:
        """The attention kernel that a run with micro-batches of so many rows would choose; "auto" on a processor."""
        if not self.on_gpu:
            return "auto"
        batch = batch_of(collator, 0, rows)
        kernel, line = attention_choice.fastest(attention_choice.case_for(config, precision, batch), batch.sequence_ids)
        print(line, flush=True)
        return kernel

    def held_out(self, length: int) -> Path:
        """Held-out shards like `shards`."""
        shards = self.shards(length)
        return shards.with_name(shards.name.replace("train", "held_out"))
