"""The exception for mistakes of the user."""

from common.text import printable, without_secrets

MAX_CHARACTERS = 2000  # of a message: it may quote a value of any length


class UserError(ValueError):
    """A mistake that the user can correct. The message is one line: what is wrong, then what to do.

    Command lines print the message without a traceback, and exit with status 2. It may quote what others wrote, such as
    names of files, URLs and values. So it is made `printable`, has no secrets of URLs, and a long one lacks its middle.
    """

    def __init__(self, message: object = "") -> None:
        line = printable(without_secrets(str(message)))
        if len(line) > MAX_CHARACTERS:
            line = f"{line[: MAX_CHARACTERS // 2]} ... {line[-MAX_CHARACTERS // 2 :]}"
        super().__init__(line)


def one_line(error: BaseException | str) -> str:
    """Returns the message of an error of a library, whose lines may be many, as one line of at most 300 characters."""
    line = " ".join(str(error).split())
    return line if len(line) <= 300 else f"{line[:300]}..."
