"""Imports go one way: the contracts of pyproject.toml hold, and their lists cover the tree."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
}

#: For each contract: the parent whose children it lists, and those that it leaves out on purpose.
FORBIDDEN = [
    ("spec", "hw", {"spec"}),
    ("golden", "hw", {"spec"}),
    ("golden", "sim", {"golden"}),
    ("engine", "hw", {"grid"}),
    ("engine", "sim", {"engine"}),
    ("sw", "hw", {"spec"}),
    ("sw", "sim", {"golden"}),
]


def children(top: str) -> set[str]:
    """Modules and packages right below a top package."""
    folders = {path.parent.name for path in (ROOT / top).glob("*/__init__.py")}
    return folders | {path.stem for path in (ROOT / top).glob("*.py")} - {"__init__"}


def listed(contract: str, key: str, top: str) -> set[str]:
    """Children of a top package that a contract names."""
    prefix = f"npulse.{top}."
    names = [name for name in CONTRACTS[contract][key] if name.startswith(prefix)]
    return {name.removeprefix(prefix) for name in names}


@pytest.mark.parametrize(("contract", "top", "allowed"), FORBIDDEN)
def test_contract_forbids_every_other_module(contract: str, top: str, allowed: set[str]) -> None:
    assert listed(contract, "forbidden_modules", top) == children(top) - allowed


def test_the_driver_alone_may_reach_hardware() -> None:
    assert listed("sw", "source_modules", "sw") == children("sw") - {"driver"}


def test_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    if not lint.exists():
        pytest.skip("import-linter is not installed: pip install -e '.[lint]'")
    command = [str(lint), "--no-logo", "--no-cache"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
