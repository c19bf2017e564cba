"""The Python API: mistakes in arguments, and shards in other training loops.

`tests/packaging/test_installation.py` runs the code of docs/python.md.
"""

import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import DataLoader

import albert_pretraining as albert
from albert_pretraining import api
from data_prep.format.shards import open_shards
from data_prep.text.tokenizer_json import tokenizer_files
from model import AlbertConfig, AlbertForPreTraining, huggingface
from pipeline.data.collate import Batch, BatchShape, Collator
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import corpus_seed


def test_the_names_are_shown():
    assert set(dir(albert)) == set(albert.__all__)


def test_wrong_arguments_are_one_line(corpus, tmp_path):
    for name, value in (("layout", "rows"), ("objective", "nps")):
        with pytest.raises(albert.UserError, match=f"^{name} is '{value}'; give one of "):
            albert.Shards(corpus.train, **{name: value})
    for name, value in (("mask_probability", 15), ("seed", -1), ("seed", 2**64), ("epoch", -1), ("epoch", 2**64)):
        with pytest.raises(albert.UserError, match=f"^{name} is {value}; give "):
            albert.Shards(corpus.train, **{name: value})
    vocabulary = albert.Shards(corpus.train).vocabulary
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "embedding_size": 16}
    config = AlbertConfig(num_hidden_layers=1, vocab_size=len(vocabulary), **sizes)
    model = api.Model(tmp_path, tmp_path, None, AlbertForPreTraining(config).eval(), vocabulary, None)
    assert repr(model) == f"Model({str(tmp_path)!r}: 1 layers of 32, no task)"
    for texts in ([3], [None], "one", {"text": "a"}):
        with pytest.raises(albert.UserError, match="list of texts"):
            model.embed(texts)
    assert (model.embed(["half \ud83d"]) == model.embed(["half \ufffd"])).all(), "of an emoji, as JSON can have it"
    with pytest.raises(albert.UserError, match="top_k is 0; give at least 1"):
        model.fill_mask(["a [MASK]"], top_k=0)


def test_shards_have_the_rows_of_a_run_in_any_order(corpus):
    shards = albert.Shards(corpus.train, seed=3, epoch=1)
    sets, masking = open_shards(corpus.train), MaskingSettings()
    shape, continues = BatchShape.of(sets, masking=masking), shards.vocabulary.continues_word
    collator = Collator(sets, shape, continues, "sop", corpus_seed(0, 3), masking)
    assert len(shards) == len(sets)
    for epoch in (1, 2):
        shards.set_epoch(epoch)
        (batch,) = DataLoader(shards, batch_size=5, sampler=[4, 0, 9, 2, 7], num_workers=1)
        expected = collator.read([epoch] * 5, [4, 0, 9, 2, 7])
        assert tuple(batch) == Batch._fields
        for field, name in zip(expected, batch):
            np.testing.assert_array_equal(batch[name], field)
    with pytest.raises(IndexError):
        shards[len(shards)]


def test_a_masked_language_model_of_transformers_has_our_loss(corpus, tmp_path):
    torch.manual_seed(0)
    vocabulary = albert.Shards(corpus.train).vocabulary
    model = AlbertForPreTraining(AlbertConfig.preset("albert-tiny", vocab_size=len(vocabulary))).eval()
    huggingface.save(model, tmp_path / "export", tokenizer_files(vocabulary, model.config.max_position_embeddings))
    theirs = transformers.AlbertForMaskedLM.from_pretrained(tmp_path / "export").eval()
    pairs = np.array([len(row.documents) for row in open_shards(corpus.train)])
    rows = [*np.flatnonzero(pairs > 1)[:4].tolist(), *np.flatnonzero(pairs == 1)[:4].tolist()]
    ours, other = (
        next(iter(DataLoader(albert.Shards(corpus.train, layout=layout), batch_size=8, sampler=rows)))
        for layout in ("packed", "masked_lm")
    )
    assert int(ours["sequence_ids"].max()) > 0  # a row of several pairs
    with torch.no_grad():
        output = model(**ours)
        loss = theirs(**other).loss
    assert (other["labels"] != -100).sum() == output.mlm_count
    assert loss.item() == pytest.approx((output.mlm_loss_sum / output.mlm_count).item(), abs=2e-5)
