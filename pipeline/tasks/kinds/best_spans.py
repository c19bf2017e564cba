"""The most probable answers of each window, computed on the device of the span model's logits.

Letters of the shapes: N windows, L positions in the longest window, T starts of a beam, A tokens of the longest answer.
"""

import torch
from torch import Tensor
from torch.nn import functional

from model.spans import SpanOutput

END_BEAM = 5
"""The ends that are kept for each start in the beam of a conditioned model."""


def best_spans(
    output: SpanOutput, startable: Tensor, nbest: int, max_answer_length: int
) -> list[list[tuple[int, int, float]]]:
    """The `nbest` best spans of each window: first and last position in the window, and score, -inf for no span.

    The score of a plain span is the sum of its two logits. The score of a conditioned span is log P(start) +
    log P(end | start). Only the starts of the beam and the best ends of each start are tried.

    Args:
        startable: bool (N, L), the positions at which a span may begin.
        max_answer_length: tokens of the longest span.
    """
    if output.start_beam is None:
        starts, ends, scores = _plain(output, startable, nbest, max_answer_length)
    else:
        starts, ends, scores = _conditioned(output, output.start_beam, startable, nbest, max_answer_length)
    return [list(zip(*of_window)) for of_window in zip(starts.tolist(), ends.tolist(), scores.tolist())]


def _plain(output: SpanOutput, startable: Tensor, nbest: int, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    start = output.start_logits.masked_fill(~startable, -torch.inf)  # (N, L)
    end = functional.pad(output.end_logits, (0, longest - 1), value=-torch.inf)  # (N, L + A - 1)
    scores = start[:, :, None] + end.unfold(1, longest, 1)  # (N, L, A): from each start to each of its A ends
    best, index = scores.flatten(1).topk(min(nbest, scores.shape[1] * longest), dim=-1)
    starts = index // longest
    return starts, starts + index % longest, best


def _conditioned(
    output: SpanOutput, beam: Tensor, startable: Tensor, nbest: int, longest: int
) -> tuple[Tensor, Tensor, Tensor]:
    length = output.start_logits.shape[1]
    start = torch.log_softmax(output.start_logits, dim=-1).masked_fill(~startable, -torch.inf).gather(1, beam)  # (N, T)
    end = torch.log_softmax(output.end_logits, dim=-1)  # (N, T, L)
    distance = torch.arange(length, device=beam.device) - beam[:, :, None]  # (N, T, L)
    end = end.masked_fill((distance < 0) | (distance >= longest), -torch.inf)
    ends, places = end.topk(min(END_BEAM, length), dim=-1)  # (N, T, 5)
    scores = (start[:, :, None] + ends).flatten(1)  # (N, T * 5)
    best, index = scores.topk(min(nbest, scores.shape[1]), dim=-1)
    starts = beam[:, :, None].expand_as(places).flatten(1).gather(1, index)
    return starts, places.flatten(1).gather(1, index), best
