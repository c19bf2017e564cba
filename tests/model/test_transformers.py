"""Equal weights give equal results here and in `transformers`, in fp32."""

import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from model import AlbertConfig, bert, huggingface
from model.classification import AlbertForSequenceClassification
from tests.model.examples import few_examples, gradients, random_ids, randomise

TOLERANCE = 2e-5


def assert_near(actual: Tensor, expected: Tensor, what: str) -> None:
    """Asserts equality to 2e-5 of the largest magnitude, or of 1 if all are smaller."""
    difference = (actual - expected).abs().max().item()
    assert difference <= TOLERANCE * max(1.0, expected.abs().max().item()), f"{what}: {difference}"


def padded_batch(seed: int, lengths: list[int]) -> dict[str, Tensor]:
    """Returns one pair in each row in the format of `transformers`, with labels at about one token in four."""
    rows, longest = len(lengths), max(lengths)
    ids = random_ids(seed, rows, longest)
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
    labels = torch.where((random_ids(seed + 1, rows, longest) % 4 == 0) & (mask == 1), ids, -100)
    labels[0, 1] = 7  # never none at all
    return {
        "input_ids": ids * mask,
        "attention_mask": mask,
        "token_type_ids": (torch.arange(longest) >= 3).long() * mask,
        "labels": labels,
        "sentence_order_label": random_ids(seed + 2, rows) % 2,
    }


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Fields of `transformers.AlbertConfig`: groups, E = H and E != H, both activations."""
    heads = draw(st.integers(1, 3))
    hidden_size = heads * draw(st.sampled_from([4, 8]))
    groups = draw(st.sampled_from([1, 2, 3]))
    return {
        "vocab_size": 50,
        "hidden_size": hidden_size,
        "embedding_size": draw(st.sampled_from([hidden_size, 5])),
        "num_attention_heads": heads,
        "num_hidden_layers": groups + draw(st.integers(0, 3)),
        "num_hidden_groups": groups,
        "intermediate_size": draw(st.sampled_from([7, 32])),
        "hidden_act": draw(st.sampled_from(["gelu_new", "gelu"])),
        "max_position_embeddings": 12,
        "classifier_dropout_prob": 0.0,
        "attn_implementation": "eager",
    }


def check_equal(reference: Any, seed: int, lengths: list[int], sentence_label: str, names: bert.TensorNames) -> Any:
    """Compares logits, losses, hidden states and gradients. Returns the model that was read from the reference."""
    randomise(reference, seed)
    with tempfile.TemporaryDirectory() as directory:
        reference.save_pretrained(directory)
        model = huggingface.load(Path(directory)).eval()
    batch = padded_batch(seed, lengths)
    labels = {"labels": batch.pop("labels"), sentence_label: batch.pop("sentence_order_label")}
    expected = reference(**batch, **labels, output_hidden_states=True)
    expected.loss.backward()
    output = model(**batch, masked_labels=labels["labels"], sentence_labels=labels[sentence_label])
    loss = output.mlm_loss_sum / output.mlm_count + output.sentence_loss_sum / output.sentence_count
    loss.backward()

    assert_near(output.mlm_logits, expected.prediction_logits, "masked-token logits")
    assert_near(output.sentence_logits, expected[2], "sentence logits")
    assert_near(loss, expected.loss, "loss")
    states = model.albert(**batch).hidden_states
    for layer, (state, expected_state) in enumerate(zip(states, expected.hidden_states, strict=True)):
        assert_near(state, expected_state, f"hidden states of layer {layer}")
    expected_gradients = gradients(reference)
    for name, gradient in gradients(model).items():
        assert_near(gradient, expected_gradients.pop(names.of(name)), f"gradient of {name}")
    assert not expected_gradients
    return model


@few_examples
@given(
    fields=configurations(),
    seed=st.integers(0, 10**6),
    lengths=st.lists(st.integers(4, 12), min_size=1, max_size=3),
)
def test_albert_is_albert(fields, seed, lengths):
    reference = transformers.AlbertForPreTraining(transformers.AlbertConfig(**fields)).eval()
    check_equal(reference, seed, lengths, "sentence_order_label", huggingface.NAMES)


@few_examples
@given(seed=st.integers(0, 10**6), hidden_act=st.sampled_from(["gelu_new", "gelu"]), layers=st.integers(1, 3))
def test_the_bert_presets_are_bert(seed, hidden_act, layers):
    """BERT in `transformers` takes the exact GELU by default, the paper's code the tanh one."""
    small = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": layers, "num_attention_heads": 3}
    small |= {"intermediate_size": 32, "hidden_act": hidden_act, "max_position_embeddings": 12}
    reference = transformers.BertForPreTraining(transformers.BertConfig(**small, attn_implementation="eager")).eval()
    model = check_equal(reference, seed, [12, 7], "next_sentence_label", bert.NAMES)
    assert model.config == AlbertConfig.preset("bert-base", embedding_size=24, **small)


def test_fields_that_config_json_leaves_out_have_the_defaults_of_transformers():
    for found, theirs in (
        (bert.from_config({}, {}), transformers.BertConfig()),
        (huggingface.from_config({}, {}), transformers.AlbertConfig()),
    ):
        shared = [name for name in theirs.to_dict() if hasattr(found, name)]
        assert len(shared) > 10
        assert {name: getattr(found, name) for name in shared} == {name: getattr(theirs, name) for name in shared}
    special = [f"{name}_token_id" for name in ("pad", "bos", "eos")]
    fields = huggingface.to_config(found)
    assert [fields[name] for name in special] == [getattr(theirs, name) for name in special]


def test_the_same_draws_of_dropout_train_the_same_model(monkeypatch):
    """Losses and gradients are those of `transformers`, step by step, when both draw the same masks in the same order.

    The three probabilities differ, and come from the configuration of `transformers`.
    """
    monkeypatch.setattr(
        "model.layers.processor._draw_kept",
        lambda shape, probability: functional.dropout(torch.ones(shape), probability).bool().to(torch.uint8),
    )
    dropout = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1, "classifier_dropout": 0.3}
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 32}
    fields = {"vocab_size": 50, "max_position_embeddings": 12, "attn_implementation": "eager", **sizes, **dropout}
    reference = transformers.BertForSequenceClassification(transformers.BertConfig(**fields)).train()
    randomise(reference, 1)
    tensors = reference.state_dict()
    model = AlbertForSequenceClassification(bert.from_config(reference.config.to_dict(), tensors), 2).train()
    model.load_state_dict({name: tensors[bert.NAMES.of(name)].clone() for name in model.state_dict()})
    optimizers = [torch.optim.AdamW(one.parameters(), lr=0.01) for one in (model, reference)]
    inputs = {"input_ids": random_ids(2, 4, 12), "token_type_ids": (torch.arange(12) >= 5).long().expand(4, 12)}

    def loss(one, seed):
        torch.manual_seed(seed)
        return functional.cross_entropy(one(**inputs).logits, torch.tensor([0, 1, 1, 0]))

    assert abs(loss(model, 0) - loss(model, 1)) > 0.01, "the test has lost its power"
    for step in range(5):
        for optimizer in optimizers:
            optimizer.zero_grad()
        found, expected = loss(model, step), loss(reference, step)
        assert_near(found, expected, f"loss of step {step}")
        found.backward()
        expected.backward()
        theirs = gradients(reference)
        for name, gradient in gradients(model).items():
            assert_near(gradient, theirs.pop(bert.NAMES.of(name)), f"gradient of {name} in step {step}")
        assert not theirs
        for optimizer in optimizers:
            optimizer.step()
