"""The recipe, the data and the cost of a run, as rows of tables, from its settings.json and metrics.jsonl.

A figure that a run did not record is left out.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.normalization import Normalization
from common.progress import quantity
from model import AlbertConfig
from pipeline.checkpoint.run_records import CorpusRecord, FinetuneRecord, LengthRecord, PretrainRecord
from pipeline.sharing.markdown import duration, plain
from pipeline.training.divergence import rollback
from pipeline.training.reporting import metrics_log

Row = tuple[str, ...]

OBJECTIVES = {
    "sop": "masked tokens (MLM) and sentence order (SOP)",
    "nsp": "masked tokens (MLM) and next sentence (NSP)",
    "mlm": "masked tokens (MLM)",
}


def of_normalization(normalization: Normalization) -> str:
    """What is done to a text before it is cut into pieces, for people; empty if it keeps its letters."""
    changes = [] if normalization.keep_case else ["is made lower case"]
    return " and ".join([*changes, *([] if normalization.keep_accents else ["loses its accents"])])


def of_model(config: AlbertConfig, parameters: int, normalization: Normalization) -> list[Row]:
    """The architecture."""
    case = "upper and lower case" if normalization.keep_case else "lower case"
    return [
        ("layers", f"{config.num_hidden_layers}, sharing: {config.parameter_sharing}"),
        ("hidden size", f"{config.hidden_size:,}"),
        ("attention heads", f"{config.num_attention_heads}"),
        ("feed-forward size", f"{config.intermediate_size:,}"),
        ("embedding size", f"{config.embedding_size:,}"),
        ("vocabulary", f"{config.vocab_size:,} SentencePiece pieces, {case}"),
        ("positions", f"{config.max_position_embeddings:,}"),
        ("parameters", f"{parameters:,}"),
    ]


def of_pretraining_data(record: PretrainRecord) -> list[Row]:
    """Each corpus: (name, sources, documents, tokens, rows, share); empty for a run that did not record them."""
    corpora = record.corpora or []
    whole = sum(corpus.weight for corpus in corpora)
    return [
        (
            plain(corpus.name),
            _sources(corpus),
            f"{corpus.documents:,}",
            f"{corpus.tokens:,}",
            f"{corpus.rows:,} of {corpus.max_seq_length:,} positions",
            f"{100 * corpus.weight / whole:.0f} %",
        )
        for corpus in corpora
    ]


def _sources(corpus: CorpusRecord) -> str:
    parts = [
        f"{plain(one.directory)} ({plain(one.source)}, {quantity(one.documents, 'document')}, "
        f"{quantity(one.text_bytes, 'byte')})"
        for one in corpus.sources
    ]
    return "; ".join(parts)


def of_pretraining(record: PretrainRecord) -> list[Row]:
    """The recipe of a pre-training run."""
    rows: list[Row] = [
        ("objective", OBJECTIVES[record.objective]),
        ("batch", quantity(record.train_batch_size, "row")),
        *_start(record.init),
        ("steps of the whole run", f"{record.steps:,}"),
        *_lengths(record.lengths or []),
        *_optimizer(record.optimizer),
        ("schedule", _schedule(record.scheduler, record.warmup_steps)),
        *_given(record.masking),
    ]
    return rows + _execution(record)


def of_rollbacks(run: Path) -> list[Row]:
    """What a pre-training run passed over because of spikes; empty if it never went back. Raises UserError."""
    rollbacks = rollback.read(run)
    return [("after spikes of the loss", rollback.describe(rollbacks))] if rollbacks else []


def _start(init: str | None) -> list[Row]:
    """Whose weights the run began with, by the last part of the path."""
    return [] if init is None else [("initial weights", f"of the trained model {plain(Path(init).name)}")]


def _lengths(lengths: Sequence[LengthRecord]) -> list[Row]:
    """The lengths of a run whose length was changed."""
    if len(lengths) < 2:
        return []
    first, *later = lengths
    changes = (f"from step {one.from_step:,} on {one.steps:,}" for one in later)
    return [("length of the schedule", ", ".join([quantity(first.steps, "step"), *changes]))]


def of_finetuning(record: FinetuneRecord, examples: Mapping[str, Any]) -> list[Row]:
    """The recipe of a fine-tuning run, whose splits have so many examples; empty if that is not known."""
    given = dict(record.hyperparameters or {})
    scheduler, warmup = given.pop("scheduler", None), given.pop("warmup_steps", None)
    rows = _optimizer(given.pop("optimizer", None))
    if record.hyperparameters:
        rows.append(("schedule", _schedule(scheduler, warmup)))
    rows += [
        (plain(name.replace("_", " ")), _value(value))
        for name, value in given.items()
        if name != "learning_rate" and value is not None and not isinstance(value, Mapping | list)
    ]
    counts = ", ".join(f"{plain(split)} {count:,}" for split, count in examples.items() if isinstance(count, int))
    return [("task", plain(record.task)), *([("examples", counts)] if counts else []), *rows, *_execution(record)]


def _optimizer(optimizer: Any) -> list[Row]:
    if not isinstance(optimizer, Mapping) or "type" not in optimizer:
        return []
    params = optimizer.get("params")
    return [("optimizer", plain(optimizer["type"])), *_given(params if isinstance(params, Mapping) else None)]


def _given(values: Mapping[str, Any] | None) -> list[Row]:
    """A row for each value of a block of settings."""
    named = {"peak learning rate" if name == "lr" else name: value for name, value in (values or {}).items()}
    return [(plain(name.replace("_", " ")), _value(value)) for name, value in named.items()]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return plain(", ".join(map(str, value)) if isinstance(value, list) else value)


def _schedule(scheduler: Any, warmup_steps: Any) -> str:
    if isinstance(scheduler, Mapping) and "type" in scheduler:
        return plain(scheduler["type"])
    warmup = "2.5 % of the steps" if warmup_steps is None else f"{_value(warmup_steps)} steps"
    return f"linear warm-up over {warmup}, then linear decay to 0"


def _execution(record: PretrainRecord | FinetuneRecord) -> list[Row]:
    """Precision, ZeRO stage and seed, of the last start of the run."""
    rows: list[Row] = [] if record.precision is None else [("precision", plain(record.precision))]
    zero = (record.deepspeed or {}).get("zero_optimization")
    if isinstance(zero, Mapping) and isinstance(zero.get("stage"), int):
        rows.append(("DeepSpeed ZeRO stage", f"{zero['stage']}"))
    return rows + ([] if record.seed is None else [("seed", f"{record.seed}")])


def of_cost(run: Path, step: int, record: PretrainRecord | FinetuneRecord) -> list[Row]:
    """Time, speed and machine of a run until `step`.

    The speed is that of the whole training until then, without evaluations and saves.

    Raises:
        UserError: metrics.jsonl cannot be read.
    """
    lines = [line for line in metrics_log.read_records(run, "train") if line["step"] <= step]
    rows: list[Row] = []
    if lines and lines[-1].get("seconds") is not None:
        rows.append(("time", f"{duration(lines[-1]['seconds'])} until step {lines[-1]['step']:,}, over all starts"))
    if lines and lines[-1].get("tokens") is not None:
        rows.append(("tokens read", f"{lines[-1]['tokens']:,}"))
    laps = [(line.get("interval_tokens"), line.get("tokens_per_second")) for line in lines]
    counted = [(tokens, speed) for tokens, speed in laps if tokens and speed]
    if counted:
        speed = sum(tokens for tokens, _ in counted) / sum(tokens / speed for tokens, speed in counted)
        rows.append(("training speed", f"{speed:,.0f} tokens/s"))
    if record.world_size is not None:
        device = "" if record.device is None else f" of {plain(record.device)}"
        rows.append(("machine (of the last start)", f"{quantity(record.world_size, 'rank')}{device}"))
    return rows
