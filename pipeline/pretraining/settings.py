"""The settings of a pre-training run: one checked object from command line, DeepSpeed JSON and data manifest."""

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

from common.command_line import Parser
from common.errors import UserError
from data_prep.format.shards import open_shards
from model.config import ATTENTION_KERNELS, GPU_KERNELS, NOT_DETERMINISTIC, PRESETS, AlbertConfig, ExecutionOptions
from pipeline.checkpoint.run_records import CorpusRecord
from pipeline.data.collate import Objective
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import whole_weights
from pipeline.engine import config as engine_config
from pipeline.engine.config import EngineConfig, Hardware
from pipeline.engine.machine import gpu_pages
from pipeline.pretraining.architecture import architecture, parse_fields
from pipeline.pretraining.corpora import check_sizes, check_vocabulary_and_length, describe_corpora, parse_corpora
from pipeline.pretraining.data_checks import check_held_out
from pipeline.pretraining.earlier_start import (
    EarlierStart,
    InitialModel,
    check_data,
    check_vocabulary,
    find_earlier_start,
    find_initial_model,
)
from pipeline.pretraining.masking_flags import add_masking_flags, resolve_masking
from pipeline.pretraining.run_length import lengths_of
from pipeline.training import recorded_command, schedule
from pipeline.training import settings as training_settings
from pipeline.training.flags import Defaults, add_run_arguments, positive
from pipeline.training.schedule import Length, Schedule
from pipeline.training.settings import OnDivergence, RunSettings

EARLIER_DEFAULTS: dict[str, Any] = {
    "masking": dataclasses.asdict(MaskingSettings()),
    "init_weights": None,
    **training_settings.EARLIER_DEFAULTS,
}
"""Values of these keys in runs whose `settings.json` was written before the keys existed."""


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(RunSettings):
    """The settings of a pre-training run. The vocabulary size and the positions of `model` are those of the data.

    Attributes:
        data: directories of the training shards, one for each corpus.
        corpus_weights: whole numbers, one for each corpus; see pipeline/data/mixture.py.
        eval_data: directories of held-out shards. Each one is evaluated separately.
        stage: directory of each host's copy of the shards; None reads them where they are.
        data_digests: sha256 of each corpus's manifest.
        objective: the sentence loss: sop, nsp, or mlm for none.
        masking: which tokens are predicted, and what replaces them.
        eval_batches: size of an evaluation, in batches of `train_batch_size` rows of each directory; None for all rows.
        initial: the trained model whose weights are the initial ones; None for random weights.
        lengths: of the run, each from its step on; `steps` is the last one.
        earlier_steps: the length before this start; None for a new run.
        corpora: what the training shards were made from, for the model card.
        command: the words of the command line, see `recorded_command`.
    """

    data: tuple[Path, ...]
    corpus_weights: tuple[int, ...]
    eval_data: tuple[Path, ...]
    stage: Path | None
    data_digests: tuple[str, ...]
    objective: Objective
    masking: MaskingSettings
    eval_batches: int | None
    initial: InitialModel | None
    lengths: tuple[Length, ...]
    earlier_steps: int | None
    corpora: tuple[CorpusRecord, ...] = ()
    command: tuple[str, ...] = ()

    @property
    def changes_length(self) -> bool:
        """Whether this start changes the length of a run that has begun."""
        return self.earlier_steps not in (None, self.steps)

    def schedule(self) -> Schedule:
        """The learning rate of each step. Raises UserError as `RunSettings.schedule`."""
        block = self.engine.json.get("scheduler")
        return schedule.of_lengths(block, self.engine.learning_rate, self.warmup_steps, self.lengths)

    def identity(self) -> dict[str, Any]:
        """The settings that decide which numbers a run computes. They must not change when the run is resumed.

        Ranks, micro-batch, ZeRO stage, precision, intervals and the location of the data may change. So may the length,
        by the rules of `lengths_of`.
        """
        json = self.engine.json
        return {
            "model": self.model.to_dict(),
            "objective": self.objective,
            "masking": dataclasses.asdict(self.masking),
            "seed": self.seed,
            "deterministic": self.deterministic,
            "steps": self.steps,
            "warmup_steps": self.warmup_steps,
            "max_hours": self.max_hours,
            "train_batch_size": self.engine.train_batch_size,
            "optimizer": json["optimizer"],
            "scheduler": json.get("scheduler"),
            "gradient_clipping": json.get("gradient_clipping"),
            "eval_batches": self.eval_batches,
            "init_weights": None if self.initial is None else self.initial.digest,
            "data": self.data_digests[0] if len(self.data) == 1 else list(zip(self.data_digests, self.corpus_weights)),
        }

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values, for `settings.json`."""
        return {
            **self.identity(),
            "corpora": [dataclasses.asdict(corpus) for corpus in self.corpora],
            "lengths": [length._asdict() for length in self.lengths],
            **({} if self.initial is None else self.initial.record()),
            "data_directories": [str(directory) for directory in self.data],
            "eval_data_directories": [str(directory) for directory in self.eval_data],
            recorded_command.KEY: self.command,
            **self.execution_dict(),
            "save_interval": self.save_interval,
            "eval_interval": self.eval_interval,
            "on_divergence": self.on_divergence,
            "max_rollbacks": self.max_rollbacks,
        }


def parser() -> Parser:
    """The command line of `pipeline.pretrain`."""
    p = Parser(
        prog="deepspeed --module pipeline.pretrain",
        description="Pre-trains ALBERT. The same command again, with the same --output, resumes the run.",
    )
    p.add_argument("--model", metavar="NAME", help=f"a preset: {', '.join(PRESETS)} (default: the model of --init)")
    p.add_argument(
        "--init",
        type=Path,
        metavar="DIR",
        help="start from these weights: an export, a run, or a published ALBERT or BERT (default: random weights)",
    )
    p.add_argument(
        "--model-args",
        nargs="+",
        action="extend",
        default=[],
        metavar="FIELD=VALUE",
        help="fields of AlbertConfig to replace, e.g. parameter_sharing=attention embedding_size=64",
    )
    p.add_argument(
        "--data",
        required=True,
        nargs="+",
        metavar="DIR[:WEIGHT]",
        help="shards to train on (made by data_prep shards); several corpora may have weights",
    )
    p.add_argument(
        "--eval-data",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="shards of held-out documents; each is evaluated separately, and the first decides the best checkpoint",
    )
    p.add_argument(
        "--stage",
        type=Path,
        metavar="DIR",
        help="copy all shards to this directory of a local disk, on each host, and read them there",
    )
    p.add_argument(
        "--objective",
        choices=("sop", "nsp", "mlm"),
        help="sentence loss (default: sop; BERT presets: nsp; or of --init)",
    )
    add_masking_flags(p)
    add_run_arguments(
        p,
        Defaults(
            deepspeed_config=None,
            steps="the paper's 125,000 at a batch of 4096",
            warmup_steps="2.5 %% of the steps",
            log_interval=10,
            eval_interval=1000,
        ),
    )
    p.add_argument(
        "--save-interval",
        type=positive,
        default=5000,
        metavar="N",
        help="steps from one checkpoint to the next (default: 5000)",
    )
    p.add_argument(
        "--keep-checkpoints",
        type=positive,
        default=PretrainSettings.kept_checkpoints,
        metavar="N",
        help=f"keep the newest N checkpoints, and the best one (default: {PretrainSettings.kept_checkpoints})",
    )
    p.add_argument(
        "--eval-batches",
        type=positive,
        metavar="N",
        help="evaluate on the rows of N batches, spread evenly over each held-out directory (default: on all rows)",
    )
    p.add_argument(
        "--on-divergence",
        choices=get_args(OnDivergence),
        default="warn",
        help="after a spike of the loss: print a line, end the run, or go back to a checkpoint before it and pass over "
        "its batches (default: warn)",
    )
    p.add_argument(
        "--max-rollbacks",
        type=positive,
        default=PretrainSettings.max_rollbacks,
        metavar="N",
        help=f"end the run at the next spike after N rollbacks (default: {PretrainSettings.max_rollbacks})",
    )
    p.add_argument(
        "--attention",
        choices=ATTENTION_KERNELS,
        default="auto",
        help="attention kernel; auto: the fastest for the device, kept by later starts (default: auto)",
    )
    for flag, what in (
        ("--compile", "compile the layer with torch.compile"),
        ("--cuda-graphs", "replay each micro-step as CUDA graphs"),
    ):
        p.add_argument(
            flag,
            nargs="?",
            const="on",
            choices=("auto", "on", "off"),
            default="auto",
            help=f"{what}; auto: on a GPU, as at the last start, or if a page of `make gpu` shows it faster, and equal "
            "(default: auto)",
        )
    return p


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the command line. Raises UserError for an unknown flag, naming the nearest one that exists."""
    args = parser().parse_all(argv)
    if args.model is None and args.init is None:
        raise UserError("give --model NAME for a new model, or --init DIR to go on with a trained one")
    return args


def resolve(args: argparse.Namespace, world_size: int, hardware: Hardware) -> PretrainSettings:
    """Makes the settings from a parsed command line. Reads files and writes none. Raises UserError for a mistake."""
    config = engine_config.load(args.deepspeed_config)
    directories, weights = parse_corpora(args.data)
    sets = [open_shards(directory) for directory in directories]
    corpus_weights = whole_weights(weights or [Fraction(len(shards)) for shards in sets])
    fields = parse_fields(args.model_args)
    earlier = find_earlier_start(args.output)
    initial = find_initial_model(args.init, earlier)
    if initial is not None and initial.weights is not None:
        check_vocabulary(initial.weights, args.init, directories[0])
    trained = None if initial is None else initial.config
    model = architecture(args.model, fields, args.objective, sets[0].manifest, trained, args.init)
    engine = engine_config.fit(config, world_size, hardware, args.precision)
    check_sizes(directories, sets, corpus_weights, engine.train_batch_size)
    check_vocabulary_and_length(directories, sets, args.eval_data)
    check_held_out(directories, sets, args.eval_data)
    lengths = lengths_of(earlier, args.steps, engine.train_batch_size, args.max_hours)
    settings = PretrainSettings(
        model=model,
        execution=_execution_options(args, model, engine, hardware, earlier),
        data=directories,
        corpus_weights=corpus_weights,
        eval_data=tuple(args.eval_data),
        stage=args.stage,
        output=args.output,
        engine=engine,
        data_digests=tuple(
            hashlib.sha256((directory / "manifest.json").read_bytes()).hexdigest() for directory in directories
        ),
        objective=model.sentence_head or "mlm",  # type: ignore[arg-type]
        masking=resolve_masking(args),
        seed=args.seed,
        deterministic=args.deterministic,
        steps=lengths[-1].steps,
        lengths=tuple(lengths),
        earlier_steps=None if earlier is None else earlier.lengths[-1].steps,
        initial=initial,
        warmup_steps=args.warmup_steps,
        log_interval=args.log_interval,
        save_interval=args.save_interval,
        kept_checkpoints=args.keep_checkpoints,
        eval_interval=args.eval_interval,
        eval_batches=args.eval_batches,
        max_hours=args.max_hours,
        host_timeout=args.host_timeout,
        track=tuple(dict.fromkeys(args.track)),
        all_curves=args.all_curves,
        on_divergence=args.on_divergence,
        max_rollbacks=args.max_rollbacks,
        hang_timeout=args.hang_timeout,
        check_interval=args.check_interval,
        save_mode=args.save_mode,
        corpora=describe_corpora(directories, sets, corpus_weights),
        command=recorded_command.words_of(args, parser()),
    )
    if earlier is not None:
        check_data(earlier, directories, json.loads(json.dumps(settings.identity()["data"])))
    return settings


def _execution_options(
    args: argparse.Namespace,
    model: AlbertConfig,
    engine: EngineConfig,
    hardware: Hardware,
    earlier: EarlierStart | None,
) -> ExecutionOptions:
    if args.attention in GPU_KERNELS and hardware.name == "CPU":
        raise UserError(f"--attention {args.attention} needs a GPU; leave the flag out")
    if args.attention in ("cudnn", "flash") and engine.precision == "fp32":
        raise UserError(
            f"--attention {args.attention} computes in 16 bits only; train in bf16 or fp16, or leave the flag out"
        )
    if args.deterministic and args.attention in NOT_DETERMINISTIC:
        raise UserError(
            f"--attention {args.attention} adds in no fixed order in its backward pass, which --deterministic excludes;"
            " leave one of the two out"
        )
    if engine.zero_stage == 3:
        for flag, value in (("--compile", args.compile), ("--cuda-graphs", args.cuda_graphs)):
            if value == "on":
                raise UserError(
                    f"{flag} does not work at ZeRO stage 3: its hooks cannot be part of a graph; leave the flag out, "
                    'or set "zero_optimization": {"stage": 2}'
                )
    if args.cuda_graphs == "on" and hardware.name == "CPU":
        raise UserError("--cuda-graphs needs a GPU; leave the flag out")
    # Without the flag, what does not fit together with the others stays off.
    fits = engine.zero_stage < 3 and args.attention != "sequences"
    plain = fits and args.activation_checkpointing == "none"
    try:
        execution = ExecutionOptions(
            args.activation_checkpointing,
            compile=_is_on(args.compile, "compile", fits, hardware, earlier),
            cuda_graphs=_is_on(args.cuda_graphs, "cuda_graphs", plain, hardware, earlier),
            attention=args.attention,
        )
        execution.check(model)
    except ValueError as error:
        raise UserError(str(error)) from None
    return execution


def _is_on(value: str, feature: str, fits: bool, hardware: Hardware, earlier: EarlierStart | None) -> bool:
    """What "on", "off" or "auto" means for a feature that the other settings allow if `fits`.

    "auto" is what the last start did on the same kind of GPU, so that a new page does not change a run that has begun.
    """
    if value != "auto" or not fits or hardware.name == "CPU":
        return value == "on"
    if earlier is not None and earlier.settings.get("device") == hardware.name:
        recorded = (earlier.settings.get("implementation") or {}).get(feature)
        if isinstance(recorded, bool):
            return recorded
    return gpu_pages.is_shown_faster(feature, hardware.name)
