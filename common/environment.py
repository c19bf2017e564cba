"""Numbers in variables that launchers set."""

import os

from common.errors import UserError


def whole_number(name: str, low: int = 0, high: int = 2**31 - 1, default: int | None = None) -> int:
    """The number in the environment variable `name`; `default` where it is not set.

    Raises:
        UserError: it is no whole number from `low` to `high`, or is not set and has no default.
    """
    text = os.environ.get(name)
    if text is None:
        if default is None:
            raise UserError(f"the environment variable {name} is not set; start the ranks by a launcher, or one alone")
        return default
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else -1
    if not low <= number <= high:
        raise UserError(
            f"the environment variable {name} is {text[:40]!r}, which is no whole number from {low} to {high}; "
            "unset it or correct it"
        )
    return number
