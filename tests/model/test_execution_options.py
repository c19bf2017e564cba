"""Execution options do not change results: activation checkpointing, compiled blocks."""

import pytest
import torch
from torch import Tensor

from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions
from tests.model.examples import Synchronisations, gradients, kept_bytes, tiny_config
from tests.model.test_packing import make_pair, pack

pytestmark = pytest.mark.slow

BATCH = pack([[make_pair(0, 9, 1), make_pair(2, 5, 0)], [make_pair(4, 12, 1)]], length=20)


def forward_without_memory(config: AlbertConfig, execution: ExecutionOptions, rows: int, length: int, chosen: int):
    """Returns a bf16 model on "meta", and its forward pass on packed rows with `chosen` predictions each."""
    with torch.device("meta"):
        model = AlbertForPreTraining(config, execution).to(torch.bfloat16)
        sizes = dict.fromkeys(("input_ids", "token_type_ids", "position_ids", "sequence_ids"), length)
        sizes |= {"masked_positions": chosen, "masked_labels": chosen, "cls_positions": 4, "sentence_labels": 4}
        batch = {name: torch.zeros(rows, size, dtype=torch.int64) for name, size in sizes.items()}
        batch["cu_seqlens"] = torch.zeros(rows * 5 + 1, dtype=torch.int32)

    def forward() -> Tensor:
        output = model(**batch)
        return output.mlm_loss_sum + output.sentence_loss_sum

    return model, forward


def kept_of_rows(rows: int, what: str) -> int:
    """Returns the bytes that albert-xxlarge saves for the backward pass of `rows` rows of 512 tokens."""
    execution = ExecutionOptions(activation_checkpointing=what, attention="flash")
    model, forward = forward_without_memory(AlbertConfig.preset("albert-xxlarge"), execution, rows, 512, 77)
    return kept_bytes(model, forward)


@pytest.mark.parametrize("what", ["none", "layer"])
def test_flash_attention_is_traced_into_the_compiled_block(what):
    torch.compiler.reset()
    execution = ExecutionOptions(what, compile=True, compile_backend="aot_eager", attention="flash")
    config = tiny_config(attention_probs_dropout_prob=0.1)
    model, forward = forward_without_memory(config, execution, rows=2, length=24, chosen=4)
    forward().backward()
    assert gradients(model)


def test_xxlarge_keeps_little_of_a_row():
    everything, inputs = (kept_of_rows(2, what) - kept_of_rows(1, what) for what in ("none", "layer"))
    block = (everything - inputs) / 12  # what one of the 12 layers keeps beside its input, when it is computed again
    assert 0.8e9 < everything <= 0.85e9
    assert 0.12e9 < inputs + block <= 0.13e9


@pytest.mark.parametrize("what", ["none", "layer"])
def test_forward_and_backward_never_wait_for_the_device(what):
    config = tiny_config(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    model = AlbertForPreTraining(config, ExecutionOptions(activation_checkpointing=what))
    with Synchronisations() as synchronisations:
        output = model(**BATCH)
        (output.mlm_loss_sum / output.mlm_count + output.sentence_loss_sum / output.sentence_count).backward()
    assert synchronisations.found == []
    with Synchronisations() as synchronisations:
        output.mlm_count.item()
    assert synchronisations.found == ["_local_scalar_dense"]
