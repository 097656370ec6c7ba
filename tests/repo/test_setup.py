"""The set-up script says in one sentence what is missing, and makes nothing then."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: An interpreter that states a version and ends with 0 unless its code has one of some words.
FAKE = """#!/bin/sh
case "$2" in
  *platform*) echo {version} ;;
  *{refused}*) exit 1 ;;
esac
"""
INSTALL = "install one (Debian 12: apt install python3 python3-venv) or set PYTHON to its path."


@pytest.mark.parametrize(
    ("version", "refused", "message"),
    [
        (
            "3.9.2",
            "version_info",
            f"npulse: Python 3.11 or newer is needed, but fake is 3.9.2; {INSTALL}\n",
        ),
        (
            "3.12.1",
            "ensurepip",
            "npulse: the modules venv and ensurepip of FAKE are needed, but are not there; "
            "install them (Debian: apt install python3-venv).\n",
        ),
        (
            None,
            "",
            f"npulse: Python 3.11 or newer is needed, but fake does not run; {INSTALL}\n",
        ),
    ],
    ids=["too old", "no venv module", "absent"],
)
def test_says_what_is_missing(
    tmp_path: Path, version: str | None, refused: str, message: str
) -> None:
    scripts, tools = tmp_path / "project" / "scripts", tmp_path / "tools"
    scripts.mkdir(parents=True)
    tools.mkdir()
    shutil.copy(ROOT / "scripts" / "_setup", scripts)
    shutil.copy(ROOT / "pyproject.toml", scripts.parent)
    if version is not None:
        (tools / "fake").write_text(FAKE.format(version=version, refused=refused))
        (tools / "fake").chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": "fake"}
    command = [str(scripts / "_setup"), "test"]
    ran = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.stderr.replace(str(tools / "fake"), "FAKE") == message
    assert (ran.returncode, ran.stdout) == (1, "")
    assert not (scripts.parent / ".venv").exists()
