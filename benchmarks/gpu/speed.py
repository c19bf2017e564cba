"""Speed of a training step beside a large matrix product and `transformers`, and what each feature brings to it."""

import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers

from benchmarks.gpu.place import Place
from benchmarks.shared import measure as measuring
from benchmarks.shared.examples import draw, open_collator
from benchmarks.shared.systems import System, loss_difference, make_systems, variant
from benchmarks.train_step import compare
from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions
from pipeline.run.attention_choice import DTYPES

MODELS = ("albert-base", "albert-xxlarge")
LENGTHS = (128, 512)
PRECISIONS = ("fp16", "bf16")
TOKENS = (32768, 16384, 8192, 4096)
"""Tokens of a micro-batch: the first that both systems have memory for."""
GAINS = {
    "this, compiled": "compile",
    "this, graphs": "cuda_graphs",
    "this, compiled, graphs": "both",
    "this, masked attention": "kernel",
    "this, one pair a row": "packing",
}
"""What each variant of this model shows. The last two lack a feature that the others have."""
LACKING = ("kernel", "packing")


def measure(place: Place, model: str, length: int, precision: str) -> dict[str, Any]:
    """Rows of results as train_step has them, the speed of the matrix product, and how much faster each feature is."""
    transformers.utils.logging.set_verbosity_error()
    dtype = DTYPES[precision]
    sizes: dict[str, Any] = {"vocab_size": 30000, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    if place.tiny:
        sizes |= {"vocab_size": 500, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
        sizes |= {"num_hidden_layers": 2}
    collator = open_collator(place.shards(length))
    config = AlbertConfig.preset(model, **sizes)
    kernel = place.kernel(config, precision, collator, TOKENS[0] // length)
    with_offsets = kernel == "flash"
    this, reference = make_systems(config, dtype, place.device, compiled=False, attention=kernel)
    assert isinstance(this.model, AlbertForPreTraining)
    labels = {"model": model, "precision": precision, "text": "full rows", "length": length}
    labels |= {"loss_difference": loss_difference(this, reference, draw(collator, 0, 2, place.device))}
    product_size = 128 if place.tiny else None
    rounds, found, gains, products = 1 if place.tiny else 5, [], {}, []
    for tokens in (128,) if place.tiny else TOKENS:
        rows = tokens // (64 if place.tiny else length)
        pair = compare([this, reference], collator, rows, rounds, place.device, with_offsets)
        products.append(measuring.matrix_product_tflops(dtype, place.device, size=product_size))
        if len(pair) == 2:
            break
    else:
        raise RuntimeError(f"{model} in {precision} beside transformers needs more memory than there is")
    found += pair
    gains["transformers"] = pair[0]["speedup"]
    del reference
    for name, make in _variants(this.model, place, kernel):
        _free(place)
        pair = compare([make(), this], collator, rows, rounds, place.device, with_offsets)
        products.append(measuring.matrix_product_tflops(dtype, place.device, size=product_size))
        if len(pair) == 2:
            feature = GAINS[name]
            gains[feature] = 1 / pair[0]["speedup"] if feature in LACKING else pair[0]["speedup"]
            found.append(pair[0])
    return {
        "measurements": [labels | {"micro_batch": rows} | row for row in found],
        "matrix_product_tflops": max(products),  # other load would make it look slow
        "gains": gains,
        "attention_kernels": [kernel],
    }


def _variants(model: AlbertForPreTraining, place: Place, kernel: str) -> Iterator[tuple[str, Callable[[], System]]]:
    """Each variant's name, and what makes it: only two systems have room on a GPU at a time."""
    common: dict[str, Any] = {"compile_backend": "aot_eager" if place.tiny else "inductor", "attention": kernel}
    options = {
        "this, compiled": ExecutionOptions(compile=True, **common),
        "this, graphs": ExecutionOptions(cuda_graphs=True, **common),
        "this, compiled, graphs": ExecutionOptions(compile=True, cuda_graphs=True, **common),
        "this, masked attention": ExecutionOptions(attention="masked"),
        "this, one pair a row": ExecutionOptions(),
    }
    for name, execution in options.items():
        yield name, partial(variant, name, model, execution, packed=name != "this, one pair a row")


def _free(place: Place) -> None:
    gc.collect()
    if place.on_gpu:
        torch.cuda.empty_cache()
