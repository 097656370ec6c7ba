"""What a wheel holds, what type checkers follow, and what git tracks."""

import re
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
TOPS = ("hw", "sim", "sw")


def tracked() -> list[str]:
    """Files that git tracks; in an unpacked archive, all files of the source folders."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [name for name in listed.stdout.split("\0") if name]
    paths = (path for top in (*TOPS, "tests", "scripts") for path in (ROOT / top).rglob("*"))
    return [str(path.relative_to(ROOT)) for path in paths if path.is_file()]


def test_pyproject_lists_every_package_of_the_tree() -> None:
    folders = {path.parent for top in TOPS for path in (ROOT / top).rglob("*.py")}
    packages = {"npulse." + ".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert SETUPTOOLS["packages"] == sorted(packages)


def test_every_package_states_its_idea() -> None:
    for package in SETUPTOOLS["packages"]:
        init = ROOT.joinpath(*package.split(".")[1:], "__init__.py")
        assert init.read_text().startswith('"""'), f"{package} has no docstring"


def test_package_data_covers_every_tracked_file_that_is_no_module() -> None:
    data = SETUPTOOLS["package-data"]
    for name in tracked():
        path = Path(name)
        if path.parts[0] not in TOPS or path.suffix in (".py", ".md"):
            continue
        patterns = data.get("npulse." + ".".join(path.parent.parts), [])
        assert any(fnmatch(path.name, p) for p in patterns), f"{name} would miss in the wheel"


def test_each_top_package_is_typed_and_linked_for_the_checkers() -> None:
    for top in TOPS:
        assert (ROOT / top / "py.typed").is_file()
        link = ROOT / "scripts" / "typing" / "npulse" / top
        assert link.is_symlink()
        assert link.resolve() == ROOT / top


def test_tracked_files_name_no_place_of_one_machine() -> None:
    place = re.compile(r"(?<![\w.~/-])/(?:work|root|tmp|home|Users|mnt)/\w")
    for name in tracked():
        path = ROOT / name
        if path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = place.search(text)
        assert found is None, f"{name} names {text[found.start() : found.start() + 40]!r}"
