"""The arguments of a template, and patterns that say what a template shows of them."""

import contextlib
import re
from dataclasses import dataclass, field

from data_prep.wikitext.site import ENGLISH_SITE, Site, grouped

_NAMED = re.compile(r"\s*([\w .:&/-]{1,40}?)\s*=(.*)", re.DOTALL)
_FIELD = re.compile(r"\{(?:\*(?P<separator>[^{}?#!@]*)|(?P<keys>[\w,-]+))(?P<options>[?#!@]*)\}")


@dataclass
class Arguments:
    """The arguments of one template."""

    template: str  # its name, in lower case
    positional: list[str] = field(default_factory=list)  # by position, stripped; with numbered ones ("1=...")
    named: dict[str, str] = field(default_factory=dict)  # others by key (in lower case), stripped
    site: Site = ENGLISH_SITE  # the wiki that the page is from

    @classmethod
    def parse(cls, template: str, text: str, site: Site = ENGLISH_SITE) -> "Arguments":
        """Parses "a|b|key=c", which contains nothing nested."""
        result = cls(template, site=site)
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

    def number(self, text: str) -> str:
        """Returns a number with its digits in groups, as the page's language writes it."""
        return grouped(text, self.site.numbers)

    def show(self, pattern: str) -> str:
        """Fills the fields of a pattern, which `templates.toml` describes. LookupError: an argument is missing."""
        *others, last = pattern.split(" // ")
        for alternative in others:
            with contextlib.suppress(LookupError):
                return _FIELD.sub(self._fill, alternative)
        return _FIELD.sub(self._fill, last)

    def _fill(self, match: re.Match[str]) -> str:
        if match["separator"] is not None:
            value = match["separator"].join(filter(None, self.positional))
        else:
            value = next(filter(None, map(self._value, match["keys"].split(","))), "")
        if not value and "?" not in match["options"]:
            raise LookupError(match[0])
        if "!" in match["options"]:
            return ""
        if "@" in match["options"] and value.isdecimal() and 0 < int(value) <= len(self.site.months):
            return self.site.months[int(value) - 1]
        return self.number(value) if "#" in match["options"] else value

    def _value(self, key: str) -> str:
        if key == "TEMPLATE":
            return self.template.upper()
        if key == "-1":
            return self.positional[-1] if self.positional else ""
        return self.get(int(key) - 1 if key.isdecimal() else key)


def names(text: str) -> list[str]:
    """Splits a list of template names, separated by "|" or line breaks."""
    return [name for name in (part.strip() for part in text.replace("\n", "|").split("|")) if name]
