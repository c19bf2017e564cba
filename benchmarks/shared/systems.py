"""The two systems of train_step: the same weights and the same optimizer, each with its own loss computation."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.shared.examples import Examples, Inputs
from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions, huggingface
from model.layers.heads import classification_sums
from pipeline.engine.lamb import Lamb
from pipeline.engine.optimizers import parameter_groups

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
LOSS_SCALE = {torch.float16: 1024.0}
"""Factor of the loss that keeps gradients from underflowing; 1 in other precisions."""


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
        name: such as "this" or "this, compiled"; of the reference, "transformers" is the beginning.
        micro_batches: divides examples into micro-batches, in the form that the model takes.
        loss: the mean loss of one micro-batch.
    """

    name: str
    model: nn.Module
    micro_batches: Callable[[Examples], list[Inputs]]
    loss: Callable[[Inputs], Tensor]
    optimizer: MasterWeights = field(init=False)

    def __post_init__(self) -> None:
        self.optimizer = MasterWeights(self.model)

    def step(self, examples: Examples) -> None:
        """Forward and backward over all pairs, then one update."""
        self.gradients(examples)
        self.optimizer.step()

    def gradients(self, examples: Examples) -> None:
        """Forward and backward over all pairs."""
        micro_batches = self.micro_batches(examples)
        for inputs in micro_batches:
            loss = self.loss(inputs) / len(micro_batches)
            (loss * LOSS_SCALE.get(self.optimizer.weights[0].dtype, 1.0)).backward()


def this_system(name: str, model: AlbertForPreTraining, packed: bool = True) -> System:
    """This project's model on packed rows; or on padded rows of one pair each."""

    def loss(inputs: Inputs) -> Tensor:
        output = model(**inputs)
        return output.mlm_loss_sum / output.mlm_count + output.sentence_loss_sum / output.sentence_count.clamp(min=1)

    return System(name, model, lambda examples: [examples.packed] if packed else examples.unpacked, loss)


def reference_system(
    model: AlbertForPreTraining, name: str = "transformers", blocks: bool = False, compile_backend: str | None = None
) -> System:
    """`transformers.AlbertForPreTraining` with the weights of `model` and its own loss.

    It reads one padded pair a row; or full blocks. With a `compile_backend`, it is compiled.
    """
    import transformers  # only developers have it: see `commands.check_packages`

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    first = next(model.parameters())
    with tempfile.TemporaryDirectory() as directory:
        huggingface.save(model, Path(directory))
        reference = transformers.AlbertForPreTraining.from_pretrained(directory, dtype=first.dtype).to(first.device)
    reference.train()
    forward = torch.compile(reference, backend=compile_backend) if compile_backend else reference

    def micro_batches(examples: Examples) -> list[Inputs]:
        return [examples.blocks] if blocks else examples.padded

    return System(name, reference, micro_batches, lambda inputs: forward(**inputs).loss)


def make_systems(config: AlbertConfig, dtype: torch.dtype, device: torch.device) -> list[System]:
    """This model, and transformers last.

    All have the same random weights, in `dtype` on `device`.
    """
    torch.manual_seed(0)
    model = AlbertForPreTraining(config).to(device=device, dtype=dtype)
    return [this_system("this", model), reference_system(model)]


def variant(name: str, model: AlbertForPreTraining, execution: ExecutionOptions, packed: bool = True) -> System:
    """A copy of `model` that is executed in another way, and reads padded rows unless `packed`."""
    first = next(model.parameters())
    copy = AlbertForPreTraining(model.config, execution).to(device=first.device, dtype=first.dtype)
    copy.load_state_dict(model.state_dict())
    return this_system(name, copy, packed)


@torch.no_grad()
def loss_difference(this: System, reference: System, examples: Examples) -> float:
    """Relative difference of the summed MLM losses of the two systems on the same masked tokens."""
    mine = this.model(**examples.packed).mlm_loss_sum
    theirs = torch.zeros_like(mine)
    for inputs in examples.padded:
        logits = reference.model(**inputs).prediction_logits  # (B, S, V)
        theirs += classification_sums(logits, inputs["labels"]).loss
    return float((mine - theirs).abs() / theirs)
