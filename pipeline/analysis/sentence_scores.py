"""Pseudo-log-likelihoods: how likely a masked language model finds whole sentences (Salazar et al., 2020).

The score of a sentence is the sum over its tokens of log p(token | sentence with the token masked), in nats. So a
sentence of T tokens is read T times, in copies with different masks.

    plain         the token alone is masked. A word of several pieces scores too high: each piece tells the others
    within-word   the later pieces of its word are masked, too (Kauf and Ivanova, 2023). A word ends before a blank

Legend of the shapes: N sentences, T tokens of each without [CLS] and [SEP], B copies of a batch, V vocab_size.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from common.errors import UserError
from common.progress_bar import Progress
from data_prep.text.vocabulary import CLS_ID, MASK_ID, SEP_ID, Vocabulary
from model import AlbertForPreTraining
from pipeline.data.prefetch import prefetch
from pipeline.tasks.kinds.row_packing import EncodedTexts

ScoreKind = Literal["within-word", "plain"]
SCORE_KINDS: tuple[ScoreKind, ...] = get_args(ScoreKind)

TOKENS_IN_BATCH = 8192
"""Of copies that are computed together. All are equally long, so there is no padding, and no attention to leave out."""
MAX_TOKENS_IN_CHUNK = 1 << 23
"""Of copies that are made together."""


class _Chunk(NamedTuple):
    """Sentences of T tokens each, and their copies."""

    sentences: NDArray[np.int64]  # (N,) their numbers
    tokens: NDArray[np.int64]  # (N, T)
    copies: NDArray[np.int32]  # (N, T, T + 2) copy t is for token t


@torch.no_grad()
def score_sentences(
    model: AlbertForPreTraining, vocabulary: Vocabulary, sentences: Sequence[str], kind: ScoreKind
) -> NDArray[np.float64]:
    """The pseudo-log-likelihood of each sentence, float64 (N,). Equal sentences are computed once.

    Args:
        model: in evaluation mode. On a GPU its fp32 matrices are multiplied in TF32.
        vocabulary: of the model.
    Raises:
        UserError: a sentence has no tokens, or more than the model has positions.
    """
    distinct = list(dict.fromkeys(sentences))
    encoded = _encode(vocabulary, distinct, model.config.max_position_embeddings)
    device, scores = next(model.parameters()).device, np.empty(len(distinct))
    with _fast_products(device), Progress("scoring", int(encoded.lengths.sum()), "tokens") as progress:
        for chunk in prefetch(_chunks(encoded, vocabulary, kind)):
            copies = torch.from_numpy(chunk.copies).to(device).flatten(0, 1)  # (N * T, T + 2)
            count, length = chunk.tokens.shape
            labels = torch.from_numpy(chunk.tokens).to(device).flatten()  # (N * T,)
            positions = torch.arange(1, length + 1, device=device).repeat(count)  # (N * T,)
            found, size = [], max(1, TOKENS_IN_BATCH // (length + 2))
            for ids, at, label in zip(*(column.split(size) for column in (copies, positions, labels))):
                logits = model(ids.long(), masked_positions=at[:, None]).mlm_logits  # (B, 1, V)
                found.append(logits[:, 0].float().log_softmax(-1).gather(1, label[:, None]))  # (B, 1)
                progress.update(len(ids))
            # The only time that the host waits for the device.
            scores[chunk.sentences] = torch.cat(found).view(count, length).double().sum(1).cpu().numpy()
    number = {sentence: index for index, sentence in enumerate(distinct)}
    return scores[[number[sentence] for sentence in sentences]]


def _encode(vocabulary: Vocabulary, sentences: Sequence[str], positions: int) -> EncodedTexts:
    """The tokens of sentences. UserError: one has none, or more than `positions` with [CLS] and [SEP]."""
    encoded = EncodedTexts(vocabulary, sentences)
    for index in np.flatnonzero((encoded.lengths == 0) | (encoded.lengths > positions - 2)).tolist():
        count, sentence = int(encoded.lengths[index]), repr(sentences[index][:60])
        if count:
            fault = f"has {count + 2:,} tokens, and the model {positions} positions; shorten it"
        else:
            fault = "has no token; correct it"
        raise UserError(f"the sentence {sentence} {fault}, or remove its pair")
    return encoded


def _chunks(encoded: EncodedTexts, vocabulary: Vocabulary, kind: ScoreKind) -> Iterator[_Chunk]:
    """Yields all sentences, the longest first: too little memory shows at once."""
    starts_word = np.array([spelling.startswith(" ") for spelling in vocabulary.spellings])  # (V,)
    for length in np.unique(encoded.lengths)[::-1].tolist():
        group = np.flatnonzero(encoded.lengths == length)
        step = max(1, MAX_TOKENS_IN_CHUNK // (length * (length + 2)))
        for chosen in np.split(group, range(step, len(group), step)):
            tokens = np.stack([encoded[index] for index in chosen.tolist()]).astype(np.int64)  # (N, T)
            masked = np.eye(length, dtype=np.bool_)  # (T, T) whether copy t masks a token
            if kind == "within-word":
                words = np.cumsum(starts_word[tokens], axis=1)  # (N, T) number of each token's word
                masked = np.triu(words[:, :, None] == words[:, None, :])  # (N, T, T)
            copies = np.empty((len(tokens), length, length + 2), dtype=np.int32)
            copies[:, :, 0], copies[:, :, -1] = CLS_ID, SEP_ID
            copies[:, :, 1:-1] = np.where(masked, MASK_ID, tokens[:, None])
            yield _Chunk(chosen, tokens, copies)


@contextlib.contextmanager
def _fast_products(device: torch.device) -> Iterator[None]:
    """Multiplies fp32 matrices in TF32 on a GPU, which takes a fraction of the time."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
