"""What an earlier start left in a run's directory, and whether a new start goes on with it: length, model and data.

settings.json records each change of the length. It holds from the step on at which it was made, so a run that resumes
at an earlier step uses the learning rates of that time.
"""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from data_prep.text.vocabulary import Vocabulary, find_vocabulary
from model.config import AlbertConfig
from pipeline.checkpoint import retention, run_directory
from pipeline.checkpoint.initial_weights import InitialWeights, read_initial_weights, refuse_training
from pipeline.checkpoint.new_vocabulary import carry_over
from pipeline.checkpoint.run_records import SETTINGS, model_of
from pipeline.data.sampler import Ranges, batch_of_step
from pipeline.training.schedule import Length

PAPER_BATCH, PAPER_STEPS = 4096, 125_000


@dataclass(frozen=True)
class EarlierStart:
    """A run that has begun.

    Attributes:
        output: its directory.
        settings: content of settings.json.
        has_checkpoint: whether weights are there to resume from. They may be damaged, which a load tells.
        steps_made: before the newest checkpoint.
    """

    output: Path
    settings: dict[str, Any]
    has_checkpoint: bool
    steps_made: int

    @property
    def lengths(self) -> tuple[Length, ...]:
        """The lengths of the run so far."""
        recorded = self.settings.get("lengths") or [{"from_step": 0, "steps": self.settings["steps"]}]
        return tuple(Length(**length) for length in recorded)


def find_earlier_start(output: Path) -> EarlierStart | None:
    """What is in `output`; None if no pre-training run has begun there. Raises UserError: settings.json is damaged."""
    if not (output / SETTINGS).exists():
        return None
    settings = run_directory.read_settings(output)
    if "objective" not in settings:  # a fine-tuning run, which is refused with all that differs
        return None
    checkpoints = output / "checkpoints"
    newest = retention.find_latest(checkpoints)
    steps_made = 0 if newest is None else retention.step_of(newest)
    return EarlierStart(output, settings, bool(retention.tags(checkpoints)), steps_made)


def paper_steps(train_batch_size: int) -> int:
    """The optimizer steps in which a batch of this size reads as many rows as the paper's run."""
    return max(1, round(PAPER_STEPS * PAPER_BATCH / train_batch_size))


def lengths_of(
    earlier: EarlierStart | None, given: int | None, train_batch_size: int, max_hours: float | None
) -> list[Length]:
    """The lengths of the run, those of earlier starts first.

    Args:
        earlier: None for a new run.
        given: value of --steps; None if the command line leaves it out.
        train_batch_size: rows in a step; it decides the default length.
        max_hours: value of --max-hours.
    Raises:
        UserError: the length cannot become `given`.
    """
    default = paper_steps(train_batch_size)
    if earlier is None:
        return [Length(0, given or default)]
    lengths, made = list(earlier.lengths), earlier.steps_made
    total = lengths[-1].steps
    other_batch = earlier.settings["train_batch_size"] != train_batch_size  # which is refused, with its own message
    if (given or default) == total or other_batch:
        return lengths
    has_hours = max_hours is not None or earlier.settings.get("max_hours") is not None
    if given is None and not has_hours:
        raise UserError(
            f"{earlier.output} holds a run of {total:,} steps, and without --steps it would have {default:,}; give "
            f"--steps {total} to resume it, or another number to change its length"
        )
    if given is None or has_hours or given <= made:
        reason = "has --max-hours" if has_hours else f"has made {made:,} steps"
        raise UserError(
            f"{earlier.output} holds a run of {total:,} steps and {reason}, so it cannot have {given or default:,}; "
            f"give --steps {total} to resume it, or start another run with --init {earlier.output}"
        )
    return [length for length in lengths if length.from_step < made] + [Length(made, given)]


def skipped_batches_of(earlier: EarlierStart | None, words: Sequence[str]) -> Ranges:
    """The batches that the run leaves out, from 0: those that earlier starts have recorded, and those in `words`.

    So a batch that a checkpoint has been trained on stays one, and a resume needs no flag.

    Args:
        words: of --skip-batches. Batch N is that of step N, as long as none before it is skipped.
    Raises:
        UserError: a word is no range, or names a batch that is trained on or skipped already.
    """
    recorded = [] if earlier is None else [(first, end) for first, end in earlier.settings.get("skipped_batches") or ()]
    next_batch = 0 if earlier is None else batch_of_step(earlier.steps_made, recorded)
    ranges = list(recorded)
    for word in words:
        match = re.fullmatch(r"([1-9]\d{0,17})-([1-9]\d{0,17})", word)
        if match is None or int(match[1]) > int(match[2]):
            raise UserError(f"--skip-batches {word}: give the first and the last batch, as in 1200-1210")
        first, end = int(match[1]) - 1, int(match[2])
        if (first, end) in ranges:  # the same command again
            continue
        if earlier is not None and first < next_batch:
            raise UserError(
                f"--skip-batches {word}: {earlier.output} has been trained on batches up to {next_batch:,}; go back to "
                "an older checkpoint first (docs/troubleshooting.md)"
            )
        if any(first < other_end and other < end for other, other_end in ranges):
            raise UserError(f"--skip-batches {word}: some of these batches are skipped already; give the others")
        ranges.append((first, end))
    return tuple(sorted(ranges))


@dataclass(frozen=True)
class InitialModel:
    """The trained model of --init.

    Attributes:
        directory: that the command line names.
        digest: of the weights.
        config: architecture.
        weights: None if the run has a checkpoint: then the directory is not read again.
        note: how the weights were fitted to another vocabulary, for the log.
    """

    directory: Path
    digest: str
    config: AlbertConfig
    weights: InitialWeights | None
    note: str = ""

    def record(self) -> dict[str, Any]:
        """What settings.json holds of it, beside the digest."""
        return {"init": str(self.directory.resolve()), "init_model": self.config.to_dict()}


def find_initial_model(init: Path | None, earlier: EarlierStart | None) -> InitialModel | None:
    """What a run starts from: the weights in `init`, or the record of an earlier start that read them.

    Raises:
        UserError: `init` holds no model, or not the one that the run was started from.
    """
    recorded = None if earlier is None else earlier.settings.get("init")
    if earlier is not None and (init is None) != (recorded is None):
        before = "without --init" if recorded is None else f"with --init {recorded}"
        raise UserError(
            f"{earlier.output} was started {before}; give the same to resume the run, or choose another --output"
        )
    if init is None:
        return None
    if earlier is not None and earlier.has_checkpoint and Path(str(recorded)) == init.resolve():
        config = model_of({"model": earlier.settings["init_model"]}, earlier.output / SETTINGS)
        return InitialModel(init, earlier.settings["init_weights"], config, None)
    refuse_training(init)
    weights = read_initial_weights(init)
    digest = weights.digest()
    if earlier is not None and digest != earlier.settings["init_weights"]:
        raise UserError(
            f"{earlier.output} was started with --init {recorded}, and {init} holds other weights; give the former as "
            "they were, or choose another --output"
        )
    return InitialModel(init, digest, weights.config, weights)


def fit_vocabulary(initial: InitialModel, data: Path, may_change: bool) -> InitialModel:
    """The model with the vocabulary of the shards in `data`.

    Args:
        may_change: whether embeddings may be carried over to another vocabulary, see `carry_over`.
    Raises:
        UserError: the shards were made with other pieces or another normalisation, and the vocabulary may not change.
    """
    weights = initial.weights
    if weights is None:
        return initial
    file = find_vocabulary(data)
    of_data = Vocabulary.load(file)
    if (of_data.pieces, of_data.normalization) == (weights.vocabulary.pieces, weights.vocabulary.normalization):
        return initial
    if not may_change:
        raise UserError(
            f"--init {initial.directory} and --data {data} have different vocabularies, {weights.vocabulary_file} and "
            f"{file}; make the shards with --vocab {weights.vocabulary_file}, or give --new-vocabulary to carry the "
            "embeddings over"
        )
    weights, carried = carry_over(weights, file, of_data)
    return dataclasses.replace(initial, weights=weights, note=str(carried))


def check_data(earlier: EarlierStart, directories: Sequence[Path], digests: Any) -> None:
    """Raises UserError if the shards are not those that the run was started with; the line names the directories.

    Args:
        earlier: the run.
        directories: of the shards.
        digests: as in the identity of the run's settings.
    """
    if earlier.settings["data"] == digests:
        return
    before = " ".join(earlier.settings.get("data_directories", ())) or "other shards"
    now = " ".join(map(str, directories))
    raise UserError(
        f"{earlier.output} was trained on {before}, and --data {now} holds other rows or weights; give the former to "
        f"resume the run, or start another run with --init {earlier.output}"
    )
