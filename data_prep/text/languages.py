"""Codes of languages."""

import re

from common.errors import UserError

ENGLISH = "en"


def check_language(language: str | None) -> None:
    """Raises UserError unless `language` is None or has the form of a language's code, such as "de"."""
    if language is not None and not re.fullmatch(r"[a-z]{2,3}(?:-[a-z0-9]{2,8})*", language):
        raise UserError(f"--language {language} is not the code of a language; give one such as de, ru or zh")
