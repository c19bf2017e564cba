"""The arguments of a template, and `shows`, by which a function says which templates it renders."""

import functools
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal, NamedTuple

from data_prep.wikitext.site import ENGLISH_SITE, Site

_NAMED = re.compile(r"\s*([\w .:&/-]{1,40}?)\s*=(.*)", re.DOTALL)


@dataclass
class Arguments:
    """The arguments of one template.

    Attributes:
        template: the name of the template, in lower case.
        positional: arguments by position, stripped. A numbered one ("1=...") is here, too.
        named: other arguments by key (in lower case), stripped.
        written: when the page was saved; None if that is not known.
        site: the wiki that the page is from.
    """

    template: str
    positional: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    written: date | None = None
    site: Site = ENGLISH_SITE

    @classmethod
    def parse(cls, template: str, text: str, written: date | None = None, site: Site = ENGLISH_SITE) -> "Arguments":
        """Parses "a|b|key=c", which contains nothing nested."""
        result = cls(template, written=written, site=site)
        numbered: dict[int, str] = {}
        for part in text.split("|") if text else ():
            match = _NAMED.match(part) if "=" in part else None
            if match is None:
                result.positional.append(part.strip())
            elif match[1].isdecimal() and 0 < int(match[1]) < 100:
                numbered[int(match[1]) - 1] = match[2].strip()
            else:
                result.named[match[1].lower()] = match[2].strip()
        for index in sorted(numbered):
            result.positional += [""] * (index + 1 - len(result.positional))
            result.positional[index] = numbered[index]
        return result

    def __getitem__(self, index: int) -> str:
        """Returns the positional argument at `index`. IndexError: it is missing or empty."""
        value = self.positional[index]
        if not value:
            raise IndexError(index)
        return value

    def get(self, key: int | str, default: str = "") -> str:
        """Returns a positional or named argument, or `default` if it is missing or empty."""
        if isinstance(key, str):
            return self.named.get(key) or default
        return (self.positional[key] if key < len(self.positional) else "") or default

    def join(self, separator: str, count: int | None = None) -> str:
        """Joins the first `count` positional arguments that are not empty; None: all of them."""
        return separator.join(filter(None, self.positional[:count]))


Renderer = Callable[[Arguments], str]
"""Returns what a reader sees of a template. LookupError, ValueError, ArithmeticError: the arguments are wrong."""
Kind = Literal["any", "english", "convert", "number"]
"""What a template shows: words of any language; English words; a quantity with its unit; a number."""


class Family(NamedTuple):
    """The templates that one function renders."""

    render: Renderer
    kind: Kind


FAMILIES: dict[str, Family] = {}
"""The families by the names of their templates, in lower case."""


def names(text: str) -> list[str]:
    """Splits a list of template names, separated by "|" or line breaks."""
    return [name for name in (part.strip() for part in text.replace("\n", "|").split("|")) if name]


def shows(templates: str, kind: Kind = "any") -> Callable[[Renderer], Renderer]:
    """Registers a function for `templates`, names separated by "|" or line breaks."""

    def register(render: Renderer) -> Renderer:
        for name in names(templates):
            if FAMILIES.setdefault(name, Family(render, kind)).render is not render:
                raise ValueError(f"two functions render the template {name}")
        return render

    return register


@functools.cache
def english_words() -> dict[str, Any]:
    """Returns the content of `english.toml`."""
    path = Path(__file__).parent.with_name("english.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))
