"""What the CUDA build of torch can show without a GPU. `test_cuda_wheel.py` runs this file with such a build."""

import torch
from deepspeed.ops.op_builder import FusedAdamBuilder
from torch._subclasses.fake_tensor import FakeTensorMode

from common.errors import UserError
from model import AlbertConfig, AlbertForPreTraining
from model.config import ExecutionOptions
from pipeline.engine.lamb import Lamb
from pipeline.engine.machine import extensions
from pipeline.pretraining import command

B, S, P, M = 2, 64, 3, 8


def forward(kernel: str) -> str:
    """The device and the number type of the loss of fp16 weights on a GPU that is not there."""
    model = AlbertForPreTraining(AlbertConfig.preset("albert-tiny"), ExecutionOptions(attention=kernel))
    shapes = {
        **dict.fromkeys(("input_ids", "token_type_ids", "position_ids", "sequence_ids"), (B, S)),
        **dict.fromkeys(("masked_positions", "masked_labels"), (B, M)),
        **dict.fromkeys(("cls_positions", "sentence_labels"), (B, P)),
    }
    with FakeTensorMode():
        weights = {
            name: torch.empty(parameter.shape, dtype=torch.float16, device="cuda")
            for name, parameter in model.named_parameters()
        }
        batch = {name: torch.zeros(shape, dtype=torch.int64, device="cuda") for name, shape in shapes.items()}
        output = torch.func.functional_call(model, weights, kwargs=batch)
        return f"{output.mlm_loss_sum.device} {output.mlm_loss_sum.dtype}"


def update() -> str:
    """The device of the weights after a step of LAMB."""
    with FakeTensorMode():
        weight = torch.nn.Parameter(torch.empty(8, 8, device="cuda"))
        weight.grad = torch.empty_like(weight)
        Lamb([{"params": [weight], "trust_ratio": True}], lr=0.1).step()
        return str(weight.device)


def build() -> str:
    """What the user reads where an extension of DeepSpeed cannot be built."""
    extensions.watch_builds()
    try:
        FusedAdamBuilder().load()
    except UserError as error:
        return str(error)
    return "built"


if __name__ == "__main__":
    print("torch for CUDA", torch.version.cuda, torch.cuda.is_available(), command.__name__)
    for name in ("masked", "flash"):
        print(name, forward(name))
    print("LAMB", update())
    print("build:", build())
