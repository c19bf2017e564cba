"""The arguments of a template."""

import re
from dataclasses import dataclass, field
from datetime import date

_NAMED = re.compile(r"\s*([\w .:&/-]{1,40}?)\s*=(.*)", re.DOTALL)


@dataclass
class Arguments:
    """What stands after the template's name.

    template: the name, lower case. positional: arguments by place, stripped. named: by key, lower case, stripped; a
    numbered one ("1=...") is put in its place instead. written: when the page was saved, where that is known.
    """

    template: str
    positional: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    written: date | None = None

    @classmethod
    def parse(cls, template: str, text: str, written: date | None = None) -> "Arguments":
        """Reads "a|b|key=c"; nothing nested may be left in it."""
        result = cls(template, written=written)
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
        """The positional argument at `index`. IndexError where it is missing or empty: there is nothing to show."""
        value = self.positional[index]
        if not value:
            raise IndexError(index)
        return value

    def get(self, key: int | str, default: str = "") -> str:
        """A positional or named argument, or `default` where it is missing or empty."""
        if isinstance(key, str):
            return self.named.get(key) or default
        return (self.positional[key] if key < len(self.positional) else "") or default


def names(text: str) -> list[str]:
    """The template names in a text that separates them by "|" or line breaks."""
    return [name for name in (part.strip() for part in text.replace("\n", "|").split("|")) if name]
