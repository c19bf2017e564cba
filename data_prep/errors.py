"""The one kind of exception that is shown to a person as a single line."""


class UserError(ValueError):
    """A mistake that the person at the keyboard can mend: what is wrong, then what to do about it.

    Command lines print the message alone, without a traceback, and exit with status 2.
    """
