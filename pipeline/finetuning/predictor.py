"""A trained model that answers: of a run, an export, or a published model.

`open_predictor` finds out what the model is. It predicts if it has the head of a task, fills masks if it was
pre-trained, as `transformers` does, and embeds texts in any case. `predict` predicts each example of a split exactly
once, over all ranks of a training.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from common.errors import UserError
from common.files.json_files import Positive, check_as
from common.text import encodable
from data_prep.text.vocabulary import CLS_ID, MASK, MASK_ID, SEP_ID, Vocabulary
from model import AlbertForPreTraining, AlbertModel
from model.albert import ModelWithHead
from pipeline.checkpoint.initial_weights import find_model, load_into, read_initial_weights
from pipeline.checkpoint.pooling import read_pooling
from pipeline.data.prefetch import prefetch, to_device
from pipeline.distributed import progress
from pipeline.distributed.control import ControlGroup
from pipeline.engine.hardware import check_accelerator, check_gpus_are_usable, has_bf16
from pipeline.tasks.files.tables import Table
from pipeline.tasks.kinds.row_packing import EncodedTexts, pack
from pipeline.tasks.own_tasks import task_of_head
from pipeline.tasks.task import Examples, Features, SampleOutput, SpanLimits, Task
from pipeline.training.training_run import Monitor, unmonitored

BATCH_SIZE = 32
TOKENS_IN_BATCH = 8192  # of an evaluation
_REMEDY = "restore it, or name another model"


def batches_of(
    features: Features, rank: int = 0, world_size: int = 1, limit: int = TOKENS_IN_BATCH, by_tokens: bool = True
) -> list[list[int]]:
    """The numbers of the samples in each of this rank's batches. Samples of similar length share a batch.

    The batches of all ranks together hold each sample once. All ranks get the same number of batches, because a forward
    pass under ZeRO-3 is collective; the last batch may be empty. A batch has at most `limit` tokens, or samples if not
    `by_tokens`; one longer sample is a batch of its own.
    """
    order = np.argsort(features.lengths, kind="stable")[::-1]  # longest first: too little memory shows at once
    ends = np.cumsum(features.lengths[order] if by_tokens else np.ones_like(order))
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        batches.append(order[start:end].tolist())
        start = end
    batches += [[] for _ in range(-len(batches) % world_size)]
    return batches[rank::world_size]


def predict(
    model: nn.Module, features: Features, control: ControlGroup, device: torch.device, wrap: Monitor = unmonitored
) -> Any | None:
    """The predictions of a model or engine on rank 0, None on others. Leaves it in evaluation mode. Collective."""
    batches = batches_of(features, control.rank, control.world_size)
    gathered = control.gather(outputs_of(model, features, device, batches, wrap))
    if gathered is None:
        return None
    with progress.get_progress().during("scoring"):
        return features.predictions({sample: result for part in gathered for sample, result in part.items()})


@torch.no_grad()
def outputs_of(
    model: nn.Module,
    features: Features,
    device: torch.device,
    batches: Sequence[list[int]],
    wrap: Monitor = unmonitored,
) -> dict[int, SampleOutput]:
    """The output of a model or an engine for each sample in `batches`, by number. Leaves it in evaluation mode."""
    model.eval()
    made = ((samples, features.batch(samples, training=False)) for samples in batches)
    outputs: dict[int, SampleOutput] = {}
    for samples, batch in wrap(prefetch(made), len(batches)):
        output = model(**to_device(batch, device))
        outputs.update(zip(samples, features.decode(samples, batch, output)))
    return outputs


class Fill(NamedTuple):
    """A piece in the place of a mask, with its marks; its probability; and the piece as people write it."""

    piece: str
    probability: float
    text: str


def encode(vocabulary: Vocabulary, text: str) -> list[int]:
    """The ids of a text with [CLS], [SEP] and masks, which include the space before them. UserError: it has no mask."""
    if MASK not in text:
        raise UserError(f"the text {text!r} has no {MASK}; write it where a word is to be found")
    return [CLS_ID, *vocabulary.encode_for_use(text), SEP_ID]


@torch.no_grad()
def fill(model: AlbertForPreTraining, vocabulary: Vocabulary, text: str, top_k: int) -> list[list[Fill]]:
    """The `top_k` most likely pieces in the place of each mask of `text`, the most likely first.

    Raises UserError if the text has no mask, or more tokens than the model has positions.
    """
    ids = encode(vocabulary, text)
    positions = model.config.max_position_embeddings
    if len(ids) > positions:
        raise UserError(f"a text has {len(ids)} tokens, and the model {positions} positions; shorten {text[:40]!r}")
    input_ids = torch.tensor([ids], device=next(model.parameters()).device)  # (1, S)
    masks = (input_ids[0] == MASK_ID).nonzero().T  # (1, M)
    logits = model(input_ids, masked_positions=masks).mlm_logits  # (1, M, V)
    best = torch.softmax(logits[0].float(), dim=-1).topk(min(top_k, len(vocabulary)), dim=-1)  # (M, K) each
    return [
        [
            # The mark of a word's start stays if the piece is nothing else.
            Fill(shown := vocabulary.pieces[piece], probability, vocabulary.spellings[piece].strip() or shown)
            for piece, probability in zip(pieces, of_mask)
        ]
        for pieces, of_mask in zip(best.indices.tolist(), best.values.tolist())
    ]


@dataclass(frozen=True)
class _Limits(SpanLimits):
    """What decides how examples become inputs, from the hyperparameters of a run."""

    max_length: Positive = field(default=512, kw_only=True)


@dataclass(frozen=True, repr=False)
class Predictor:
    """A trained model on its device, in evaluation mode; `open_predictor` makes one.

    Attributes:
        source: where it was read, for messages.
        place: its directory.
        task: what the outputs of its head mean; None if it has no head of a task.
        limits: of the sequences that examples become.
        may_pair: whether nothing says that its examples are single texts: a published classifier may have read pairs.
        cut: one number, how many examples so far were longer than the model reads.
    """

    source: Path
    place: Path
    task: Task | None
    model: ModelWithHead | AlbertModel
    vocabulary: Vocabulary
    limits: _Limits
    may_pair: bool = False
    cut: list[int] = field(default_factory=lambda: [0], compare=False)

    def __repr__(self) -> str:
        config, task = self.model.config, "no task" if self.task is None else self.task.name
        return f"Model({str(self.source)!r}: {config.num_hidden_layers} layers of {config.hidden_size}, {task})"

    def answer(self, examples: Examples, batch_size: int = BATCH_SIZE) -> dict[str, dict[str, Any]]:
        """The prediction of each example by its id, see `Kind.records`. Raises UserError if there is no task."""
        task = self.require_task()
        length = min(self.limits.max_length, self.model.config.max_position_embeddings)
        features = task.kind.make_features(task, self.vocabulary, examples, length, self.limits)
        self.cut[0] += features.cut
        batches = batches_of(features, limit=batch_size, by_tokens=False)
        outputs = outputs_of(self.model, features, self._device, batches)
        return task.kind.records(task, features.predictions(outputs))

    def predict(
        self, texts: Sequence[str | tuple[str, str] | Mapping[str, Any]], batch_size: int = BATCH_SIZE
    ) -> list[dict[str, Any]]:
        """The prediction of each text, with the columns that `pipeline.predict` writes, such as "label" and its score.

        `texts` are texts, pairs of texts if the task has them, or rows with the columns of the training. Raises
        UserError: the model has no task, or a row lacks a column.
        """
        task = self.require_task()
        columns = task.input_columns
        assert columns is not None
        given = _list(texts, (str, tuple, list, Mapping))
        if self.may_pair and any(
            "text_pair" in text if isinstance(text, Mapping) else len(text) == 2 and not isinstance(text, str)
            for text in given
        ):
            columns = replace(columns, second_text="text_pair")
        of_texts = [name for name in (columns.text, columns.second_text) if name is not None]
        rows: list[dict[str, Any]] = []
        for text in given:
            values = [text] if isinstance(text, str) else text
            if not isinstance(text, Mapping) and len(values) > len(of_texts):
                raise UserError(f"{text!r:.60} has {len(values)} texts, and the task {len(of_texts)}; give as many")
            rows.append(dict(text) if isinstance(text, Mapping) else dict(zip(of_texts, values)))
        if not rows:
            return []
        names = tuple(dict.fromkeys(name for row in rows for name in row))
        table = Table("the input", names, rows, range(len(rows)), "row")
        examples = task.kind.read_examples(table, columns, task.labels, "ignored")
        by_id = self.answer(examples, batch_size)
        return [by_id[example.id] for example in examples]

    def fill_mask(self, texts: Sequence[str], top_k: int = 5) -> list[list[list[Fill]]]:
        """The most likely pieces for each [MASK] of each text, the most likely first.

        Raises UserError if the model was not trained for it.
        """
        if top_k < 1:
            raise UserError(f"top_k is {top_k}; give at least 1")
        texts, model = _list(texts), self.require_pretrained("to fill a [MASK]")
        return [fill(model, self.vocabulary, text, top_k) for text in texts]

    @torch.no_grad()
    def embed(self, texts: Sequence[str], batch_size: int = BATCH_SIZE) -> NDArray[np.float32]:
        """The embedding of each text, float32 (N, H).

        It is of Euclidean length 1, unless the model's files for sentence-transformers say otherwise. [CLS] and [SEP]
        count as tokens, as there. A text is cut to the model's positions. Texts of similar length share a batch.
        """
        model = self.model.albert if isinstance(self.model, ModelWithHead) else self.model
        pooling, positions = read_pooling(self.place), model.config.max_position_embeddings
        room = max(0, min(pooling.max_length or positions, positions) - 2)
        texts = [text.lower() for text in _list(texts)] if pooling.lowercase else _list(texts)
        encoded = EncodedTexts(self.vocabulary, texts)
        self.cut[0] += int((encoded.lengths > room).sum())
        embeddings = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
        order = np.argsort(encoded.lengths, kind="stable")[::-1]  # longest first: too little memory shows at once
        size = max(1, batch_size)  # as in `batches_of`, a batch has one text at least
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            rows, placement = pack([(encoded[index][:room], None) for index in chosen.tolist()])
            hidden = model(**to_device(rows, self._device)).last_hidden_state  # (B, S, H)
            if pooling.mode == "cls":
                vectors = hidden[torch.from_numpy(placement.row), torch.from_numpy(placement.start)].float()  # (N, H)
            else:
                tokens = hidden[torch.from_numpy(rows.sequence_ids >= 0)].float()  # (T, H), row after row
                in_rows = torch.from_numpy(np.lexsort((placement.number, placement.row)))  # (N,)
                lengths = torch.from_numpy(placement.length)[in_rows].to(self._device)  # (N,)
                vectors = tokens.new_empty(len(chosen), hidden.shape[-1])  # (N, H)
                vectors[in_rows] = torch.segment_reduce(tokens, pooling.mode, lengths=lengths, axis=0)
            if pooling.normalizes:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
            embeddings[chosen] = vectors.cpu().numpy()
        return embeddings

    def require_task(self) -> Task:
        """The task. Raises UserError if there is none."""
        if self.task is None:
            remedy = "name a fine-tuned model, or fine-tune this one by pipeline.finetune --init"
            raise UserError(f"{self.source} is not fine-tuned on a task; {remedy}")
        return self.task

    def require_pretrained(self, purpose: str) -> AlbertForPreTraining:
        """The model, if it predicts masked tokens. Otherwise raises UserError; `purpose` says what they are for."""
        if not isinstance(self.model, AlbertForPreTraining):
            what = f"is fine-tuned on {self.task.name}" if self.task else "has no head for masked tokens"
            raise UserError(f"{self.source} {what}; {purpose}, name a pre-trained model")
        return self.model

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def _list(texts: Sequence[Any], kinds: tuple[type, ...] = (str,)) -> list[Any]:
    """The texts; half an emoji in them becomes U+FFFD. Raises UserError unless each is of one of these types."""
    if isinstance(texts, str | Mapping):
        raise UserError("give a list of texts, also for one text")
    texts = list(texts)  # of a generator, too
    for text in texts:
        if not isinstance(text, kinds):
            raise UserError(f"{text!r:.60} is no text; give a list of texts")
    return [encodable(text) if isinstance(text, str) else text for text in texts]


def open_predictor(source: Path, flag: str = "--run") -> Predictor:
    """Opens a model for predictions, on the GPU if there is one and DS_ACCELERATOR is not cpu.

    A run computes in the precision of its training as far as the device can, everything else in fp32. Raises UserError:
    there is no model, it is damaged, or torch cannot use the GPU.

    Args:
        source: the --output of a run (the newest checkpoint of a pre-training, the end of a fine-tuning), an export, a
            published ALBERT or BERT, or its name on the hub (OWNER/NAME).
        flag: that names it, for messages.
    """
    check_accelerator()
    check_gpus_are_usable()
    place = find_model(source, flag)
    weights = read_initial_weights(place, flag)
    settings, task = weights.head.fine_tuning, task_of_head(weights.head, place)
    model: ModelWithHead | AlbertModel
    with torch.device("meta"):
        if task is not None:
            model = task.kind.make_model(task, weights.config)
        elif "mlm_head.bias" in weights.tensors:
            model = AlbertForPreTraining(weights.config)
        else:
            model = AlbertModel(weights.config, add_pooling_layer=False)
    prefix, tensors = "" if isinstance(model, ModelWithHead) else "albert.", weights.tensors
    names = [name for name in model.state_dict() if f"{prefix}{name}" in tensors]
    load_into(model, {name: tensors[f"{prefix}{name}"] for name in names}, place)
    limits = check_as(settings.hyperparameters if settings else {}, _Limits, place, _REMEDY, extra="ignore")
    on_gpu = os.environ.get("DS_ACCELERATOR") != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    dtype = _dtype(settings.precision if settings is not None and task is not None else None, device)
    columns = None if settings is not None or task is None else task.columns
    may_pair = columns is not None and columns.second_text is None and task is not None and task.kind.has_second_text
    return Predictor(source, place, task, model.to(device, dtype), weights.vocabulary, limits, may_pair)


def _dtype(precision: str | None, device: torch.device) -> torch.dtype:
    """The dtype in which the run evaluated, as far as the device computes in it."""
    if precision == "bf16" and has_bf16(device.type):
        return torch.bfloat16
    return torch.float16 if precision == "fp16" and device.type == "cuda" else torch.float32
