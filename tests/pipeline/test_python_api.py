"""The Python API: what it makes of arguments and of a command's end, and shards in other training loops.

`tests/packaging/test_installation.py` runs the code of docs/python.md.
"""

import inspect
import json
import os
import pydoc
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import DataLoader

import albert_pretraining as albert
from albert_pretraining import api
from data_prep.format.shard_manifest import read_manifest
from data_prep.format.shards import open_shards
from data_prep.text.tokenizer_json import tokenizer_files
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
    with pytest.raises(KeyboardInterrupt):
        # It interrupts its caller alone, and gets one interrupt back. Python may sleep through a signal that comes just
        # before it waits for output; the next one wakes it.
        run(
            "import os, signal, time\n"
            "try:\n    while True: os.kill(os.getppid(), signal.SIGINT); time.sleep(30)\n"
            "except KeyboardInterrupt:\n    time.sleep(0.3); print('saved')"
        )
    assert capfd.readouterr().out == "saved\n"


def test_an_interrupt_while_the_command_starts_reaches_it(capfd, monkeypatch):
    start, started = subprocess.Popen.__init__, []

    def start_interrupted(self, *arguments, **words):
        start(self, *arguments, **words)
        started.append(self.pid)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "__init__", start_interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("import time; time.sleep(600)")
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_tab_and_help_show_the_functions_with_their_flags():
    assert set(dir(albert)) == set(albert.__all__)
    assert "prepare(*, input" in pydoc.plain(pydoc.render_doc(albert))
    for function, wanted in (
        (albert.pretrain, {"model", "eval_data", "mask_probability", "deepspeed_config", "keep_at", "ranks"}),
        (albert.finetune, {"epochs", "seeds", "text_column"}),
        (albert.prepare, {"keep_case", "keep_accents", "byte_fallback", "size", "dedup", "text_field", "no_pack"}),
    ):
        parameters = inspect.signature(function).parameters
        assert wanted <= set(parameters)
        assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in parameters.values())


def prepare(root, **more):
    (root / "text").mkdir()
    for number in range(30):
        words = [f"Word{number} and Other{index} are NEVER alone in this little text." for index in range(12)]
        (root / "text" / f"{number}.txt").write_text("\n\n".join(words))
    given = {"input": root / "text", "output": root / "data", "source": "books", "held_out": 0.1, "max_seq_length": 64}
    return albert.prepare(**{**given, **more})


@pytest.mark.slow
def test_each_flag_of_a_preparation_goes_to_its_job(tmp_path):
    corpus = prepare(tmp_path, size=47, keep_case=True, dedup="exact", no_pack=True, unit_megabytes=1, language=None)
    assert any("N" in piece for piece in albert.Shards(corpus.train).vocabulary.pieces), "capitals are lost"
    assert json.loads((corpus.documents / "documents.json").read_text())["options"]["unit_megabytes"] == 1
    assert not read_manifest(corpus.train).pack


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"keep_cases": True}, "prepare has no flag keep_cases; did you mean keep_case?"),
        ({"dedup": "some"}, "argument --dedup: invalid choice"),
        ({"size": 0}, "argument --size: 0 is not at least 1"),
        ({"min_tokens": "x"}, "argument --min-tokens"),
        ({"vocabulary": "v.model", "keep_case": True}, "keep_case is for training a vocabulary, and one is given"),
    ],
)
def test_a_wrong_flag_of_any_job_is_found_before_the_first(tmp_path, flags, message):
    with pytest.raises(albert.UserError, match=re.escape(message)):
        prepare(tmp_path, **flags)
    assert not (tmp_path / "data").exists()


def test_a_config_may_be_a_dictionary_and_wrong_arguments_are_one_line(corpus, tmp_path):
    with api._as_file({"train_batch_size": 8}) as path:
        assert json.loads(path.read_text()) == {"train_batch_size": 8}
    assert not path.exists()
    for name, value in (("layout", "rows"), ("objective", "nps")):
        with pytest.raises(albert.UserError, match=f"^{name} is '{value}'; give one of "):
            albert.Shards(corpus.train, **{name: value})
    vocabulary = albert.Shards(corpus.train).vocabulary
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "embedding_size": 16}
    config = AlbertConfig(num_hidden_layers=1, vocab_size=len(vocabulary), **sizes)
    model = api.Model(tmp_path, tmp_path, None, AlbertForPreTraining(config).eval(), vocabulary, None)
    assert repr(model) == f"Model({str(tmp_path)!r}: 1 layers of 32, no task)"
    for texts in ([3], [None], "one", {"text": "a"}):
        with pytest.raises(albert.UserError, match="list of texts"):
            model.embed(texts)
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
