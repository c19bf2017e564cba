"""Factorised embeddings (section 3.1): tables of width E, then one projection to the hidden width H.

The vocabulary costs V * E + E * H parameters instead of V * H. With E = H there is no projection, as in the paper's
code: that is BERT's embedding.

Legend of the shapes: B rows, S positions in a row, E embedding_size, H hidden_size.
"""

import torch
from torch import Tensor, nn

from model.config import AlbertConfig
from model.layers.processor import Dropout, Embedding, LayerNorm, Linear


class FactorisedEmbeddings(nn.Module):
    """Adds word, position and segment embeddings; then LayerNorm and dropout at width E, then the projection to H.

    `transformers` always has the projection. `model.huggingface` writes an identity if this module has none.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        embedding_size = config.embedding_size
        self.word_embeddings = Embedding(config.vocab_size, embedding_size)
        self.position_embeddings = Embedding(config.max_position_embeddings, embedding_size)
        self.token_type_embeddings = Embedding(config.type_vocab_size, embedding_size)
        self.layer_norm = LayerNorm(embedding_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.projection = (
            Linear(embedding_size, config.hidden_size) if config.has_embedding_projection else nn.Identity()
        )

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None) -> Tensor:
        """Embeds int64 `input_ids` (B, S) as (B, S, H).

        Args:
            token_type_ids: int64 (B, S), the segment of each token. None: 0 everywhere.
            position_ids: int64 (B, S). None: each row counts from 0.

        Raises:
            ValueError: `position_ids` is None and a row is longer than max_position_embeddings.
        """
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)  # (B, S)
        if position_ids is None:
            length, limit = input_ids.shape[1], self.position_embeddings.num_embeddings
            if length > limit:
                raise ValueError(f"sequences of {length} tokens exceed max_position_embeddings {limit}; shorten them")
            position_ids = torch.arange(length, device=input_ids.device)  # (S,), broadcast over the rows
        embeddings = self.word_embeddings(input_ids)  # (B, S, E)
        embeddings = embeddings + self.position_embeddings(position_ids)  # (B, S, E)
        embeddings = embeddings + self.token_type_embeddings(token_type_ids)  # (B, S, E)
        embeddings = self.dropout(self.layer_norm(embeddings))  # (B, S, E)
        return self.projection(embeddings)  # (B, S, H)
