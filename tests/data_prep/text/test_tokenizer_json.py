"""The exported tokenizer gives the ids of training: those of SentencePiece, whatever normalisation is recorded."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as model_proto
from tokenizers import Tokenizer

from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.normalize import Normalization, normalize
from data_prep.text.sentencepiece_vocabulary import SPECIAL_PIECES, train_sentencepiece
from data_prep.text.text_encoder import Encoder, OffsetEncoder
from data_prep.text.tokenizer_json import tokenizer_files
from data_prep.text.vocabulary import CLS_ID, MASK_ID, PAD_ID, SEP_ID, Vocabulary
from model import AlbertForPreTraining, huggingface
from pipeline.finetuning import predictor
from tests.data_prep import corpora
from tests.data_prep.foreign_pages import WIKIS
from tests.model.examples import few_examples, tiny_config

KINDS = [Normalization(case, accents) for case in (False, True) for accents in (False, True)]
WITH_BYTES = "bytes"  # pieces that are bytes, and capitals and accents as they are
OWN_RULE = "nmt_nfkc"  # SentencePiece's own normalisation, which the published vocabulary has
TABLE = tomllib.loads(Path(__file__).with_name("lines.toml").read_text(encoding="utf-8"))
HARD_LINES = TABLE["hard"]
LINES = [sentence for wiki in WIKIS for sentence in wiki.sentences] + TABLE["accents"]
ENGLISH_LINES = [*corpora.make_sentences(300), *HARD_LINES]


@pytest.fixture(scope="module", params=[*KINDS, WITH_BYTES, OWN_RULE], ids=lambda kind: getattr(kind, "name", kind))
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a model with a vocabulary of one normalisation."""
    kind = Normalization(keep_case=True, keep_accents=True) if request.param == WITH_BYTES else request.param
    path = tmp_path_factory.mktemp("vocabulary") / "spiece.model"
    if kind == OWN_RULE:
        years = [f"in {year}, it was" for year in range(1900, 2000)]
        path.write_bytes(corpora.train_pieces(ENGLISH_LINES * 3 + years, 390, OWN_RULE))
    else:
        sentences = [normalize(line, kind) for line in (LINES + HARD_LINES) * 30]
        words = sorted({normalize(word, kind) for line in LINES for word in re.findall(r"\S+", line)})
        if request.param == WITH_BYTES:
            sentences, words = [line for line in sentences if line.isascii()], ENGLISH_LINES[:300]
        options = (0.99, True) if request.param == WITH_BYTES else ()
        trained = train_sentencepiece(iter([line for line in sentences + words if line]), 390, kind, "de,ru", *options)
        path.write_bytes(trained.serialized)
    directory = tmp_path_factory.mktemp("export")
    vocabulary = load_vocabulary(path)
    huggingface.save(AlbertForPreTraining(tiny_config(vocab_size=390)), directory, tokenizer_files(vocabulary, 40))
    assert (directory / "spiece.model").read_bytes() == vocabulary.serialized
    return directory


@pytest.fixture(scope="module")
def vocabulary(directory: Path) -> Vocabulary:
    return load_vocabulary(directory)


@pytest.fixture(scope="module")
def lines(directory: Path) -> list[str]:
    """Texts of many languages; English only where the vocabulary has SentencePiece's own normalisation."""
    proto = model_proto.ModelProto.FromString((directory / "spiece.model").read_bytes())
    return ENGLISH_LINES if proto.normalizer_spec.name == OWN_RULE else LINES + ENGLISH_LINES


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.from_file(str(directory / "tokenizer.json"))


@pytest.fixture(scope="module")
def theirs(directory: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(directory)


def test_transformers_training_and_fine_tuning_give_the_same_ids(vocabulary, theirs, lines):
    expected = vocabulary.encode(lines)
    assert not any(SPECIAL_PIECES.are_in(line) for line in lines)
    found = theirs(lines, add_special_tokens=False)["input_ids"]
    assert [line for line, one, other in zip(lines, found, expected) if one != other] == []
    ids, counts = Encoder(vocabulary).encode(lines)
    offsets = OffsetEncoder(vocabulary)
    begin = 0
    for line, count, of_line in zip(lines, counts.tolist(), expected):
        assert ids[begin : begin + count].tolist() == of_line
        assert offsets.encode(line).ids.tolist() == of_line
        begin += count


@few_examples
@given(words=st.lists(st.text("abÀéÉİ019()\"-.–£€'` ΑΣйか中\u00ad\u0301\u0327\u3099", max_size=8), max_size=6))
@example(words=["e\u0301 a"])
@example(words=["か\u3099か", "か"])
def test_any_mixture_gets_the_ids_of_the_training(words, vocabulary, tokenizer):
    text = " ".join(words)
    (expected,) = vocabulary.encode([text])
    assert tokenizer.encode(text, add_special_tokens=False).ids == expected


NAMES = st.sampled_from(SPECIAL_PIECES)
PARTS = st.text("abÀé19,.`'(\u0301か中▁\0 \n", max_size=4) | NAMES


@few_examples
@given(parts=st.lists(PARTS, max_size=9))
@example(parts=["be", "[MASK]", "an [SEP] a", "<pad>", ".", "[CLS]", "[MASK]"])
@example(parts=["a▁b ▁ c\0d", "[UNK]", "▁[MASK]▁"])
@example(parts=["<pad>", "\u0301", "0"])
@example(parts=["a[MASK]", "''a<pad>``", "b"])
def test_where_a_model_is_used_the_names_of_special_pieces_are_those_pieces(parts, vocabulary, theirs):
    """In the export, in fine-tuning and predictions, and in answers with their offsets."""
    text = "".join(parts)
    expected = theirs(text, add_special_tokens=False)["input_ids"]
    assert Encoder(vocabulary).encode_for_use([text])[0].tolist() == expected
    ids, starts, ends = OffsetEncoder(vocabulary).encode(text)
    assert ids.tolist() == expected
    assert (starts <= ends).all()
    assert (starts[1:] >= starts[:-1]).all()
    for piece, start, end in zip(ids.tolist(), starts, ends):
        if piece < len(SPECIAL_PIECES) and SPECIAL_PIECES[piece] in text and text[start:end] in SPECIAL_PIECES:
            assert text[start:end] == SPECIAL_PIECES[piece]


@few_examples
@given(parts=st.lists(PARTS, max_size=9))
def test_what_a_model_is_pre_trained_on_never_has_special_pieces(parts: list[str], vocabulary: Vocabulary) -> None:
    text = "".join(parts)
    ids, _ = Encoder(vocabulary).encode([text])
    assert not set(ids.tolist()) & {PAD_ID, CLS_ID, SEP_ID, MASK_ID}
    blanks = text.replace("\0", " ").replace("▁", " ")
    assert ids.tolist() == Encoder(vocabulary).encode([blanks])[0].tolist()


def test_a_model_restored_from_the_tokenizer_gives_these_ids(directory, vocabulary, lines):
    restored = load_vocabulary(directory / "tokenizer.json")
    assert (restored.pieces, restored.normalization) == (vocabulary.pieces, vocabulary.normalization)
    assert restored.encode(lines) == vocabulary.encode(lines)


def test_special_tokens_pairs_and_masks(directory: Path, vocabulary: Vocabulary, theirs: Any, lines: list[str]) -> None:
    contents = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    assert [(token["id"], token["content"]) for token in contents["added_tokens"]] == list(enumerate(SPECIAL_PIECES))
    assert (theirs.model_max_length, len(theirs)) == (40, 390)
    names = (theirs.pad_token, theirs.unk_token, theirs.cls_token, theirs.sep_token, theirs.mask_token)
    assert names == SPECIAL_PIECES
    first, second = vocabulary.encode(["the list", "is (new)."])
    pair = theirs("the list", "is (new).")
    assert pair["input_ids"] == [2, *first, 3, *second, 3]
    assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert theirs.decode(pair["input_ids"][: len(first) + 2], skip_special_tokens=True) == vocabulary.decode(first)
    texts = ["The list [MASK] is new.", "The list [MASK].", "be[MASK]an", "Élise [MASK] à l'école.", "Никто [MASK] йод"]
    for text in texts[:3] if lines is ENGLISH_LINES else texts:
        assert predictor.encode(vocabulary, text) == theirs(text)["input_ids"]


def test_another_vocabulary_is_refused_before_anything_is_written(vocabulary: Vocabulary, tmp_path: Path) -> None:
    model = AlbertForPreTraining(tiny_config(vocab_size=391))
    with pytest.raises(ValueError, match="has 390 pieces, but"):
        huggingface.save(model, tmp_path / "export", tokenizer_files(vocabulary, 40))
    assert not (tmp_path / "export").exists()
