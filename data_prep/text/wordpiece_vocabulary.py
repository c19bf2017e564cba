"""BERT's vocabulary: WordPiece (Devlin et al., arXiv 1810.04805), computed by the library `tokenizers`.

A published vocabulary is read; none is trained here. The tokens are those of `transformers.BertTokenizer`. But in what
a model is pre-trained on, the names of special pieces are plain text. The file is a tokenizer.json, which
`transformers` opens. Equal vocabularies give equal bytes.
"""

import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from data_prep.text.normalize import Normalization
from data_prep.text.vocabulary import TOKENIZER_FILE, SpecialPieces, Vocabulary

UNKNOWN = "[UNK]"
SPECIAL_PIECES = SpecialPieces(("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]"))
CONTINUES = "##"  # the mark of a piece that continues a word

CONFIG_FILE = "tokenizer_config.json"
_CONFIG_KEYS = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}
"""Our rules and their keys in tokenizer_config.json."""
_GENERAL_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")  # of `transformers`: follow tokenizer.json alone
_CAPITAL = re.compile("[A-Z]")
_NORMALIZER, _SPLITTER = "BertNormalizer", "BertPreTokenizer"

# Each rank encodes, and a rank forks; threads of the library would be too many, and would make it warn.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@dataclass(frozen=True)
class WordPieceRules:
    """What decides the tokens beside the pieces. The defaults are those of BERT without capitals."""

    lowercase: bool = True
    strip_accents: bool | None = None  # None: if text becomes lower case
    handle_chinese_chars: bool = True  # whether each Chinese character is a word
    max_input_chars_per_word: int = 100  # a longer word is unknown

    def __post_init__(self) -> None:
        types = (bool, bool | None, bool, int)
        if wrong := [name for (name, value), kind in zip(vars(self).items(), types) if not isinstance(value, kind)]:
            raise ValueError(f"has {getattr(self, wrong[0])!r:.40} for {wrong[0]}")

    @property
    def normalization(self) -> Normalization:
        """What of it is kept in the records of shards and runs."""
        return Normalization(not self.lowercase, not self.effective["strip_accents"], of_bert=True)

    @property
    def effective(self) -> dict[str, Any]:
        """The rules by name, with what decides accents if None is given."""
        return vars(self) | {"strip_accents": self.lowercase if self.strip_accents is None else self.strip_accents}


class WordPieceVocabulary(Vocabulary):
    """A vocabulary of pieces in the order of their ids in the file. ValueError: one is missing or occurs twice.

    Control characters in a text vanish, and do not end a word.
    """

    file_name = TOKENIZER_FILE
    special = SPECIAL_PIECES
    not_in_words = str.maketrans("", "", "\0\x0b\x0c\x1c\x1d\x1e\x1f\x85")
    word = re.compile(r"(?:\S|[\x0b\x0c\x1c-\x1f\x85])+")

    def __init__(self, pieces: Sequence[str], rules: WordPieceRules) -> None:
        ids = {piece: number for number, piece in enumerate(pieces)}
        if len(ids) < len(pieces):
            twice = next(piece for number, piece in enumerate(pieces) if ids[piece] != number)
            raise ValueError(f"has the piece {twice!r} twice")
        if missing := [piece for piece in SPECIAL_PIECES if piece not in ids]:
            raise ValueError(f"is a WordPiece vocabulary without {' '.join(missing)}")
        self.rules, self.normalization = rules, rules.normalization
        self.serialized = _serialize(ids, rules)
        self.sha256 = hashlib.sha256(self.serialized).hexdigest()
        self.pieces = [*SPECIAL_PIECES, *(piece for piece in pieces if piece not in SPECIAL_PIECES)]
        file_ids = np.array([ids[piece] for piece in self.pieces], np.int64)
        self.file_ids = None if np.array_equal(file_ids, np.arange(len(pieces))) else file_ids
        self.continues_word = np.array([piece.startswith(CONTINUES) for piece in self.pieces])
        self.spellings = [
            piece.removeprefix(CONTINUES) if continues else f" {piece}"
            for piece, continues in zip(self.pieces, self.continues_word.tolist())
        ]
        self._tokenizer = _tokenizer({piece: number for number, piece in enumerate(self.pieces)}, rules)

    @classmethod
    def of_pieces(cls, content: bytes, config: Mapping[str, Any] | None, directory: Path) -> "WordPieceVocabulary":
        """Reads a vocab.txt, with the rules in `config`, the tokenizer_config.json of its directory; or else BERT's."""
        try:
            pieces = content.decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError:
            raise ValueError("is not UTF-8 text") from None
        pieces = [piece.removesuffix("\r") for piece in pieces]
        given = config or {}
        if "do_lower_case" not in given and any(map(_CAPITAL.search, {*pieces} - {*SPECIAL_PIECES})):
            _note_case(directory)
        return cls(pieces, WordPieceRules(**_configured(given)))

    @classmethod
    def of_tokenizer(cls, contents: Mapping[str, Any], config: Mapping[str, Any] | None) -> "WordPieceVocabulary":
        """Reads the contents of a tokenizer.json whose model is WordPiece; `config` is the file beside it, if any.

        ValueError: it splits or normalises text in another way than BERT, has more added tokens, or contradicts the
        tokenizer_config.json beside it: `transformers` follows that, and its defaults for what it leaves out, unless it
        names a class that reads tokenizer.json alone.
        """
        model, normalizer, splitter = (contents.get(part) or {} for part in ("model", "normalizer", "pre_tokenizer"))
        kinds = tuple(part.get("type") if isinstance(part, dict) else None for part in (normalizer, splitter))
        if kinds != (_NORMALIZER, _SPLITTER) or model.get("continuing_subword_prefix", CONTINUES) != CONTINUES:
            raise ValueError(f"prepares text by {kinds[0]} and {kinds[1]}; only {_NORMALIZER} and {_SPLITTER} are read")
        ids = model.get("vocab")
        numbers = [number for number in ids.values() if type(number) is int] if isinstance(ids, dict) else []
        if not isinstance(ids, dict) or sorted(numbers) != list(range(len(ids))):
            raise ValueError("has a vocabulary whose ids are not 0, 1, 2 and so on")
        listed = contents.get("added_tokens") or []
        tokens = listed if isinstance(listed, list) else [{"content": listed}]
        added = [token.get("content") for token in tokens if isinstance(token, dict)]
        if others := [str(token) for token in added if token not in SPECIAL_PIECES]:
            raise ValueError(f"has the added tokens {' '.join(others):.80}; only {' '.join(SPECIAL_PIECES)} are read")
        given = {name: normalizer[name] for name in vars(WordPieceRules()) if name in normalizer}
        longest = model.get("max_input_chars_per_word", WordPieceRules.max_input_chars_per_word)
        rules = WordPieceRules(**given, max_input_chars_per_word=longest)
        if config is not None and config.get("tokenizer_class") not in _GENERAL_CLASSES:
            theirs = WordPieceRules(**_configured(config))
            for name, key in _CONFIG_KEYS.items():
                if rules.effective[name] != theirs.effective[name]:
                    said = "is" if key in config else "is by default"
                    raise ValueError(
                        f"and {CONFIG_FILE} beside it differ: {name} is {rules.effective[name]} in the first, and "
                        f"{key} {said} {theirs.effective[name]}; set {key} in {CONFIG_FILE} as the model was trained"
                    )
        return cls(sorted(ids, key=ids.__getitem__), rules)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def _encode_part(self, part: str, begins_word: bool) -> Iterator[tuple[int, int, int]]:
        """See `Vocabulary._encode_part`. A name of a special piece ends a word."""
        encoded = self._tokenizer.encode(part, add_special_tokens=False)
        return ((piece, start, end) for piece, (start, end) in zip(encoded.ids, encoded.offsets))

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode([int(i) for i in ids if i >= len(SPECIAL_PIECES)])


def _configured(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rules that a tokenizer_config.json gives; `transformers` has our defaults. null is a default, too."""
    return {name: config[key] for name, key in _CONFIG_KEYS.items() if config.get(key) is not None}


@functools.cache
def _note_case(directory: Path) -> None:
    """Says once, on the first rank, that capitals are not kept."""
    if os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")) == "0":
        print(
            f"note: {directory} has pieces with capitals, but no do_lower_case in a {CONFIG_FILE}; text becomes lower "
            'case, as in `transformers`. Write {"do_lower_case": false} there to keep capitals',
            file=sys.stderr,
        )


def _tokenizer(ids: dict[str, int], rules: WordPieceRules) -> tokenizers.Tokenizer:
    """The library's tokenizer. The names of special pieces in a text are not special to it."""
    longest = rules.max_input_chars_per_word
    tokenizer = tokenizers.Tokenizer(models.WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=longest))
    kept = (rules.handle_chinese_chars, rules.strip_accents, rules.lowercase)
    tokenizer.normalizer = normalizers.BertNormalizer(True, *kept)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _serialize(ids: dict[str, int], rules: WordPieceRules) -> bytes:
    """The content of tokenizer.json, with the rows "[CLS] A [SEP]" and "[CLS] A [SEP] B [SEP]"."""
    tokenizer = _tokenizer(ids, rules)
    tokenizer.add_special_tokens(list(SPECIAL_PIECES))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(piece, ids[piece]) for piece in ("[CLS]", "[SEP]")],
    )
    return (json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=1) + "\n").encode()
