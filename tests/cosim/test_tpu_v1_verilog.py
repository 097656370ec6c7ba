"""The Verilog that ``npulse verilog`` writes runs the bundled model through AXI in Verilator."""

import json
from pathlib import Path

import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sim.verilog.runner import build, run_bench
from npulse.sw import image, models
from npulse.sw.compile import compile_model
from npulse.sw.frontends.load import load_model

pytestmark = pytest.mark.cosim

BENCH = Path(__file__).with_name("bench_tpu_v1.py")


def test_digits_equal_golden_through_axi(
    core_files: tuple[Path, Path], verilated_library: Path, tmp_path: Path
) -> None:
    verilog, metadata_file = core_files
    metadata = json.loads(metadata_file.read_text())
    compiled = tmp_path / "digits.npulse"
    image.save(compile_model(load_model(models.path("digits")), resolve("tpu-v1:sim")), compiled)
    build(
        verilog,
        top=metadata["top"],
        ports=[port["name"] for port in metadata["ports"]],
        folder=tmp_path / "built",
        library=verilated_library,
    )
    passed = run_bench(
        BENCH,
        top=metadata["top"],
        folder=tmp_path / "built",
        settings={"NPULSE_IMAGE": str(compiled)},
    )
    assert passed == [
        "digits_equal_golden",
        "digits_equal_golden_with_random_pauses",
        "a_fetch_outside_of_memory_stops_with_a_bus_error",
    ]
