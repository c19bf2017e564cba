"""Plain text -> tokens. This module has the codes of languages.

sentences                 splits text into sentences
english                   where English sentences end
normalize                 ALBERT's text normalisation
vocabulary                what a vocabulary is, and how its file is found and read
sentencepiece_vocabulary  ALBERT's kind: a SentencePiece model with special pieces, also from a tokenizer.json
wordpiece_vocabulary      BERT's kind: WordPiece, by the library `tokenizers`
text_encoder              encodes sentences fast, each different word once; tells which characters tokens come from
"""

import re

from common.errors import UserError

ENGLISH = "en"


def check_language(language: str | None) -> None:
    """Raises UserError unless `language` is None or has the form of a language's code, such as "de"."""
    if language is not None and not re.fullmatch(r"[a-z]{2,3}(?:-[a-z0-9]{2,8})*", language):
        raise UserError(f"--language {language} is not the code of a language; give one such as de, ru or zh")
