"""Text and verifiers of the tile and tpu dialects."""

import re
from random import Random

import pytest
from xdsl.utils.exceptions import ParseError, VerifyException

from npulse.hw.spec.tpu_v1_isa import ISA
from npulse.sw.ir.tile import BufferOp, ProgramOp, buffer_of
from npulse.sw.ir.tpu import HaltOp, InstructionOp, ReadWeightsOp, SyncOp
from npulse.sw.ir.tpu import ProgramOp as TpuProgram
from npulse.sw.passes.text import parse_module
from npulse.sw.targets.tpu_v1.emit import emit

TILE = """builtin.module {
  tile.program @npu0 {
    %x = tile.buffer "x" {memory = "unified_buffer", rows = 16 : i64} : !tile.buffer<4, 4, 3>
    tile.load %x {value = "x", slot = 0 : i64} : !tile.buffer<4, 4, 3>
    %y = tile.buffer "y" {memory = "unified_buffer", rows = 8 : i64, base = 16 : i64} : \
!tile.buffer<2, 2, 9>
    tile.conv_pass %x, %y {node = "conv", constants = @conv, first_tile = 0 : i64, \
tiles = 9 : i64, entry = 0 : i64, fill = -3 : i64, first_block = 0 : i64, blocks = 1 : i64, \
target_block = 1 : i64, lane_group = 0 : i64, source_size = array<i64: 4, 4>, \
kernel = array<i64: 3, 3>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, \
origin = array<i64: -1, -1>, size = array<i64: 4, 4>, window = array<i64: 2, 2>, \
window_strides = array<i64: 2, 2>, window_origin = array<i64: 0, 0>, \
chunk = array<i64: 2, 1>} : !tile.buffer<4, 4, 3>, !tile.buffer<2, 2, 9>
    tile.store %y {value = "y", slot = 1 : i64} : !tile.buffer<2, 2, 9>
  }
}"""

STRIPES = """builtin.module {
  tile.program @npu0 {
    %0 = tile.buffer "x stage 0" {memory = "unified_buffer", rows = 8 : i64} : !tile.buffer<1, 8, 8>
    %1 = tile.buffer "y stage 0" {memory = "unified_buffer", rows = 4 : i64} : !tile.buffer<1, 4, 8>
    tile.load %0 {value = "x", slot = 0 : i64, image = array<i64: 6, 4>, at = array<i64: 2, 0>, \
part = array<i64: 2, 4>, first_block = 1 : i64, blocks = 1 : i64} : !tile.buffer<1, 8, 8>
    tile.wait {units = 5 : i64, node = "conv"}
    tile.conv_part %0 {node = "conv", constants = @conv, first_tile = 0 : i64, tiles = 3 : i64, \
runs = 1 : i64, tile_stride = 0 : i64, acc_row = 2 : i64, accumulate = 1 : i64, fill = 0 : i64, \
first_block = 0 : i64, blocks = 1 : i64, source_size = array<i64: 2, 4>, \
kernel = array<i64: 1, 3>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, \
origin = array<i64: 0, 0>, size = array<i64: 2, 2>} : !tile.buffer<1, 8, 8>
    tile.finish_pass %1 {node = "conv", constants = @conv, entry = 0 : i64, \
target_block = 0 : i64, lane_group = 0 : i64, size = array<i64: 2, 2>, \
window = array<i64: 1, 1>, window_strides = array<i64: 1, 1>, window_origin = array<i64: 0, 0>, \
out = array<i64: 2, 2>, target_size = array<i64: 2, 2>, target_at = array<i64: 0, 0>} : \
!tile.buffer<1, 4, 8>
  }
}"""

TPU = """builtin.module {
  tpu.program @npu0 {
    tpu.read_host {dram_addr = 640, rows = 16} for "x"
    tpu.sync {units = 1}
    tpu.matrix_multiply {switch = 1, fill = -3, origin_y = -1} for "a \\22quoted\\22 name"
    tpu.halt {}
  }
}"""


@pytest.mark.parametrize("text", [TILE, STRIPES, TPU])
def test_text_of_a_module_reads_back_as_itself(text) -> None:
    assert str(parse_module(text)) == text


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        (
            "source_size = array<i64: 4, 4>",
            "source_size = array<i64: 4, 5>",
            "blocks must end within the 16 rows of the source, not at block 1",
        ),
        (
            "first_block = 0",
            "first_block = 1",
            "blocks must end within the 16 rows of the source, not at block 2",
        ),
        (
            "target_block = 1",
            "target_block = 2",
            "target_block must lie within the 8 rows of the target, not 2",
        ),
        (
            "kernel = array<i64: 3, 3>",
            "kernel = array<i64: 0, 3>",
            "kernel must be at least 1 in y and x, not (0, 3)",
        ),
        ("entry = 0", "entry = -1", "entry must be at least 0, not -1"),
        ("tiles = 9", "tiles = 0", "tiles must be at least 1, not 0"),
        ("fill = -3", "fill = 128", "fill must be from -128 to 127, not 128"),
        (
            "window_strides = array<i64: 2, 2>",
            "window_strides = array<i64: 4, 2>",
            "each window must touch the 4 pixels of the convolution in y, not start at 0 with "
            "2 steps of 4",
        ),
        (
            "chunk = array<i64: 2, 1>",
            "chunk = array<i64: 2, 3>",
            "chunk must be from 1 to 2 output pixels in x, not 3",
        ),
    ],
)
def test_a_pass_that_breaks_a_rule_is_refused(was, becomes, message) -> None:
    with pytest.raises(VerifyException, match=re.escape(f"tile.conv_pass 'conv': {message}")):
        parse_module(TILE.replace(was, becomes))


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        ('"unified_buffer", rows = 16', '"dram", rows = 16', "memory must be unified_buffer, not"),
        ("rows = 16 ", "rows = 0 ", "tile.buffer 'x': rows must be at least 1, not 0"),
        ("base = 16", "base = -1", "tile.buffer 'y': base must be at least 0, not -1"),
        ("slot = 1", "slot = -1", "tile.store 'y': slot must be at least 0, not -1"),
        ("<4, 4, 3>", "<4, 0, 3>", "sizes of a buffer must be at least 1, not (4, 0, 3)"),
    ],
)
def test_a_buffer_or_move_that_breaks_a_rule_is_refused(was, becomes, message) -> None:
    with pytest.raises((VerifyException, ParseError), match=re.escape(message)):
        parse_module(TILE.replace(was, becomes))


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        (
            "at = array<i64: 2, 0>",
            "at = array<i64: 5, 0>",
            "tile.load 'x': at must leave room for 2 of 6 pixels in y, not be 5",
        ),
        (
            "first_block = 1 : i64, blocks = 1",
            "first_block = 1 : i64, blocks = 2",
            "tile.load 'x': the rectangle must fit the 8 rows of the buffer, not take 16",
        ),
        ("units = 5", "units = 0", "tile.wait 'conv': units must be from 1 to 15, not 0"),
        ("runs = 1", "runs = 0", "tile.conv_part 'conv': runs must be at least 1, not 0"),
        (
            "target_at = array<i64: 0, 0>",
            "target_at = array<i64: 0, 1>",
            "tile.finish_pass 'conv': target_at must leave room for 2 of 2 pixels in x, not be 1",
        ),
    ],
)
def test_a_stripe_that_breaks_a_rule_is_refused(was, becomes, message) -> None:
    assert was in STRIPES
    with pytest.raises(VerifyException, match=re.escape(message)):
        parse_module(STRIPES.replace(was, becomes))


def test_a_tile_program_holds_nothing_of_another_level() -> None:
    program = ProgramOp("npu0", [HaltOp()])
    message = "body must hold buffers, moves and passes only, not tpu.halt"
    with pytest.raises(VerifyException, match=re.escape(message)):
        program.verify()


def test_a_buffer_without_a_place_has_no_rows() -> None:
    buffer = BufferOp("x", (4, 4, 3), 16)
    with pytest.raises(ValueError, match="^buffer x must be placed before its rows are asked for$"):
        _ = buffer.first_row
    buffer.place(5)
    assert buffer_of(buffer.result).first_row == 5


def test_every_instruction_has_an_operator_that_encodes_as_the_isa_does() -> None:
    rng = Random(3)
    kinds = {kind.FORMAT.name: kind for kind in InstructionOp.__subclasses__()}
    assert sorted(kinds) == sorted(f.name for f in ISA.formats)
    for _ in range(200):
        instruction = ISA.random(rng)
        op = kinds[instruction.format.name](**instruction.values)
        op.verify()
        assert ISA.encode(op.instruction()) == ISA.encode(instruction)


def test_a_program_is_encoded_in_order() -> None:
    program = TpuProgram("npu0", [ReadWeightsOp(tiles=2), SyncOp(units=3), HaltOp()])
    lines = ["ReadWeights tiles=2", "Sync units=3", "Halt"]
    assert emit(program) == ISA.assemble("\n".join(lines))


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        ("rows = 16", "rows = 0", "tpu.read_host 'x': rows must be from 1 to 131071, not 0"),
        ("units = 1", "units = 16", "tpu.sync: units must be from 0 to 15, not 16"),
        ("fill = -3", "fill = -129", "fill must be from -128 to 127, not -129"),
        ("tpu.halt {}", "", "tpu.program @npu0: body must end with its only tpu.halt at 2, not []"),
        (
            "tpu.sync {units = 1}",
            "tpu.halt {}",
            "tpu.program @npu0: body must end with its only tpu.halt at 3, not [1, 3]",
        ),
    ],
)
def test_an_instruction_out_of_range_is_refused(was, becomes, message) -> None:
    with pytest.raises(VerifyException, match=re.escape(message)):
        parse_module(TPU.replace(was, becomes))


@pytest.mark.parametrize(
    ("becomes", "message"),
    [
        ("{unit = 1}", "field of tpu.sync must be one of units, not 'unit'"),
        ("{units = 1, units = 2}", "fields of tpu.sync must be given once each"),
    ],
)
def test_an_unknown_or_repeated_field_is_refused(becomes, message) -> None:
    with pytest.raises(ParseError, match=re.escape(message)):
        parse_module(TPU.replace("{units = 1}", becomes))
