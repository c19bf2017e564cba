"""Makes the settings of a pre-training run from flags, DeepSpeed JSON, training shards and earlier starts."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.json_files import check_as
from data_prep.corpus.documents import HELD_OUT, TRAIN
from data_prep.format.manifest import ShardManifest
from data_prep.format.shards import ShardSet, open_shards
from data_prep.text.vocabulary import find_vocabulary
from model.config import AlbertConfig, ExecutionOptions
from model.counts import parameter_counts
from pipeline.checkpoint.run_records import CorpusRecord, SourceRecord
from pipeline.data.collate import Objective
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import names_of, whole_weights
from pipeline.data.sampler import Ranges
from pipeline.engine import config as engine_config
from pipeline.engine.config import EngineConfig
from pipeline.engine.hardware import Hardware
from pipeline.pretraining.architecture import architecture, parse_fields
from pipeline.pretraining.earlier_start import (
    InitialModel,
    check_data,
    find_earlier_start,
    find_initial_model,
    fit_vocabulary,
    lengths_of,
    skipped_batches_of,
)
from pipeline.pretraining.student import Teacher, find_teacher
from pipeline.settings import declare
from pipeline.settings.declare import setting
from pipeline.settings.pretrain import PretrainFlags
from pipeline.training import schedule
from pipeline.training.run_settings import RunSettings
from pipeline.training.schedule import Length, Schedule


@dataclass(frozen=True)
class Corpora:
    """The training shards of a run.

    Attributes:
        directories: of the shards.
        sets: the shards.
        weights: whole numbers, one for each corpus; see pipeline/data/mixture.py.
    """

    directories: tuple[Path, ...]
    sets: tuple[ShardSet, ...]
    weights: tuple[int, ...]

    @property
    def manifest(self) -> ShardManifest:
        """Of the first corpus: the others have the same vocabulary and length."""
        return self.sets[0].manifest

    def digests(self) -> tuple[str, ...]:
        """sha256 of each manifest."""
        files = [directory / "manifest.json" for directory in self.directories]
        return tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)

    def describe(self) -> tuple[CorpusRecord, ...]:
        """What each corpus was made from, for the records of a run."""
        return tuple(
            CorpusRecord(
                name=name,
                weight=weight,
                documents=shards.manifest.counts.documents,
                tokens=shards.manifest.counts.tokens,
                rows=shards.manifest.counts.rows,
                max_seq_length=shards.manifest.max_seq_length,
                sources=_sources(shards.manifest),
            )
            for name, shards, weight in zip(names_of(self.directories), self.sets, self.weights)
        )

    def check_size(self, train_batch_size: int) -> None:
        """Raises UserError if a corpus has too few rows for its share of one batch."""
        for directory, shards, weight in zip(self.directories, self.sets, self.weights):
            wanted = -(-train_batch_size * weight // sum(self.weights))
            if len(shards) < wanted:
                part = "one batch" if len(self.sets) == 1 else "its share of one batch,"
                raise UserError(
                    f"{directory} holds {len(shards)} rows, fewer than {part} of {wanted}; "
                    f"lower train_batch_size{' or its weight' * (len(self.sets) > 1)} or add text"
                )

    def check_together(self, eval_data: Sequence[Path]) -> None:
        """Raises UserError unless all shards have one vocabulary and the training rows one length.

        Held-out rows may be shorter. Held-out documents must not be trained on, nor training documents evaluated on.
        """
        first, first_directory = self.manifest, self.directories[0]
        trained: dict[str, Path] = {}
        manifests = [(directory, shards.manifest, True) for directory, shards in zip(self.directories, self.sets)]
        manifests += [(directory, open_shards(directory).manifest, False) for directory in eval_data]
        for directory, manifest, is_trained in manifests:
            if manifest.vocabulary_sha256 != first.vocabulary_sha256:
                raise UserError(
                    f"{directory} was made with another vocabulary than {first_directory}: "
                    f"{find_vocabulary(directory)} differs from {find_vocabulary(first_directory)}; make its shards "
                    f"again with --vocab {find_vocabulary(first_directory)}"
                )
            length, wanted = manifest.max_seq_length, first.max_seq_length
            if length > wanted or (is_trained and length < wanted):
                raise UserError(
                    f"{directory} has rows of {length} tokens, {first_directory} of {wanted}; make its shards again "
                    f"with --max-seq-length {wanted}"
                )
            if is_trained and manifest.split == HELD_OUT:
                raise UserError(
                    f"--data {directory} holds held-out documents; train on shards that data_prep made with --split "
                    f"{TRAIN}"
                )
            if is_trained:
                trained[manifest.documents_digest] = directory
            elif (same := trained.get(manifest.documents_digest)) is not None:
                raise UserError(
                    f"--eval-data {directory} holds the documents of --data {same}; evaluate on shards that data_prep "
                    f"made with --split {HELD_OUT}"
                )


def open_corpora(words: Sequence[str]) -> Corpora:
    """Opens the shards of --data, such as `["wikipedia:3", "books:1"]`. Without weights each has that of its rows."""
    directories, weights = _parse(words)
    sets = tuple(open_shards(directory) for directory in directories)
    return Corpora(directories, sets, whole_weights(weights or [Fraction(len(shards)) for shards in sets]))


def _parse(words: Sequence[str]) -> tuple[tuple[Path, ...], list[Fraction]]:
    """Directories and weights; no weights if none is given.

    An existing directory whose name ends in a colon and a number is a directory without a weight.
    """
    directories: list[Path] = []
    weights: list[Fraction] = []
    for word in words:
        name, colon, number = word.rpartition(":")
        if not colon or Path(word).is_dir():
            directories.append(Path(word))
            continue
        try:
            weight = Fraction(number)
        except (ValueError, ZeroDivisionError):
            raise UserError(f"--data {word}: {number!r} is not a weight; give e.g. {name}:0.5") from None
        if weight <= 0:
            raise UserError(f"--data {word}: a weight is above 0; leave out a directory that is not wanted")
        directories.append(Path(name))
        weights.append(weight)
    if weights and len(weights) < len(directories):
        raise UserError("--data: some directories have a weight and others do not; give a weight to all or to none")
    if len({directory.resolve() for directory in directories}) < len(directories):
        raise UserError("--data names a directory twice; name it once, with the weight of both")
    return tuple(directories), weights


def _sources(manifest: ShardManifest) -> list[SourceRecord]:
    """Where the documents came from; empty for a manifest that lists it in another form."""
    try:
        return check_as(manifest.sources, list[SourceRecord], "", "", extra="ignore")
    except UserError:
        return []


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(PretrainFlags, RunSettings):
    """The settings of a pre-training run. The vocabulary size and the positions of `model` are those of the data.

    Attributes:
        steps: the last of `lengths`.
        objective: the sentence loss: sop, nsp, or mlm for none.
        masking: which tokens are predicted, and what replaces them.
        data: directories of the training shards, one for each corpus.
        corpus_weights: whole numbers, one for each corpus; see pipeline/data/mixture.py.
        data_digests: sha256 of each corpus's manifest.
        initial: the trained model whose weights are the initial ones; None for random weights.
        distilled: the teacher whose states are learned; None without one.
        lengths: of the run, each from its step on.
        earlier_steps: the length before this start; None for a new run.
        corpora: what the training shards were made from, for the model card.
    """

    steps: int = setting(identity=True)
    objective: Objective = setting(identity=True)
    masking: MaskingSettings = setting(identity=True)
    data: tuple[Path, ...]
    corpus_weights: tuple[int, ...]
    data_digests: tuple[str, ...]
    initial: InitialModel | None
    distilled: Teacher | None
    lengths: tuple[Length, ...]
    earlier_steps: int | None
    skipped_batches: Ranges = setting((), recorded=True)
    corpora: tuple[CorpusRecord, ...] = ()

    @property
    def changes_length(self) -> bool:
        """Whether this start changes the length of a run that has begun."""
        return self.earlier_steps not in (None, self.steps)

    def schedule(self) -> Schedule:
        """The learning rate of each step. Raises UserError as `RunSettings.schedule`."""
        block = self.engine.json.get("scheduler")
        return schedule.of_lengths(block, self.engine.learning_rate, self.warmup_steps, self.lengths)

    def identity(self) -> dict[str, Any]:
        """See `RunSettings.identity`. The length may change too, by the rules of `lengths_of`."""
        return {
            **super().identity(),
            **self.optimization(),
            "init_weights": None if self.initial is None else self.initial.digest,
            "distilled": None if self.distilled is None else self.distilled.identity(),
            "data": self.data_digests[0] if len(self.data) == 1 else list(zip(self.data_digests, self.corpus_weights)),
        }

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values, for `settings.json`."""
        of_every_run = super().to_dict()
        if self.distilled is None:
            del of_every_run["distilled"]
        return {
            **of_every_run,
            "corpora": [dataclasses.asdict(corpus) for corpus in self.corpora],
            "lengths": [length._asdict() for length in self.lengths],
            **({} if self.initial is None else self.initial.record()),
            "data_directories": [str(directory) for directory in self.data],
            "eval_data_directories": [str(directory) for directory in self.eval_data],
        }


def resolve(flags: PretrainFlags, world_size: int, hardware: Hardware) -> PretrainSettings:
    """Makes the settings from a parsed command line. Reads files and writes none. Raises UserError for a mistake."""
    config = engine_config.load(flags.deepspeed_config)
    corpora = open_corpora(flags.shards)
    fields = parse_fields(flags.model_args)
    earlier = find_earlier_start(flags.output)
    initial = find_initial_model(flags.init, earlier)
    if initial is not None:
        initial = fit_vocabulary(initial, corpora.directories[0], flags.new_vocabulary)
    teacher, masking = find_teacher(flags.teacher, flags.teacher_loss, flags.teacher_layers), flags.masking_settings()
    like = None if initial is None else initial.config
    if teacher is not None:
        like = like or teacher.student_config()
        if not teacher.needs_masks:
            masking = dataclasses.replace(masking, replace_with_mask=0.0, replace_with_random=0.0)
    model = architecture(flags.preset, fields, flags.objective, corpora.manifest, like, flags.init)
    if teacher is not None:
        teacher.check(model, corpora.directories[0])
    parameters = parameter_counts(model).total
    engine = engine_config.fit(config, world_size, hardware, flags.precision, parameters)
    corpora.check_size(engine.train_batch_size)
    corpora.check_together(flags.eval_data)
    lengths = lengths_of(earlier, flags.steps, engine.train_batch_size, flags.max_hours)
    settings = PretrainSettings(
        **declare.pass_on(flags, PretrainSettings),
        model=model,
        execution=_execution_options(flags, model, engine, hardware),
        engine=engine,
        objective=model.sentence_head or "mlm",  # type: ignore[arg-type]
        masking=masking,
        data=corpora.directories,
        corpus_weights=corpora.weights,
        data_digests=corpora.digests(),
        corpora=corpora.describe(),
        steps=lengths[-1].steps,
        lengths=tuple(lengths),
        skipped_batches=skipped_batches_of(earlier, flags.skip_batches),
        earlier_steps=None if earlier is None else earlier.lengths[-1].steps,
        initial=initial,
        distilled=teacher,
    )
    if earlier is not None:
        check_data(earlier, corpora.directories, json.loads(json.dumps(settings.identity()["data"])))
    return settings


def _execution_options(
    flags: PretrainFlags, model: AlbertConfig, engine: EngineConfig, hardware: Hardware
) -> ExecutionOptions:
    """How the model runs. Raises UserError for flags that the hardware or the ZeRO stage cannot serve."""
    on_cpu, below_stage_3 = hardware.name == "CPU", engine.zero_stage < 3
    if flags.attention == "flash" and on_cpu:
        raise UserError("--attention flash needs a GPU; leave the flag out")
    if flags.attention == "flash" and engine.precision == "fp32":
        raise UserError("--attention flash computes in 16 bits only; leave the flag out")
    if flags.compile == "on" and not below_stage_3:
        raise UserError(
            "--compile does not work at ZeRO stage 3, whose hooks cannot be part of a graph; leave the flag out"
        )
    compiles = hardware.compiles and below_stage_3 and flags.attention != "sequences"
    try:
        execution = ExecutionOptions(
            flags.activation_checkpointing,
            compile=flags.compile == "on" or (flags.compile == "auto" and compiles),
            attention=flags.attention,
            chunked_loss=flags.chunked_loss == "on" or (flags.chunked_loss == "auto" and not on_cpu),
        )
        execution.check(model)
    except ValueError as error:
        raise UserError(str(error)) from None
    return execution
