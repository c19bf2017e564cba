"""Speed of a training step beside a large matrix product and `transformers`, and what each feature brings to it."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import torch

from benchmarks.gpu.place import Place
from benchmarks.shared import measure as measuring
from benchmarks.shared.examples import draw, open_collator
from benchmarks.shared.systems import DTYPES, System, compare, loss_difference, reference_system, this_system
from common.errors import one_line
from model import AlbertConfig, AlbertForPreTraining
from pipeline.engine.hardware import missing_for_compilation

LENGTHS = (128, 512)
TOKENS = (32768, 16384, 8192, 4096)  # tokens of a micro-batch: the first that both systems have memory for


class Variant(NamedTuple):
    """A system beside another.

    Attributes:
        feature: what it shows.
        options: of `this_system` or `reference_system`.
        has: whether it has the feature, and the other lacks it. Otherwise the other is in the numerator.
        beside: the name of the other.
    """

    feature: str
    options: dict[str, Any]
    has: bool = False
    beside: str = "this"


_ALL = {"compile": True, "chunked_loss": True}
_WITH_DROPOUT, _DROPOUT = "this, dropout, all", {"dropout": 0.1}
VARIANTS = {
    "this, masked attention": Variant("kernel", {"attention": "masked"}),
    "this, one pair a row": Variant("packing", {"form": "unpacked"}),
    "this, 16-bit sums": Variant("16_bit_sums", {"bits": 16}, True),
    "transformers, full blocks": Variant("blocks", {"form": "blocks"}),
    "this, chunked loss": Variant("chunked_loss", {"chunked_loss": True}, True),
    "this, compiled": Variant("compile", {"compile": True}, True),
    "this, all": Variant("all", _ALL, True),
    _WITH_DROPOUT: Variant("dropout_all", _ALL | _DROPOUT, True),
    "transformers, dropout": Variant("dropout", _DROPOUT, False, _WITH_DROPOUT),
    "transformers, compiled": Variant("transformers_compiled", {"compile": True}),
    "transformers, full blocks, compiled": Variant("blocks_compiled", {"form": "blocks", "compile": True}),
    "transformers, compiled, dropout": Variant("dropout_compiled", _DROPOUT | {"compile": True}, False, _WITH_DROPOUT),
}
"""By name, those that a slow compiler delays last."""
FEATURES = ("transformers", *(variant.feature for variant in VARIANTS.values()))


def measure(place: Place, model: str, length: int, precision: str) -> Iterator[dict[str, Any]]:
    """The speed of the matrix product, and a row for each system, with the gain of its feature: times as fast.

    Yields all that has been measured after each variant. A variant that fails is named under "failed", and the others
    go on.
    """
    torch.manual_seed(0)
    dtype = DTYPES[precision]
    sizes: dict[str, Any] = {"vocab_size": 30000, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    if place.tiny:
        sizes |= {"vocab_size": 500, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
        sizes |= {"num_hidden_layers": 2}
    collator = open_collator(place.shards(length))
    own = AlbertForPreTraining(AlbertConfig.preset(model, **sizes)).to(device=place.device, dtype=dtype)
    this, reference = System("this", own), reference_system("transformers", own)
    difference = loss_difference(this, reference, draw(collator, 0, 2, place.device))
    ceiling = partial(measuring.matrix_product_tflops, dtype, place.device, *((0.0, 128) if place.tiny else ()))
    with ThreadPoolExecutor(1) as pool:  # the state is that under load, which lasts for three seconds
        state, product = pool.submit(measuring.gpu_state, 0.0 if place.tiny else 1.5), ceiling()
    timed = partial(compare, collator=collator, rounds=1 if place.tiny else 5, device=place.device)
    for tokens in (128,) if place.tiny else TOKENS:
        rows = tokens // (64 if place.tiny else length)
        pair = timed([this, reference], rows=rows)
        if len(pair) == 2:
            break
    else:
        raise RuntimeError(f"{model} in {precision} beside transformers needs more memory than there is")
    del reference
    labels = {"model": model, "length": length, "precision": precision, "micro_batch": rows, "dropout": 0.0}
    pair[1] |= {"feature": "transformers", "gain": pair[0].pop("speedup"), "loss_difference": difference}
    result: dict[str, Any] = {
        "measurements": [labels | row for row in pair],
        "matrix_product_tflops": product,
        "matrix_product_sums": "fp32",
        "copy_gigabytes_per_second": measuring.copy_gigabytes_per_second(place.device, 1 if place.tiny else 1024),
        "state": state.result(),
        "failed": {},
    }
    yield result

    def make(name: str) -> System:
        options = VARIANTS[name].options
        if options.get("compile"):
            if problem := missing_for_compilation():
                raise RuntimeError(problem)
            options = options | {"compile_backend": "aot_eager" if place.tiny else "inductor"}
        return (this_system if name.startswith("this") else reference_system)(name, own, **options)

    for name in filter(place.takes, VARIANTS):
        feature, options, has, beside = VARIANTS[name]
        gc.collect()
        torch.cuda.empty_cache()
        try:
            pair = timed([make(name), this if beside == "this" else make(beside)], rows=rows)
            if len(pair) < 2:
                raise RuntimeError("it needs more memory than there is")
        except Exception as error:  # of torch, Triton and CUDA; the other variants go on
            result["failed"][name] = one_line(error) or repr(error)
            print(f"{name} failed: {result['failed'][name]}", flush=True)
        else:
            speedup = pair[0].pop("speedup")
            gain = {"feature": feature, "gain": speedup if has else 1 / speedup}
            result["measurements"].append(labels | {"dropout": options.get("dropout", 0.0)} | pair[0] | gain)
            # Other load on the machine would make it look slow.
            result["matrix_product_tflops"] = max(result["matrix_product_tflops"], ceiling())
        yield result
