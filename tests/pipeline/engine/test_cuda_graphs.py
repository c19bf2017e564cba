"""Training by CUDA graphs equals training without. A tape that writes to fixed places stands for the graphs."""

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model import AlbertForPreTraining
from model.pretraining import PreTrainingOutput
from pipeline.engine import cuda_graphs
from pipeline.engine.cuda_graphs import Capture
from tests.model.examples import randomise, tiny_config
from tests.model.test_execution_options import BATCH, OTHER
from tests.pipeline.workers import processes
from tests.pipeline.workers.cases import cuda_graph
from tests.pipeline.workers.cases.cuda_graph import Tape


def make_model(capture: Capture | None = None, **fields: object) -> AlbertForPreTraining:
    config = tiny_config(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2, **fields)
    model = AlbertForPreTraining(config)
    model.unused = torch.nn.Linear(3, 1)  # no gradient reaches it, and ZeRO must not wait for one
    randomise(model, seed=5)
    if capture is not None:
        cuda_graphs.install(model, capture)
    return model


def losses(model: AlbertForPreTraining, *batches: dict[str, Tensor]) -> list[PreTrainingOutput]:
    """Forward and backward over micro-batches, whose gradients add up."""
    torch.manual_seed(11)
    found = []
    for batch in batches:
        found.append(model(**batch))
        (found[-1].mlm_loss_sum * 0.5 + found[-1].sentence_loss_sum).backward()
    return found


@pytest.mark.parametrize("sentence_head", ["sop", None])
def test_losses_and_added_gradients_are_those_without_graphs(sentence_head: str | None) -> None:
    plain, graphed = (make_model(tape, sentence_head=sentence_head) for tape in (None, Tape()))
    wanted, found = (losses(model, BATCH, OTHER, BATCH) for model in (plain, graphed))
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
    losses(model, {name: one[:1] for name, one in BATCH.items()})
    assert tape.recorded == 6  # a graph reads the old place


def test_the_graphs_of_other_shapes_are_freed_before_a_capture() -> None:
    graphs: list[weakref.ref[Any]] = []

    def capture(work: Callable[[], Sequence[Tensor]]) -> tuple[Sequence[Tensor], Callable[[], None]]:
        assert [graph() for graph in graphs[:2]] in ([], [None, None]) or len(graphs) == 1
        replay = partial(int)
        graphs.append(weakref.ref(replay))
        return list(work()), replay

    model = make_model(capture)
    model(**BATCH)
    model(**{name: one[:1] for name, one in BATCH.items()})
    assert len(graphs) == 4


def test_where_a_capture_fails_the_passes_run_without_a_graph() -> None:
    def fail(work: object) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    falling_back, plain = make_model(fail), make_model()
    with pytest.warns(UserWarning, match=r"no graph, and training goes on without: operation .* capturing more$"):
        found = losses(falling_back, BATCH, OTHER, BATCH)
    for one, other in zip(found, losses(plain, BATCH, OTHER, BATCH)):
        assert one.mlm_loss_sum == other.mlm_loss_sum
    for one, other in zip(falling_back.parameters(), plain.parameters()):
        assert (one.grad is None) == (other.grad is None)
        assert one.grad is None or torch.equal(one.grad, other.grad)


def test_passes_in_another_order_are_an_error() -> None:
    model = make_model(Tape())
    first, second = model(**BATCH), model(**OTHER)
    second.mlm_loss_sum.backward()
    with pytest.raises(RuntimeError, match="another forward pass"):
        first.mlm_loss_sum.backward()


@pytest.mark.slow
def test_the_hooks_of_zero_get_the_same_gradients(tmp_path: Path) -> None:
    assert processes.run(2, cuda_graph.compare, "fp32", scratch=tmp_path) == {0: [], 1: [], 2: []}
