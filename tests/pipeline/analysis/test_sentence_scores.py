"""Scores of sentences are those of a plain loop over `transformers`, one copy at a time."""

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from model import AlbertForPreTraining
from pipeline.analysis import minimal_pairs
from pipeline.analysis.minimal_pairs import score_sentences
from pipeline.finetuning.predictor import open_predictor
from tests.model.examples import Synchronisations, few_examples
from tests.pipeline.finetuning.test_predictor import publish
from tests.pipeline.pretraining import trained_models

SENTENCES = [
    "Bafilon dolon kemist, vilon.",
    "Sara",
    "Sara",  # as often as one likes
    "Bafilon dolon vilon, kemist.",
    "café, DOLON\twu (lamist) ☃ ba-la",
    "gurand " * 9,
    "it is [MASK] here",
]
SCORE_KINDS = ("within-word", "plain")
WORDS = ["ba", "filon", "Dolon", "kemist,", "wu.", "☃", "é", "x1,2", "-"]


class Loop:
    """A published model and its tokenizer, as `transformers` opens them."""

    def __init__(self, directory):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        self.model = transformers.AutoModelForMaskedLM.from_pretrained(directory).eval()

    def words(self, sentence):
        """The ids of a sentence, and the number of the word of each, from the tokenizer's own words."""
        encoding = self.tokenizer(sentence)
        ids = encoding["input_ids"]
        if self.tokenizer.backend_tokenizer.model.__class__.__name__ == "WordPiece":
            return ids, encoding.word_ids()
        starts = [piece.startswith("▁") for piece in self.tokenizer.convert_ids_to_tokens(ids)]
        return ids, np.cumsum(starts).tolist()

    @torch.no_grad()
    def score(self, sentence, kind):
        ids, words = self.words(sentence)
        total = 0.0
        for place in range(1, len(ids) - 1):
            masked = list(ids)
            masked[place] = self.tokenizer.mask_token_id
            for later in range(place + 1, len(ids) - 1):
                if kind == "within-word" and words[later] == words[place]:
                    masked[later] = self.tokenizer.mask_token_id
            logits = self.model(input_ids=torch.tensor([masked])).logits[0, place].double()
            total += logits.log_softmax(0)[ids[place]].item()
        return total


@pytest.fixture(scope="module")
def small(corpus, tmp_path_factory):
    """A random model of the project, exported; and the same opened by `transformers`."""
    sizes = {"initializer_range": 0.5, "max_position_embeddings": 64}
    directory = trained_models.export(tmp_path_factory.mktemp("export"), corpus.vocabulary, **sizes)
    return open_predictor(directory), Loop(directory)


@pytest.mark.parametrize("kind", SCORE_KINDS)
@pytest.mark.parametrize("limits", [(8192, 1 << 23), (40, 200)], ids=["at once", "in parts"])
def test_the_same_as_transformers(small, kind, limits, monkeypatch):
    predictor, loop = small
    for name, limit in zip(("TOKENS_IN_BATCH", "MAX_TOKENS_IN_CHUNK"), limits):
        monkeypatch.setattr(minimal_pairs, name, limit)
    _, words = loop.words(SENTENCES[0])
    assert max(map(words[1:-1].count, words[1:-1])) > 2, "no word has several pieces"
    scores = score_sentences(predictor.model, predictor.vocabulary, SENTENCES, kind)
    assert scores.dtype == np.float64
    assert scores == pytest.approx([loop.score(sentence, kind) for sentence in SENTENCES], abs=1e-4)
    assert scores[1] == scores[2]


@few_examples
@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8)))
def test_any_sentences_in_any_company(small, sentences):
    predictor, loop = small
    texts = [" ".join(words) for words in sentences]
    for kind in SCORE_KINDS:
        scores = score_sentences(predictor.model, predictor.vocabulary, texts, kind)
        assert scores == pytest.approx([loop.score(text, kind) for text in texts], abs=1e-4)


@pytest.mark.parametrize("kind", SCORE_KINDS)
def test_wordpiece(kind, tmp_path):
    """Punctuation is a word of its own there."""
    directory = publish(tmp_path / "bert", "MaskedLM")
    predictor, loop, texts = open_predictor(directory), Loop(directory), ["abc de", "h", "gfed dd", "bad, ef.g"]
    scores = score_sentences(predictor.model, predictor.vocabulary, texts, kind)
    assert scores == pytest.approx([loop.score(text, kind) for text in texts], abs=1e-4)


def test_nothing_is_computed_twice_or_read_by_the_host(small, monkeypatch):
    """Each token of each different sentence is predicted once, and no logits are computed for others."""
    predictor, loop = small
    predicted, forward = [], AlbertForPreTraining.forward

    def watched(model, ids, *, masked_positions):
        with Synchronisations() as reads:
            output = forward(model, ids, masked_positions=masked_positions)
        predicted.append(output.mlm_logits.shape[:2].numel())
        assert not reads.found
        return output

    monkeypatch.setattr(AlbertForPreTraining, "forward", watched)
    score_sentences(predictor.model, predictor.vocabulary, SENTENCES * 3, "plain")
    assert sum(predicted) == sum(len(loop.tokenizer(text)["input_ids"]) - 2 for text in set(SENTENCES))


def test_the_longest_sentence_one_without_a_token_and_no_sentence(small):
    """One that fills all positions is scored, and one more token is too many."""
    predictor, loop = small
    by_length = {len(loop.tokenizer(text)["input_ids"]): text for text in ("sara" + ("☃b" * 40)[:n] for n in range(80))}
    text, longer = by_length[64], next(text for length, text in sorted(by_length.items()) if length > 64)
    expected = pytest.approx([loop.score(text, "plain")], abs=1e-4)
    assert score_sentences(predictor.model, predictor.vocabulary, [text], "plain") == expected
    for sentence, message in (
        (longer, "tokens, and the model 64 positions; shorten it, or remove its pair"),
        ("\u0301", "the sentence '\u0301' has no token; correct it, or remove its pair"),
    ):
        with pytest.raises(UserError, match=message):
            score_sentences(predictor.model, predictor.vocabulary, ["Sara", sentence], "plain")
    assert score_sentences(predictor.model, predictor.vocabulary, [], "plain").shape == (0,)
