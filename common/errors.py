"""The exception for mistakes of the user."""

from common.text import printable

MAX_MESSAGE = 2000
"""Characters."""


class UserError(ValueError):
    """A mistake that the user can correct. The message is one line: what is wrong, then what to do.

    Command lines print the message without a traceback, and exit with status 2. It is made `printable`, because it
    may contain names of files. The middle of a message that quotes very long values is left out.
    """

    def __init__(self, message: object = "") -> None:
        text = printable(message)
        super().__init__(
            text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE // 2]} ... {text[-MAX_MESSAGE // 2 :]}"
        )


def one_line(error: BaseException | str) -> str:
    """Returns the message of an error of a library, whose lines may be many, as one line of at most 300 characters."""
    line = " ".join(str(error).split())
    return line if len(line) <= 300 else f"{line[:300]}..."
