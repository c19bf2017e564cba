"""The trained model that a run starts from (--init): read at the first start, known from the run's record later."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.vocabulary import Vocabulary
from model.config import AlbertConfig
from pipeline.checkpoint import retention
from pipeline.checkpoint.initial_weights import InitialWeights, read_initial_weights
from pipeline.settings.run_settings import FinetuneSettings, PretrainSettings, RunSettings
from pipeline.settings.settings_file import SETTINGS, read_settings


@dataclass(frozen=True)
class InitialModel:
    """A trained model.

    Attributes:
        directory: that the command line names.
        digest: of the weights.
        config: architecture.
        vocabulary: of the model.
        weights: None if all runs have checkpoints: then the directory is not read again.
        pretraining: the record of the pre-training that it comes from; None if there is none.
    """

    directory: Path
    digest: str
    config: AlbertConfig
    vocabulary: Vocabulary
    weights: InitialWeights | None
    pretraining: PretrainSettings | None


def record_of(initial: InitialModel | None) -> dict[str, Any]:
    """The fields of `RunSettings` that tell what a run starts from."""
    if initial is None:
        return {}
    return {
        "init": str(initial.directory.resolve()),
        "init_weights": initial.digest,
        "init_model": initial.config,
    }


def find_initial_model(init: Path | None, runs: Sequence[Path]) -> InitialModel | None:
    """What the runs in these directories start from; None for random weights.

    Raises:
        UserError: `init` holds no model, or the runs were started with another --init, or without.
    """
    begun = {run: read_settings(run) for run in runs if (run / SETTINGS).exists()}
    for run, record in begun.items():
        if (init is None) != (record.init is None):
            before = "without --init" if record.init is None else f"with --init {record.init}"
            raise UserError(f"{run} was started {before}; give the same to resume the run, or choose another --output")
    if init is None:
        return None
    recorded = next(iter(begun.values()), None)
    # The run that --init named may have gone on since.
    pretraining = recorded.pretraining if isinstance(recorded, FinetuneSettings) else _pretraining_of(init)
    if recorded is not None and len(begun) == len(runs) and all(_has_weights(init, *one) for one in begun.items()):
        assert recorded.init_model is not None
        assert recorded.init_weights is not None
        return InitialModel(
            init, recorded.init_weights, recorded.init_model, load_vocabulary(runs[0]), None, pretraining
        )
    weights = read_initial_weights(init)
    return InitialModel(init, weights.digest(), weights.config, weights.vocabulary, weights, pretraining)


def _has_weights(init: Path, run: Path, record: RunSettings) -> bool:
    """Whether a run was started from `init`, and needs its weights no more."""
    return record.init == str(init.resolve()) and ((run / "done").exists() or bool(retention.tags(run / "checkpoints")))


def _pretraining_of(init: Path) -> PretrainSettings | None:
    """The record of the pre-training that `init` comes from: a run, an export in it, or a fine-tuning run."""
    run = next((directory for directory in (init, init.parent) if (directory / SETTINGS).exists()), None)
    with contextlib.suppress(UserError, OSError):  # a damaged record of another run; it is for the model card only
        record = None if run is None else read_settings(run)
        return record.pretraining if isinstance(record, FinetuneSettings) else record
    return None
