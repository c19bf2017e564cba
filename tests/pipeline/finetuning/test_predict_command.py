"""The command of prediction: columns, files, pipes; embeddings are those of `transformers` with pooling."""

import argparse
import json
import math
import re
import shutil
import string
from pathlib import Path

import pytest
import torch
import transformers

from common.errors import UserError
from data_prep.text.load_vocabulary import load_vocabulary
from pipeline import predict
from pipeline.checkpoint.pooling import Pooling, read_pooling
from pipeline.finetuning.predictor import Predictor, open_predictor
from pipeline.predict import answered, columns_for, read_each, read_rows, write
from pipeline.sharing.write_export import export_run
from pipeline.tasks.files.rows import Columns
from pipeline.tasks.files.tables import read_table
from pipeline.tasks.registry import TASKS
from tests.model.examples import randomise
from tests.pipeline.pretraining.trained_models import SIZES, export
from tests.pipeline.sharing import runs
from tests.pipeline.tasks import own_files


def columns(task, *words):
    args = predict.parser().parse_all(["--run", "run", *words])
    return columns_for(TASKS[task], args.text_column, args.second_text_column, args.choice_columns, may_pair=False)


def test_flags_replace_the_columns_of_the_run():
    assert columns("race") == TASKS["race"].input_columns
    assert columns("rte", "--text-column", "a", "--second-text-column", "b") == Columns("a", "b")
    assert columns("race", "--choice-columns", "c").choices == ("c",)
    for flag in ("--second-text-column", "--choice-columns"):
        with pytest.raises(UserError, match=f"{flag}: the run was trained without such a column"):
            columns("sst2", flag, "b")


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet"])
def test_every_format_holds_the_same_rows(tmp_path, ending):
    rows = [{"text": 'a "b",\t', "probabilities": {"x": 0.25, "é": 0.75}}, {"text": "c", "probabilities": {"x": 1.0}}]
    write(str(tmp_path / f"out.{ending}"), rows)
    found = read_table(tmp_path / f"out.{ending}").rows
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    given = [row["probabilities"] for row in found]
    shares = [json.loads(cell) for cell in given] if ending in ("csv", "tsv") else given
    assert shares[0] == rows[0]["probabilities"]


def test_a_row_that_cannot_be_read_is_named_and_the_others_are_predicted(tmp_path, capsys):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"sentence": text}) + "\n" for text in ("good", " ", 5, "bad")))
    texts = read_each(read_rows(str(path)), Columns("sentence"), lambda row: row.text("sentence"))
    assert texts == ["good", None, None, "bad"]
    assert re.findall(r"no prediction for \S+, line (\d+): column 'sentence' is", capsys.readouterr().err) == ["2", "3"]
    path.write_text('{"sentence": ""}\n')
    with pytest.raises(UserError, match="line 1: column 'sentence' is empty"):
        read_each(read_rows(str(path)), Columns("sentence"), lambda row: row.text("sentence"))


def test_numbers_that_are_not_finite_are_null_in_json(tmp_path):
    row = {"score": math.nan, "prediction": [math.inf, 1.5], "probabilities": {"a": -math.inf, "b": 0.5}}
    write(str(tmp_path / "out.jsonl"), [row])

    def refuse(name):
        raise AssertionError(name)  # NaN and Infinity are no JSON

    found = json.loads((tmp_path / "out.jsonl").read_text(), parse_constant=refuse)
    assert found == {"score": None, "prediction": [None, 1.5], "probabilities": {"a": None, "b": 0.5}}


TEXTS = [f"Bafilon {'dolon ' * (number % 7)}sara." for number in range(11)]


@pytest.fixture
def command(corpus, tmp_path, monkeypatch):
    """The words of a command whose chunks have four rows, and the rows that each embedding has seen."""
    monkeypatch.setattr(predict, "BATCHES_IN_CHUNK", 2)
    model, seen, embed = export(tmp_path / "model", corpus.vocabulary), [], Predictor.embed
    table = own_files.write(tmp_path / "new.csv", {"text": TEXTS})

    def counting(self, texts, batch_size):
        if len(seen) == 2:
            seen.clear()
            raise KeyboardInterrupt
        seen.append(list(texts))
        return embed(self, texts, batch_size)

    monkeypatch.setattr(Predictor, "embed", counting)
    return ["--run", str(model), "--embed", "--input", str(table), "--batch-size", "2"], seen


def test_a_pipe_gets_the_rows_as_they_are_made(command, capfdbinary):
    words, _ = command
    with pytest.raises(KeyboardInterrupt):
        predict.main([*words, "--out", "-"])
    lines = capfdbinary.readouterr().out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["text"], len(row["embedding"])) for row in rows] == [(text, 32) for text in TEXTS[:8]]


def test_rows_that_cannot_be_read_keep_their_place_and_those_that_are_cut_are_counted(monkeypatch, capsys):
    monkeypatch.setattr(predict, "BATCHES_IN_CHUNK", 2)
    rows = [{"n": number} for number in range(5)]

    def double(some):
        assert some, "a model takes no batch without texts"
        return [{"x": 2 * one} for one in some]

    chunks = list(answered(argparse.Namespace(cut=[3]), 1, rows, [1, None, 3, None, 5], double))
    assert chunks == [[{"n": 0, "x": 2}, {"n": 1}], [{"n": 2, "x": 6}, {"n": 3}], [{"n": 4, "x": 10}]]
    assert "note: 3 rows cut to the length that the model reads\n" in capsys.readouterr().err
    unread = list(answered(argparse.Namespace(cut=[0]), 1, rows[:4], [None, None, None, 1], double))  # a chunk of two
    assert unread == [rows[:2], [{"n": 2}, {"n": 3, "x": 2}]]
    assert "note" not in capsys.readouterr().err


def test_only_one_command_makes_a_file_and_one_that_appears_meanwhile_stays(monkeypatch, tmp_path, refusal):
    out, words = tmp_path / "out.jsonl", ["--run", "model", "--input", "-", "--embed"]

    def embed_texts(_):
        assert "another process is writing" in refusal(predict.main, *words, "--out", out)
        out.write_text("of a person")
        yield [{"text": "of the command"}]

    monkeypatch.setattr(predict, "embed_texts", embed_texts)
    said = refusal(predict.main, *words, "--out", out)
    assert f"--out {out} has appeared meanwhile; it stays, and the rows are in " in said
    assert Path(said.split()[-1]).read_text() == '{"text": "of the command"}\n'
    assert out.read_text() == "of a person"


EMBEDDED = ["Bafilon dolon.", "Sara vi!", "☃", "kemist " * 70, "Monipu.", "Café, DOLON gukela mola."]


def write_texts(directory, texts=EMBEDDED, **columns):
    return own_files.write(directory / "new.csv", {"text": texts, **columns})


@torch.no_grad()
def states_of(model, max_length=None):
    """The hidden states (S, H) of each text by `transformers`."""
    theirs, tokenizer = (one.from_pretrained(model) for one in (transformers.AutoModel, transformers.AutoTokenizer))
    length = max_length or theirs.config.max_position_embeddings
    for text in EMBEDDED:
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
        ("mean", None),  # without such files: normalised means
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
    if given is None:
        modules, settings = ("Normalize",), None
    else:
        describe(model, ("Transformer", "Pooling", *modules), settings, **given)
    found = open_predictor(model).embed(EMBEDDED, batch_size=4)
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
    before = open_predictor(run).embed(EMBEDDED)
    export_run(run, tmp_path / "export")
    assert read_pooling(tmp_path / "export") == Pooling("mean", 64, lowercase=False, normalizes=True)
    modules = json.loads((tmp_path / "export" / "modules.json").read_text())
    assert [module["type"] for module in modules] == [
        f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")
    ]
    pooling = json.loads((tmp_path / "export" / modules[1]["path"] / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == config.hidden_size
    assert [name for name, value in pooling.items() if value is True] == ["pooling_mode_mean_tokens"]
    assert open_predictor(tmp_path / "export").embed(EMBEDDED) == pytest.approx(before, abs=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"modules": ("Transformer", "Pooling", "Dense")}, "lists Transformer, Pooling, Dense; only encoders with"),
        ({"modules": ("Transformer", "Pooling", "Normalize", "Dense")}, "only encoders with pooling are read"),
        (
            {"modules": ("Transformer", "Pooling", "/../.Normalize")},
            "names '2_/../.Normalize', which is no file name that",
        ),
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
        open_predictor(model).embed(EMBEDDED)


@pytest.mark.parametrize(
    ("words", "columns", "message"),
    [
        (["--mask", "[MASK]"], {}, "--mask goes without --embed"),
        (["--second-text-column", "other"], {}, "--second-text-column and --choice-columns are for tasks; drop them"),
        (["--top-k", "3"], {}, "--top-k is for --mask; drop it"),
        (["--text-column", "review"], {}, "has no column 'review'; it has text"),
        ([], {"embedding": EMBEDDED}, "the input has a column 'embedding', as the output will"),
    ],
)
def test_a_mistake_is_one_line(corpus, tmp_path, refusal, words, columns, message):
    model, out = export(tmp_path / "model", corpus.vocabulary), tmp_path / "out.jsonl"
    line = ["--run", model, "--embed", "--input", write_texts(tmp_path, **columns), "--out", out, *words]
    assert message in refusal(predict.main, *line)
    assert not out.exists()
