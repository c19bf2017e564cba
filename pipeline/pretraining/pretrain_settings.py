"""Finds out the settings of a pre-training run, from flags, DeepSpeed JSON, training shards and earlier starts.

The architecture is that of a preset or a trained model, with the data's vocabulary and positions.
"""

import dataclasses
from pathlib import Path

from common.errors import UserError
from data_prep.format.shard_manifest import ShardManifest
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.vocabulary import Vocabulary, find_vocabulary
from model.config import AlbertConfig, ExecutionOptions
from pipeline.checkpoint.checkpoint_manifest import DamagedCheckpoint, check
from pipeline.checkpoint.initial_weights import InitialModel, exported_checkpoint, find_initial_model, record_of
from pipeline.checkpoint.retention import TAG, step_of
from pipeline.data.sampler import batch_of_step
from pipeline.engine import deepspeed_config
from pipeline.engine.engine_config import EngineConfig
from pipeline.engine.hardware import Hardware, missing_for_compilation
from pipeline.pretraining.corpora import digest_of, open_corpora
from pipeline.pretraining.distillation import Distillation, Teacher, find_teacher
from pipeline.pretraining.lengths import EarlierStart, find_earlier_start, length_of, skipped_batches_of
from pipeline.pretraining.pretraining_task import PreTraining
from pipeline.settings.pretrain_flags import PretrainFlags, parse_fields
from pipeline.settings.run_settings import Branch, Distilled, PretrainSettings
from pipeline.settings.settings_file import SETTINGS, read_settings
from pipeline.training import schedule

_DECIDE_SHAPES = (
    *("embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("parameter_sharing", "num_hidden_groups", "type_vocab_size"),
    *("hidden_act", "layer_norm_eps", "has_embedding_projection"),
)
"""What a model must have in common with the one whose weights it starts from. Positions and heads may be new."""


def make_task(flags: PretrainFlags, world_size: int, hardware: Hardware) -> PreTraining:
    """The run that a command line asks for. Reads files and writes none. Raises UserError for a mistake."""
    config = deepspeed_config.load(flags.deepspeed_config)
    corpora = open_corpora(flags.shards)
    vocabulary = load_vocabulary(corpora.directories[0])
    earlier = find_earlier_start(flags.output)
    initial = find_initial_model(flags.init, [flags.output])
    teacher = find_teacher(flags.teacher, flags.teacher_loss)
    engine = deepspeed_config.fit(config, world_size, hardware, flags.precision)
    branched = _find_branch(flags.branch, earlier, engine.train_batch_size)
    for flag, trained in (("--init", initial), ("--teacher", teacher)):
        if trained is not None and trained.weights is not None:
            weights = trained.weights
            own = weights.vocabulary_file, weights.vocabulary
            _check_vocabulary(f"{flag} {trained.directory}", *own, corpora.directories[0], vocabulary)
    model = architecture(flags, corpora.manifest, initial, teacher, branched)
    if teacher is not None:
        teacher.check_heads(model)
    corpora.check_size(engine.train_batch_size)
    corpora.check_together(flags.eval_data)
    steps = length_of(earlier, flags.steps, engine.train_batch_size, flags.max_hours)
    warmup_steps = flags.warmup_steps
    if earlier is not None and warmup_steps is None:
        warmup_steps = earlier.settings.warmup_steps
    branch, before = None, earlier
    if branched is not None:
        branch, source = branched
        before = earlier or EarlierStart(Path(branch.run), source, branch.step)  # whose batches are trained on
        _check_branch(branch, source, model, engine.optimizer, steps)
        if earlier is None or not earlier.steps_made:  # later it may be gone
            run = Path(branch.run)
            own = find_vocabulary(run), load_vocabulary(run)
            _check_vocabulary(f"--branch {run}", *own, corpora.directories[0], vocabulary)
    masking = flags.masking_settings()
    if teacher is not None:  # a student reads the tokens as they are: it learns the states of a teacher that does
        masking = dataclasses.replace(masking, replace_with_mask=0.0, replace_with_random=0.0)
    settings = PretrainSettings(
        flags=flags,
        model=model,
        engine=engine,
        steps=steps,
        warmup_steps=schedule.warmup_length(engine.json.get("scheduler"), warmup_steps, steps),
        log_interval=flags.log_interval,
        eval_interval=flags.eval_interval,
        save_interval=flags.save_interval,
        kept_checkpoints=flags.kept_checkpoints,
        milestones=corpora.steps_after(flags.keep_at, engine.train_batch_size, 0 if branch is None else branch.shift),
        skipped_batches=skipped_batches_of(before, flags.skip_batches, steps),
        scored_on=digest_of(flags.eval_data[0]) if flags.eval_data else "",
        branch=branch,
        objective=model.sentence_head or "mlm",  # type: ignore[arg-type]
        masking=masking,
        data=corpora.directories,
        data_digests=corpora.digests(),
        corpus_weights=corpora.weights,
        corpora=corpora.describe(),
        distilled=None if teacher is None else Distilled(teacher.digest, teacher.loss),
        **record_of(initial),
        execution=_execution_options(flags, model, engine, hardware),
    )
    schedule.of_run(settings)
    given = settings, vocabulary, initial, None if earlier is None else earlier.settings
    return PreTraining(*given) if teacher is None else Distillation(*given, teacher)


def _find_branch(
    source: Path | None, earlier: EarlierStart | None, train_batch_size: int
) -> tuple[Branch, PretrainSettings] | None:
    """The checkpoint that a run goes on from, and the settings of the run that has its model; None without --branch.

    The new run takes weights, moments and the number of steps. Everything else is its own: the order of the rows from
    that step on, the schedule, the hours. A run that has begun has chosen the checkpoint; once it has one of its own,
    the other run is not read again. UserError: there is no such checkpoint, or it is of a fine-tuning run.
    """
    if source is None:
        return None
    source = source.resolve()
    is_checkpoint = TAG.fullmatch(source.name) is not None and source.parent.name == "checkpoints"
    run, step = (source.parent.parent, step_of(source)) if is_checkpoint else (source, None)
    chosen = None if earlier is None else earlier.settings.branch
    if earlier is not None and chosen is not None and chosen.run == str(run) and step in (None, chosen.step):
        if earlier.steps_made:
            return chosen, earlier.settings
        step = chosen.step
    if not (run / SETTINGS).exists():
        raise UserError(f"--branch {source} is no run and no checkpoint of one; name RUN or RUN/checkpoints/step-N")
    settings = read_settings(run)
    if not isinstance(settings, PretrainSettings):
        raise UserError(f"--branch {run} is a fine-tuning run; name a run of pipeline.pretrain")
    tag = exported_checkpoint(run, step)
    try:
        check(tag, content=False)
    except DamagedCheckpoint as error:
        raise UserError(f"--branch {tag} is damaged ({error}); name another checkpoint") from None
    passed = batch_of_step(step_of(tag), settings.skipped_batches)
    return Branch(str(run), step_of(tag), settings.samples_after(passed) - passed * train_batch_size), settings


def _check_branch(branch: Branch, before: PretrainSettings, model: AlbertConfig, optimizer: str, steps: int) -> None:
    """Raises UserError if a run of `steps` steps with this model and optimizer cannot go on from a checkpoint."""
    for name in ("sentence_head", "max_position_embeddings"):
        if (wanted := getattr(model, name)) != (has := getattr(before.model, name)):
            raise UserError(
                f"--branch {branch.run}: its {name} is {has}, and this run would have {wanted}; keep the objective and "
                f"the length of the rows, or start with --init {branch.run}"
            )
    if before.engine.optimizer != optimizer:
        raise UserError(
            f"--branch {branch.run} was trained by {before.engine.optimizer}, whose moments mean something else to "
            f"{optimizer}; keep the optimizer, or start with --init {branch.run}"
        )
    if steps <= branch.step:
        raise UserError(
            f"--branch goes on from step {branch.step:,}, and the run has {steps:,} steps; give --steps with those of "
            "before included"
        )


def architecture(
    flags: PretrainFlags,
    manifest: ShardManifest,
    initial: InitialModel | None,
    teacher: Teacher | None,
    branched: tuple[Branch, PretrainSettings] | None,
) -> AlbertConfig:
    """The architecture of the model to train: of a preset, or of the trained model that the run starts from.

    The manifest of the data decides the size of the vocabulary. Its rows decide the positions, unless --model-args or
    the trained model has more. Raises UserError: values do not fit together, or not to the data, or the weights of the
    trained model do not fit.
    """
    trained, source = None if initial is None else initial.config, f"--init {flags.init}"
    if branched is not None:
        trained, source = branched[1].model, f"--branch {flags.branch}"
    like = trained
    if like is None and teacher is not None:
        like, source = teacher.student_config(), f"--teacher {flags.teacher}"
    positions = max(manifest.max_seq_length, 0 if like is None else like.max_position_embeddings)
    of_data = {"vocab_size": manifest.vocabulary_size, "max_position_embeddings": positions}
    fields = of_data | parse_fields(flags.model_args)
    if fields["vocab_size"] != manifest.vocabulary_size:
        raise UserError(
            f"the model's vocab_size {fields['vocab_size']} is not the {manifest.vocabulary_size} of the data's "
            "vocabulary; leave the field out"
        )
    if fields["max_position_embeddings"] < manifest.max_seq_length:
        raise UserError(
            f"max_position_embeddings {fields['max_position_embeddings']} is less than the data's "
            f"{manifest.max_seq_length}; leave the field out, or make new shards"
        )
    if flags.objective is not None:
        fields["sentence_head"] = None if flags.objective == "mlm" else flags.objective
    try:
        if flags.preset is not None:
            config = AlbertConfig.preset(flags.preset, **fields)
        else:
            assert like is not None, "the command line has --model, --init, --branch or --teacher"
            config = AlbertConfig.from_dict(like.to_dict() | fields)
    except ValueError as error:
        raise UserError(str(error)) from None
    if config.type_vocab_size < 2:
        remedy = "leave the field out" if "type_vocab_size" in fields else f"name another model than {source}"
        raise UserError(f"type_vocab_size is less than 2, but a pair has two segments; {remedy}")
    if trained is not None:
        _check_weights_fit(config, trained, source)
    return config


def _check_weights_fit(config: AlbertConfig, trained: AlbertConfig, source: str) -> None:
    """Raises UserError, naming what differs, if the weights of `trained` do not fit into `config`."""
    differ = [name for name in _DECIDE_SHAPES if getattr(config, name) != getattr(trained, name)]
    if config.max_position_embeddings < trained.max_position_embeddings:
        differ.append("max_position_embeddings")
    if differ:
        differences = ", ".join(
            f"{name} is {getattr(trained, name)} there and {getattr(config, name)} here" for name in differ
        )
        raise UserError(f"{source} holds another model: {differences}; leave --model and these fields out")


def _check_vocabulary(source: str, file: Path, own: Vocabulary, data: Path, of_data: Vocabulary) -> None:
    """Raises UserError if the shards have other pieces or another normalisation than the vocabulary `own` in `file`."""
    if (of_data.pieces, of_data.normalization) != (own.pieces, own.normalization):
        raise UserError(f"{source} and --data {data} have different vocabularies; make shards with --vocab {file}")


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
        raise UserError("--compile does not work at ZeRO stage 3, whose hooks cannot be part of a graph; drop it")
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
