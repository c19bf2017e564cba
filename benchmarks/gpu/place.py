"""Where the parts work."""

from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.shared.texts import make_shards


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

    def held_out(self, length: int) -> Path:
        """Held-out shards like `shards`."""
        shards = self.shards(length)
        return shards.with_name(shards.name.replace("train", "held_out"))
