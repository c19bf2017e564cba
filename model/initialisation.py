"""Initial weights: those of the paper, and a start in which some attention heads look at neighbouring tokens.

A model with random weights attends to all tokens alike. It learns the frequencies of the tokens and then stays there
for thousands of steps: the gradients of queries and keys are small until values of single neighbours are useful, and
these are not useful until a head attends to single neighbours. Heads that begin at the neighbours end that plateau
(docs/experiments.md has the measurements).

Legend of the shapes: S positions, E embedding_size, H hidden_size, P units of position.
"""

import math

import torch
from torch import Tensor, nn

from model.config import NEIGHBOURS, AlbertConfig
from model.layers.attention import QueryKeyValue, SelfAttention
from model.layers.embeddings import FactorisedEmbeddings
from model.layers.encoder import SharedEncoder

GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
LOGIT = 12.0
"""The attention logit of the token at a head's offset; it has 98 % of the attention in a pair of 108 tokens."""


def initialise(module: nn.Module, initializer_range: float) -> None:
    """Sets initial weights in place: a normal distribution truncated at two standard deviations; biases 0, LayerNorm 1.

    The paper's code does the same (TensorFlow's truncated normal). The standard deviation after truncation is 0.88
    times `initializer_range`.
    """
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        elif isinstance(part, (nn.Linear, nn.Embedding, QueryKeyValue)):
            for name, parameter in part.named_parameters(recurse=False):
                if name.endswith("weight"):
                    _truncated_normal(parameter, initializer_range)
                else:
                    nn.init.zeros_(parameter)


def _truncated_normal(parameter: Tensor, deviation: float) -> None:
    nn.init.trunc_normal_(parameter, std=deviation, a=-2 * deviation, b=2 * deviation)


def keep_size(linear: nn.Linear) -> None:
    """Sets weights (out, in) in place so that independent inputs of variance v give outputs of variance v."""
    _truncated_normal(linear.weight, 1.0 / (0.88 * math.sqrt(linear.in_features)))


def start_at_frequencies(bias: Tensor, counts: Tensor) -> None:
    """Sets the output bias (V,) in place to the logarithms of the shares of `counts` (V,).

    So the model begins with the loss of one that knows how frequent each token is. An uncounted token has half a count.
    """
    with torch.no_grad():
        bias.copy_((counts.clamp(min=0.5) / counts.sum()).log())


def apply_to_sentence_head(classifier: nn.Linear, config: AlbertConfig) -> None:
    """Changes weights that `initialise` has set as the fields of initial weights ask."""
    if _keeps_size_of_cls(config):
        keep_size(classifier)


def _keeps_size_of_cls(config: AlbertConfig) -> bool:
    """Whether pooler and sentence head keep the size of what they read.

    With the paper's weights, the logits of a narrow model have a few hundredths of the size of the state of [CLS], and
    the gradient of the sentence loss shrinks as much (benchmarks/results/demo_trials.md). Where each layer adds little
    at first, [CLS] is nearly the same for all texts. Then with large weights the noise of the sentence loss saturates
    the pooler before it tells texts apart (docs/experiments.md, "Lost models").
    """
    return config.initial_attention == NEIGHBOURS and config.residual_initializer_range is None


def apply_initial_options(
    embeddings: FactorisedEmbeddings, encoder: SharedEncoder, pooler: nn.Linear | None, config: AlbertConfig
) -> None:
    """Changes weights that `initialise` has set, as the fields `..._initializer_range` and `initial_attention` ask."""
    if config.embedding_initializer_range is not None:
        for table in (embeddings.word_embeddings, embeddings.token_type_embeddings):
            _truncated_normal(table.weight, config.embedding_initializer_range)
    if config.residual_initializer_range is not None:
        for weight in _residual_weights(encoder):
            _truncated_normal(weight, config.residual_initializer_range)
    if config.initial_attention == NEIGHBOURS:
        with torch.no_grad():
            _start_at_neighbours(embeddings, encoder, config)
    if pooler is not None and _keeps_size_of_cls(config):
        keep_size(pooler)


def _residual_weights(encoder: SharedEncoder) -> list[Tensor]:
    """The matrices (H, ...) whose products are added to the input of a block."""
    blocks = [block.get_submodule("dense") for block in encoder.attention]
    blocks += [block.get_submodule("output") for block in encoder.feed_forward]
    return [block.get_parameter("weight") for block in blocks]


def _start_at_neighbours(embeddings: FactorisedEmbeddings, encoder: SharedEncoder, config: AlbertConfig) -> None:
    """Half of the heads of every attention begin at the tokens -1, +1, -2, +2 and so on; the others stay random.

    The last units of the embedding, P, begin with sines and cosines of the position and nothing else. P is a quarter of
    the embedding, or of the model if that is narrower. In all layers these units pass by the projections of attention
    and feed-forward network. A head at offset d turns the query's sines and cosines by d positions, so that the product
    with a key is largest d positions away.
    """
    units = config.position_units  # P
    deviation = config.embedding_initializer_range or config.initializer_range
    for table in (embeddings.word_embeddings, embeddings.token_type_embeddings):
        table.weight[:, -units:] = 0.0  # (V, P), (2, P)
    # P / 2 angles between 0 and pi. Any first ones are spread evenly, and no sum of their cosines repeats.
    frequencies = [math.pi * ((number + 0.5) * GOLDEN_RATIO % 1.0) for number in range(units // 2)]
    positions = embeddings.position_embeddings.weight  # (S, E)
    angles = torch.arange(len(positions))[:, None] * torch.tensor(frequencies)  # (S, P / 2)
    positions.zero_()
    waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (S, P)
    positions[:, -units:] = deviation * math.sqrt(2) * waves
    if isinstance(embeddings.projection, nn.Linear):
        # Words keep their size beside the positions, which pass the projection unchanged.
        keep_size(embeddings.projection)
        embeddings.projection.weight[-units:] = 0.0  # (P, E)
        embeddings.projection.weight[-units:, -units:] = torch.eye(units)  # (P, P)
    # The square of a sine's amplitude after the LayerNorm: word and segment have 0.88 of their range, and add up.
    share = units / config.embedding_size
    square = 2.0 / (share + (1.0 - share) * 2 * 0.88**2)
    for attention in encoder.attention:
        assert isinstance(attention, SelfAttention)
        for head in range(config.num_attention_heads // 2):
            offset = (head // 2 + 1) * (1 if head % 2 else -1)
            _look_at(attention.query_key_value, head, offset, config.head_dim, frequencies, square)
    for weight in _residual_weights(encoder):
        weight[-units:] = 0.0  # (P, ...)


def _look_at(
    projection: QueryKeyValue, head: int, offset: int, head_dim: int, frequencies: list[float], square: float
) -> None:
    """Sets the queries and keys of one head so that it attends to the token `offset` positions away.

    At position p the hidden state has r sin(f p) and r cos(f p) for each frequency f, with r**2 = `square`. The key at
    position k copies them times s. The query at position q has them turned by the offset d: s r sin(f (q + d)) and
    s r cos(f (q + d)). Because sin a sin b + cos a cos b = cos(a - b), the attention logit is

        sum over f of  s**2 r**2 cos(f (q + d - k)) / sqrt(head_dim)

    It is largest at k = q + d, where all cosines are 1. The scale s makes it `LOGIT` there.
    """
    used = min(head_dim // 2, len(frequencies))
    scale = math.sqrt(LOGIT * math.sqrt(head_dim) / (used * square))  # s
    rows = slice(head * head_dim, (head + 1) * head_dim)
    query, key = projection.query_weight[rows], projection.key_weight[rows]  # (D, H)
    query.zero_()
    key.zero_()
    first = query.shape[1] - 2 * len(frequencies)
    for number, frequency in enumerate(frequencies[:used]):
        angle, sine, cosine = offset * frequency, 2 * number, 2 * number + 1
        key[sine, first + sine] = key[cosine, first + cosine] = scale
        # The rotation: sin(a + b) = sin a cos b + cos a sin b; cos(a + b) = cos a cos b - sin a sin b
        query[sine, first + sine] = query[cosine, first + cosine] = scale * math.cos(angle)
        query[sine, first + cosine] = scale * math.sin(angle)
        query[cosine, first + sine] = -scale * math.sin(angle)
