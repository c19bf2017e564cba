"""The exported tokenizer gives the ids of training: those of SentencePiece on normalised text."""

import importlib
import inspect
import json
import os
import random
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from data_prep.text.normalization import normalize
from data_prep.text.vocabulary import Vocabulary
from model import AlbertForPreTraining, huggingface
from model.tokenizer import SPECIAL_TOKENS, tokenizer_json
from tests.data_prep import corpora
from tests.model.examples import few_examples, tiny_config

SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]

# What English text holds beside plain words.
HARD_LINES = [
    "In 1918, the war ended; by 1,234,567 votes (53%) they chose 3.14, 2, and 10,000,.",
    "``Quoted'' text, 'single' and \"double\", “curly” ‘quotes’ – with dashes—and-hyphens--too.",
    "£5.00 or €7 (about $6) for non-union, ex-president's A.B.C. (1990–2000) ...",
    "Ångström, naïve café, Łódź, São Tomé, Škoda, Dvořák, Nguyễn, İstanbul, ﬁnely ﬂown, ½, №5, x²",
    "ΟΔΟΣ ΣΙΣΥΦΟΣ Σ σοφός, Москва, 東京都, 한국어, हिन्दी में, עִבְרִית, العربية, ไทย",
    "emoji ❤️ 👍🏽, soft\u00adhyphen, zero\u200bwidth, joiner\u200dhere, non\u00a0breaking\u2003spaces\u3000wide",
    " \t leading, \x1f  inner \x85 odd\u2028 white\x0bspace \n and at the end \t\r\n",
    "e\u0301 combined, a\u0327\u0301 twice, Ｆｕｌｌ ｗｉｄｔｈ １２３，, 10°C, 5′ 6″, m³, ™ and ©",
    "<unknown> [bracket] {brace} a/b c\\d e_f #1 @x 100% ~ ^ | = + * & < >",
    "Σ. ΑΣ ΑΣ. ΣΑΣ-ΣΑΣ Α'Σ ΑΣ'Α ΑΣ. Α 中Σ ΑΣ中",
    "\u0301leading mark",
    "\u0301\u0308 marks and a space",
    "ﾞdecomposes into a mark",
    "\u0301",
    "",
    " ",
]


@pytest.fixture(scope="session")
def english() -> list[str]:
    """Returns a few thousand lines of real English: the documentation of Python's standard library."""
    names = ("argparse", "decimal", "random", "logging", "difflib", "statistics", "heapq", "fractions", "email.message")
    modules = [importlib.import_module(name) for name in names]
    documented = [m for module in modules for m in (module, *vars(module).values())]
    texts = {inspect.getdoc(thing) or "" for thing in documented if inspect.ismodule(thing) or callable(thing)}
    # Lines without a letter are rulers: their segmentations tie, and rounding picks one.
    return sorted({line for text in texts for line in text.split("\n") if any(map(str.isalpha, line))})


@pytest.fixture(scope="session", params=["identity", "nmt_nfkc"])
def vocabulary_file(
    request: pytest.FixtureRequest, english: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A vocabulary of 600 pieces with the digit-comma rule, trained without and with SentencePiece's own
    normalisation."""
    numbers = random.Random(0)
    years = [f"in {numbers.randrange(1900, 2000)}, it was" for _ in range(500)]
    path = tmp_path_factory.mktemp("vocabulary") / "spiece.model"
    more = {"character_coverage": 0.999, "num_threads": 1}
    return corpora.train_pieces(path, english + years, 600, request.param, SYMBOLS, **more)


@pytest.fixture(scope="session")
def tokenizer(vocabulary_file: Path) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(tokenizer_json(vocabulary_file)))


def differences(tokenizer: Tokenizer, vocabulary: Vocabulary, lines: list[str]) -> list[str]:
    expected = vocabulary.encode(lines)
    actual = [encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=False)]
    return [line for line, ours, theirs in zip(lines, actual, expected) if ours != theirs]


def test_real_text_gets_the_ids_of_the_training(
    tokenizer: Tokenizer, vocabulary_file: Path, english: list[str]
) -> None:
    assert len(english) > 1000
    assert differences(tokenizer, Vocabulary.load(vocabulary_file), english) == []


@pytest.mark.parametrize("line", HARD_LINES)
def test_hard_lines_get_the_ids_of_the_training(tokenizer: Tokenizer, vocabulary_file: Path, line: str) -> None:
    vocabulary = Vocabulary.load(vocabulary_file)
    (expected,) = vocabulary.encode([line])
    actual = tokenizer.encode(line, add_special_tokens=False)
    assert actual.tokens == [vocabulary.pieces[i] for i in expected] or actual.ids == expected


@few_examples
@given(words=st.lists(st.text("abcdest,019()\"-.–£€'` éΑΣ’中\u0301\u00ad", max_size=12), max_size=6))
def test_any_mixture_of_symbols_gets_the_ids_of_the_training(
    words: list[str], tokenizer: Tokenizer, vocabulary_file: Path
) -> None:
    assert differences(tokenizer, Vocabulary.load(vocabulary_file), [" ".join(words)]) == []


@few_examples
@given(text=st.text(st.sampled_from("ABСΣσς.'’:-中 \u0301\u00ad") | st.characters(max_codepoint=0x2FFF), max_size=12))
@example(text="\u0301leading")
@example(text="Α'Σ ΑΣ'Α ΑΣ.Α 中Σ ΑΣ中 ʰΣ")
def test_text_is_normalised_as_in_training(text: str, vocabulary_file: Path) -> None:
    contents = tokenizer_json(vocabulary_file)
    steps = contents["normalizer"]["normalizers"]
    contents["normalizer"]["normalizers"] = [step for step in steps if step["type"] != "Precompiled"]  # nmt_nfkc's own
    normalizer = Tokenizer.from_str(json.dumps(contents)).normalizer
    assert normalizer.normalize_str(text).removeprefix(" ") == normalize(text)


@pytest.mark.skipif("ALBERT_VOCABULARY" not in os.environ, reason="ALBERT_VOCABULARY names no large vocabulary")
def test_a_large_vocabulary_gives_the_ids_of_the_training(english: list[str], tmp_path: Path) -> None:
    vocabulary = Vocabulary.load(Path(os.environ["ALBERT_VOCABULARY"]))
    (tmp_path / "spiece.model").write_bytes(vocabulary.serialized)
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(tmp_path / "spiece.model")))
    assert differences(tokenizer, vocabulary, english + HARD_LINES) == []


def test_only_the_special_tokens_are_added_tokens(vocabulary_file: Path) -> None:
    contents = tokenizer_json(vocabulary_file)
    assert [(token["id"], token["content"]) for token in contents["added_tokens"]] == list(enumerate(SPECIAL_TOKENS))
    assert [piece for piece, _ in contents["model"]["vocab"]] == Vocabulary.load(vocabulary_file).pieces


@pytest.fixture(scope="session")
def export(vocabulary_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("export")
    size = len(Vocabulary.load(vocabulary_file))
    huggingface.save(AlbertForPreTraining(tiny_config(vocab_size=size)), directory, vocabulary_file)
    return directory


def test_auto_tokenizer_opens_the_directory(export: Path, vocabulary_file: Path, english: list[str]) -> None:
    assert (export / "spiece.model").read_bytes() == vocabulary_file.read_bytes()
    vocabulary = Vocabulary.load(vocabulary_file)
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    assert len(tokenizer) == len(vocabulary)
    assert tokenizer.model_max_length == 40
    names = (tokenizer.pad_token, tokenizer.unk_token, tokenizer.cls_token, tokenizer.sep_token, tokenizer.mask_token)
    assert names == SPECIAL_TOKENS
    lines = english[:300] + HARD_LINES
    expected = vocabulary.encode(lines)
    assert tokenizer(lines, add_special_tokens=False)["input_ids"] == expected


def test_pairs_are_laid_out_as_in_training(export: Path, vocabulary_file: Path) -> None:
    first, second = Vocabulary.load(vocabulary_file).encode(["the list", "is (new)."])
    encoded = transformers.AutoTokenizer.from_pretrained(export)("The list", "is (new).")
    assert encoded["input_ids"] == [2, *first, 3, *second, 3]
    assert encoded["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    alone = transformers.AutoTokenizer.from_pretrained(export)("The list")
    assert alone["input_ids"] == [2, *first, 3]


def test_text_comes_back(export: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    ids = tokenizer("The list (new) is returned.")["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the list (new) is returned."


def test_a_mask_stands_for_a_piece_and_changes_nothing_around_it(export: Path, vocabulary_file: Path) -> None:
    vocabulary = Vocabulary.load(vocabulary_file)
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    (before,), (after,) = vocabulary.encode(["the list"]), vocabulary.encode(["is new."])
    dot = vocabulary.pieces.index(".")
    assert tokenizer("The list [MASK] is new.")["input_ids"] == [2, *before, 4, *after, 3]
    assert tokenizer("The list [MASK].")["input_ids"] == [2, *before, 4, dot, 3]


def test_the_fill_mask_pipeline_gives_what_the_model_predicts(export: Path) -> None:
    answers = transformers.pipeline("fill-mask", model=str(export))("The list [MASK] is new.", top_k=3)
    ids = transformers.AutoTokenizer.from_pretrained(export)("The list [MASK] is new.", return_tensors="pt")[
        "input_ids"
    ]
    with torch.no_grad():
        logits = huggingface.load(export).eval()(ids).mlm_logits[0]  # (S, V)
    scores, tokens = logits[(ids[0] == 4).nonzero().item()].softmax(-1).topk(3)
    assert [answer["token"] for answer in answers] == tokens.tolist()
    assert [answer["score"] for answer in answers] == pytest.approx(scores.tolist(), rel=1e-4)


def test_another_vocabulary_is_refused_before_anything_is_written(vocabulary_file: Path, tmp_path: Path) -> None:
    model = AlbertForPreTraining(tiny_config(vocab_size=601))
    with pytest.raises(ValueError, match="has 600 pieces, but the model's vocab_size is 601"):
        huggingface.save(model, tmp_path / "export", vocabulary_file)
    with pytest.raises(ValueError, match="does not exist"):
        huggingface.save(model, tmp_path / "export", tmp_path / "none.model")
    (tmp_path / "text.model").write_text("no model")
    with pytest.raises(ValueError, match="is no SentencePiece model"):
        huggingface.save(model, tmp_path / "export", tmp_path / "text.model")
    assert not (tmp_path / "export").exists()
