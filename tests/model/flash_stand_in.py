"""FlashAttention's operator on a processor, by plain products.

It takes the operator's place in torch's dispatcher, so torch differentiates and compiles it as it does the real one.
"""

import torch
from torch import Tensor


def _weights(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """softmax(query key^T scale) of one sequence, (heads, n, n)."""
    return torch.softmax(torch.einsum("qhd,khd->hqk", query, key) * scale, -1)


def _sequences(starts: Tensor) -> list[slice]:
    return [slice(start, end) for start, end in zip(starts.tolist(), starts.tolist()[1:])]


def forward(query, key, value, starts, ends, longest, _, dropout, causal, debug, *, scale, **others):  # type: ignore[no-untyped-def]
    """The operator as documented: it computes each sequence alone, and nothing for empty ones."""
    assert torch.equal(starts, ends)
    assert (causal, debug, dropout) == (False, False, 0.0)
    assert longest >= int(starts.diff().max())
    context = torch.empty_like(query)  # (T, heads, D)
    for part in _sequences(starts):
        context[part] = torch.einsum("hqk,khd->qhd", _weights(query[part], key[part], scale), value[part])
    logsumexp = torch.zeros(query.shape[1], query.shape[0])  # (heads, T), which `backward` computes again
    nothing = torch.zeros((), dtype=torch.uint64)
    return context, logsumexp, torch.zeros(2, dtype=torch.uint64), nothing, query.new_empty(0)


def backward(direction, query, key, value, _, __, starts, *more, scale, **others):  # type: ignore[no-untyped-def]
    """The derivatives by hand: of the product, of the softmax, of the scaled scores."""
    gradients = [torch.empty_like(tensor) for tensor in (query, key, value)]  # (T, heads, D) each
    for part in _sequences(starts):
        weights = _weights(query[part], key[part], scale)  # (heads, n, n)
        of_weights = torch.einsum("qhd,khd->hqk", direction[part], value[part])
        of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
        gradients[0][part] = torch.einsum("hqk,khd->qhd", of_scores, key[part])
        gradients[1][part] = torch.einsum("hqk,qhd->khd", of_scores, query[part])
        gradients[2][part] = torch.einsum("hqk,qhd->khd", weights, direction[part])
    return tuple(gradients)


def install(library: torch.library.Library) -> None:
    """Implements the operator for processors, for as long as `library` lives."""
    library.impl("_flash_attention_forward", forward, "CPU")
    library.impl("_flash_attention_backward", backward, "CPU")
