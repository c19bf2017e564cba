"""The compiled block serves all batches of real shards: no graph break, and no graph after the first ones."""

import pytest
import torch

from benchmarks.shared.examples import batch_of, open_collator
from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions
from model.config import ACTIVATION_CHECKPOINTING
from pipeline.data.prefetch import to_device

pytestmark = pytest.mark.slow
COUNTERS = torch._dynamo.utils.counters


def graphs_of(corpus, batches: int, sharing: str = "all", dropout: float = 0.1, **options) -> int:
    """The graphs of a model that trains on batches of shards, with an evaluation of a batch before and after."""
    torch.compiler.reset()
    COUNTERS.clear()
    collator = open_collator(corpus.train)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "embedding_size": 16}
    sizes |= {"vocab_size": len(collator.continues_word), "max_position_embeddings": collator.shape.sequence_length}
    sizes |= {"parameter_sharing": sharing, "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = AlbertForPreTraining(AlbertConfig.preset("albert-tiny", **sizes), ExecutionOptions(compile=True, **options))
    for number in range(batches):
        inputs = to_device(batch_of(collator, number, 2), torch.device("cpu"))
        if number in (0, batches - 1):
            with torch.no_grad():
                assert torch.isfinite(model.eval()(**inputs).mlm_loss_sum)
        output = model.train()(**inputs)
        (output.mlm_loss_sum + output.sentence_loss_sum).backward()
    assert not COUNTERS["graph_break"]
    return COUNTERS["stats"]["unique_graphs"]


def test_inductor_needs_a_graph_for_training_and_one_for_evaluation_in_200_batches(corpus) -> None:
    assert graphs_of(corpus, 200, chunked_loss=True) == 2


def test_flash_attention_takes_other_offsets_in_each_batch_without_another_graph(
    corpus, flash_on_processor: None
) -> None:
    options = {"attention": "flash", "chunked_loss": True, "compile_backend": "aot_eager"}
    assert graphs_of(corpus, 20, dropout=0.0, **options) <= 2 * 3  # for each number of offsets, of which there are few


@pytest.mark.parametrize("what", ACTIVATION_CHECKPOINTING)
def test_with_every_option_two_graphs_serve_all_layers_and_batches(corpus, what: str) -> None:
    options = {"activation_checkpointing": what, "compile_backend": "aot_eager"}
    assert graphs_of(corpus, 3, "ffn", **options) == 2
