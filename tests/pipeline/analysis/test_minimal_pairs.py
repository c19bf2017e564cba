"""Minimal pairs: their files, what is right, the command; sentences are scored as by `transformers`, one by one."""

import gzip
import json
import math
import re

import numpy as np
import pyarrow as pa
import pytest
import sentencepiece
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.files.json_files import read_as
from data_prep.text.load_vocabulary import load_vocabulary
from model import AlbertForPreTraining
from pipeline import evaluate
from pipeline.analysis import minimal_pairs
from pipeline.analysis.minimal_pairs import Pair, Result, frequency_scores, read_pairs, score_sentences, summarise
from pipeline.finetuning.predictor import open_predictor
from tests.model.examples import Synchronisations, few_examples
from tests.pipeline.finetuning.test_predictor import publish
from tests.pipeline.pretraining import trained_models
from tests.pipeline.sharing import runs

GOOD = ["Bafilon dolon kemist.", "Sara vilon wu ba.", "Lamist gurand, dolon.", "Nilon pu re.", "To vi."]
BAD = ["Bafilon kemist dolon.", "Sara vilon wu.", "Lamist gurand dolon.", "Nilon re pu sa.", "Vi to."]


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def own(number, **more):
    return {"good": GOOD[number], "bad": BAD[number], **more}


def blimp(number, paradigm, phenomenon):
    names = {"UID": paradigm, "linguistics_term": phenomenon, "field": "syntax", "pairID": str(number)}
    return {"sentence_good": GOOD[number], "sentence_bad": BAD[number], **names}


def test_the_directory_of_blimp(tmp_path):
    (tmp_path / "b.jsonl").write_bytes(lines(blimp(0, "p1", "islands"), blimp(1, "p1", "islands")))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(blimp(2, "p2", "binding"))))
    (tmp_path / "README.md").write_text("no pairs")
    expected = [Pair(GOOD[2], BAD[2], "binding", "p2"), *(Pair(GOOD[n], BAD[n], "islands", "p1") for n in (0, 1))]
    assert read_pairs(tmp_path) == expected
    assert read_pairs(tmp_path, limit=1) == expected[:2]


@pytest.mark.parametrize("ending", ["", ".zst"])
def test_a_file_of_short_names(ending, tmp_path):
    file = tmp_path / f"mine.jsonl{ending}"
    rows = (own(0), own(1, phenomenon="x"), own(2, paradigm="y"), own(3, paradigm="y", phenomenon="x"))
    content = b"\xef\xbb\xbf" + lines(*rows, own(4))
    content = pa.compress(content, "zstd", asbytes=True) if ending else content
    file.write_bytes(content)
    names = [("mine", "mine"), ("x", "x"), ("y", "y"), ("x", "y"), ("mine", "mine")]
    assert read_pairs(file) == [Pair(GOOD[n], BAD[n], *name) for n, name in enumerate(names)]
    assert len(read_pairs(file, limit=1)) == 4  # "y" of two phenomena is two paradigms
    for damaged in (content[:-20], content[:30] + b"\xff" * 30) if ending else ():
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"mine\.jsonl\.\w+ is damaged \(.*\); get the file again$"):
            read_pairs(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lines(own(0), {"good": "a"}), "f.jsonl, line 2: no field 'bad' or 'sentence_bad'; add it, or check --pairs"),
        (lines({"good": 3, "bad": "a"}), "line 1: field 'good' is 3, not a text; correct it, or remove the pair"),
        (lines({"good": " ", "bad": "a"}), "line 1: field 'good' is ' ', not a text"),
        (lines(own(0, paradigm=[1])), "line 1: field 'paradigm' is [1], not a text"),
        (lines(own(0, phenomenon=7)), "line 1: field 'phenomenon' is 7, not a text"),
        (b"\n\n", "f.jsonl holds no pair; name another file"),
        (lines(own(0)) + b'{"good": "caf\xe9"}', "f.jsonl, line 2: not UTF-8 text"),
        (b"[1]", "f.jsonl, entry 0: no JSON object"),
    ],
)
def test_mistakes_in_a_file(content, message, tmp_path):
    (tmp_path / "f.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=re.escape(message)):
        read_pairs(tmp_path / "f.jsonl")


def test_what_is_right():
    """Two paradigms of one phenomenon, and one of another, by hand. A tie is wrong, and so is an undefined score."""
    names = [("x", "p"), ("x", "p"), ("x", "p"), ("x", "p"), ("x", "q"), ("y", "r"), ("y", "r")]
    pairs = [Pair("g", "b", *name) for name in names]
    scores = np.array([[-1, -2], [-1, -1 - 5e-5], [-2, -1], [-3, -3], [-1, -2], [math.nan, -1], [-1, -1.1]])
    baseline = np.array([[-1, -1], [-1, -2], [-1, -1], [-1, -1], [-2, -1], [-1, -2], [-1, -2]])
    result = summarise(pairs, "m", "plain", scores, baseline)
    rows = [
        (one.phenomenon, one.paradigm, one.paradigms, one.pairs, one.accuracy, one.ties) for one in result.paradigms
    ]
    assert rows == [("x", "p", 1, 4, 0.25, 2), ("x", "q", 1, 1, 1.0, 0), ("y", "r", 1, 2, 0.5, 0)]
    rows = [(one.phenomenon, one.paradigms, one.pairs, one.accuracy, one.baseline) for one in result.phenomena]
    assert rows == [("x", 2, 5, 0.625, 0.125), ("y", 1, 2, 0.5, 1.0)]
    total = result.total
    assert (total.paradigms, total.pairs, total.ties, total.baseline_ties) == (3, 7, 2, 3)
    assert (total.accuracy, total.baseline) == (pytest.approx(1.75 / 3), pytest.approx(1.25 / 3))
    table = result.table().splitlines()
    assert table[0] == "| phenomenon | paradigms | pairs | accuracy | word frequencies |"
    assert table[2:4] == ["| x | 2 | 5 | 62.5 | 12.5 |", "| y | 1 | 2 | 50.0 | 100.0 |"]
    low, high = result.interval
    assert table[4] == f"| mean over paradigms | 3 | 7 | 58.3 ({100 * low:.1f} to {100 * high:.1f}) | 41.7 |"
    assert table[-1] == "ties, counted as wrong: 2; by word frequencies 3"

    without = summarise(pairs, "m", "plain", scores)
    assert without.total.baseline is None
    assert "frequencies" not in without.table()


def test_the_interval_covers_the_truth():
    """95 of 100 intervals contain the mean that the pairs were drawn from, with few pairs and with many."""
    rng = np.random.default_rng(0)
    for pairs in (1, 4, 200):
        truth = rng.uniform(0.3, 1.0, 40)
        inside = width = 0.0
        for _ in range(400):
            low, high = minimal_pairs.interval_of(rng.binomial(pairs, truth) / pairs, [pairs] * 40)
            inside += (low <= truth.mean() <= high) / 400
            width += (high - low) / 400
        assert inside > 0.93
        # The width of the normal interval with the true variances is the least that covers 95 %.
        least = 2 * 1.96 * np.sqrt(np.sum(truth * (1 - truth) / pairs)) / 40
        assert least * 0.98 < width < least * 1.35
    assert minimal_pairs.interval_of([1.0], [10])[0] < 0.95
    assert minimal_pairs.interval_of([1.0], [10])[1] == 1.0


def test_word_frequencies(corpus):
    """They are the scores of the SentencePiece model; the same tokens in another order are a tie."""
    vocabulary = load_vocabulary(corpus.vocabulary)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(corpus.vocabulary))
    texts = [text.lower().replace(",", "") for text in GOOD]  # a comma is no piece of this vocabulary
    sums = [sum(processor.get_score(piece) for piece in processor.encode(text)) for text in texts]
    assert frequency_scores(vocabulary, texts) == pytest.approx(sums, abs=1e-4)
    words = ["bafilon", "dolon", "kemist", "gurand", "vilon", "wu", "sara", "lamist"]
    rng = np.random.default_rng(0)
    shuffled = [" ".join(rng.permutation(words)) for _ in range(50)]
    assert len(set(frequency_scores(vocabulary, shuffled).tolist())) == 1
    known, unknown = frequency_scores(vocabulary, ["sara b", "sara ☃"])
    assert unknown < known


@pytest.fixture(scope="module")
def export(corpus, tmp_path_factory):
    return trained_models.export(tmp_path_factory.mktemp("export"), corpus.vocabulary, initializer_range=0.5)


def read_result(path):
    return read_as(path, Result, "")


@pytest.mark.parametrize("kind", ["within-word", "plain"])
def test_the_command(kind, export, tmp_path, capsys, refusal):
    (tmp_path / "pairs.jsonl").write_bytes(lines(*(own(n, paradigm="pq"[n > 2], phenomenon="x") for n in range(5))))
    words = ["minimal-pairs", "--run", str(export), "--pairs", str(tmp_path / "pairs.jsonl")]
    words += [] if kind == "within-word" else ["--score", kind]
    out = ["--out", str(tmp_path / "result.json")]
    assert evaluate.main([*words, *out]) == 0
    result, loop = read_result(tmp_path / "result.json"), Loop(export)
    right = [loop.score(good, kind) > loop.score(bad, kind) for good, bad in zip(GOOD, BAD)]
    assert [one.accuracy for one in result.paradigms] == [pytest.approx(sum(right[:3]) / 3), sum(right[3:]) / 2]
    assert (result.model, result.score) == (str(export), kind)
    assert capsys.readouterr().out == result.table() + "\n"
    assert evaluate.main([*words, "--limit", "1"]) == 0
    assert "| mean over paradigms | 2 | 2 |" in capsys.readouterr().out

    taken = "result.json exists already; move it away, or choose another name\n"
    assert refusal(evaluate.main, *words, *out).endswith(taken)
    assert read_result(tmp_path / "result.json") == result


def test_hidden_files_and_copies_in_a_directory(tmp_path):
    with pytest.raises(UserError, match=r"holds no \.jsonl file; name the directory of BLiMP's files, or one file"):
        read_pairs(tmp_path)
    (tmp_path / "b.jsonl").write_bytes(lines(own(0)))
    (tmp_path / "._b.jsonl").write_bytes(b"\0\5\x16\7")
    assert len(read_pairs(tmp_path)) == 1
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines(own(0))))
    with pytest.raises(UserError, match=r"b\.jsonl\.gz holds the pairs of b\.jsonl again; remove one"):
        read_pairs(tmp_path)


def test_runs_and_models_without_the_head(corpus, tmp_path, refusal):
    """The newest checkpoint of a run is scored. Models that cannot predict masks are refused, before any writing."""
    (tmp_path / "pairs.jsonl").write_bytes(lines(*map(own, range(5))))
    headless = trained_models.albert(corpus.vocabulary).albert
    words = ["minimal-pairs", "--pairs", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / "out.json"), "--run"]
    for model, reason in (
        (publish(tmp_path / "tuned", "SequenceClassification"), "is fine-tuned on classification"),
        (trained_models.publish(headless, tmp_path / "no", corpus.vocabulary), "has no head for masked tokens"),
    ):
        expected = f"error: {model} {reason}; to score sentences, name a pre-trained model\n"
        assert refusal(evaluate.main, *words, model) == expected
        assert not (tmp_path / "out.json").exists()

    trained = runs.pretraining(tmp_path / "run", corpus.vocabulary, steps=(1, 2))
    assert evaluate.main([*words, str(trained)]) == 0
    torch.manual_seed(2)
    newest, pairs = AlbertForPreTraining(runs.config_of()).eval(), read_pairs(tmp_path / "pairs.jsonl")
    expected = minimal_pairs.evaluate(newest, load_vocabulary(corpus.vocabulary), pairs, str(trained), "within-word")
    assert read_result(tmp_path / "out.json") == expected


def test_a_vocabulary_without_frequencies(tmp_path, capsys):
    (tmp_path / "pairs.jsonl").write_bytes(lines({"good": "abc de", "bad": "de abc"}))
    words = ["--run", str(publish(tmp_path / "bert", "MaskedLM")), "--pairs", str(tmp_path / "pairs.jsonl")]
    assert evaluate.main(["minimal-pairs", *words]) == 0
    assert "frequencies" not in capsys.readouterr().out


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
def small(export):
    """A random model of the project; and the same opened by `transformers`."""
    return open_predictor(export), Loop(export)


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
