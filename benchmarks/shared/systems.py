"""This model and that of `transformers`: the same weights and optimizer, each with its own loss; and their speed."""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.shared import measure
from benchmarks.shared.examples import Examples, Inputs, draw
from model import AlbertForPreTraining, ExecutionOptions, huggingface
from model.counts import model_flops
from model.layers.heads import classification_sums
from pipeline.data.collate import Collator
from pipeline.engine.hardware import sum_products_in_fp32
from pipeline.engine.lamb import Lamb
from pipeline.engine.optimizers import parameter_groups

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
LOSS_SCALE = {torch.float16: 1024.0}  # factor of the loss that keeps gradients from underflowing; 1 in other precisions


class MasterWeights:
    """LAMB on fp32 copies of a model's weights, as DeepSpeed does in 16 bits; in fp32 on the weights themselves."""

    def __init__(self, model: nn.Module) -> None:
        self.weights: list[Tensor] = list(model.parameters())
        copies = {id(weight): nn.Parameter(weight.detach().float()) for weight in self.weights}
        groups = parameter_groups(model)
        if self.weights[0].dtype != torch.float32:
            groups = [{**group, "params": [copies[id(weight)] for weight in group["params"]]} for group in groups]
        self.masters: list[Tensor] = [copies[id(weight)] for weight in self.weights]
        self.lamb = Lamb(groups, lr=1e-4)

    @torch.no_grad()
    def step(self) -> None:
        """Updates the weights with the model's gradients, and drops the gradients."""
        dtype = self.weights[0].dtype
        if dtype == torch.float32:
            self.lamb.step()
        else:
            for weight, master in zip(self.weights, self.masters):
                assert weight.grad is not None
                master.grad = weight.grad.float() / LOSS_SCALE.get(dtype, 1.0)
            self.lamb.step()
            torch._foreach_copy_(self.weights, self.masters)
        for weight in (*self.weights, *self.masters):
            weight.grad = None


@dataclass
class System:
    """A model that can make training steps.

    Attributes:
        name: of the system.
        model: this project's, or that of `transformers`.
        form: of the examples that it reads.
        forward: the compiled model; None: it is not compiled.
        bits: in which a GPU adds up the parts of a product, at least: 32 as in training, 16 as torch lets it.
    """

    name: str
    model: nn.Module
    form: str = "packed"
    forward: Callable[..., Any] | None = None
    bits: int = 32

    def __post_init__(self) -> None:
        self.optimizer = MasterWeights(self.model)

    def step(self, examples: Examples) -> None:
        """Forward and backward over all pairs, then one update."""
        sum_products_in_fp32(self.bits == 32)
        micro_batches = examples.forms[self.form]
        for inputs in micro_batches:
            loss = self.loss(inputs) / len(micro_batches)
            (loss * LOSS_SCALE.get(self.optimizer.weights[0].dtype, 1.0)).backward()
        self.optimizer.step()

    def loss(self, inputs: Inputs) -> Tensor:
        """The mean loss of one micro-batch, ()."""
        output = (self.model if self.forward is None else self.forward)(**inputs)
        if not isinstance(self.model, AlbertForPreTraining):
            return output.loss
        return output.mlm_loss_sum / output.mlm_count + output.sentence_loss_sum / output.sentence_count.clamp(min=1)


def _dropout(rate: float) -> dict[str, Any]:
    return {f"{place}_dropout_prob": rate for place in ("hidden", "attention_probs", "classifier")}


def this_system(
    name: str, model: AlbertForPreTraining, form: str = "packed", bits: int = 32, dropout: float = 0.0, **options: Any
) -> System:
    """A copy of `model` with this rate of dropout, executed with these `ExecutionOptions`."""
    first, config = next(model.parameters()), replace(model.config, **_dropout(dropout))
    copy = AlbertForPreTraining(config, ExecutionOptions(**options)).to(device=first.device, dtype=first.dtype)
    copy.load_state_dict(model.state_dict())
    return System(name, copy, form, bits=bits)


def reference_system(
    name: str, model: AlbertForPreTraining, form: str = "padded", dropout: float = 0.0, **options: Any
) -> System:
    """`transformers.AlbertForPreTraining` with the weights of `model`, its own loss, and this rate of dropout.

    It has no dropout after the feed-forward network. Of the `ExecutionOptions` those of the compiler count.
    """
    import transformers  # only developers have it: see `commands.check_packages`

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    first = next(model.parameters())
    with tempfile.TemporaryDirectory() as directory:
        huggingface.save(model, Path(directory))
        opened = transformers.AlbertForPreTraining.from_pretrained(directory, dtype=first.dtype, **_dropout(dropout))
    reference, execution = opened.to(first.device).train(), ExecutionOptions(**options)
    compiled = torch.compile(reference, backend=execution.compile_backend) if execution.compile else None
    return System(name, reference, form, compiled)


@torch.no_grad()
def loss_difference(this: System, reference: System, examples: Examples) -> float:
    """Relative difference of the summed MLM losses of the two systems on the same masked tokens."""
    mine = this.model(**examples.forms["packed"][0]).mlm_loss_sum
    theirs = torch.zeros_like(mine)
    for inputs in examples.forms["padded"]:
        logits = reference.model(**inputs).prediction_logits  # (B, S, V)
        theirs += classification_sums(logits, inputs["labels"]).loss
    return float((mine - theirs).abs() / theirs)


def compare(
    systems: Sequence[System], collator: Collator, rows: int, rounds: int, device: torch.device
) -> list[dict[str, Any]]:
    """Seconds, speed and memory of a step with `rows` packed rows, for each system that has memory for it.

    The systems take turns. `speedup` of the first is that over the last.
    """
    torch.compiler.reset()  # each size has its own graph, as in a training run
    examples = [draw(collator, number, rows, device) for number in range(rounds + 1)]
    fitting = [system for system in systems if _fits(system, examples if device.type == "cuda" else examples[-1:])]
    turns = [
        measure.alternate([partial(system.step, examples[number]) for system in fitting], number, device)
        for number in range(rounds)
    ]
    results = []
    for system, seconds in zip(fitting, zip(*turns)):
        row: dict[str, Any] = {
            "system": system.name,
            "tokens_per_second": statistics.median(one.tokens / second for one, second in zip(examples, seconds)),
            "pairs_per_row": statistics.mean(one.pairs for one in examples) / rows,
            "memory_mib": _memory(system, examples[0], device) / 2**20,
        }
        if isinstance(system.model, AlbertForPreTraining):  # what the other one computes is another sum
            offsets = [one.forms["packed"][0]["cu_seqlens"].diff() for one in examples]
            squares = statistics.mean(float(lengths.square().sum()) for lengths in offsets) / rows
            row["rows_per_second"] = rows / statistics.median(seconds)
            for name, attention in (("tflops", None), ("packed_tflops", squares)):
                shape = collator.shape
                flops = model_flops(system.model.config, shape.sequence_length, shape.predictions, attention)
                row[name] = row["rows_per_second"] * flops / 1e12
        results.append(row)
    if len(results) == len(systems):
        results[0]["speedup"] = statistics.median(last / first for first, *_, last in turns)
    return results


def _fits(system: System, batches: Sequence[Examples]) -> bool:
    """Makes a step with each batch, which also warms up, compiles and captures. False if memory is too small."""
    try:
        for examples in batches:
            system.step(examples)
        return True
    except torch.OutOfMemoryError:
        pass
    # Outside of the except block: the exception, which holds the step's tensors, is gone only here.
    for weight in (*system.optimizer.weights, *system.optimizer.masters):
        weight.grad = None
    torch.cuda.empty_cache()
    return False


def _memory(system: System, examples: Examples, device: torch.device) -> int:
    """Bytes of one micro-batch: on a GPU the peak of a step, on a CPU what is saved for the backward pass."""
    if device.type == "cuda":
        return measure.peak_bytes(partial(system.step, examples), device)
    return measure.saved_bytes(system.model, partial(system.loss, examples.forms[system.form][0]))
