"""Checkpoints for and from `transformers`, and in the project's own format."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from model import AlbertForPreTraining, checkpoint, huggingface
from tests.model.examples import random_ids, randomise, tiny_config

WEIGHTS, CONFIG = huggingface.WEIGHTS_FILE, huggingface.CONFIG_FILE

EXPRESSIBLE: dict[str, dict[str, Any]] = {
    "shared": {},
    "E = H": {"embedding_size": 24},
    "E = H with a projection": {"embedding_size": 24, "embedding_projection": True},
    "groups": {"num_hidden_groups": 3},
    "nothing shared": {"parameter_sharing": "none"},
    "BERT": {"parameter_sharing": "none", "embedding_size": 24, "sentence_head": "nsp"},
    "BERT but for its sentence head": {"parameter_sharing": "none", "embedding_size": 24},
    "groups of one layer": {"parameter_sharing": "attention", "num_hidden_groups": 3},
    "attention shared alone": {"parameter_sharing": "attention"},
    "feed-forward network shared alone": {"parameter_sharing": "ffn"},
    "groups that share one part": {"parameter_sharing": "ffn", "num_hidden_layers": 4, "num_hidden_groups": 2},
    "masked tokens only": {"sentence_head": None},
    "exact GELU": {"hidden_act": "gelu"},
}


def make_model(**fields: Any) -> AlbertForPreTraining:
    model = AlbertForPreTraining(tiny_config(**fields)).eval()
    randomise(model, seed=4)
    return model


def assert_same_model(actual: AlbertForPreTraining, expected: AlbertForPreTraining) -> None:
    assert actual.config == expected.config
    assert all(parameter.requires_grad for parameter in actual.parameters())
    state = actual.state_dict()
    assert state.keys() == expected.state_dict().keys()
    for name, tensor in expected.state_dict().items():
        assert torch.equal(state[name], tensor), name


@pytest.mark.parametrize("kind", EXPRESSIBLE)
def test_transformers_and_load_open_what_save_writes(kind, tmp_path):
    model = make_model(**EXPRESSIBLE[kind])
    huggingface.save(model, tmp_path)
    ids, mask = random_ids(0, 2, 12), torch.ones(2, 12, dtype=torch.int64)
    mask[1, 8:] = 0
    output = model(ids, attention_mask=mask)

    headless = model.config.sentence_head is None
    factory = transformers.AutoModelForMaskedLM if headless else transformers.AutoModelForPreTraining
    other, report = factory.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert type(other).__name__ == other.config.architectures[0]
    assert other.config.model_type == ("bert" if kind == "BERT" else "albert")
    assert other.config.pad_token_id == 0
    theirs = other.eval()(ids, attention_mask=mask)
    logits = theirs.logits if headless else theirs.prediction_logits
    torch.testing.assert_close(logits, output.mlm_logits, rtol=1e-4, atol=1e-4)
    if not headless:
        sentence_logits = theirs.seq_relationship_logits if kind == "BERT" else theirs.sop_logits
        torch.testing.assert_close(sentence_logits, output.sentence_logits, rtol=1e-4, atol=1e-4)
    assert_same_model(huggingface.load(tmp_path), model)


def test_half_precision_is_kept_in_the_file_and_read_as_fp32(tmp_path):
    dtype = torch.bfloat16
    model = make_model().to(dtype)
    huggingface.save(model, tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"not even a pickle")  # model.safetensors comes first
    assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {dtype}
    assert transformers.AutoModelForPreTraining.from_pretrained(tmp_path).dtype == dtype
    assert_same_model(huggingface.load(tmp_path), model.float())


def publish(directory: Path, pickled: bool = False) -> AlbertForPreTraining:
    """Writes a checkpoint in the layout of the published albert-base-v2.

    It has a pooler but no sentence head, the tied matrix and bias under their second names too, and a
    constant.
    """
    model = make_model()
    huggingface.save(model, directory)
    tensors = load_file(directory / "model.safetensors")
    del tensors["sop_classifier.classifier.weight"], tensors["sop_classifier.classifier.bias"]
    tensors["predictions.decoder.weight"] = tensors["albert.embeddings.word_embeddings.weight"].clone()
    tensors["predictions.decoder.bias"] = tensors["predictions.bias"].clone()
    tensors["albert.embeddings.position_ids"] = torch.arange(40)[None]
    if pickled:
        del tensors["predictions.bias"]  # older still: under its second name only
        (directory / "model.safetensors").unlink()
        torch.save(tensors, directory / "pytorch_model.bin")
    else:
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    fields = json.loads((directory / "config.json").read_text())
    published = {"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "net_structure_type": 0, "gap_size": 0}
    kept = {name: value for name, value in fields.items() if name not in ("parameter_sharing", "sentence_head")}
    (directory / "config.json").write_text(json.dumps(kept | published))
    return model


@pytest.mark.parametrize("pickled", [False, True])
def test_load_reads_the_published_layout(pickled, tmp_path):
    model = publish(tmp_path, pickled)
    with pytest.warns(UserWarning, match="no sentence head"):
        loaded = huggingface.load(tmp_path)
    assert loaded.config == model.config
    ids = random_ids(0, 2, 12)
    torch.testing.assert_close(loaded.eval()(ids).mlm_logits, model(ids).mlm_logits)
    head = loaded.state_dict()["sentence_head.classifier.weight"]
    assert 0 < head.abs().max() <= 2 * model.config.initializer_range


class _Mischief:
    def __reduce__(self) -> tuple:
        return (print, ("code from a checkpoint was executed",))


@pytest.mark.filterwarnings("ignore")  # torch's, and ours of heads whose names are damaged
def test_nothing_in_a_pickle_is_executed(tmp_path, capsys):
    publish(tmp_path, pickled=True)
    path = tmp_path / "pytorch_model.bin"
    whole = path.read_bytes()
    for damage in (
        lambda: torch.save({"albert.pooler.weight": _Mischief()}, path),
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(whole[: len(whole) // 2]),
        lambda: torch.save([torch.ones(1)], path),
        lambda: torch.save({"albert.pooler.weight": torch.ones(1, device="meta")}, path),
        lambda: torch.save({"model": {"albert.pooler.weight": torch.ones(1)}}, path),
    ):
        damage()
        with pytest.raises(ValueError, match="cannot be read as tensors alone"):
            huggingface.load(tmp_path)
    for place in range(0, 1800, 13):  # in the pickle; the tensors' own bytes have no checksum
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with contextlib.suppress(ValueError):
            huggingface.load(tmp_path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("tensors", "fields", "message"),
    [
        ({"predictions.dense.weight": None}, {}, r"lacks 1 tensors \(mlm_head.dense.weight"),
        ({"classifier.weight": torch.zeros(3)}, {}, r"has, beyond .*, 1 tensors \(classifier.weight"),
        ({"predictions.decoder.weight": torch.zeros(50, 8)}, {}, "predictions.decoder.weight differs"),
        (b"cut", {}, "model.safetensors cannot be read"),
        ({}, {"vocab_size": 51}, r"\(50, 8\), but its configuration says \(51, 8\)"),
        ({}, {"model_type": "roberta"}, "model_type 'roberta'; only 'albert' and 'bert'"),
        ({}, {"model_type": "bert", "is_decoder": True}, "only BERT's encoder can be read"),
        ({}, {"model_type": "bert", "position_embedding_type": "relative_key"}, "only BERT's encoder can be read"),
        ({}, "{", "config.json is no valid JSON"),
        ({}, None, "config.json does not exist"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(tensors, fields, message, tmp_path):
    huggingface.save(make_model(), tmp_path)
    if isinstance(tensors, bytes):
        (tmp_path / WEIGHTS).write_bytes(tensors)
    else:
        changed = {name: one for name, one in (load_file(tmp_path / WEIGHTS) | tensors).items() if one is not None}
        save_file(changed, tmp_path / WEIGHTS)
    content = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps(content | fields) if isinstance(fields, dict) else fields or "")
    if fields is None:
        (tmp_path / CONFIG).unlink()
    with pytest.raises(ValueError, match=message) as error:
        huggingface.load(tmp_path)
    assert "\n" not in str(error.value)


def test_layers_that_another_program_trained_apart_share_nothing_any_more(tmp_path):
    huggingface.save(make_model(parameter_sharing="ffn"), tmp_path)
    other = transformers.AutoModelForPreTraining.from_pretrained(tmp_path)
    with torch.no_grad():
        other.albert.encoder.albert_layer_groups[1].albert_layers[0].ffn.weight += 0.1
    other.save_pretrained(tmp_path)
    loaded, ids = huggingface.load(tmp_path).eval(), random_ids(0, 2, 12)
    assert loaded.config.num_ffn_blocks == 3
    expected = other.eval()(ids).prediction_logits
    torch.testing.assert_close(loaded(ids).mlm_logits, expected, rtol=1e-4, atol=1e-4)


def test_the_own_format_keeps_the_dtype_and_names_damage(tmp_path):
    model = make_model(num_hidden_groups=3, sentence_head=None).to(torch.bfloat16)
    dense = model.mlm_head.dense
    dense.weight = torch.nn.Parameter(dense.weight.detach().T.contiguous().T)  # not contiguous
    checkpoint.save(model, tmp_path)
    assert_same_model(checkpoint.load(tmp_path), model)
    fields = json.loads((tmp_path / "albert.json").read_text())
    (tmp_path / "albert.json").write_text(json.dumps(fields | {"num_hidden_groups": 1}))
    with pytest.raises(ValueError, match=r"has, beyond what its configuration asks for, 32 tensors"):
        checkpoint.load(tmp_path)
