"""Reads a vocabulary of either kind from its file."""

from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.json_files import parse_object, read_bytes, read_object
from data_prep.text.sentencepiece_vocabulary import SentencePieceVocabulary
from data_prep.text.tokenizer_json import restore_model
from data_prep.text.vocabulary import MAX_PIECES, Vocabulary, find_vocabulary
from data_prep.text.wordpiece_vocabulary import CONFIG_FILE, WordPieceVocabulary

MAX_FILE_BYTES = 1 << 30
_REMEDY = "name a spiece.model, tokenizer.json, vocab.txt or its directory, or make one: `python -m data_prep vocab`"


def load_vocabulary(path: Path, remedy: str = _REMEDY) -> Vocabulary:
    """Reads a SentencePiece model, a tokenizer.json, a vocab.txt, or one of them in a directory.

    What tokenizer_config.json says beside a vocab.txt is followed. UserError: the file is missing or damaged, is not a
    vocabulary of the two kinds, lacks the special pieces, or has more pieces than 16 bits can number.
    """
    path = find_vocabulary(path)
    try:
        content = read_bytes(path, remedy, MAX_FILE_BYTES)
    except UserError as error:
        raise UserError(f"cannot read the vocabulary: {error}") from error
    contents = parse_object(content, path, remedy) if path.suffix == ".json" else {}
    is_wordpiece = isinstance(model := contents.get("model"), dict) and model.get("type") == "WordPiece"
    config: dict[str, Any] | None = None
    if is_wordpiece or path.suffix == ".txt":
        if (beside := path.with_name(CONFIG_FILE)).exists():
            config = read_object(beside, "restore it beside the vocabulary")
        elif path.with_name("config.json").exists():  # a model for `transformers`, not shards of ours
            config = {}
    vocabulary: Vocabulary
    try:
        if path.suffix == ".txt":
            vocabulary = WordPieceVocabulary.of_pieces(content, config, path.parent)
        elif is_wordpiece:
            vocabulary = WordPieceVocabulary.of_tokenizer(contents, config)
        else:
            vocabulary = SentencePieceVocabulary.of_file(restore_model(contents) if path.suffix == ".json" else content)
    except ValueError as error:
        raise UserError(f"{path} {error}; {remedy}") from error
    if len(vocabulary) > MAX_PIECES:
        raise UserError(f"{path} has {len(vocabulary)} pieces, and at most {MAX_PIECES} can be used; {remedy}")
    return vocabulary
