"""Files that npulse writes appear whole or not at all."""

import os
from pathlib import Path

from npulse.sw.errors import UserError

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it, then rename it.

    Raises
    ------
    UserError
        The folder is missing, or the file cannot be written; nothing is left behind.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(
            f"{path} cannot be written: {error.strerror}; give a file in a folder that exists and "
            "is yours to write"
        ) from None
