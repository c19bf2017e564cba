"""Predictions, pieces for [MASK] and batches: models of a directory or the hub give what `transformers` gives."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from data_prep.text.load_vocabulary import load_vocabulary
from model import huggingface
from pipeline import predict
from pipeline.finetuning import fine_tuning, predictor
from pipeline.finetuning.predictor import batches_of, open_predictor
from pipeline.sharing.write_export import export_run
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS
from pipeline.training.training_run import TrainingFailed, unmonitored
from tests.model.examples import randomise
from tests.pipeline.pretraining import trained_models
from tests.pipeline.sharing import runs

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")]
TEXTS = ["abc de", "h", "g f e dd", "bad"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def publish(directory: Path, head: str, **fields: object) -> Path:
    """A small BERT with random weights, as `transformers` saves it."""
    config = transformers.BertConfig(vocab_size=len(PIECES), max_position_embeddings=32, **SIZES, **fields)
    model = getattr(transformers, f"BertFor{head}")(config)
    randomise(model, seed=1, scale=1.0)
    model.save_pretrained(directory)
    (directory / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    transformers.BertTokenizerFast(str(directory / "vocab.txt")).save_pretrained(directory)
    return directory


def logits_of(directory: Path, head: str, *texts: str) -> torch.Tensor:
    model = getattr(transformers, f"AutoModelFor{head}").from_pretrained(directory).eval()
    with torch.no_grad():
        return model(**transformers.AutoTokenizer.from_pretrained(directory)(*texts, return_tensors="pt")).logits[0]


def test_a_generator_of_texts_is_a_list_of_them(tmp_path):
    predictor = open_predictor(publish(tmp_path / "m", "SequenceClassification"))
    assert len(predictor.predict(text for text in TEXTS)) == len(TEXTS)
    assert predictor.embed(text for text in TEXTS).shape == predictor.embed(TEXTS).shape


def test_the_processor_answers_in_place_of_a_gpu_only_if_it_is_asked_to(tmp_path, monkeypatch):
    published = publish(tmp_path / "m", "SequenceClassification")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("DS_ACCELERATOR", "CPU")
    assert next(open_predictor(published).model.parameters()).device.type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("DS_ACCELERATOR", "cuda")
    with pytest.raises(UserError, match=r"DS_ACCELERATOR is cuda, .* cannot use a GPU: .*, or set DS_ACCELERATOR=cpu"):
        open_predictor(published)


@pytest.mark.parametrize(("is_native", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_run_in_bf16_predicts_in_it_only_where_it_is_not_emulated(corpus, tmp_path, monkeypatch, is_native, dtype):
    export_run(runs.finetuning(tmp_path / "run", corpus.vocabulary, precision="bf16"), tmp_path / "run" / "export")
    monkeypatch.setattr("pipeline.finetuning.predictor.has_bf16", lambda device: is_native)
    assert next(open_predictor(tmp_path / "run").model.parameters()).dtype is dtype


def test_the_class_of_a_published_model_tells_its_task(tmp_path):
    published = publish(tmp_path / "classes", "SequenceClassification", id2label={0: "x", 1: "y", 2: "z"})
    predictor = open_predictor(published)
    for text, row in zip(TEXTS, predictor.predict([{"text": text} for text in TEXTS])):
        shares = logits_of(published, "SequenceClassification", text).softmax(dim=0).tolist()
        assert row["probabilities"] == pytest.approx(dict(zip("xyz", shares)), abs=1e-5)
    with pytest.raises(UserError, match="is fine-tuned on classification; to fill a"):
        predictor.fill_mask(["a [MASK]"])
    with pytest.raises(UserError, match="the input, row 1: column 'text' is empty"):
        predictor.predict([{"text": "a"}, {"label": "b"}])

    published = publish(tmp_path / "number", "SequenceClassification", num_labels=1)
    (row,) = open_predictor(published).predict([{"text": TEXTS[0]}])
    assert row["prediction"] == pytest.approx(logits_of(published, "SequenceClassification", TEXTS[0]).item(), abs=1e-5)

    published = publish(tmp_path / "tags", "TokenClassification")  # the default labels are not in its config.json
    (row,) = open_predictor(published).predict([{"tokens": TEXTS[2].split()}])
    best = logits_of(published, "TokenClassification", TEXTS[2]).argmax(dim=1).tolist()
    assert row["prediction"] == [f"LABEL_{best[place]}" for place in (1, 2, 3, 4)]


def test_labels_are_those_of_their_numbers_and_a_published_classifier_may_read_pairs(tmp_path):
    labels = {str(number): f"label {number}" for number in range(11)}
    place = publish(tmp_path / "m", "SequenceClassification", id2label=labels)
    config = json.loads((place / "config.json").read_text())
    sorted_as_texts = config | {"id2label": dict(sorted(labels.items()))}  # 10 before 2
    (place / "config.json").write_text(json.dumps(sorted_as_texts))
    best = int(logits_of(place, "SequenceClassification", "abc de", "bad").argmax())
    predictor = open_predictor(place)
    found = predictor.predict([("abc de", "bad"), {"text": "abc de", "text_pair": "bad"}])
    predictor.predict([("abc de", "bad " * predictor.model.config.max_position_embeddings)])
    assert predictor.cut == [1]
    assert [each["prediction"] for each in found] == [f"label {best}"] * 2
    with pytest.raises(UserError, match="has 3 texts, and the task 1; give as many"):
        open_predictor(place).predict([("a", "b", "c")])


def test_a_published_model_without_a_task(tmp_path):
    predictor = open_predictor(publish(tmp_path / "mlm", "MaskedLM"))
    shares = logits_of(tmp_path / "mlm", "MaskedLM", "a [MASK]")[2].softmax(dim=0)
    (((best, *_),),) = predictor.fill_mask(["a [MASK]"])
    assert best.piece == PIECES[int(shares.argmax())]
    assert best.probability == pytest.approx(float(shares.max()), abs=1e-5)
    assert predictor.embed(TEXTS).shape == predictor.embed(TEXTS, batch_size=0).shape == (4, 32)
    room = predictor.model.config.max_position_embeddings - 2  # besides [CLS] and [SEP]
    predictor.embed(["a " * room, "a " * (room + 1)])
    assert predictor.cut == [1]
    assert {predictor: 1}[predictor] == 1
    with pytest.raises(UserError, match="mlm is not fine-tuned on a task; name a fine-tuned model"):
        predictor.predict([{"text": "a"}])


def test_a_model_of_the_hub(tmp_path, monkeypatch, refusal):
    """The client of the hub is asked for what is safe to open, and its error is one line."""
    published = publish(tmp_path / "m", "SequenceClassification")

    def download(name, endpoint, allow_patterns):
        if name != "me/small":
            raise OSError("no such repository")
        assert "model.safetensors" in allow_patterns
        assert "pytorch_model.bin" not in allow_patterns
        return str(published)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.csv").write_text("text\n" + "".join(f"{text}\n" for text in TEXTS))
    line = ["--input", "new.csv", "--out"]
    assert predict.main(["--run", "me/small", *line, "hub.csv"]) == 0
    assert predict.main(["--run", "m", *line, "directory.csv"]) == 0
    assert (tmp_path / "hub.csv").read_bytes() == (tmp_path / "directory.csv").read_bytes()
    said = refusal(predict.main, "--run", "me/none", *line, "none.csv")
    assert "--run me/none: there is no such directory, and the hub gives no model" in said


@pytest.mark.slow
def test_a_mistyped_run_is_one_line_in_a_process_of_its_own(tmp_path):
    """A process that imported another package before may have loaded what this one lacks."""
    command = [sys.executable, "-m", "pipeline.predict", "--run", "runs/nothing", "--mask", "a [MASK]"]
    offline = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    ended = subprocess.run(command, env=offline, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: --run runs/nothing: there is no such directory")
    assert "name the --output of a run" in ended.stderr
    assert ended.stderr.count("\n") == 1


@given(st.lists(st.integers(3, 300), max_size=60), st.integers(1, 5), st.integers(1, 900))
def test_every_sample_is_evaluated_once_and_all_ranks_have_equally_many_batches(lengths, world_size, tokens):
    features = SimpleNamespace(lengths=np.array(lengths, dtype=np.int64))
    parts = [batches_of(features, rank, world_size, tokens) for rank in range(world_size)]
    assert len({len(part) for part in parts}) == 1
    samples = [sample for part in parts for batch in part for sample in batch]
    assert sorted(samples) == list(range(len(lengths)))
    for batch in (batch for part in parts for batch in part):
        assert len(batch) <= 1 or sum(lengths[sample] for sample in batch) <= tokens
    by_number = batches_of(features, limit=world_size, by_tokens=False)
    assert sorted(sample for batch in by_number for sample in batch) == sorted(samples)
    assert [len(batch) for batch in by_number[:-1]] == [world_size] * (len(by_number) - 1)


@pytest.mark.parametrize("is_first", [True, False])
def test_numbers_that_are_none_end_the_training_on_all_ranks(monkeypatch, is_first):
    said = "predictions or labels hold NaN or infinity; the training has diverged"
    logits = np.array([[np.nan], [1.0]], np.float32)
    predictions = Logits(np.array(["0", "1"]), logits, np.array([1.0, 2.0], np.float32)) if is_first else None
    monkeypatch.setattr(fine_tuning, "predict", lambda *given: predictions)
    control = SimpleNamespace(broadcast=lambda value: value if is_first else said)
    engine = SimpleNamespace(device="cpu", train=lambda: None)
    task = fine_tuning.FineTuning(None, None, None, TASKS["stsb"], SimpleNamespace(features={"dev": None}), None)
    task.control = control
    with pytest.raises(TrainingFailed, match=f"the evaluation on dev failed: {said}; lower the learning rate"):
        task.evaluate(engine, unmonitored)


@pytest.fixture(scope="module")
def small(corpus, tmp_path_factory):
    """A model with random weights, its vocabulary, and its export."""
    sizes = {"max_position_embeddings": 32, "initializer_range": 0.5}
    directory = trained_models.export(tmp_path_factory.mktemp("export"), corpus.vocabulary, **sizes)
    return huggingface.load(directory).eval(), load_vocabulary(corpus.vocabulary), directory


@pytest.mark.parametrize(
    "text",
    [
        "Bafilon [MASK] dolon.",
        "Sara vi[MASK].",
        "[MASK] kemist!",
        "It ends with [MASK]",
        "[MASK]",
        "Two [MASK] words, [MASK]lon.",
        "Side by side: [MASK][MASK] and [MASK] [MASK].",
        "Café,  DOLON\t[MASK] ☃ wu.",
        "☃[MASK]☃ ba [MASK]☃",
    ],
)
def test_the_pieces_for_a_mask_are_those_of_transformers(small, text):
    model, vocabulary, directory = small
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    assert predictor.encode(vocabulary, text) == tokenizer(text)["input_ids"]
    theirs = transformers.pipeline("fill-mask", str(directory), tokenizer=tokenizer, top_k=3)(text)
    theirs = theirs if text.count("[MASK]") > 1 else [theirs]
    mine = predictor.fill(model, vocabulary, text, 3)
    assert len(mine) == len(theirs) == text.count("[MASK]")
    for ours, reference in zip(mine, theirs):
        assert [vocabulary.pieces.index(one.piece) for one in ours] == [one["token"] for one in reference]
        assert [one.probability for one in ours] == pytest.approx([one["score"] for one in reference], abs=1e-5)


def test_a_text_that_cannot_be_filled(small):
    model, vocabulary, _ = small
    for text, message in (
        ("No mask.", r"the text 'No mask\.' has no \[MASK\]"),
        ("bafilon " * 40 + "[MASK]", "tokens, and the model 32 positions; shorten 'bafilon"),
    ):
        with pytest.raises(UserError, match=message):
            predictor.fill(model, vocabulary, text, 3)


def test_a_run_without_its_vocabulary(corpus, tmp_path, refusal):
    run = runs.pretraining(tmp_path / "run", corpus.vocabulary)
    (run / "spiece.model").unlink()
    said = refusal(predict.main, "--run", run, "--mask", "a [MASK]", "--batch-size", 3)
    assert "--mask goes without --embed, --input, --text-column and --batch-size" in said
    said = refusal(predict.main, "--run", run, "--mask", "a [MASK]")
    assert "has no vocabulary (spiece.model, tokenizer.json, vocab.txt); copy there" in said


def test_a_text_is_read_as_utf_8_where_python_has_not_decoded_it(small, capsys):
    assert predict.main(["--run", str(small[2]), "--top-k", "1", "--mask", "Caf\udcc3\udca9\x1b[31m [MASK]"]) == 0
    assert capsys.readouterr().out.startswith("Café\\x1b[31m [MASK]\n"), "what moves a terminal is escaped"
