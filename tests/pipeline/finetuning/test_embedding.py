"""Embeddings are those of `transformers` with mean pooling, however the texts are packed into rows."""

import json
import re
import shutil
import string

import pytest
import torch
import transformers

from common.errors import UserError
from data_prep.text.load_vocabulary import load_vocabulary
from pipeline import predict
from pipeline.checkpoint.pooling import Pooling, read_pooling
from pipeline.finetuning.predictor import open_predictor
from pipeline.sharing.write_export import export_run
from tests.model.examples import randomise
from tests.pipeline.pretraining.trained_models import SIZES, export
from tests.pipeline.sharing import runs
from tests.pipeline.tasks import own_files

TEXTS = ["Bafilon dolon.", "Sara vi!", "☃", "kemist " * 70, "Monipu.", "Café, DOLON gukela mola."]


def write(directory, texts=TEXTS, **columns):
    return own_files.write(directory / "new.csv", {"text": texts, **columns})


@torch.no_grad()
def states_of(model, max_length=None):
    """The hidden states (S, H) of each text by `transformers`."""
    theirs, tokenizer = (one.from_pretrained(model) for one in (transformers.AutoModel, transformers.AutoTokenizer))
    length = max_length or theirs.config.max_position_embeddings
    for text in TEXTS:
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=length)
        yield theirs.eval()(**inputs).last_hidden_state[0]


def describe(directory, modules=("Transformer", "Pooling", "Normalize"), settings=None, library=None, **pooling):
    """Writes the files of sentence-transformers beside a model."""
    places = {"Transformer": "", "Pooling": "1_Pooling"}
    listed = [
        {"idx": number, "name": str(number), "path": places.get(one, f"2_{one}"), "type": f"a.models.{one}"}
        for number, one in enumerate(modules)
    ]
    (directory / "1_Pooling").mkdir()
    (directory / "modules.json").write_text(json.dumps(listed))
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32} | pooling))
    (directory / "sentence_bert_config.json").write_text(json.dumps(settings or {}))
    library = library or {"default_prompt_name": None}
    (directory / "config_sentence_transformers.json").write_text(json.dumps(library))
    return directory


@pytest.mark.parametrize(
    ("mode", "given"),
    [
        ("mean", {}),
        ("mean", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}),
        ("cls", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}),
        ("max", {"pooling_mode_max_tokens": True}),
        ("cls", {"pooling_mode": "cls"}),
        ("max", {"pooling_mode": ["max"]}),
    ],
)
@pytest.mark.parametrize(("modules", "settings"), [(("Normalize",), None), ((), {"max_seq_length": 7})])
def test_they_are_pooled_as_the_files_of_sentence_transformers_say(corpus, tmp_path, mode, given, modules, settings):
    model = export(tmp_path / "model", corpus.vocabulary, initializer_range=0.3)
    describe(model, ("Transformer", "Pooling", *modules), settings, **given)
    found = open_predictor(model).embed(TEXTS, batch_size=4)
    for states, vector in zip(states_of(model, (settings or {}).get("max_seq_length")), found):
        expected = {"mean": states.mean(dim=0), "cls": states[0], "max": states.amax(dim=0)}[mode]
        expected = expected / expected.norm() if modules else expected
        assert vector == pytest.approx(expected.numpy(), abs=2e-5)


def test_texts_become_lower_case_if_the_files_say_so(tmp_path):
    """The vocabulary keeps capitals."""
    letters = string.ascii_letters
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    sizes = SIZES | {"vocab_size": len(pieces), "max_position_embeddings": 64}
    theirs = transformers.BertModel(transformers.BertConfig(**sizes))
    randomise(theirs, seed=1, scale=0.2)
    theirs.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(pieces))
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    lowered = shutil.copytree(tmp_path / "model", tmp_path / "lowered")
    describe(lowered, settings={"do_lower_case": True})
    cased, lower = open_predictor(tmp_path / "model").embed(["The CATS", "the cats"])
    assert abs(cased - lower).max() > 1e-3
    assert open_predictor(lowered).embed(["The CATS"])[0] == pytest.approx(lower, abs=1e-6)


def test_an_export_says_how_its_embeddings_are_made(corpus, tmp_path):
    config = runs.config_of(vocab_size=len(load_vocabulary(corpus.vocabulary)))
    run = runs.pretraining(tmp_path / "run", corpus.vocabulary, config=config)
    before = open_predictor(run).embed(TEXTS)
    export_run(run, tmp_path / "export")
    assert read_pooling(tmp_path / "export") == Pooling("mean", 64, lowercase=False, normalizes=True)
    modules = json.loads((tmp_path / "export" / "modules.json").read_text())
    assert [module["type"] for module in modules] == [
        f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")
    ]
    pooling = json.loads((tmp_path / "export" / modules[1]["path"] / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == config.hidden_size
    assert [name for name, value in pooling.items() if value is True] == ["pooling_mode_mean_tokens"]
    assert open_predictor(tmp_path / "export").embed(TEXTS) == pytest.approx(before, abs=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"modules": ("Transformer", "Pooling", "Dense")}, "lists Transformer, Pooling, Dense; only encoders with"),
        ({"modules": ("Transformer", "Pooling", "Normalize", "Dense")}, "only encoders with pooling are read"),
        ({"pooling_mode_weightedmean_tokens": True}, "asks for weightedmean pooling; name a model with mean, cls or"),
        ({"pooling_mode_lasttoken": True}, "asks for lasttoken pooling"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "asks for mean_sqrt_len pooling"),
        ({"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}, "asks for cls and max pooling"),
        ({"pooling_mode": ["cls", "mean"]}, "asks for cls and mean pooling"),
        ({"settings": {"max_seq_length": -1}}, "max_seq_length"),
        ({"library": {"default_prompt_name": "query"}}, "puts the prompt 'query' before each text"),
    ],
)
def test_other_poolings_are_refused_in_one_line(corpus, tmp_path, changed, message):
    model = describe(export(tmp_path / "model", corpus.vocabulary), **changed)
    with pytest.raises(UserError, match=re.escape(message)):
        open_predictor(model).embed(TEXTS)


@pytest.mark.parametrize(
    ("words", "columns", "message"),
    [
        (["--mask", "[MASK]"], {}, "--mask goes without --embed"),
        (["--second-text-column", "other"], {}, "--second-text-column and --choice-columns are for tasks; drop them"),
        (["--top-k", "3"], {}, "--top-k is for --mask; drop it"),
        (["--text-column", "review"], {}, "has no column 'review'; it has text"),
        ([], {"embedding": TEXTS}, "the input has a column 'embedding', as the output will"),
    ],
)
def test_a_mistake_is_one_line(corpus, tmp_path, refusal, words, columns, message):
    model, out = export(tmp_path / "model", corpus.vocabulary), tmp_path / "out.jsonl"
    line = ["--run", model, "--embed", "--input", write(tmp_path, **columns), "--out", out, *words]
    assert message in refusal(predict.main, *line)
    assert not out.exists()
