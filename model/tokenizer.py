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

import functools
import itertools
import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from common.files.json_files import read_object
from common.normalization import ALBERT_NORMALIZATION, Normalization

SPECIAL_TOKENS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
"""The pieces with the ids 0 to 4."""
_ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")

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
        ValueError: the file is missing, is another one, or does not start with the special tokens.
    """
    files: dict[str, bytes | dict[str, Any]]
    if path.suffix == ".json":
        contents = read_object(path, "give the vocabulary that the model was trained with")
        rules, ids = contents["normalizer"], contents["model"]["vocab"]
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": rules["lowercase"],
            "strip_accents": rules["strip_accents"],
            "tokenize_chinese_chars": rules["handle_chinese_chars"],
        } | dict(zip(_ROLES, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")))
        pieces = "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__))
        files = {"tokenizer.json": path.read_bytes(), "vocab.txt": pieces.encode()}
        size, padding = len(ids), ids["[PAD]"]
    else:
        tokenizer, normalization = convert(path)
        # The general class uses tokenizer.json as it is; `AlbertTokenizer` would replace our normalisation by its own.
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
        } | dict(zip(_ROLES, SPECIAL_TOKENS))
        config["mask_token"] = {"__type": "AddedToken", **_matching(SPECIAL_TOKENS[-1])}
        if normalization != ALBERT_NORMALIZATION:
            config["normalization"] = normalization.description  # for people
        files = {"spiece.model": path.read_bytes(), "tokenizer.json": json.loads(tokenizer.to_str())}
        size, padding = tokenizer.get_vocab_size(), 0
    config["model_max_length"] = max_position_embeddings
    return TokenizerFiles(files | {"tokenizer_config.json": config}, size, padding)


def convert(path: Path) -> tuple[Tokenizer, Normalization]:
    """Returns a tokenizer that encodes as the SentencePiece unigram model in the file `path`, and its normalisation.

    Raises:
        ValueError: the file is missing, is not a SentencePiece model, or does not start with the special tokens.
    """
    if not path.is_file():
        raise ValueError(f"{path} does not exist; give the vocabulary that the model was trained with")
    try:
        vocabulary = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path} is no SentencePiece model; give the file that `vocab` wrote") from error
    pieces = [(vocabulary.id_to_piece(i), vocabulary.get_score(i)) for i in range(len(vocabulary))]
    first = tuple(piece for piece, _ in pieces[: len(SPECIAL_TOKENS)])
    if first != SPECIAL_TOKENS:
        raise ValueError(f"{path} starts with {first} instead of {SPECIAL_TOKENS}; train another vocabulary")
    specification = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.serialized_model_proto()).normalizer_spec
    normalization = Normalization.of_name(specification.name)
    has_bytes = any(map(vocabulary.is_byte, range(len(vocabulary))))
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=SPECIAL_TOKENS.index("<unk>"), byte_fallback=has_bytes))
    tokenizer.add_special_tokens([AddedToken(**_matching(token)) for token in SPECIAL_TOKENS])
    tokenizer.normalizer = _normalizer(normalization, specification.precompiled_charsmap)
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
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer, normalization


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
    every = range(sys.maxunicode + 1)
    ranges: list[list[int]] = []
    for code in itertools.compress(every, map(belongs, map(chr, every))):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges) + "]"
