"""The Verilog ports of the buses are what cocotbext-axi looks for under a prefix."""

import re
from typing import Any

import pytest
from amaranth.back import verilog
from cocotbext.axi import axi_channels, axil_channels

from npulse.hw.bus.csr import CsrBank
from npulse.hw.dma.reader import ReadMaster
from npulse.hw.dma.writer import WriteMaster
from npulse.hw.spec.regmap import core_regmap
from npulse.sim.rtl.dram import Dram, DramPort


def port_widths(component: Any) -> dict[str, int]:
    """Width of each port of the emitted top module."""
    text = verilog.convert(component, name="top", emit_src=False)
    top = text[text.rindex("module top(") :]
    ports = re.findall(r"^\s*(?:input|output) (?:\[(\d+):0\] )?(\w+);", top, re.MULTILINE)
    return {name: int(high or 0) + 1 for high, name in ports}


@pytest.mark.parametrize(
    ("component", "prefix", "package", "channels"),
    [
        (ReadMaster(data_width=64), "bus_", axi_channels, ["AxiAR", "AxiR"]),
        (WriteMaster(data_width=64), "bus_", axi_channels, ["AxiAW", "AxiW", "AxiB"]),
        (
            Dram(depth_bytes=64, ports=[DramPort(name="host", data_width=64)]),
            "host_",
            axi_channels,
            ["AxiAR", "AxiR", "AxiAW", "AxiW", "AxiB"],
        ),
        (
            CsrBank(core_regmap()),
            "bus_",
            axil_channels,
            ["AxiLiteAR", "AxiLiteR", "AxiLiteAW", "AxiLiteW", "AxiLiteB"],
        ),
    ],
    ids=["reader", "writer", "memory", "registers"],
)
def test_verilog_has_every_signal_that_cocotbext_axi_needs(
    component: Any, prefix: str, package: Any, channels: list[str]
) -> None:
    widths = port_widths(component)
    for channel in channels:
        bus, source = getattr(package, f"{channel}Bus"), getattr(package, f"{channel}Source")
        for name in bus._signals:
            assert f"{prefix}_{name}" in widths
        for name, width in source._signal_widths.items():
            assert widths.get(f"{prefix}_{name}", width) == width
