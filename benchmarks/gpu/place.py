"""Where the parts work."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.shared.texts import make_shards

PRECISIONS = ("fp16", "bf16")


@dataclass(frozen=True)
class Place:
    """A device, a size and a directory.

    Attributes:
        device: to measure.
        tiny: whether models and batches are so small that a processor has finished in seconds; for tests.
        out: directory of all results.
        only: words; of the variants of a part, those that have one of them in their name are measured. (): all.
        text: JSON Lines of {"text": ...} to train on; None: made-up text.
    """

    device: torch.device
    tiny: bool
    out: Path
    only: tuple[str, ...] = ()
    text: Path | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    def takes(self, variant: str) -> bool:
        """Whether this variant of a part is measured."""
        return not self.only or any(word in variant for word in self.only)

    def empty(self, name: str) -> Path:
        """A directory in `out` without a run of an earlier start, which would not be measured again."""
        shutil.rmtree(self.out / name, ignore_errors=True)
        return self.out / name

    def shards(self, length: int, split: str = "train") -> Path:
        """Shards of rows of `length` tokens, or of 64 if everything is tiny. They are made at the first call."""
        folder = self.out / ("text" if self.text is None else f"text-{self.text.stem}")
        shards = make_shards(folder, 64 if self.tiny else length, 60 if self.tiny else 4000, self.text)
        return shards.with_name(shards.name.replace("train", split))
