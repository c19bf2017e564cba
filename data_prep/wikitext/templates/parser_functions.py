"""MediaWiki's parser functions and variables: {{#if:...}}, {{#switch:...}}, {{lc:...}}, {{PAGENAME}}."""

import re
from collections.abc import Callable

from data_prep.wikitext.markers import REMOVED, UNKNOWN_AMOUNT
from data_prep.wikitext.site import read_table
from data_prep.wikitext.templates.arguments import names

_VARIABLES = read_table("templates.toml")["variables"]
_TITLE, _EMPTY = frozenset(names(_VARIABLES["title"])), frozenset(names(_VARIABLES["empty"]))
_UNKNOWN = frozenset(names(_VARIABLES["unknown"]))
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d{1,3})?", re.IGNORECASE)


def evaluate(content: str, title: str) -> str | None:
    """Returns what {{content}} shows, or None if it is no function or variable but a template.

    What only a calculation could tell is UNKNOWN_AMOUNT.

    Args:
        content: the text between the braces, without anything nested.
        title: the title of the page.
    """
    head, colon, rest = content.partition(":")
    name = head.strip().lower()
    if name in _TITLE:
        return rest.strip() or title or REMOVED
    if name in _EMPTY:
        return ""
    if not colon or name not in _FUNCTIONS:
        return UNKNOWN_AMOUNT if colon and name in _UNKNOWN else None
    values = [value.strip() for value in rest.split("|")]
    return _FUNCTIONS[name]([*values, "", ""])


def _is_known(value: str) -> bool:
    """Whether a value may be compared: it has no place where something was removed."""
    return REMOVED not in value and UNKNOWN_AMOUNT not in value


def _is_same(first: str, second: str) -> bool:
    """Compares as numbers if both are: 1.0 is 1."""
    if _NUMBER.fullmatch(first) and _NUMBER.fullmatch(second):
        return float(first) == float(second)
    return first == second


def _if_equal(values: list[str]) -> str:
    if not _is_known(values[0] + values[1]):
        return UNKNOWN_AMOUNT
    return values[2] if _is_same(values[0], values[1]) else values[3]


def _switch(values: list[str]) -> str:
    """Returns the result of the first case that is the value. Cases without "=" share the result of the next one.

    Otherwise it is the last part if it has no "=", or else the result of "#default".
    """
    value, *cases = values[:-2]  # without what stands for missing arguments
    if not _is_known(value):
        return UNKNOWN_AMOUNT
    is_found = is_default = False
    default = ""
    for part in cases:
        case, equals, result = (text.strip() for text in part.partition("="))
        is_found = is_found or _is_same(value, case)
        is_default = is_default or case == "#default"
        if equals and is_found:
            return result
        if equals and is_default:
            default, is_default = result, False
    return default if not cases or "=" in cases[-1] or is_default else cases[-1]


_FUNCTIONS: dict[str, Callable[[list[str]], str]] = {
    "#if": lambda values: values[1] if values[0] else values[2],
    "#ifeq": _if_equal,
    "#ifexist": lambda values: values[1],
    "#iferror": lambda values: values[2] or values[0],
    "#switch": _switch,
    "uc": lambda values: values[0].upper(),
    "lc": lambda values: values[0].lower(),
    "ucfirst": lambda values: values[0][:1].upper() + values[0][1:],
    "lcfirst": lambda values: values[0][:1].lower() + values[0][1:],
}
