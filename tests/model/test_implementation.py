"""How a model is run never changes what it computes: checkpointed activations, compiled blocks."""

import pytest
import torch
from torch import Tensor

from model import AlbertForPreTraining, Implementation
from tests.model.examples import gradients, randomise, tiny_config
from tests.model.test_packing import make_pair, pack

BATCH = pack([[make_pair(0, 9, 1), make_pair(2, 5, 0)], [make_pair(4, 12, 1)]], length=20)


def losses_and_gradients(
    implementation: Implementation, dropout: float = 0.0, sharing: str = "ffn"
) -> dict[str, Tensor]:
    config = tiny_config(parameter_sharing=sharing, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    model = AlbertForPreTraining(config, implementation)
    randomise(model, seed=5)
    torch.manual_seed(11)
    output = model(**BATCH)
    (output.mlm_loss_sum + output.sentence_loss_sum).backward()
    return {"mlm": output.mlm_loss_sum, "sentence": output.sentence_loss_sum} | gradients(model)


@pytest.mark.parametrize("what", ["layer", "ffn"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_checkpointed_activations_change_nothing(what: str, dropout: float) -> None:
    plain = losses_and_gradients(Implementation(), dropout)
    checkpointed = losses_and_gradients(Implementation(activation_checkpointing=what), dropout)
    for name, value in plain.items():
        assert torch.equal(checkpointed[name], value), name


def saved_bytes(implementation: Implementation) -> int:
    """Bytes of the distinct tensors, parameters apart, that one forward pass keeps for the backward pass."""
    model = AlbertForPreTraining(tiny_config(num_hidden_layers=6), implementation)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in parameters:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(**BATCH)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def test_checkpointing_keeps_less() -> None:
    everything = saved_bytes(Implementation())
    without_ffn = saved_bytes(Implementation(activation_checkpointing="ffn"))
    without_layers = saved_bytes(Implementation(activation_checkpointing="layer"))
    assert without_layers < without_ffn < everything
    assert without_layers < 0.4 * everything


@pytest.mark.parametrize("what", ["none", "layer", "ffn"])
def test_compiled_blocks_change_nothing(what: str) -> None:
    torch.compiler.reset()
    plain = losses_and_gradients(Implementation())
    compiled = losses_and_gradients(
        Implementation(activation_checkpointing=what, compile=True, compile_backend="aot_eager")
    )
    for name, value in plain.items():
        scale = max(1.0, value.abs().max().item())
        torch.testing.assert_close(compiled[name] / scale, value / scale, rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_the_whole_forward_is_one_graph_that_serves_every_batch(sharing: str) -> None:
    torch.compiler.reset()
    graphs = []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]):
        graphs.append(graph)
        return graph.forward

    model = AlbertForPreTraining(tiny_config(parameter_sharing=sharing))
    compiled = torch.compile(model, backend=count, fullgraph=True)
    other = pack([[make_pair(7, 18, 0)], [make_pair(8, 4, 1), make_pair(9, 4, 1)]], length=20)
    for batch in (BATCH, other):
        torch.testing.assert_close(compiled(**batch).mlm_loss_sum, model(**batch).mlm_loss_sum)
    assert len(graphs) == 1


def test_one_compiled_block_serves_every_layer() -> None:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    losses_and_gradients(Implementation(compile=True, compile_backend="aot_eager"), sharing="none")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
