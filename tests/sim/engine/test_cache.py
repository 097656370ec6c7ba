"""The cache of compiled objects: hits, bounds, damage, two processes at once."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Signal

from npulse.sim.engine import cache as cache_module
from npulse.sim.engine.bulk import Compiled
from npulse.sim.engine.cache import ObjectCache, default_folder


def design(step: int = 3) -> tuple[Module, Signal]:
    m, count = Module(), Signal(8, name="count")
    m.d.sync += count.eq(count + step)
    return m, count


def result(folder: Path, step: int = 3) -> tuple[int, bool]:
    m, count = design(step)
    machine = Compiled(m, cache=ObjectCache(folder))
    machine.step(5)
    return machine.get(count), machine.report.cached


def test_the_second_build_comes_from_the_cache_and_runs_alike(tmp_path: Path) -> None:
    assert result(tmp_path) == (15, False)
    assert result(tmp_path) == (15, True)


def test_another_design_or_engine_version_is_another_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result(tmp_path)
    assert result(tmp_path, step=4) == (20, False)
    monkeypatch.setattr(cache_module, "ENGINE_VERSION", cache_module.ENGINE_VERSION + 1)
    assert result(tmp_path) == (15, False)


def test_another_processor_is_another_entry() -> None:
    store = ObjectCache(None)
    assert store.key("zen3 +avx2", "text") != store.key("zen4 +avx512f", "text")


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text"])
def test_a_damaged_entry_is_compiled_again(tmp_path: Path, damage: str) -> None:
    result(tmp_path)
    for path in tmp_path.glob("*.object"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        new = {"flip": bytes(content), "cut": bytes(content[:-9]), "empty": b"", "text": b"junk"}
        path.write_bytes(new[damage])
    assert result(tmp_path) == (15, False)
    assert result(tmp_path) == (15, True), "and is whole again"


def test_the_entries_unused_for_longest_go_first(tmp_path: Path) -> None:
    import os

    store = ObjectCache(tmp_path, limit_bytes=3_500)
    for number, key in enumerate("abc"):
        store.store(key, bytes([number]) * 1_000)
        os.utime(tmp_path / f"{key}.object", (number, number))
    assert store.load("a") is not None  # used again, so "b" is the oldest now
    store.store("d", bytes(1_000))
    assert [key for key in "abcd" if store.load(key) is None] == ["b"]


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    assert result(file / "cache") == (15, False)


def test_a_negative_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^limit_bytes must be at least 0, not -1$"):
        ObjectCache(tmp_path, limit_bytes=-1)


def _hammer(folder: str, seed: int, failures: Any) -> None:
    store = ObjectCache(Path(folder), limit_bytes=20_000)
    for turn in range(300):
        key = f"k{(turn * 7 + seed) % 10}"
        content = key.encode() * 1_000
        store.store(key, content)
        found = store.load(f"k{(turn + seed) % 10}")
        if found is not None and found != f"k{(turn + seed) % 10}".encode() * 1_000:
            failures.put(turn)


def test_two_processes_never_see_half_an_entry(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    workers = [
        context.Process(target=_hammer, args=(str(tmp_path), seed, failures)) for seed in (0, 5)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert failures.empty()


def test_the_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPULSE_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv("NPULSE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert default_folder() == tmp_path / "npulse" / "engine"
