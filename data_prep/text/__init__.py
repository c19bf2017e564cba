"""Plain text -> tokens. This module has the codes of languages.

sentences                 splits text into sentences
english                   where English sentences end
normalize                 ALBERT's text normalisation, and what a vocabulary keeps of case and accents
vocabulary                what a vocabulary is, and where its file is found
load_vocabulary           reads a vocabulary of either kind
sentencepiece_vocabulary  ALBERT's kind: a SentencePiece model with special pieces
wordpiece_vocabulary      BERT's kind: WordPiece, by the library `tokenizers`
tokenizer_json            a SentencePiece model as tokenizer.json for `transformers`, and back
likeness                  tells which language a text looks like
text_encoder              encodes sentences fast, each different word once; tells which characters tokens come from
"""

import re
from collections.abc import Container

from common.errors import UserError

ENGLISH = "en"
_CLOSEST = {"no": "nb", "nn": "nb", "bs": "hr", "als": "gsw", "be-x-old": "be-tarask"}
"""Other codes of the same language or one whose writing is alike, for tables that lack a language."""


def closest(language: str, table: Container[str]) -> str:
    """Returns the code by which a table knows a language: "nb" for "no", "zh" for "zh-hant", or itself."""
    general = language.partition("-")[0]
    codes = (language, _CLOSEST.get(language, ""), general, _CLOSEST.get(general, ""))
    return next((code for code in codes if code in table), language)


def check_language(language: str | None) -> None:
    """Raises UserError unless `language` is None or has the form of a language's code, such as "de"."""
    if language is not None and not re.fullmatch(r"[a-z]{2,3}(?:-[a-z0-9]{2,8})*", language):
        raise UserError(f"--language {language} is not the code of a language; give one such as de, ru or zh")
