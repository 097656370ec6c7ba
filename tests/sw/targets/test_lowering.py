"""All levels of one small network in text."""

from npulse.hw.spec.flavours import resolve
from npulse.sw.ir.tpu import ActivateOp
from npulse.sw.targets.tpu_v1.target import compile_stages

CONFIG = resolve("tpu-v1:sim", ["memory.accumulator_rows=64"]).config

TILE = """tile.program @npu0 {
  %x0 = tile.buffer "x0" {memory = "unified_buffer", rows = 40 : i64, base = 0 : i64} : \
!tile.buffer<4, 10, 3>
  tile.load %x0 {value = "x0", slot = 0 : i64} : !tile.buffer<4, 10, 3>
  %pool2 = tile.buffer "pool2" {memory = "unified_buffer", rows = 20 : i64, base = 40 : i64} : \
!tile.buffer<2, 5, 9>
  tile.conv_pass %x0, %pool2 {node = "Conv2dOp1", constants = @Conv2dOp1, first_tile = 0 : i64, \
tiles = 9 : i64, entry = 0 : i64, fill = 10 : i64, first_block = 0 : i64, blocks = 1 : i64, \
target_block = 0 : i64, lane_group = 0 : i64, source_size = array<i64: 4, 10>, \
kernel = array<i64: 3, 3>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, \
origin = array<i64: -1, -1>, size = array<i64: 4, 10>, window = array<i64: 2, 2>, \
window_strides = array<i64: 2, 2>, window_origin = array<i64: 0, 0>, chunk = array<i64: 1, 5>} : \
!tile.buffer<4, 10, 3>, !tile.buffer<2, 5, 9>
  tile.conv_pass %x0, %pool2 {node = "Conv2dOp1", constants = @Conv2dOp1, first_tile = 9 : i64, \
tiles = 9 : i64, entry = 1 : i64, fill = 10 : i64, first_block = 0 : i64, blocks = 1 : i64, \
target_block = 1 : i64, lane_group = 0 : i64, source_size = array<i64: 4, 10>, \
kernel = array<i64: 3, 3>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, \
origin = array<i64: -1, -1>, size = array<i64: 4, 10>, window = array<i64: 2, 2>, \
window_strides = array<i64: 2, 2>, window_origin = array<i64: 0, 0>, chunk = array<i64: 1, 5>} : \
!tile.buffer<4, 10, 3>, !tile.buffer<2, 5, 9>
  tile.store %pool2 {value = "pool2", slot = 1 : i64} : !tile.buffer<2, 5, 9>
}"""


#: Two chunks of two rows a pass; the first reads from row 0 - 10 - 1, modulo 2^17.
TPU = """tpu.program @npu0 {
  tpu.read_host {dram_addr = 1408, rows = 40} for "x0"
  tpu.read_weights {tiles = 9} for "Conv2dOp1"
  tpu.read_parameters {dram_addr = 1152} for "Conv2dOp1"
  tpu.read_weights {tiles = 9} for "Conv2dOp1"
  tpu.read_weights {dram_addr = 576, tiles = 9} for "Conv2dOp1"
  tpu.sync {units = 1} for "Conv2dOp1"
  tpu.matrix_multiply {ub_addr = 131061, switch = 1, fill = 10, block_stride = 40, kernel_y = 3, \
kernel_x = 3, rows_y = 2, rows_x = 10, step_y = 1, step_x = 1, dilate_y = 1, dilate_x = 1, \
step_y_rows = 10, dilate_y_rows = 10, origin_y = -1, origin_x = -1, limit_y = 4, \
limit_x = 10} for "Conv2dOp1"
  tpu.activate {ub_addr = 40, switch = 1, rows_x = 5, window_y = 2, window_x = 2, \
step_y = 2, step_x = 2, window_y_rows = 10, limit_y = 2, limit_x = 10, ub_y_stride = 5} \
for "Conv2dOp1"
  tpu.matrix_multiply {ub_addr = 9, acc_addr = 32, switch = 1, fill = 10, block_stride = 40, \
kernel_y = 3, kernel_x = 3, rows_y = 2, rows_x = 10, step_y = 1, step_x = 1, \
dilate_y = 1, dilate_x = 1, \
step_y_rows = 10, dilate_y_rows = 10, origin_y = 1, origin_x = -1, limit_y = 4, \
limit_x = 10} for "Conv2dOp1"
  tpu.activate {acc_addr = 32, ub_addr = 45, rows_x = 5, window_y = 2, window_x = 2, \
step_y = 2, step_x = 2, window_y_rows = 10, limit_y = 2, limit_x = 10, ub_y_stride = 5} \
for "Conv2dOp1"
  tpu.read_parameters {dram_addr = 1248} for "Conv2dOp1"
  tpu.matrix_multiply {ub_addr = 131061, switch = 1, fill = 10, block_stride = 40, kernel_y = 3, \
kernel_x = 3, rows_y = 2, rows_x = 10, step_y = 1, step_x = 1, dilate_y = 1, dilate_x = 1, \
step_y_rows = 10, dilate_y_rows = 10, origin_y = -1, origin_x = -1, limit_y = 4, \
limit_x = 10} for "Conv2dOp1"
  tpu.activate {ub_addr = 50, switch = 1, rows_x = 5, window_y = 2, window_x = 2, \
step_y = 2, step_x = 2, window_y_rows = 10, limit_y = 2, limit_x = 10, ub_y_stride = 5} \
for "Conv2dOp1"
  tpu.read_weights {dram_addr = 576, tiles = 9} for "Conv2dOp1"
  tpu.matrix_multiply {ub_addr = 9, acc_addr = 32, switch = 1, fill = 10, block_stride = 40, \
kernel_y = 3, kernel_x = 3, rows_y = 2, rows_x = 10, step_y = 1, step_x = 1, \
dilate_y = 1, dilate_x = 1, \
step_y_rows = 10, dilate_y_rows = 10, origin_y = 1, origin_x = -1, limit_y = 4, \
limit_x = 10} for "Conv2dOp1"
  tpu.activate {acc_addr = 32, ub_addr = 55, rows_x = 5, window_y = 2, window_x = 2, \
step_y = 2, step_x = 2, window_y_rows = 10, limit_y = 2, limit_x = 10, ub_y_stride = 5} \
for "Conv2dOp1"
  tpu.sync {units = 8} for "pool2"
  tpu.write_host {dram_addr = 1792, ub_addr = 40, rows = 20} for "pool2"
  tpu.halt {}
}"""


def stages(net):
    made = net().input(1, 4, 10, 3).conv(9, pads=(1, 1, 1, 1)).pool()
    return compile_stages(made.model(), CONFIG)


def test_a_convolution_with_its_pooling_is_one_operator_a_pass(net) -> None:
    assert str(stages(net).tiles[0]) == TILE


def test_each_chunk_of_a_pass_is_a_multiply_and_an_activate(net) -> None:
    assert str(stages(net).programs[0]) == TPU


def test_windows_with_padding_start_above_their_rows_modulo_a_half(net) -> None:
    made = net().input(1, 5, 12, 3).pool((3, 3), (2, 2), (1, 1, 1, 1))
    activates = [
        op
        for op in compile_stages(made.model(), CONFIG).programs[0].instructions
        if isinstance(op, ActivateOp)
    ]
    # Chunks of 2 x 3 windows over 4 x 6, 4 x 7, 2 x 6 and 2 x 7 copied pixels.
    assert [op.fields["acc_addr"] for op in activates] == [32 - 6 - 1, 32 + 32 - 7, 32 - 1, 32]
    first = activates[0].fields
    assert (first["origin_y"], first["origin_x"]) == (-1, -1)
    assert [op.fields["window_y_rows"] for op in activates] == [6, 7, 6, 7]
    assert [op.fields["step_y_rows"] for op in activates] == [2 * 6, 2 * 7, 0, 0]
    assert (first["limit_y"], first["limit_x"]) == (4, 6)
    assert (first["rows_y"], first["rows_x"], first["ub_y_stride"]) == (2, 3, 6)
    assert [op.fields["origin_x"] for op in activates] == [-1, 0, -1, 0]
    assert [op.fields["ub_addr"] - first["ub_addr"] for op in activates] == [0, 3, 12, 15]
