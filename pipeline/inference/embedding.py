"""Sentence embeddings: the mean of the encoder's last layer over the tokens of a text, scaled to length 1."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from data_prep.text.vocabulary import Vocabulary
from model import AlbertModel
from pipeline.data.prefetch import to_device
from pipeline.tasks.kinds.row_packing import EncodedTexts, pack


@torch.no_grad()
def embed(model: AlbertModel, vocabulary: Vocabulary, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
    """The embedding of each text, float32 (N, H), of Euclidean length 1.

    [CLS] and [SEP] count as tokens, as in the library sentence-transformers. A text is cut to the model's positions.

    Args:
        model: in evaluation mode.
        batch_size: texts that are encoded at a time; texts of similar length share a batch.
    """
    device = next(model.parameters()).device
    encoded, room = EncodedTexts(vocabulary, texts), model.config.max_position_embeddings - 2
    found = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
    order = np.argsort(encoded.lengths, kind="stable")[::-1]  # longest first: too little memory shows at once
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        rows, placement = pack([(encoded[index][:room], None) for index in chosen.tolist()])
        hidden = model(**to_device(rows, device)).last_hidden_state  # (B, S, H)
        slots = 1 + int(placement.number.max())  # sequences of a row, at most
        row, number, lengths = (
            torch.from_numpy(column).to(device) for column in (placement.row, placement.number, placement.length)
        )
        sequence_ids = torch.from_numpy(rows.sequence_ids).to(device)  # (B, S), -1 on padding
        is_token = sequence_ids >= 0  # (B, S)
        slot = torch.arange(len(sequence_ids), device=device)[:, None] * slots + sequence_ids  # (B, S)
        sums = hidden.new_zeros(len(sequence_ids) * slots, hidden.shape[-1], dtype=torch.float32)  # (B * P, H)
        sums.index_add_(0, slot[is_token], hidden[is_token].float())
        means = sums[row * slots + number] / lengths[:, None]  # (N, H)
        found[chosen] = torch.nn.functional.normalize(means, dim=-1).cpu().numpy()
    return found
