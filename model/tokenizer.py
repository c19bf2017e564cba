"""`tokenizer.json`: the training vocabulary and the training text normalisation in the format of
`transformers`.

The ids it gives are the ids that the model was trained on. Three things make the usual conversions differ,
and are mended here: the single-character symbols ( ) " - . and the like are ordinary pieces (as added tokens
they would cut the words that they touch); accents are stripped by the same list of characters as in training;
and white space is collapsed before words are cut.

SentencePiece adds up the scores of a whole text in single precision, `tokenizers` those of a word in double.
Where two segmentations of a word are closer than that rounding, the two may choose differently: with the
published vocabulary in 2 of 30,000 paragraphs of Wikipedia, which are otherwise the same. And `tokenizers` does not
decompose what Unicode 13 and 14 added, such as digits in the shape of seven segments.
"""

import base64
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN = "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN)
"""The pieces with the ids 0 to 4."""

_WORD_START = "▁"

_LETTER, _SIGNS = r"[\p{Cased}&&[^\p{Case_Ignorable}]]", r"\p{Case_Ignorable}*"
_FINAL_SIGMA = f"(?<={_LETTER}{_SIGNS})Σ(?!{_SIGNS}{_LETTER})"
"""Unicode's Final_Sigma: behind a letter, and no letter follows; apostrophes and the like between them do not count."""


def read_vocabulary(path: Path) -> sentencepiece.SentencePieceProcessor:
    """The SentencePiece model in the file `path`.

    Raises ValueError where it is missing, is no SentencePiece model, or does not start with the special
    tokens.
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
    """The contents of `tokenizer.json` for the SentencePiece unigram model in the file `path`.

    Raises ValueError as `read_vocabulary` does.
    """
    vocabulary = read_vocabulary(path)
    pieces = [[vocabulary.id_to_piece(i), vocabulary.get_score(i)] for i in range(len(vocabulary))]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number} | _matching(token) for number, token in enumerate(SPECIAL_TOKENS)],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(vocabulary)},
        # "first": what follows [MASK] without a space goes on with the word; "always" would start a new one.
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


def tokenizer_config(max_position_embeddings: int) -> dict[str, Any]:
    """The contents of `tokenizer_config.json`.

    It names the general class, which takes `tokenizer.json` as it is: `AlbertTokenizer` would put a
    normalisation of its own in the place of ours.
    """
    return {
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
    """How the special `token` is found in a text."""
    return {
        "content": token,
        "single_word": False,
        "lstrip": token
        == MASK_TOKEN,  # the mask stands for a piece that may start a word, so it takes the space before it
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


def _normalizers(vocabulary: sentencepiece.SentencePieceProcessor) -> list[dict[str, Any]]:
    """The training text's normalisation, then the vocabulary's own (none where it was trained with
    "identity")."""
    collapse_spaces = _replace_regex(f"{_character_class(str.isspace)}+", " ")
    marks = _character_class(lambda character: unicodedata.combining(character) != 0)
    steps: list[dict[str, Any]] = [
        # Two characters made one at the very start would hide from Metaspace that a word starts there,
        _replace_regex("^(``|'')", ' "'),
        _replace("``", '"'),
        _replace("''", '"'),
        {"type": "NFKD"},
        _replace_regex(f"^{marks}+", " "),  # and so would characters that are taken away.
        _replace_regex(marks, ""),
        _replace_regex(_FINAL_SIGMA, "ς"),  # Python's lower() knows the form that ends a word
        {"type": "Lowercase"},
        collapse_spaces,
    ]
    specification = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.serialized_model_proto()).normalizer_spec
    if specification.precompiled_charsmap:
        charsmap = base64.b64encode(specification.precompiled_charsmap).decode("ascii")
        steps += [{"type": "Precompiled", "precompiled_charsmap": charsmap}, collapse_spaces]
    steps.append({"type": "Strip", "strip_left": False, "strip_right": True})
    return steps


def _replace(text: str, by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": text}, "content": by}


def _replace_regex(pattern: str, by: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": by}


def _character_class(belongs: Callable[[str], bool]) -> str:
    """A regular expression for the characters that `belongs` accepts."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if not belongs(chr(code)):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges) + "]"
