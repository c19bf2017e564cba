"""The loss: the mean over the global batch, which does not depend on how that batch is divided. Metrics from sums."""

import math
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions
from pipeline.data.collate import Collator, blank
from pipeline.data.rng import dropout_seed
from pipeline.pretraining.pretraining_task import LabelCounts, PreTraining, PretrainingSums, entropy
from pipeline.training.training_run import unmonitored
from tests.pipeline.data.test_collate import VOCABULARY, collator, random_shards


def make_model(**execution):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "embedding_size": 16}
    sizes |= {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "initializer_range": 0.2}
    return AlbertForPreTraining(AlbertConfig.preset("albert-tiny", **sizes), ExecutionOptions(**execution))


def tensors(batch):
    return {name: torch.from_numpy(array) for name, array in batch._asdict().items()}


def gradients(model):
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    return found


@pytest.mark.parametrize("attention", ["masked", "sequences"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_empty_rows_have_no_loss_and_gradients_of_zero(attention, dtype):
    model = make_model(attention=attention).to(dtype)
    batch = blank(3, collator(random_shards(count=12)).shape)
    task = PreTraining(SimpleNamespace(), None, None, None)
    assert task.label_counts([batch]) == (0, 0)
    output = model(**tensors(batch))
    loss = task.loss(output, LabelCounts(7.0, 0.0), 2)  # other ranks have labels
    assert loss.item() == 0.0
    assert [value.item() for value in task.sums(output, tensors(batch))] == [0.0] * 8
    loss.backward()
    for name, gradient in gradients(model).items():
        assert not gradient.any(), name  # NaN would be True


def test_ranks_steps_and_seeds_have_dropout_of_their_own():
    seeds = [dropout_seed(*key) for key in np.ndindex(3, 20, 8)]  # seed, step, rank
    assert len(set(seeds)) == len(seeds)
    assert seeds == [dropout_seed(*key) for key in np.ndindex(3, 20, 8)]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_nothing_predicted_is_no_number():
    task = PreTraining(SimpleNamespace(objective="sop"), None, None, None)
    found = task.summarise(PretrainingSums(*[0.0] * 6, tokens=5.0, rows=1.0))
    assert math.isnan(found["mlm_loss"])
    assert "sop_loss" not in found
    assert found["interval_tokens"] == 5


def test_entropy_of_known_distributions():
    assert entropy(torch.tensor([5.0, 5.0, 0.0, 5.0, 5.0])) == pytest.approx(math.log(4))
    assert entropy(torch.tensor([9.0, 0.0])) == 0.0
    half = entropy(torch.tensor([2.0, 1.0, 1.0]))
    assert half == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(4))


def test_the_output_bias_can_begin_at_the_frequencies_of_the_masked_tokens():
    rows = collator(random_shards(count=12))
    read, losses = [], {}
    for start in ("zeros", "frequencies"):
        small = {"initial_attention": "random", "embedding_initializer_range": 1e-3}
        config = AlbertConfig.preset("albert-tiny", vocab_size=VOCABULARY, initial_output_bias=start, **small)
        task = PreTraining(SimpleNamespace(model=config, execution=ExecutionOptions()), None, None, None)
        task.training = SimpleNamespace(
            read=lambda positions: read.append(len(positions)) or rows.read([0] * 12, list(range(12)))
        )
        torch.manual_seed(0)
        model, inputs = task.make_model(), tensors(rows.read([0] * 12, list(range(12))))
        losses[start] = (model(**inputs).mlm_loss_sum / task.label_counts([task.training.read([])]).predictions).item()
    assert read == [0, 8192, 0]
    labels = inputs["masked_labels"][inputs["masked_labels"] >= 0].tolist()
    shares = [labels.count(token) / len(labels) for token in range(VOCABULARY)]
    expected = [math.log(share or 0.5 / len(labels)) for share in shares]
    torch.testing.assert_close(model.mlm_head.bias.detach(), torch.tensor(expected))
    assert losses["zeros"] == pytest.approx(math.log(VOCABULARY), abs=0.01)
    # What the tokens that were not seen get is missing.
    unseen = math.log(sum(math.exp(one) for one in expected))
    assert losses["frequencies"] == pytest.approx(entropy(torch.tensor(shares)) + unseen, abs=0.01)


def test_an_evaluation_reads_its_batches_ahead_in_a_thread(monkeypatch):
    readers = []
    read = Collator.read

    def note_and_read(self, *arguments):
        readers.append(threading.current_thread())
        return read(self, *arguments)

    monkeypatch.setattr(Collator, "read", note_and_read)
    engine, settings = make_model(), SimpleNamespace(engine=SimpleNamespace(micro_batch_size=2))
    task = PreTraining(settings, None, None, None)
    task.control, engine.device = SimpleNamespace(rank=0, world_size=1), torch.device("cpu")
    found = list(task._outputs(engine, collator(random_shards(count=6)), None, unmonitored))
    assert len(found) == len(readers) == 3
    assert threading.main_thread() not in readers
    assert engine.training
