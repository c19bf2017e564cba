"""Makes the files by which `transformers` opens a tokenizer: the vocabulary and the text normalisation of training.

A WordPiece vocabulary is a `tokenizer.json` already. That of a SentencePiece model is made here. It gives the ids that
the model was trained on. The usual conversions of a SentencePiece model differ in three ways:

- Here the single-character symbols such as ( ) " - . are ordinary pieces. As added tokens they would split words.
- Here accents are removed by the same list of characters as in training.
- Here white space is collapsed before the text is split into words.

Two differences remain. SentencePiece adds up the scores of a whole text in fp32, `tokenizers` those of a word in fp64.
If two segmentations of a word differ by less than that rounding, the two may choose differently: with the published
vocabulary in 2 of 30,000 paragraphs of Wikipedia. And `tokenizers` does not decompose characters that Unicode 13 and 14
added, such as seven-segment digits.
"""

import base64
import functools
import itertools
import sys
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from common.files.json_files import read_object
from common.normalization import ALBERT_NORMALIZATION, Normalization

PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN = "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN)
"""The pieces with the ids 0 to 4."""

_WORD_START = "▁"

_LETTER, _SIGNS = r"[\p{Cased}&&[^\p{Case_Ignorable}]]", r"\p{Case_Ignorable}*"
_FINAL_SIGMA = f"(?<={_LETTER}{_SIGNS})Σ(?!{_SIGNS}{_LETTER})"
"""Unicode's Final_Sigma: a sigma after a letter and before no letter; apostrophes and similar signs are ignored."""


class TokenizerFiles(NamedTuple):
    """The files of a tokenizer.

    Attributes:
        files: contents by name: bytes, or the object of a JSON file.
        pieces: their number.
        pad_token_id: the id of the padding.
    """

    files: dict[str, bytes | dict[str, Any]]
    pieces: int
    pad_token_id: int


def tokenizer_files(path: Path, max_position_embeddings: int) -> TokenizerFiles:
    """Returns the files for the vocabulary in the file `path`: a SentencePiece model, or a tokenizer.json of WordPiece.

    Raises:
        ValueError: the file is missing or another one.
    """
    if path.suffix != ".json":
        vocabulary = read_vocabulary(path)
        config = tokenizer_config(max_position_embeddings, read_normalization(vocabulary))
        made = {"tokenizer.json": tokenizer_json(path), "tokenizer_config.json": config}
        return TokenizerFiles({"spiece.model": path.read_bytes(), **made}, len(vocabulary), 0)
    contents = read_object(path, "give the vocabulary that the model was trained with")
    ids: dict[str, int] = contents["model"]["vocab"]
    files: dict[str, bytes | dict[str, Any]] = {
        "tokenizer.json": path.read_bytes(),
        "vocab.txt": "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__)).encode(),
        "tokenizer_config.json": _wordpiece_config(contents, max_position_embeddings),
    }
    return TokenizerFiles(files, len(ids), ids["[PAD]"])


def _wordpiece_config(contents: Mapping[str, Any], max_position_embeddings: int) -> dict[str, Any]:
    """The contents of tokenizer_config.json beside a tokenizer.json of WordPiece."""
    normalizer = contents["normalizer"]
    return {
        "tokenizer_class": "BertTokenizer",
        "model_max_length": max_position_embeddings,
        "do_lower_case": normalizer["lowercase"],
        "strip_accents": normalizer["strip_accents"],
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
    } | {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}


def read_vocabulary(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Reads the SentencePiece model in the file `path`.

    Raises:
        ValueError: the file is missing, is not a SentencePiece model, or does not start with the special tokens.
    """
    if not path.is_file():
        raise ValueError(f"{path} does not exist; give the vocabulary that the model was trained with")
    try:
        vocabulary = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path} is no SentencePiece model; give the file that `vocab` wrote") from error
    first = [vocabulary.id_to_piece(i) for i in range(min(len(SPECIAL_TOKENS), len(vocabulary)))]
    if first != list(SPECIAL_TOKENS):
        raise ValueError(f"{path} starts with {first} instead of {list(SPECIAL_TOKENS)}; train another vocabulary")
    return vocabulary


def tokenizer_json(path: Path) -> dict[str, Any]:
    """Returns the contents of `tokenizer.json` for the SentencePiece unigram model in the file `path`.

    Raises:
        ValueError: see `read_vocabulary`.
    """
    vocabulary = read_vocabulary(path)
    pieces = [[vocabulary.id_to_piece(i), vocabulary.get_score(i)] for i in range(len(vocabulary))]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number} | _matching(token) for number, token in enumerate(SPECIAL_TOKENS)],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(vocabulary)},
        # "first": text that follows [MASK] without a space continues the word. "always" would start a new word.
        "pre_tokenizer": _metaspace(),
        "post_processor": _pair_template(),
        "decoder": _metaspace(),
        "model": {
            "type": "Unigram",
            "unk_id": SPECIAL_TOKENS.index(UNK_TOKEN),
            "vocab": pieces,
            "byte_fallback": False,
        },
    }


def tokenizer_config(
    max_position_embeddings: int, normalization: Normalization = ALBERT_NORMALIZATION
) -> dict[str, Any]:
    """Returns the contents of `tokenizer_config.json`.

    It names the general tokenizer class, which uses `tokenizer.json` as it is. `AlbertTokenizer` would replace our
    normalisation by its own. A normalisation other than ALBERT's is named, for people.
    """
    recorded = {} if normalization == ALBERT_NORMALIZATION else {"normalization": normalization.description}
    return recorded | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_position_embeddings,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "pad_token": PAD_TOKEN,
        "unk_token": UNK_TOKEN,
        "cls_token": CLS_TOKEN,
        "sep_token": SEP_TOKEN,
        "mask_token": {"__type": "AddedToken"} | _matching(MASK_TOKEN),
    }


def _matching(token: str) -> dict[str, Any]:
    """How the special `token` is recognised in a text."""
    return {
        "content": token,
        "single_word": False,
        # The mask stands for a piece that may start a word, so it includes the space before it.
        "lstrip": token == MASK_TOKEN,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _metaspace() -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": _WORD_START, "prepend_scheme": "first", "split": True}


def _pair_template() -> dict[str, Any]:
    def special(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [special(CLS_TOKEN, 0), text("A", 0), special(SEP_TOKEN, 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": single + [text("B", 1), special(SEP_TOKEN, 1)],
        "special_tokens": {
            token: {"id": token, "ids": [SPECIAL_TOKENS.index(token)], "tokens": [token]}
            for token in (CLS_TOKEN, SEP_TOKEN)
        },
    }


def read_normalization(vocabulary: sentencepiece.SentencePieceProcessor) -> Normalization:
    """Returns how the text was normalised that the vocabulary was trained on."""
    return Normalization.of_name(_specification(vocabulary).name)


def _specification(vocabulary: sentencepiece.SentencePieceProcessor) -> sentencepiece_model_pb2.NormalizerSpec:
    return sentencepiece_model_pb2.ModelProto.FromString(vocabulary.serialized_model_proto()).normalizer_spec


def _normalizers(vocabulary: sentencepiece.SentencePieceProcessor) -> list[dict[str, Any]]:
    """The normalisation of the training text, then that of the vocabulary (none if it was trained with "identity")."""
    collapse_spaces = _replace_regex(f"{_character_class(str.isspace)}+", " ")
    accents = _character_class(unicodedata.combining)
    specification = _specification(vocabulary)
    kind = Normalization.of_name(specification.name)
    steps: list[dict[str, Any]] = [
        # Metaspace must see that a word starts at the first character. It cannot if the first step replaces two
        # characters by one there, or removes characters there: so both get a space in front.
        _replace_regex("^(``|'')", ' "'),
        _replace("``", '"'),
        _replace("''", '"'),
    ]
    if kind.keep_accents:
        steps.append({"type": "NFKC"})
    else:
        steps += [{"type": "NFKD"}, _replace_regex(f"^{accents}+", " "), _replace_regex(accents, "")]
    if not kind.keep_case:
        steps += [_replace_regex(_FINAL_SIGMA, "ς"), {"type": "Lowercase"}]  # as Python's lower() does
    steps.append(collapse_spaces)
    if specification.precompiled_charsmap:
        charsmap = base64.b64encode(specification.precompiled_charsmap).decode("ascii")
        steps += [{"type": "Precompiled", "precompiled_charsmap": charsmap}, collapse_spaces]
    steps.append({"type": "Strip", "strip_left": False, "strip_right": True})
    return steps


def _replace(text: str, by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": text}, "content": by}


def _replace_regex(pattern: str, by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": by}


@functools.cache
def _character_class(belongs: Callable[[str], object]) -> str:
    """Returns a regular expression for the characters of which `belongs` is true."""
    every = range(sys.maxunicode + 1)
    ranges: list[list[int]] = []
    for code in itertools.compress(every, map(belongs, map(chr, every))):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges) + "]"
