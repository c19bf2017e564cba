"""The pieces in the place of [MASK] are those of `transformers`' fill-mask on the export."""

import pytest
import transformers

from common.errors import UserError
from data_prep.text.load_vocabulary import load_vocabulary
from model import huggingface
from pipeline import predict
from pipeline.finetuning import predictor
from tests.pipeline.pretraining import trained_models
from tests.pipeline.sharing import runs

TEXTS = [
    "Bafilon [MASK] dolon.",
    "Sara vi[MASK].",
    "[MASK] kemist!",
    "It ends with [MASK]",
    "[MASK]",
    "Two [MASK] words, [MASK]lon.",
    "Side by side: [MASK][MASK] and [MASK] [MASK].",
    "Café,  DOLON\t[MASK] ☃ wu.",
    "☃[MASK]☃ ba [MASK]☃",
]


@pytest.fixture(scope="module")
def small(corpus, tmp_path_factory):
    """A model with random weights, its vocabulary, and its export."""
    sizes = {"max_position_embeddings": 32, "initializer_range": 0.5}
    directory = trained_models.export(tmp_path_factory.mktemp("export"), corpus.vocabulary, **sizes)
    return huggingface.load(directory).eval(), load_vocabulary(corpus.vocabulary), directory


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_as_transformers(small, text):
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


def test_mistakes(small):
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
    said = refusal(predict.main, "--run", run, "--mask", "a [MASK]")
    assert "has no vocabulary (spiece.model, tokenizer.json or vocab.txt); copy there" in said


def test_a_text_is_read_as_utf_8_where_python_has_not_decoded_it(small, capsys):
    assert predict.main(["--run", str(small[2]), "--top-k", "1", "--mask", "Caf\udcc3\udca9 [MASK]"]) == 0
    assert capsys.readouterr().out.startswith("Café [MASK]\n")
