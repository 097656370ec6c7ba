"""Documents say what the code does."""

import re
import subprocess
import sys
from pathlib import Path

from npulse.hw.spec import tpu_v1_isa

ROOT = Path(__file__).resolve().parents[2]


def test_commands_of_the_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"(?m)^\s*(?:\$ )?\./(scripts/\w+)", readme)
    assert {"scripts/run", "scripts/test"} <= set(commands)
    for command in commands:
        assert (ROOT / command).stat().st_mode & 0o111, f"{command} is not executable"


def test_table_of_the_isa_is_that_of_the_code() -> None:
    document = (ROOT / "hw" / "spec" / "README.md").read_text()
    assert tpu_v1_isa.ISA.table() in document


def test_no_generated_table_is_stale() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "doc_tables.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
