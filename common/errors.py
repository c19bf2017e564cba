"""The exception for mistakes of the user."""

import re

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class UserError(ValueError):
    """A mistake that the user can correct. The message is one line: what is wrong, then what to do.

    Command lines print the message without a traceback, and exit with status 2. Line breaks and control characters in
    it, such as those of a file's name, are escaped.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(_CONTROL.sub(lambda match: repr(match[0])[1:-1], str(message)))


def one_line(error: BaseException | str) -> str:
    """Returns the message of an error of a library, whose lines may be many, as one line of at most 300 characters."""
    line = " ".join(str(error).split())
    return line if len(line) <= 300 else f"{line[:300]}..."
