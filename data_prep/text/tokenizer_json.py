"""tokenizer.json of `transformers`: made of a vocabulary, and read where it is all that is left of one.

A WordPiece vocabulary is a `tokenizer.json` already. That of a SentencePiece model is made here. It gives the ids that
the model was trained on. The usual conversions of a SentencePiece model differ in three ways:

- Here the single-character symbols such as ( ) " - . are ordinary pieces. As added tokens they would split words.
- Here accents are removed by the same list of characters as in training.
- Here white space is collapsed before the text is split into words.

Two differences remain. SentencePiece adds up the scores of a word in fp32, and `tokenizers` in fp64. If two
segmentations of a word differ by less than that rounding, the two may choose differently: with the published vocabulary
in 7 of 154,864 paragraphs of Wikipedia. And `tokenizers` does not decompose some characters that Unicode got since
version 12, such as seven-segment digits.
"""

import base64
import functools
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2 as model_proto
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from data_prep.text.normalize import ALBERT_NORMALIZATION, Normalization
from data_prep.text.sentencepiece_vocabulary import SPECIAL_PIECES, SentencePieceVocabulary
from data_prep.text.vocabulary import PAD_ID, PIECES_FILE, TOKENIZER_FILE, UNK_ID, Vocabulary

_NO_ID = -1
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")

_LETTER, _SIGNS = r"[\p{Cased}&&[^\p{Case_Ignorable}]]", r"\p{Case_Ignorable}*"
_FINAL_SIGMA = f"(?<={_LETTER}{_SIGNS})Σ(?!{_SIGNS}{_LETTER})"
"""Unicode's Final_Sigma: a sigma after a letter and before no letter; apostrophes and similar signs are ignored."""


def tokenizer_files(vocabulary: Vocabulary, max_position_embeddings: int) -> dict[str, bytes]:
    """Returns the files of the tokenizer of a model for `transformers`, by name; for `model.huggingface.save`."""
    config: dict[str, Any] = dict(zip(_ROLES, vocabulary.special))
    files = {vocabulary.file_name: vocabulary.serialized}
    if isinstance(vocabulary, SentencePieceVocabulary):
        # The general class uses tokenizer.json as it is; `AlbertTokenizer` would replace our normalisation by its own.
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
        } | config
        config["mask_token"] = {"__type": "AddedToken", **_matching(SPECIAL_PIECES[-1])}
        if vocabulary.normalization != ALBERT_NORMALIZATION:
            config["normalization"] = vocabulary.normalization.description  # for people
        files[TOKENIZER_FILE] = _as_json(json.loads(_convert(vocabulary).to_str()))
    else:
        contents = json.loads(vocabulary.serialized)
        rules, ids = contents["normalizer"], contents["model"]["vocab"]
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": rules["lowercase"],
            "strip_accents": rules["strip_accents"],
            "tokenize_chinese_chars": rules["handle_chinese_chars"],
        } | config
        files[PIECES_FILE] = "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__)).encode()
    config["model_max_length"] = max_position_embeddings
    return files | {"tokenizer_config.json": _as_json(config)}


def _as_json(contents: Mapping[str, Any]) -> bytes:
    return (json.dumps(contents, indent=2, ensure_ascii=False) + "\n").encode()


def _convert(vocabulary: SentencePieceVocabulary) -> Tokenizer:
    """Returns a tokenizer that encodes as the SentencePiece unigram model does."""
    proto = model_proto.ModelProto.FromString(vocabulary.serialized)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    has_bytes = bool(vocabulary.is_byte.any())
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=UNK_ID, byte_fallback=has_bytes))
    tokenizer.add_special_tokens([AddedToken(**_matching(token)) for token in SPECIAL_PIECES])
    tokenizer.normalizer = _normalizer(vocabulary.normalization, proto.normalizer_spec.precompiled_charsmap)
    # "first": text that follows [MASK] without a space continues the word. "always" would start a new word.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    if has_bytes:  # a text that spells the name of a byte is no byte
        names = pre_tokenizers.Split(Regex("(?<=<0)x(?=[0-9A-F]{2}>)"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.pre_tokenizer, names])
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), tokenizer.decoder])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, SPECIAL_PIECES.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def _matching(token: str) -> dict[str, Any]:
    """How the special `token` is recognised in a text. The mask may start a word, so it includes the space before."""
    fixed = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    return {"content": token, "lstrip": token == "[MASK]", **fixed}


def _normalizer(kind: Normalization, charsmap: bytes) -> normalizers.Sequence:
    """The normalisation of the training text, then the vocabulary's own (none if it was trained with "identity")."""
    accents = _character_class(unicodedata.combining)
    collapse_spaces = normalizers.Replace(Regex(f"{_character_class(str.isspace)}+"), " ")
    steps: list[normalizers.Normalizer] = [
        normalizers.Replace(Regex("[\\x00▁]"), " "),
        # Metaspace must see that a word starts at the first character. It cannot if the first step replaces two
        # characters by one there, or removes characters there: so both get a space in front.
        normalizers.Replace(Regex("^(``|'')"), ' "'),
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
    ]
    if kind.keep_accents:
        steps.append(normalizers.NFKC())
    else:
        removal = [normalizers.Replace(Regex(f"^{accents}+"), " "), normalizers.Replace(Regex(accents), "")]
        steps += [normalizers.NFKD(), *removal]
    if not kind.keep_case:  # as Python's lower() does
        steps += [normalizers.Replace(Regex(_FINAL_SIGMA), "ς"), normalizers.Lowercase()]
    steps.append(collapse_spaces)
    if charsmap:
        steps += [normalizers.Precompiled(charsmap), collapse_spaces]
    return normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])


@functools.cache
def _character_class(belongs: Callable[[str], object]) -> str:
    """Returns a regular expression for the characters of which `belongs` is true."""
    inside = np.array([bool(belongs(chr(code))) for code in range(sys.maxunicode + 1)])
    firsts, stops = np.flatnonzero(np.diff(inside, prepend=False, append=False)).reshape(-1, 2).T.tolist()
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{stop - 1:x}}}" for first, stop in zip(firsts, stops)) + "]"


def restore_model(contents: Mapping[str, Any]) -> bytes:
    """Returns the SentencePiece model that a `tokenizer.json` was made from, as the bytes of a file.

    `tokenizer_files` has that file beside spiece.model. Programs that save a model again, such as `save_pretrained`,
    keep tokenizer.json and drop spiece.model.

    It has the same pieces, ids and normalisation, and gives every text the same ids. What SentencePiece records of its
    training is lost, also the language, so the bytes differ from those of the first file. ValueError: no unigram model.
    """
    model = contents.get("model")
    pieces = model.get("vocab") if isinstance(model, Mapping) and model.get("type") == "Unigram" else None
    forms = [str, float], [str, int]
    if not isinstance(pieces, list) or not all(isinstance(one, list) and [*map(type, one)] in forms for one in pieces):
        raise ValueError("is not a SentencePiece or WordPiece vocabulary: it holds no list of pieces with scores")
    steps = list(_steps(contents.get("normalizer")))
    proto = model_proto.ModelProto()
    kinds = model_proto.ModelProto.SentencePiece
    has_bytes = isinstance(model, Mapping) and model.get("byte_fallback") is True
    for number, (piece, score) in enumerate(pieces):
        if number < len(SPECIAL_PIECES):
            kind = kinds.UNKNOWN if number == UNK_ID else kinds.CONTROL
        elif has_bytes and score == 0 and _BYTE.fullmatch(piece):
            kind = kinds.BYTE
        else:  # the scores of trained pieces are logarithms of probabilities, which are below 0
            kind = kinds.NORMAL if score < 0 else kinds.USER_DEFINED
        proto.pieces.add(piece=piece, score=score, type=kind)
    trained = proto.trainer_spec
    trained.vocab_size, trained.byte_fallback = len(pieces), has_bytes
    trained.unk_id, trained.pad_id, trained.bos_id, trained.eos_id = UNK_ID, PAD_ID, _NO_ID, _NO_ID
    trained.pad_piece, trained.unk_piece = SPECIAL_PIECES[PAD_ID], SPECIAL_PIECES[UNK_ID]
    maps = (str(step.get("precompiled_charsmap")) for step in steps if step.get("type") == "Precompiled")
    proto.normalizer_spec.precompiled_charsmap = base64.b64decode(next(maps, ""))
    types = {str(step.get("type")) for step in steps}
    normalization = Normalization(keep_case="Lowercase" not in types, keep_accents="NFKD" not in types)
    if types & {"NFKD", "NFKC"} and normalization != ALBERT_NORMALIZATION:  # others are not ours
        proto.normalizer_spec.name = normalization.name
    return proto.SerializeToString(deterministic=True)


def _steps(normalizer: Any) -> Iterator[Mapping[str, Any]]:
    """Yields a normaliser of tokenizer.json and the steps inside of it."""
    if isinstance(normalizer, Mapping):
        yield normalizer
        parts = normalizer.get("normalizers")
        for part in parts if isinstance(parts, list) else []:
            yield from _steps(part)
