"""The settings of a pre-training run, from flags, DeepSpeed JSON, training shards and earlier starts."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from data_prep.text.vocabulary import Vocabulary, find_vocabulary
from model.config import AlbertConfig, ExecutionOptions
from pipeline.checkpoint.initial_weights import InitialWeights
from pipeline.checkpoint.run_records import CorpusRecord, PretrainRecord
from pipeline.data.collate import Objective
from pipeline.data.masking import MaskingSettings
from pipeline.engine import deepspeed_config as engine_config
from pipeline.engine.deepspeed_config import EngineConfig
from pipeline.engine.hardware import Hardware, missing_for_compilation
from pipeline.pretraining.architecture import architecture, parse_fields
from pipeline.pretraining.branch import check_branch, find_branch
from pipeline.pretraining.corpora import digest_of, open_corpora
from pipeline.pretraining.lengths import EarlierStart, find_earlier_start, length_of, skipped_batches_of
from pipeline.pretraining.student import Teacher, find_teacher
from pipeline.run.initial_model import InitialModel, find_initial_model, record_of
from pipeline.settings.pretrain_flags import PretrainFlags
from pipeline.training import schedule
from pipeline.training.run_settings import RunSettings


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(RunSettings):
    """The settings of a pre-training run. The vocabulary size and the positions of `model` are those of the data.

    Attributes:
        flags: of the command line.
        warmup_steps: those of the first start, also if its length changes.
        earlier_steps: the length before this start; None for a new run.
        earlier_scored_on: `scored_on` before this start; "" for a new run.
        objective: the sentence loss: sop, nsp, or mlm for none.
        masking: which tokens are predicted, and what replaces them.
        data: directories of the training shards, one for each corpus.
        corpus_weights: whole numbers, one for each corpus; see pipeline/data/mixture.py.
        data_digests: sha256 of each corpus's manifest.
        corpora: what the training shards were made from, for the model card.
        origin: the fields of the record that tell the initial model and the teacher.
    """

    flags: PretrainFlags
    warmup_steps: int
    earlier_steps: int | None
    earlier_scored_on: str
    objective: Objective
    masking: MaskingSettings
    data: tuple[Path, ...]
    corpus_weights: tuple[int, ...]
    data_digests: tuple[str, ...]
    corpora: tuple[CorpusRecord, ...]
    origin: dict[str, Any]

    @property
    def changes_length(self) -> bool:
        """Whether this start changes the length of a run that has begun."""
        return self.earlier_steps not in (None, self.steps)

    @property
    def starts_trained(self) -> bool:
        """See `RunSettings`."""
        return super().starts_trained or self.origin["init"] is not None

    @property
    def changes_held_out(self) -> bool:
        """Whether the text that decides the best checkpoint is another one than before this start."""
        return self.earlier_scored_on not in ("", self.scored_on)

    def record(self) -> PretrainRecord:
        """What settings.json holds."""
        weighted = [(digest, float(weight)) for digest, weight in zip(self.data_digests, self.corpus_weights)]
        return PretrainRecord(
            **self.common_record(),
            **self.optimization(),
            **self.origin,
            data=self.data_digests[0] if len(self.data) == 1 else weighted,
            objective=self.objective,
            masking=dataclasses.asdict(self.masking),
            steps=self.steps,
            warmup_steps=self.warmup_steps,
            eval_batches=self.flags.eval_batches,
            corpora=list(self.corpora),
            skipped_batches=list(self.skipped_batches),
            data_directories=[str(directory) for directory in self.data],
            eval_data_directories=[str(directory) for directory in self.flags.eval_data],
            branch=self.branch,
            scored_on=self.scored_on,
        )


def resolve(
    flags: PretrainFlags, world_size: int, hardware: Hardware
) -> tuple[PretrainSettings, InitialModel | None, Teacher | None]:
    """Makes the settings from a parsed command line. Reads files and writes none. Raises UserError for a mistake.

    Returns:
        The settings, the model of --init, and that of --teacher.
    """
    config = engine_config.load(flags.deepspeed_config)
    corpora = open_corpora(flags.shards)
    fields = parse_fields(flags.model_args)
    earlier = find_earlier_start(flags.output)
    initial = find_initial_model(flags.init, [flags.output])
    if initial is not None:
        _check_vocabulary("--init", initial.directory, _vocabulary_of(initial.weights), corpora.directories[0])
    teacher, masking = find_teacher(flags.teacher, flags.teacher_loss), flags.masking_settings()
    like, source = (None, None) if initial is None else (initial.config, f"--init {flags.init}")
    if (branched := find_branch(flags.branch, earlier)) is not None:
        like, source = branched[1].config, f"--branch {flags.branch}"
    if teacher is not None:
        like = like or teacher.student_config()
        masking = dataclasses.replace(masking, replace_with_mask=0.0, replace_with_random=0.0)
    model = architecture(flags.preset, fields, flags.objective, corpora.manifest, like, source)
    if teacher is not None:
        _check_vocabulary("--teacher", teacher.directory, _vocabulary_of(teacher.weights), corpora.directories[0])
        teacher.check_heads(model)
    engine = engine_config.fit(config, world_size, hardware, flags.precision)
    corpora.check_size(engine.train_batch_size)
    corpora.check_together(flags.eval_data)
    steps, warmup_steps = length_of(earlier, flags.steps, engine.train_batch_size, flags.max_hours), flags.warmup_steps
    if earlier is not None and warmup_steps is None:
        warmup_steps = earlier.record.warmup_steps
    branch, before = None, earlier
    if branched is not None:
        branch, record = branched
        before = earlier or EarlierStart(Path(branch.run), record, branch.step)  # whose batches are trained on
        check_branch(branch, record, engine.json["optimizer"]["type"], steps)
        if (run := Path(branch.run)).is_dir():
            _check_vocabulary("--branch", run, find_vocabulary(run), corpora.directories[0])
    settings = PretrainSettings(
        flags=flags,
        model=model,
        execution=_execution_options(flags, model, engine, hardware),
        engine=engine,
        steps=steps,
        warmup_steps=schedule.warmup_length(engine.json.get("scheduler"), warmup_steps, steps),
        log_interval=flags.log_interval,
        eval_interval=flags.eval_interval,
        save_interval=flags.save_interval,
        kept_checkpoints=flags.kept_checkpoints,
        milestones=corpora.steps_after(flags.keep_at, engine.train_batch_size),
        branch=branch,
        scored_on=digest_of(flags.eval_data[0]) if flags.eval_data else "",
        earlier_scored_on="" if earlier is None else earlier.record.scored_on,
        skipped_batches=skipped_batches_of(before, flags.skip_batches, steps),
        earlier_steps=None if earlier is None else earlier.record.steps,
        objective=model.sentence_head or "mlm",  # type: ignore[arg-type]
        masking=masking,
        data=corpora.directories,
        corpus_weights=corpora.weights,
        data_digests=corpora.digests(),
        corpora=corpora.describe(),
        origin=record_of(initial) | {"distilled": None if teacher is None else teacher.identity()},
    )
    return settings, initial, teacher


def _vocabulary_of(weights: InitialWeights | None) -> Path | None:
    return None if weights is None else weights.vocabulary_file


def _check_vocabulary(flag: str, directory: Path, vocabulary: Path | None, data: Path) -> None:
    """Raises UserError if the shards in `data` were made with other pieces or another normalisation than the model.

    Args:
        vocabulary: the file of the model's; None for that of a run that has begun.
    """
    if vocabulary is None:
        return
    file = find_vocabulary(data)
    own, of_data = Vocabulary.load(vocabulary), Vocabulary.load(file)
    if (of_data.pieces, of_data.normalization) != (own.pieces, own.normalization):
        raise UserError(
            f"{flag} {directory} and --data {data} have different vocabularies, {vocabulary} and {file}; "
            f"make the shards with --vocab {vocabulary}"
        )


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
    if flags.compile == "on" and (missing := missing_for_compilation()):
        raise UserError(f"--compile: {missing}; install what is missing, or leave the flag out")
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
