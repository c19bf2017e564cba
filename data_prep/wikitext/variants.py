"""Resolves -{zh-hans:...;zh-hant:...}-: words that a wiki shows in the variant that a reader chooses."""

import re
from collections.abc import Sequence

_INNERMOST = re.compile(r"-\{((?:(?!-\{|\}-)[^\n])*)\}-")
_MAX_DEPTH = 3  # of nested ones
_OPTION = re.compile(r"\s*(?:[^;:|{}=]*=>)?\s*([a-z]{2,3}(?:-[a-z]+)?)\s*:(.*)", re.DOTALL)
_HIDING = frozenset("HT-")  # flags of rules and titles, which show nothing


def choose_variants(text: str, preferred: Sequence[str]) -> str:
    """Replaces each "-{...}-" by the words of the first variant in `preferred` that it has, or else of its first one.

    "-{words}-" are words that are the same in all variants. Rules ("-{H|...}-") and titles ("-{T|...}-") show nothing.
    """
    if "-{" not in text:
        return text
    for _ in range(_MAX_DEPTH):  # from the innermost outwards
        text, count = _INNERMOST.subn(lambda match: _chosen(match[1], preferred), text)
        if not count:
            break
    return text


def _chosen(content: str, preferred: Sequence[str]) -> str:
    flags, bar, words = content.rpartition("|")
    if not bar:
        words = content
    elif _HIDING & set(flags.replace(" ", "").split(";")):
        return ""
    options = [
        _OPTION.fullmatch(part) for part in re.split(r";(?=\s*(?:[^;:]*=>)?\s*[a-z]{2,3}(?:-[a-z]+)?\s*:|\s*$)", words)
    ]
    found = {option[1]: option[2].strip() for option in reversed(options) if option}
    if not found:
        return words
    first = next(option[1] for option in options if option)
    return found[next((variant for variant in preferred if variant in found), first)]
