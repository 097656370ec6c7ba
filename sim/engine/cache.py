"""Compiled objects on disk: found again by content, bounded in size, never trusted when damaged.

An entry is one file: a digest of the rest, then the object. It is written under another name and
moved into place, so that a reader sees all of it or nothing, whatever other processes do.
"""

import contextlib
import hashlib
import os
import sys
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["ENGINE_VERSION", "ObjectCache", "default_cache", "default_folder"]

#: Part of every key: raise it when equal text may mean other code.
ENGINE_VERSION = 1

_DIGEST = hashlib.sha256().digest_size


class ObjectCache:
    """Store of byte strings in one folder.

    Parameters
    ----------
    folder : Path or None
        None keeps nothing.
    limit_bytes : int
        Total size above which the entries unused for longest go.
    """

    def __init__(self, folder: Path | None, limit_bytes: int = 256 << 20) -> None:
        if limit_bytes < 0:
            raise ValueError(f"limit_bytes must be at least 0, not {limit_bytes!r}")
        self.folder = folder
        self.limit_bytes = limit_bytes

    def key(self, machine: str, text: str) -> str:
        """Name of the object that `text` becomes on `machine`."""
        seed = f"engine {ENGINE_VERSION}; {machine}\n{text}"
        return hashlib.sha256(seed.encode()).hexdigest()

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}.object"

    def load(self, key: str) -> bytes | None:
        """Return the entry, or None if there is none that is whole."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # what the eviction goes by
        return content[_DIGEST:]

    def store(self, key: str, content: bytes) -> None:
        """Write an entry; a folder that cannot be written is not an error."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".partial")
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(name, self._path(key))
            self._evict()

    def _evict(self) -> None:
        assert self.folder is not None
        entries = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):  # another process may have removed it
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


def default_folder() -> Path:
    """Folder of the user's cache, by the custom of the system.

    ``NPULSE_CACHE`` overrides it.
    """
    if own := os.environ.get("NPULSE_CACHE"):
        return Path(own)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "npulse" / "engine"


@cache
def default_cache() -> ObjectCache:
    """The cache of this user."""
    return ObjectCache(default_folder())
