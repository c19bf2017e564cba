"""The flags of `pipeline.pretrain`. A new flag is a field here."""

import dataclasses
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from common.command_line import Parser, natural, positive, tokens, truth
from common.errors import UserError
from model.config import ATTENTION_KERNELS, PRESETS, AlbertConfig
from pipeline.settings import declare
from pipeline.settings.declare import flag
from pipeline.settings.run_flags import RunFlags

if TYPE_CHECKING:
    from pipeline.data.masking import MaskingSettings

Switch = Literal["auto", "on", "off"]


def _three_parts(text: str) -> str:
    numbers = [float(part) for part in text.split(",")]
    if len(numbers) != 3 or not all(0 <= number <= 1 for number in numbers) or abs(sum(numbers) - 1) > 1e-6:
        raise ArgumentTypeError(f"{text} is not three numbers from 0 to 1 that sum to 1, such as 0.8,0.1,0.1")
    return text


_three_parts.__name__ = "list of three numbers"


@dataclass(frozen=True, kw_only=True)
class MaskingFlags:
    """The flags of masks. The defaults are the paper's. A resume has the same: `PretrainSettings.masking` is fixed."""

    mask_probability: float = flag("part of the tokens that is predicted", 0.15, metavar="P", group="masks")
    max_ngram: int = flag("words of the longest masked n-gram", 3)
    mask_replacement: str = flag(
        "parts of the predicted tokens that become [MASK], become a random token, are kept",
        "0.8,0.1,0.1",
        _three_parts,
        metavar="MASK,RANDOM,KEPT",
    )

    def masking_settings(self) -> "MaskingSettings":
        """The settings of masks. Raises UserError: a value is out of its range."""
        from pipeline.data.masking import MaskingSettings

        with_mask, with_random, _ = map(float, self.mask_replacement.split(","))
        try:
            return MaskingSettings(self.mask_probability, self.max_ngram, with_mask, with_random)
        except ValueError as error:
            raise UserError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class PretrainFlags(MaskingFlags, RunFlags):
    """The command line of `pipeline.pretrain`."""

    preset: str | None = flag(
        f"a preset: {', '.join(PRESETS)}", None, name="--model", metavar="NAME", group="model and data"
    )
    init: Path | None = flag(
        "start from an export, a run, or a published ALBERT or BERT (default: random, or those of --teacher, --branch)",
        None,
        Path,
        metavar="DIR",
    )
    branch: Path | None = flag(
        "go on from a checkpoint of another run, with its optimizer's moments: RUN or RUN/checkpoints/step-N",
        None,
        metavar="DIR",
    )
    teacher: Path | None = flag(
        "distil this trained model: learn its states instead of its text's tokens (docs/experiments.md)",
        None,
        metavar="DIR",
    )
    teacher_loss: tuple[str, ...] = flag(
        "weights of the parts of the loss with --teacher: states, layers, attention, pooled, similarity",
        ("states=1", "layers=0.5", "attention=2", "pooled=1", "similarity=5"),
        metavar="PART=WEIGHT",
    )
    model_args: tuple[str, ...] = flag(
        "fields of AlbertConfig to replace, e.g. embedding_size=64", (), metavar="FIELD=VALUE", extend=True
    )
    objective: Literal["sop", "nsp", "mlm"] | None = flag(
        "sentence loss (default: sop; BERT presets: nsp; or of --init)", None
    )
    shards: tuple[str, ...] = flag(
        "shards to train on; several corpora may have weights", name="--data", metavar="DIR[:WEIGHT]"
    )
    eval_data: tuple[Path, ...] = flag(
        "held-out shards, each evaluated separately; the first decides the best checkpoint", (), metavar="DIR"
    )
    verify: Literal["always", "never"] = flag("read all shards before the first step to check them", "always")

    deepspeed_config: Path = flag(
        "batch, optimizer, learning rate, ZeRO: a file such as ds_configs/base.json",
        name="--deepspeed_config",
        metavar="JSON",
        group="run",
    )
    steps: int | None = flag("steps of the run (default: the paper's 125,000 at a batch of 4096)", None, positive)
    warmup_steps: int | None = flag("steps of warm-up (default: the JSON's, or 2.5 % of the steps)", None, natural)

    log_interval: int = flag(
        "steps from one logged line to the next", 10, positive, group="logging, evaluation, checkpoints"
    )
    eval_interval: int = flag("steps from one evaluation to the next", 1000, positive)
    eval_batches: int | None = flag(
        "evaluate on the rows of N batches of each held-out directory (default: all)", None, positive, fixed=True
    )
    save_interval: int = flag("steps from one checkpoint to the next", 5000, positive)
    kept_checkpoints: int = flag("keep the newest N checkpoints, and the best", 5, positive, name="--keep-checkpoints")

    keep_at: tuple[int, ...] = flag(
        "save a checkpoint after about this many tokens, such as 10M, and never delete it; those before --branch count",
        (),
        tokens,
        metavar="TOKENS",
        extend=True,
    )

    skip_batches: tuple[str, ...] = flag(
        "leave these batches out; N is a step plus its batches_passed_over", (), metavar="FIRST-LAST", group="safety"
    )

    attention: str = flag(
        "auto: flash in 16 bits on a GPU of capability 8.0 or newer, masked on others, sequences on a processor",
        "auto",
        choices=ATTENTION_KERNELS,
        group="speed and memory",
    )
    compile: Switch = flag(
        "compile the layer and the loss in chunks; auto: on a GPU of capability 8.0 or newer with a C compiler",
        "auto",
        alone="on",
    )
    chunked_loss: Switch = flag(
        "compute the loss of the masked tokens in chunks, without logits of all; auto: on a GPU", "auto", alone="on"
    )


def parser() -> Parser:
    """The command line of `pipeline.pretrain`."""
    return declare.make_parser(
        PretrainFlags,
        "deepspeed --module pipeline.pretrain",
        "Pre-trains ALBERT. The same command again, with the same --output, resumes the run.",
    )


def parse(words: Sequence[str]) -> PretrainFlags:
    """Parses the command line. Raises UserError for an unknown flag, naming the nearest one that exists."""
    flags = declare.parse(PretrainFlags, parser(), words)
    if flags.preset is None and flags.init is None and flags.teacher is None and flags.branch is None:
        raise UserError("give --model NAME for a new model, or --init DIR to go on with a trained one")
    if flags.init is not None and flags.branch is not None:
        raise UserError("--init and --branch both say what the run starts from; give one of them")
    if flags.teacher is None and flags.teacher_loss != PretrainFlags.teacher_loss:
        raise UserError("--teacher-loss says how to distil a model; give it with --teacher DIR")
    return flags


_PARSERS: dict[Any, Callable[[str], Any]] = {int: int, float: float, float | None: float, bool | None: truth}


def parse_fields(pairs: Sequence[str]) -> dict[str, Any]:
    """Parses `["embedding_size=64", ...]` into typed fields of AlbertConfig."""
    types = {field.name: field.type for field in dataclasses.fields(AlbertConfig)}
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--model-args {pair!r} is not of the form FIELD=VALUE; give e.g. embedding_size=64")
        if name not in types:
            raise UserError(f"--model-args: AlbertConfig has no field {name!r}; it has {', '.join(types)}")
        if name in fields:
            raise UserError(f"--model-args gives {name} twice; keep one")
        if name == "sentence_head":
            raise UserError("--model-args sentence_head: the objective decides it; use --objective {sop,nsp,mlm}")
        try:
            fields[name] = _PARSERS.get(types[name], str)(text)
        except (ValueError, ArgumentTypeError):
            wanted = "true or false" if types[name] == bool | None else "a number"
            raise UserError(f"--model-args {pair!r}: the value must be {wanted}") from None
    return fields
