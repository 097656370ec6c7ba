"""Verilog, port list and metadata of a component."""

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw import emit
from npulse.hw.grid import Flow, Grid


class Cell(wiring.Component):
    """Passes a byte on."""

    x_i: Signal
    x_o: Signal

    def __init__(self) -> None:
        super().__init__({"x_i": In(signed(8)), "x_o": Out(signed(8))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.x_o.eq(self.x_i)
        return m


class Top(wiring.Component):
    """A row of cells behind a stream."""

    put: stream.Interface
    total: Signal

    def __init__(self, cells: int = 3) -> None:
        self.cells = cells
        super().__init__({"put": In(stream.Signature(signed(8))), "total": Out(signed(8))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.row = row = Grid(Cell, (self.cells,), {"x": Flow()})
        m.d.comb += [self.put.ready.eq(1), row.x_i.eq(self.put.payload), self.total.eq(row.x_o)]
        return m


def test_verilog_has_the_listed_ports_and_no_others() -> None:
    emitted = emit.emit(Top, top="row")
    module = re.search(r"module row\((.*?)\);(.*?)endmodule", emitted.verilog, re.S)
    assert module is not None
    in_verilog = {name.strip() for name in module[1].split(",")}
    assert in_verilog == {port["name"] for port in emitted.metadata["ports"]}
    for port in emitted.metadata["ports"]:
        size = rf"\[{port['width'] - 1}:0\] " if port["width"] > 1 else ""
        sign = "signed " if port["signed"] else ""
        assert re.search(rf"{port['direction']} (?:{sign})?{size}{port['name']};", module[2])


def test_metadata_has_hash_cells_and_what_the_caller_adds() -> None:
    emitted = emit.emit(lambda: Top(5), top="row", about={"npu": "mine"})
    assert emitted.metadata["grid_cells"] == 5
    assert emitted.metadata["npu"] == "mine"
    assert emitted.metadata["verilog_sha256"] == sha256(emitted.verilog.encode()).hexdigest()


def test_the_same_design_gives_the_same_bytes() -> None:
    assert emit.emit(Top, top="row") == emit.emit(Top, top="row")


def test_save_writes_both_files_and_nothing_else(tmp_path: Path) -> None:
    emitted = emit.emit(Top, top="row")
    written = emit.save(emitted, tmp_path / "made" / "here")
    assert sorted(written) == sorted((tmp_path / "made" / "here").iterdir())
    assert written[0].read_text() == emitted.verilog
    assert json.loads(written[1].read_text()) == emitted.metadata


def test_refuses_a_design_with_too_many_cells() -> None:
    message = (
        "grid cells of row must be at most 5120 for Verilog, since each becomes "
        "an instance of its own, not 5121"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        emit.emit(lambda: Top(5121), top="row")
