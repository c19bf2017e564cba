"""The Python API: what it makes of arguments and of a command's end, and shards in other training loops.

`tests/packaging/test_installation.py` runs the code of docs/python.md.
"""

import signal
import sys

import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import DataLoader

import albert_pretraining as albert
from albert_pretraining import api
from data_prep.format.shards import open_shards
from model import AlbertConfig, AlbertForPreTraining, huggingface
from pipeline.data.collate import Batch, BatchShape, Collator
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import corpus_seed


def run(code):
    api._run([sys.executable, "-c", code])


def test_a_command_says_what_it_prints_and_how_it_ended(capfd):
    run("import sys; print('one'); print('two', file=sys.stderr)")
    assert sorted(capfd.readouterr().out.split()) == ["one", "two"]
    with pytest.raises(albert.UserError, match=r"^no such thing; name another$"):
        run("print('error: no such thing; name another'); raise SystemExit(2)")
    with pytest.raises(RuntimeError, match=r"status 69: rank 1 is lost$"):
        run("print('rank 1 is lost'); raise SystemExit(69)")


def test_an_interrupt_waits_for_the_command_to_save(capfd):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            run("import os, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(0.3); print('saved')")
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().out == "saved\n"


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
    huggingface.save(model, tmp_path / "export", corpus.train / "spiece.model")
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
