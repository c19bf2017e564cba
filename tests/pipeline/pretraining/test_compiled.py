"""Blocks, loss and whole models compile to graphs without a break, which serve all batches of real shards."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd

from benchmarks.shared.examples import batch_of, open_collator
from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions
from model.albert import AlbertModel
from model.classification import AlbertForSequenceClassification, AlbertForTokenClassification
from model.config import ACTIVATION_CHECKPOINTING
from model.distillation import PARTS, AlbertForDistillation
from model.layers import heads
from model.spans import AlbertForQuestionAnswering
from pipeline.data.collate import Collator
from pipeline.data.prefetch import to_device

pytestmark = pytest.mark.slow
COUNTERS = torch._dynamo.utils.counters
CPU = torch.device("cpu")


def config_of(collator: Collator, sharing: str = "all", dropout: float = 0.1) -> AlbertConfig:
    """A small architecture for the shards of `collator`."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "embedding_size": 16}
    sizes |= {"vocab_size": len(collator.continues_word), "max_position_embeddings": collator.shape.sequence_length}
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return AlbertConfig.preset("albert-tiny", parameter_sharing=sharing, **sizes, **dropouts)


def graphs_of(corpus: SimpleNamespace, batches: int, sharing: str = "all", dropout: float = 0.1, **options: Any) -> int:
    """The graphs of a model that trains on batches of shards, with an evaluation of a batch before and after."""
    torch.compiler.reset()
    COUNTERS.clear()
    collator = open_collator(corpus.train)
    execution = ExecutionOptions(compile=True, **options)
    model = AlbertForPreTraining(config_of(collator, sharing, dropout), execution)
    for number in range(batches):
        inputs = to_device(batch_of(collator, number, 2), CPU)
        if number in (0, batches - 1):
            with torch.no_grad():
                assert torch.isfinite(model.eval()(**inputs).mlm_loss_sum)
        output = model.train()(**inputs)
        (output.mlm_loss_sum + output.sentence_loss_sum).backward()
    assert not COUNTERS["graph_break"]
    return COUNTERS["stats"]["unique_graphs"]


def test_inductor_needs_a_graph_for_training_and_one_for_evaluation_in_40_batches(corpus):
    # The block in training, the block in evaluation, and the loss of a chunk in training.
    assert graphs_of(corpus, 40, chunked_loss=True) == 3


def test_a_last_chunk_of_another_length_takes_one_more_graph(corpus, monkeypatch):
    monkeypatch.setattr(heads, "CHUNK", 6)  # the predictions of two rows do not divide by it
    assert graphs_of(corpus, 6, chunked_loss=True, compile_backend="aot_eager") == 4


def test_a_chunk_is_computed_again_by_the_graph_of_its_length(monkeypatch):
    """A GPU pads the logits of a graph by its length: those of another graph are not what the backward pass reads."""
    torch.compiler.reset()
    monkeypatch.setattr(heads, "CHUNK", 6)
    runs = []  # the graph, and the length of the chunk

    def forward_graph(graph, inputs):
        name = f"graph {id(graph)}"

        def run(*given):
            runs.append((name, max(len(one) for one in given if isinstance(one, Tensor) and one.dtype == torch.int64)))
            return graph.forward(*given)

        return make_boxed_func(run)

    backend = aot_autograd(fw_compiler=forward_graph, bw_compiler=lambda graph, _: make_boxed_func(graph.forward))
    execution = ExecutionOptions(compile=True, compile_backend=backend, chunked_loss=True)
    head = heads.MaskedTokenHead(
        AlbertConfig.preset("albert-tiny", initial_attention="random", embedding_size=4), execution
    )
    weight = torch.randn(50, 4, requires_grad=True)
    head.bias = nn.Parameter(torch.zeros(50))
    sums = head(torch.randn(1, 16, head.dense.in_features), weight, torch.arange(16)[None])
    sums.loss.backward()
    assert sorted(length for _, length in runs) == [4, 4, 6, 6, 6, 6]
    assert len({name for name, _ in runs}) == len(set(runs)) == 2


def test_flash_attention_takes_other_offsets_in_each_batch_without_another_graph(corpus, flash_on_processor):
    options = {"attention": "flash", "chunked_loss": True, "compile_backend": "aot_eager"}
    assert graphs_of(corpus, 20, dropout=0.0, **options) == 3


@pytest.mark.parametrize("what", ACTIVATION_CHECKPOINTING)
def test_with_every_option_two_graphs_serve_all_layers_and_batches(corpus, what):
    options = {"activation_checkpointing": what, "compile_backend": "aot_eager"}
    assert graphs_of(corpus, 3, "ffn", **options) == 2


@pytest.mark.parametrize(("keep_contexts", "outputs"), [(False, 1), (True, 2)])
def test_the_backward_pass_of_a_block_reads_a_gradient_of_each_output_that_is_used(corpus, keep_contexts, outputs):
    # A gradient that nothing else makes is zeros (B, S, H) in every layer.
    torch.compiler.reset()
    tangents = []

    def count(graph, inputs):
        tangents.append(sum(node.op == "placeholder" and "tangent" in node.name for node in graph.graph.nodes))
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(graph.forward), bw_compiler=count)
    collator = open_collator(corpus.train)
    model = AlbertModel(config_of(collator), ExecutionOptions(compile=True, compile_backend=backend))
    inputs = to_device(batch_of(collator, 0, 2), CPU)
    names = ("input_ids", "token_type_ids", "position_ids", "sequence_ids")
    output = model(**{name: inputs[name] for name in names}, keep_contexts=keep_contexts)
    sum(one.sum() for one in (output.last_hidden_state, *output.contexts)).backward()
    assert tangents == [outputs]


def model_and_labels(kind: str, collator: Collator, inputs: dict[str, Tensor]) -> tuple[nn.Module, dict[str, Tensor]]:
    """A whole model, and its arguments for a batch of shards: those of pre-training, or labels of a task."""
    config = config_of(collator)
    inputs = {name: value for name, value in inputs.items() if name != "cu_seqlens"}  # other kernels do not read it
    of_pretraining = ("masked_positions", "masked_labels", "sentence_labels")
    plain = {name: value for name, value in inputs.items() if name not in of_pretraining}
    if kind == "pretraining":
        return AlbertForPreTraining(config), inputs
    if kind == "distillation":
        return AlbertForDistillation(config, None, AlbertModel(config), frozenset(PARTS)), inputs
    if kind == "classification":
        return AlbertForSequenceClassification(config, 2), plain | {"labels": inputs["sentence_labels"].flatten()}
    if kind == "tokens":
        return AlbertForTokenClassification(config, 2), plain | {"labels": inputs["token_type_ids"].flatten()}
    starts = torch.zeros(len(inputs["input_ids"]), dtype=torch.int64)  # (B,)
    return AlbertForQuestionAnswering(config), plain | {"start_positions": starts, "end_positions": starts}


@pytest.mark.parametrize("kind", ["pretraining", "distillation", "classification", "tokens", "spans"])
def test_a_whole_model_is_one_graph_for_all_batches_and_can_be_exported(corpus, kind):
    torch.compiler.reset()
    COUNTERS.clear()
    collator = open_collator(corpus.train)
    model, _ = model_and_labels(kind, collator, to_device(batch_of(collator, 0, 2), CPU))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for number in range(6):
            _, arguments = model_and_labels(kind, collator, to_device(batch_of(collator, number, 2), CPU))
            torch.manual_seed(number)
            sums = [part for part in compiled(**arguments) if torch.is_tensor(part) and part.dim() == 0]
            assert all(bool(part.isfinite()) for part in sums)
    assert COUNTERS["stats"]["unique_graphs"] == 1
    assert not COUNTERS["graph_break"]
    exported = torch.export.export(model.eval(), (), kwargs=arguments).module()
    for one, other in zip(*map(torch.utils._pytree.tree_leaves, (exported(**arguments), model(**arguments)))):
        torch.testing.assert_close(one, other)
