"""Writes superscripts and subscripts in plain text: 10<sup>6</sup> becomes "10^6", not "106"."""

import html
import re

_SCRIPT = re.compile(r"<(sup|sub)\b[^<>]*>([^<>]*)</\1\s*>", re.IGNORECASE)
_MAX_DEPTH = 3  # of nested scripts; the tags of deeper ones are removed like other tags
_BEFORE = re.compile(r"(.)(?:</[a-z]+\s*>|&[a-z]+;)*\Z", re.IGNORECASE | re.DOTALL)
# "1st", "3ème", "Mlle": letters that are raised by custom only.
_BY_CUSTOM = re.compile(r"st|nd|rd|th|er|re|e|ème|eme|o|a|[ºª]|lle|me|gr|[™®©℠]|tm|r|d", re.IGNORECASE)
# Symbols of units whose squares and cubes have signs of their own, which {{convert}} shows, too: "km²".
# A metre or a second follows a number or a stroke: alone, these letters are also names of variables.
_UNIT = re.compile(r"(?:(?<![^\W\d_])(?:[kcdmnµ]m|mi|ft|yd)|(?:\d|\d[ \u00a0]|\d&nbsp;|/)(?:m|in)|/s)\Z")
_RAISED = {"2": "²", "3": "³"}
_WHOLE = re.compile(r"[-+−–±]?[\w.,]+|\d*[-+−–]|[*†‡§′″°]+|\([^()]*\)|\[[^\[\]]*\]")


def render_scripts(text: str) -> str:
    """Replaces <sup> and <sub> by plain text: "10^6", "x^(n+1)", "a_n", but "CO2", "H2O(l)", "1st", "14C"."""
    if "<su" not in text and "<SU" not in text:
        return text
    for _ in range(_MAX_DEPTH):  # from the innermost outwards
        text = _SCRIPT.sub(_render, text)
    return text


def _render(match: re.Match[str]) -> str:
    base = _BEFORE.search(match.string[max(0, match.start() - 40) : match.start()])
    after = match.string[match.end() : match.end() + 1]
    raised = _RAISED.get(match[2].strip()) if match[1].lower() == "sup" else None
    if raised is not None and _UNIT.search(match.string[max(0, match.start() - 10) : match.start()]):
        return raised
    return script(match[1].lower(), match[2], base[1] if base else "", after)


def script(kind: str, content: str, before: str, after: str = "") -> str:
    """Returns one script as text. kind: "sup" or "sub". before, after: the characters around it, "" for none."""
    content = html.unescape(content).strip()
    if not content or not (before.isalnum() or before in tuple(")]}|′'")):
        return content
    if kind == "sub":
        # Digits after a letter and "(aq)" are formulas and stay as they are. Anything else would merge with its base.
        is_of_formula = (content.isdecimal() and not before.isdecimal()) or (content[0] + content[-1] == "()")
        return content if is_of_formula else f"_{_grouped(content, after)}"
    is_by_custom = content.isalpha() and (before.isdecimal() or len(content) > 1) and _BY_CUSTOM.fullmatch(content)
    return content if is_by_custom else f"^{_grouped(content, after)}"


def _grouped(content: str, after: str) -> str:
    runs_on = content[-1].isalnum() and after.isdecimal()  # 5d<sup>10</sup>6s
    return content if _WHOLE.fullmatch(content) and not runs_on else f"({content})"
