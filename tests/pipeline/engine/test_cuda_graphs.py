"""Training by CUDA graphs equals training without. A tape that writes to fixed places stands for the graphs."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from model import AlbertForPreTraining
from model.pretraining import PreTrainingOutput
from pipeline.engine import cuda_graphs
from tests.model.examples import randomise, tiny_config
from tests.model.test_execution_options import BATCH, OTHER
from tests.pipeline.workers import processes
from tests.pipeline.workers.cases import cuda_graph
from tests.pipeline.workers.cases.cuda_graph import Broken, Tape


def make_model(recorder: Tape | None = None, **fields: object) -> AlbertForPreTraining:
    config = tiny_config(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2, **fields)
    model = AlbertForPreTraining(config)
    model.unused = torch.nn.Linear(3, 1)  # no gradient reaches it, and ZeRO must not wait for one
    randomise(model, seed=5)
    if recorder is not None:
        cuda_graphs.install(model, recorder)
    return model


def losses(model: AlbertForPreTraining, *batches: dict[str, Tensor]) -> list[PreTrainingOutput]:
    """Forward and backward over micro-batches, whose gradients add up."""
    torch.manual_seed(11)
    found = []
    for batch in batches:
        found.append(model(**batch))
        (found[-1].mlm_loss_sum * 0.5 + found[-1].sentence_loss_sum).backward()
    return found


@pytest.mark.parametrize("recorder", [Tape(), Broken()])
@pytest.mark.parametrize("sentence_head", ["sop", None])
def test_losses_and_added_gradients_are_those_without_graphs(recorder: Tape, sentence_head: str | None) -> None:
    plain = make_model(sentence_head=sentence_head)
    wanted = losses(plain, BATCH, OTHER, BATCH)
    graphed = make_model(recorder, sentence_head=sentence_head)
    if isinstance(recorder, Broken):
        with pytest.warns(UserWarning, match="goes on without: operation not permitted when stream is capturing$"):
            found = losses(graphed, BATCH, OTHER, BATCH)
    else:
        found = losses(graphed, BATCH, OTHER, BATCH)
    for one, other in zip(found, wanted):
        assert one.mlm_loss_sum == other.mlm_loss_sum
        assert one.sentence_loss_sum == other.sentence_loss_sum
    assert torch.equal(found[-1].mlm_logits, wanted[-1].mlm_logits)
    assert found[-1].mlm_correct == wanted[-1].mlm_correct
    for (name, one), other in zip(graphed.named_parameters(), plain.parameters()):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.equal(one.grad, other.grad), name


def test_micro_batches_of_any_content_give_one_graph_and_evaluation_none() -> None:
    tape = Tape()
    model = make_model(tape)
    losses(model, BATCH, OTHER, OTHER)
    assert tape.recorded == 2  # forward and backward
    model.eval()
    assert torch.equal(model(**BATCH).mlm_logits, make_model().eval()(**BATCH).mlm_logits)
    model.train()
    losses(model, {name: one[:1] for name, one in BATCH.items()})
    assert tape.recorded == 4
    parameter = model.albert.embeddings.word_embeddings.weight
    parameter.data = parameter.data.clone()
    losses(model, BATCH)
    assert tape.recorded == 6  # a graph reads the old place


def test_passes_in_another_order_are_an_error() -> None:
    model = make_model(Tape())
    first, second = model(**BATCH), model(**OTHER)
    second.mlm_loss_sum.backward()
    with pytest.raises(RuntimeError, match="another forward pass"):
        first.mlm_loss_sum.backward()


@pytest.mark.slow
def test_the_hooks_of_zero_get_the_same_gradients(tmp_path: Path) -> None:
    """Rank 0 has graphs, and rank 1 could not capture any."""
    assert processes.run(2, cuda_graph.compare, "fp32", scratch=tmp_path) == {0: [], 1: [], 2: []}
