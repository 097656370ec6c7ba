"""Places of the buffers of a tile program, in text."""

import re

import pytest

from npulse.sw.ir.tile import ProgramOp
from npulse.sw.passes.place_buffers import DoesNotFit, place_buffers
from npulse.sw.passes.text import parse_module

PASS = """tile.conv_pass {source}, {target} {{node = "{node}", constants = @c, \
first_tile = 0 : i64, tiles = 1 : i64, entry = 0 : i64, fill = 0 : i64, first_block = 0 : i64, \
blocks = 1 : i64, target_block = 0 : i64, lane_group = 0 : i64, \
source_size = array<i64: 4, 4>, kernel = array<i64: 1, 1>, strides = array<i64: 1, 1>, \
dilations = array<i64: 1, 1>, origin = array<i64: 0, 0>, size = array<i64: 4, 4>, \
window = array<i64: 1, 1>, window_strides = array<i64: 1, 1>, \
window_origin = array<i64: 0, 0>, chunk = array<i64: 4, 4>}} : \
!tile.buffer<4, 4, 8>, !tile.buffer<4, 4, 8>"""


def buffer(name: str, rows: int = 16) -> str:
    return (
        f'%{name} = tile.buffer "{name}" {{memory = "unified_buffer", rows = {rows} : i64}} : '
        "!tile.buffer<4, 4, 8>"
    )


def chain(length: int) -> ProgramOp:
    lines = [buffer("b0"), 'tile.load %b0 {value = "b0", slot = 0 : i64} : !tile.buffer<4, 4, 8>']
    for n in range(1, length):
        lines.append(buffer(f"b{n}"))
        lines.append(PASS.format(source=f"%b{n - 1}", target=f"%b{n}", node=f"layer{n}"))
    body = "\n".join(lines)
    module = parse_module(f"builtin.module {{\ntile.program @npu0 {{\n{body}\n}}\n}}")
    program = module.body.block.first_op
    assert isinstance(program, ProgramOp)
    return program


def test_a_chain_takes_two_places_in_turn() -> None:
    program = chain(4)
    allocation = place_buffers(program, 32)
    bases = [int(v) for v in re.findall(r"base = (\d+)", str(program))]
    assert sorted(bases) == [0, 0, 16, 16]
    assert bases[0] == bases[2] != bases[1] == bases[3]
    assert (allocation.peak_rows, allocation.lower_bound_rows) == (32, 32)


def test_what_does_not_fit_names_the_node_and_the_rows() -> None:
    with pytest.raises(DoesNotFit) as caught:
        place_buffers(chain(3), 31)
    assert str(caught.value) == (
        "node 'layer1' must find its tensors within 31 rows of the unified buffer, not 32"
    )
