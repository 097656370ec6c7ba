"""Files that npulse writes appear whole or not at all."""

import os
from pathlib import Path

from npulse.sw.errors import UserError

__all__ = ["need_folder", "write_whole"]


def need_folder(path: Path) -> None:
    """Refuse a file whose folder is missing, before work is done whose result would be lost."""
    if not path.parent.is_dir():
        raise UserError(
            f"{path} cannot be written: there is no folder {path.parent}; make it, or name a file "
            "in a folder that exists"
        )


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it, then rename it.

    Raises
    ------
    UserError
        The folder is missing, or the file cannot be written; nothing is left behind.
    """
    need_folder(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(
            f"{path} cannot be written: {error.strerror}; give a file that is yours to write"
        ) from None
