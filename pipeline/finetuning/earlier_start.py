"""What earlier starts recorded of a fine-tuning run, so that what they have read is not needed again."""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from data_prep.text.vocabulary import Vocabulary
from model import AlbertConfig
from pipeline.checkpoint import retention, run_directory
from pipeline.checkpoint.initial_weights import InitialWeights, read_initial_weights, refuse_training
from pipeline.checkpoint.run_records import SETTINGS, PretrainRecord, model_of, read_record
from pipeline.settings import declare
from pipeline.settings.finetune import FinetuneFlags, parse
from pipeline.training.run_settings import RunSettings


@dataclass(frozen=True)
class InitialModel:
    """The trained model of --init.

    Attributes:
        config: architecture.
        digest: of the weights.
        vocabulary: of the model.
        weights: None if every run is done or has a checkpoint: then the directory is not read again.
        pretraining: what the settings.json of its pre-training said at the first start; None if there was none.
    """

    config: AlbertConfig
    digest: str
    vocabulary: Vocabulary
    weights: InitialWeights | None
    pretraining: dict[str, Any] | None


def find_initial_model(init: Path, runs: Sequence[Path]) -> InitialModel:
    """What the runs in these directories start from: the weights in `init`, or the record of earlier starts.

    Raises UserError: `init` holds no model, another process is training in it, or a record is damaged.
    """
    begun = {run: run_directory.read_settings(run) for run in runs if (run / SETTINGS).exists()}
    recorded = next(iter(begun.values()), None)
    pretraining = _pretraining_of(init) if recorded is None else recorded.get("pretraining")
    if recorded is not None and len(begun) == len(runs) and all(_starts_from(init, *one) for one in begun.items()):
        settings = run_directory.with_defaults(recorded, declare.earlier_values(RunSettings))
        vocabulary = Vocabulary.load(runs[0] / "spiece.model")
        config = model_of(settings, runs[0] / SETTINGS)
        return InitialModel(config, recorded["init_weights"], vocabulary, None, pretraining)
    refuse_training(init)
    weights = read_initial_weights(init)
    return InitialModel(weights.config, weights.digest(), weights.vocabulary, weights, pretraining)


def _starts_from(init: Path, run: Path, settings: dict[str, Any]) -> bool:
    """Whether a run that has begun was started from `init`, and needs its weights no more."""
    same = isinstance(settings.get("init"), str) and Path(settings["init"]).absolute() == init.absolute()
    has_weights = (run / "done").exists() or bool(retention.tags(run / "checkpoints"))
    return same and has_weights and settings.get("model") is not None and isinstance(settings.get("init_weights"), str)


def _pretraining_of(init: Path) -> dict[str, Any] | None:
    """The record of the pre-training that `init` comes from: a run, an export in it, or a fine-tuning run."""
    with contextlib.suppress(UserError, OSError):  # a damaged record of another run; it is for the model card only
        for directory in (init, init.parent):
            if (directory / SETTINGS).exists():
                found = read_record(directory / SETTINGS)
                record = found if isinstance(found, PretrainRecord) else found.pretraining
                return None if record is None else dataclasses.asdict(record)
    return None


def answers_alone(flags: FinetuneFlags, runs: Sequence[Path]) -> bool:
    """Whether the runs are done, the command line is the recorded one, and its data is gone or on the hub.

    Then there is nothing to read: files that are there may have changed, and a changed test file is predicted again.
    Raises UserError if a record is damaged.
    """
    if not all((run / "done").exists() and (run / SETTINGS).exists() for run in runs):
        return False
    settings = run_directory.read_settings(runs[0])
    if settings.get("data_on_hub"):
        is_gone = True
    else:
        given = (flags.train_file, flags.dev_file, flags.test_file, flags.data)
        is_gone = any(path is not None and not Path(path).exists() for path in given)
    if not is_gone or not settings.get("command"):
        return False
    recorded = declare.command_line(parse([*settings["command"], "--output", str(flags.output)]))
    words = declare.command_line(flags)
    same = [then in (now, str(Path(now).absolute())) for then, now in zip(recorded, words)]
    return len(words) == len(recorded) and all(same)
