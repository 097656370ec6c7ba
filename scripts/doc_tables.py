#!/usr/bin/env python3
"""Write the generated tables of the documentation; with --check only say which are not as they
should be. A table stands between two comments, ``<!-- table NAME -->`` and ``<!-- end -->``."""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from npulse.hw.spec import tpu_v1_isa

ROOT = Path(__file__).resolve().parents[1]

#: Each table by its name in the comment.
TABLES: dict[str, Callable[[], str]] = {"tpu_v1_isa": tpu_v1_isa.ISA.table}

_BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.S)


def fill(text: str) -> str:
    """Replace what stands between the comments of each table."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}"

    return _BLOCK.sub(block, text)


def stale(write: bool) -> list[Path]:
    """Documents whose tables differ from the code, written anew if so wished."""
    found = []
    for path in sorted(ROOT.glob("[!.]*/**/*.md")):
        text = path.read_text(encoding="utf-8")
        if fill(text) != text:
            found.append(path.relative_to(ROOT))
            if write:
                path.write_text(fill(text), encoding="utf-8")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if stale")
    check = parser.parse_args().check
    for path in (found := stale(write=not check)):
        print(path, "is stale" if check else "written")
    sys.exit(bool(check and found))
