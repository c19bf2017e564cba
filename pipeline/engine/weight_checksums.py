"""Compares the weights that all ranks hold, by checksum: an error of memory or of a link makes them differ."""

from collections import Counter
from collections.abc import Sequence

import torch
import xxhash
from deepspeed import DeepSpeedEngine

from pipeline.engine import zero_layout


def weights_checksum(engine: DeepSpeedEngine) -> str:
    """The checksum of the model's weights on this rank; "" at ZeRO stage 3, where no rank holds those of another one.

    Waits for the device.
    """
    checksum = xxhash.xxh3_64()
    if zero_layout.stage(engine) < 3:
        for parameter in engine.module.parameters():
            checksum.update(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return checksum.hexdigest() if zero_layout.stage(engine) < 3 else ""


def differing_ranks(checksums: Sequence[str]) -> list[int]:
    """The ranks whose checksum is not that of the majority; all ranks if there are several and no majority."""
    (usual, count), *others = Counter(checksums).most_common()
    if not others:
        return []
    return [rank for rank, checksum in enumerate(checksums) if checksum != usual or 2 * count <= len(checksums)]
