"""The Verilog of parts of the core in Verilator, driven by cocotb."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from amaranth.lib import wiring

from npulse.hw.arith.requantiser import Requantiser
from npulse.hw.array.weight_stationary import weight_stationary_array
from npulse.hw.dma.reader import ReadMaster
from npulse.hw.dma.writer import WriteMaster
from npulse.hw.emit import emit, save
from npulse.hw.spec.flavours import resolve
from npulse.sim.verilog.runner import build, run_bench
from npulse.sim.verilog.verilator import VerilogError

pytestmark = pytest.mark.cosim

HERE = Path(__file__).parent
LATENCY = resolve("tpu-v1:sim").config.requantiser_latency
DUE = json.dumps(Requantiser(latency=LATENCY).due)

Make = Callable[[], wiring.Component]


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, verilated_library: Path
) -> Callable[[Make], Path]:
    """Emit and build a component as module ``part``; return the folder."""

    def build_part(make: Make) -> Path:
        folder = tmp_path_factory.mktemp("part")
        emitted = emit(make, top="part")
        verilog, _ = save(emitted, folder)
        ports = [port["name"] for port in emitted.metadata["ports"]]
        build(verilog, top="part", ports=ports, folder=folder, library=verilated_library)
        return folder

    return build_part


@pytest.fixture(scope="module")
def requantiser(built: Callable[[Make], Path]) -> Path:
    """Folder in which the requantiser is built."""
    return built(lambda: Requantiser(latency=LATENCY))


def run(bench: str, folder: Path, *, only: str = "", **settings: object) -> list[str]:
    """Run a bench of this folder on the part that is built in another."""
    texts = {name: str(value) for name, value in settings.items()}
    return run_bench(HERE / bench, top="part", folder=folder, only=only, settings=texts)


def test_array_equals_numpy(built: Callable[[Make], Path]) -> None:
    folder = built(lambda: weight_stationary_array(rows=4, cols=4))
    assert run("bench_array.py", folder) == ["sums_equal_numpy"]


def test_requantiser_equals_golden(requantiser: Path) -> None:
    passed = run("bench_requantiser.py", requantiser, NPULSE_LATENCY=LATENCY, NPULSE_DUE=DUE)
    assert passed == ["outputs_equal_golden"]


def test_read_master_reads_what_memory_has(built: Callable[[Make], Path]) -> None:
    folder = built(lambda: ReadMaster(data_width=64))
    assert run("bench_movers.py", folder, only="reads") == ["reads_what_memory_has"]


def test_write_master_writes_what_it_is_given(built: Callable[[Make], Path]) -> None:
    folder = built(lambda: WriteMaster(data_width=64))
    passed = run("bench_movers.py", folder, only="writes")
    assert passed == ["writes_what_it_is_given_and_no_more"]


def test_a_failed_bench_is_an_error_with_its_log(requantiser: Path) -> None:
    message = r"(?s)^bench_requantiser must pass, but \['outputs_equal_golden'\] failed: .*Error"
    with pytest.raises(VerilogError, match=message):
        run("bench_requantiser.py", requantiser, NPULSE_LATENCY=LATENCY + 1, NPULSE_DUE=DUE)


def test_a_bench_without_tests_is_an_error(requantiser: Path) -> None:
    with pytest.raises(VerilogError, match=r"^bench_movers must pass, but \[\] failed: "):
        run("bench_movers.py", requantiser, only="no such test")


def test_verilog_that_verilator_refuses_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "top.v"
    source.write_text("module top(input x, output y);\n  assign y = x +;\nendmodule\n")
    with pytest.raises(VerilogError, match=r"(?s)^verilator must take top, but: %Error: .*syntax"):
        build(source, top="top", ports=["x", "y"], folder=tmp_path / "built")


def test_an_absent_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    message = "^make must be installed to build a simulator, but is not$"
    with pytest.raises(VerilogError, match=message):
        build(tmp_path / "top.v", top="top", ports=[], folder=tmp_path / "built")
