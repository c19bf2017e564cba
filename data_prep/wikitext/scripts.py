"""Superscripts and subscripts in a line of text: 10<sup>6</sup> must not become "106"."""

import html
import re

_SCRIPT = re.compile(r"<(sup|sub)\b[^<>]*>([^<>]*)</\1\s*>", re.IGNORECASE)
_DEEPEST = 3  # scripts in scripts; the tags of deeper ones are dropped like any other
_BEFORE = re.compile(r"(.)(?:</[a-z]+\s*>|&[a-z]+;)*\Z", re.IGNORECASE | re.DOTALL)
# "1st", "3ème", "Mlle": letters raised by custom, which are read as if they were not.
_BY_CUSTOM = re.compile(r"st|nd|rd|th|er|re|e|ème|eme|o|a|[ºª]|lle|me|gr|[™®©℠]|tm|r|d", re.IGNORECASE)
_WHOLE = re.compile(r"[-+−–±]?[\w.,]+|\d*[-+−–]|[*†‡§′″°]+|\([^()]*\)|\[[^\[\]]*\]")


def render_scripts(text: str) -> str:
    """Text whose <sup> and <sub> are plain: "10^6", "x^(n+1)", "a_n", but "CO2", "H2O(l)", "1st", "14C"."""
    if "<su" not in text and "<SU" not in text:
        return text
    for _ in range(_DEEPEST):  # from the innermost outwards
        text = _SCRIPT.sub(_render, text)
    return text


def _render(match: re.Match[str]) -> str:
    base = _BEFORE.search(match.string[max(0, match.start() - 40) : match.start()])
    after = match.string[match.end() : match.end() + 1]
    return script(match[1].lower(), match[2], base[1] if base else "", after)


def script(kind: str, content: str, before: str, after: str = "") -> str:
    """One script as text. kind: "sup" or "sub". before, after: the characters around it, "" for none."""
    content = html.unescape(content).strip()
    if not content or not (before.isalnum() or before in tuple(")]}|′'")):
        return content
    if kind == "sub":
        # A formula's digits after a letter, and its "(aq)", are read so; anything else would run into its base.
        is_of_formula = (content.isdecimal() and not before.isdecimal()) or (content[0] + content[-1] == "()")
        return content if is_of_formula else f"_{_grouped(content, after)}"
    is_by_custom = content.isalpha() and (before.isdecimal() or len(content) > 1) and _BY_CUSTOM.fullmatch(content)
    return content if is_by_custom else f"^{_grouped(content, after)}"


def _grouped(content: str, after: str) -> str:
    runs_on = content[-1].isalnum() and after.isdecimal()  # 5d<sup>10</sup>6s
    return content if _WHOLE.fullmatch(content) and not runs_on else f"({content})"
