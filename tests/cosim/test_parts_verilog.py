"""The Verilog of parts of the core in Verilator, driven by cocotb."""

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

FOLDER = Path(__file__).parent
LATENCY = resolve("tpu-v1:sim").config.requantiser_latency

Run = Callable[..., list[str]]


@pytest.fixture
def cosim(tmp_path: Path, verilated_library: Path) -> Run:
    """Emit and build a component as module ``part`` and run a bench of this folder on it."""

    def run(
        make: Callable[[], wiring.Component], bench: str, *, only: str = "", **settings: str
    ) -> list[str]:
        emitted = emit(make, top="part")
        verilog, _ = save(emitted, tmp_path)
        build(
            verilog,
            top="part",
            ports=[port["name"] for port in emitted.metadata["ports"]],
            folder=tmp_path / "built",
            library=verilated_library,
        )
        return run_bench(
            FOLDER / bench, top="part", folder=tmp_path / "built", only=only, settings=settings
        )

    return run


def test_array_equals_numpy(cosim: Run) -> None:
    assert cosim(lambda: weight_stationary_array(rows=4, cols=4), "bench_array.py")


def test_requantiser_equals_golden(cosim: Run) -> None:
    bench = "bench_requantiser.py"
    assert cosim(lambda: Requantiser(latency=LATENCY), bench, NPULSE_LATENCY=str(LATENCY))


def test_read_master_reads_what_memory_has(cosim: Run) -> None:
    assert cosim(lambda: ReadMaster(data_width=64), "bench_movers.py", only="reads")


def test_write_master_writes_what_it_is_given(cosim: Run) -> None:
    assert cosim(lambda: WriteMaster(data_width=64), "bench_movers.py", only="writes")


def test_a_failed_bench_is_an_error_with_its_log(cosim: Run) -> None:
    wrong = str(LATENCY + 1)
    with pytest.raises(VerilogError, match=r"(?s)^bench_requantiser must pass, .*AssertionError"):
        cosim(lambda: Requantiser(latency=LATENCY), "bench_requantiser.py", NPULSE_LATENCY=wrong)
