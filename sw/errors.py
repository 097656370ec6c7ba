"""Errors that are the user's to mend: one sentence, no traceback."""


class UserError(Exception):
    """Something in a file or an option that the user gave is wrong.

    The message is one sentence that names the file, the node or tensor, the rule and the remedy.
    The command line prints it and ends with exit status 2.
    """


def shorten(name: str, limit: int = 120) -> str:
    """Fit a name from a file into one line of a message.

    Line breaks and control characters are escaped, and what exceeds ``limit`` characters is cut.
    """
    line = name
    if not name.isprintable():
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    return line if len(line) <= limit else line[: limit - 3] + "..."
