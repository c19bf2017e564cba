"""Speed of a training step beside a large matrix product and `transformers`, and what each feature brings to it."""

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.place import Place
from benchmarks.shared import measure as measuring
from benchmarks.shared.examples import draw, open_collator
from benchmarks.shared.systems import DTYPES, System, loss_difference, make_systems, reference_system, variant
from benchmarks.train_step import compare
from common.errors import one_line
from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions
from pipeline.engine.hardware import missing_for_compilation

MODELS = ("albert-base", "albert-xxlarge")
LENGTHS = (128, 512)
PRECISIONS = ("fp16", "bf16")
TOKENS = (32768, 16384, 8192, 4096)
"""Tokens of a micro-batch: the first that both systems have memory for."""
GAINS = {
    "this, masked attention": "kernel",
    "this, one pair a row": "packing",
    "transformers, full blocks": "transformers_blocks",
    "this, chunked loss": "chunked_loss",
    "this, compiled": "compile",
    "this, all": "all",
    "transformers, compiled": "transformers_compiled",
    "transformers, full blocks, compiled": "transformers_blocks_compiled",
}
"""What each variant shows, those that a slow compiler delays last."""
WITH = ("chunked_loss", "compile", "all")
"""The features that a variant has and "this" lacks. Of the others "this" has more, or is another system."""


def measure(place: Place, model: str, length: int, precision: str) -> Iterator[dict[str, Any]]:
    """Rows of results as train_step has them, the speed of the matrix product, and how much faster each feature is.

    Yields all that has been measured after each variant. A variant that fails is named under "failed", and the others
    go on.
    """
    dtype = DTYPES[precision]
    sizes: dict[str, Any] = {"vocab_size": 30000, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    if place.tiny:
        sizes |= {"vocab_size": 500, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
        sizes |= {"num_hidden_layers": 2}
    collator = open_collator(place.shards(length))
    config = AlbertConfig.preset(model, **sizes)
    this, reference = make_systems(config, dtype, place.device)
    assert isinstance(this.model, AlbertForPreTraining)
    labels = {"model": model, "precision": precision, "text": "full rows", "length": length}
    labels |= {"loss_difference": loss_difference(this, reference, draw(collator, 0, 2, place.device))}
    rounds = 1 if place.tiny else 5
    ceiling = partial(measuring.matrix_product_tflops, dtype, place.device, *((0.0, 128) if place.tiny else ()))
    with ThreadPoolExecutor(1) as pool:  # the state is that under load, which lasts for three seconds
        state, product = pool.submit(measuring.gpu_state, 0.0 if place.tiny else 1.5), ceiling()
    result: dict[str, Any] = {
        "measurements": [],
        "matrix_product_tflops": product,
        "copy_gigabytes_per_second": measuring.copy_gigabytes_per_second(place.device, 1 if place.tiny else 1024),
        "state": state.result(),
        "gains": {},
        "failed": {},
    }
    for tokens in (128,) if place.tiny else TOKENS:
        rows = tokens // (64 if place.tiny else length)
        pair = compare([this, reference], collator, rows, rounds, place.device)
        if len(pair) == 2:
            break
    else:
        raise RuntimeError(f"{model} in {precision} beside transformers needs more memory than there is")
    labels["micro_batch"] = rows
    result["measurements"] += [labels | row for row in pair]
    result["gains"]["transformers"] = pair[0]["speedup"]
    yield result
    del reference
    variants = _variants(this.model, place)
    for name in filter(place.takes, variants):
        _free(place)
        if GAINS[name].endswith(("compile", "compiled", "all")) and (problem := missing_for_compilation()):
            result["failed"][name] = problem
            yield result
            continue
        try:
            pair = compare([variants[name](name), this], collator, rows, rounds, place.device)
            if len(pair) < 2:
                raise RuntimeError("it needs more memory than there is")
        except Exception as error:  # of torch, Triton and CUDA; the other variants go on
            result["failed"][name] = one_line(error)
            print(f"{name} failed: {result['failed'][name]}", flush=True)
        else:
            feature = GAINS[name]
            result["gains"][feature] = pair[0]["speedup"] if feature in WITH else 1 / pair[0]["speedup"]
            result["measurements"].append(labels | pair[0])
            # Other load on the machine would make it look slow.
            result["matrix_product_tflops"] = max(result["matrix_product_tflops"], ceiling())
        yield result


def _variants(model: AlbertForPreTraining, place: Place) -> dict[str, Callable[[str], System]]:
    """What makes each variant of a name, by its name."""
    backend = "aot_eager" if place.tiny else "inductor"

    def this(packed: bool = True, **options: Any) -> Callable[[str], System]:
        execution = ExecutionOptions(compile_backend=backend, **options)
        return partial(variant, model=model, execution=execution, packed=packed)

    makers = (
        this(attention="masked"),
        this(packed=False),
        partial(reference_system, model, blocks=True),
        this(chunked_loss=True),
        this(compile=True),
        this(compile=True, chunked_loss=True),
        partial(reference_system, model, compile_backend=backend),
        partial(reference_system, model, blocks=True, compile_backend=backend),
    )
    return dict(zip(GAINS, makers, strict=True))


def _free(place: Place) -> None:
    gc.collect()
    if place.on_gpu:
        torch.cuda.empty_cache()
