"""Checks that held-out text stays held out: it is not trained on, and training text is not evaluated on."""

from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError
from data_prep.corpus.documents import HELD_OUT, TRAIN
from data_prep.format.shards import ShardSet, open_shards


def check_held_out(directories: Sequence[Path], sets: Sequence[ShardSet], eval_data: Sequence[Path]) -> None:
    """Raises UserError if held-out documents would be trained on, or training documents evaluated on."""
    for directory, shards in zip(directories, sets):
        if shards.manifest.split == HELD_OUT:
            raise UserError(
                f"--data {directory} holds held-out documents; train on shards that data_prep made with --split {TRAIN}"
            )
    trained = {shards.manifest.documents_digest: directory for directory, shards in zip(directories, sets)}
    for directory in eval_data:
        manifest = open_shards(directory).manifest
        if (same := trained.get(manifest.documents_digest)) is not None:
            raise UserError(
                f"--eval-data {directory} holds the documents of --data {same}; evaluate on shards that data_prep made "
                f"with --split {HELD_OUT}"
            )
