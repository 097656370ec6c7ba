"""Tensors larger than the unified buffer: what lives in DRAM, and how layers go through stages."""

import numpy as np
import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sw.compile import compile_model
from npulse.sw.driver.devices import open_device
from npulse.sw.driver.runtime import Runtime
from npulse.sw.ir.tile import BufferOp, ConvPartOp, LoadOp, StoreOp, WaitOp
from npulse.sw.ir.tpu import HaltOp, ProgramOp, ReadHostOp, WriteHostOp
from npulse.sw.targets.executable import DramRange
from npulse.sw.targets.tpu_v1.dram_order import order_faults
from npulse.sw.targets.tpu_v1.target import compile_stages


def npu(rows, *settings):
    return resolve("tpu-v1:sim", [f"memory.unified_buffer_rows={rows}", *settings])


def big_convolution(net):
    return net(3).input(1, 20, 9, 5).conv(12, pads=(1, 1, 1, 1)).pool((3, 3), (2, 2))


@pytest.mark.parametrize(("seed", "rows"), [(0, 2), (1, 3), (2, 7), (3, 20), (5, 60), (9, 4)])
def test_any_network_fits_any_buffer(random_net, seed, rows) -> None:
    executable = compile_model(random_net(seed).model(), npu(rows))
    # Only windows and averages that no buffer helps are on the host.
    assert {r.rule for r in executable.reasons if r.fallback} <= {"pool_window", "average_window"}
    assert executable.summary.sram_peak_rows <= rows


def test_tensors_stay_while_they_fit(net) -> None:
    stages = compile_stages(big_convolution(net).model(), npu(3072).config)
    assert stages.residencies[0].in_dram == ()
    assert not [op for op in stages.tiles[0].ops if isinstance(op, WaitOp)]


def test_an_input_goes_through_stages_before_anything_else_does(net) -> None:
    made = big_convolution(net)
    made.conv(8, (1, 1))
    stages = compile_stages(made.model(), npu(200).config)
    (value,) = stages.residencies[0].in_dram
    assert stages.names[value] == "x0"


def test_one_stage_fills_while_the_other_is_read(net) -> None:
    made = net().input(1, 30, 9, 5).conv(4, pads=(1, 1, 1, 1))
    stages = compile_stages(made.model(), npu(200).config)
    (tiling,) = stages.residencies[0].tilings
    assert tiling is not None
    assert tiling.copies == 2
    program = stages.tiles[0]
    buffers = [op for op in program.ops if isinstance(op, BufferOp) and "x0" in op.label]
    assert [b.label for b in buffers] == ["x0 stage 0", "x0 stage 1"]
    loads = [op.buffer.owner for op in program.ops if isinstance(op, LoadOp)]
    assert loads == [buffers[n % 2] for n in range(len(loads))]
    kinds = [type(op) for op in program.ops if isinstance(op, LoadOp | WaitOp)]
    assert kinds[:4] == [LoadOp, LoadOp, WaitOp, LoadOp]


def test_stripes_of_an_output_cover_it_once(net) -> None:
    stages = compile_stages(big_convolution(net).model(), npu(40).config)
    covered = np.zeros((2, 9, 4), int)  # blocks, rows and columns of the pooled result
    for op in stages.tiles[0].ops:
        if isinstance(op, StoreOp):
            (y, x), (rows, columns) = op.pair("at"), op.pair("part")
            first, count = op.number("first_block"), op.number("blocks")
            covered[first : first + count, y : y + rows, x : x + columns] += 1
    assert (covered == 1).all()


def test_sums_are_made_in_parts_when_one_pixel_needs_too_many_rows(net) -> None:
    model = net(4).input(1, 6, 6, 20).conv(9, (5, 5)).model()
    assert not [
        op
        for op in compile_stages(model, npu(300).config).tiles[0].ops
        if isinstance(op, ConvPartOp)
    ]
    stages = compile_stages(model, npu(8).config)
    parts = [op for op in stages.tiles[0].ops if isinstance(op, ConvPartOp)]
    assert len(parts) > 2
    assert all(op.number("blocks") * np.prod(op.pair("source_size")) <= 8 for op in parts)


TENSORS = (
    DramRange(name="x", address=0, length_bytes=64),
    DramRange(name="y", address=128, length_bytes=64),
)


def order(*ops, wanted=()):
    program = ProgramOp("p", [*ops, HaltOp()])
    return list(order_faults(program, npu(64).config, TENSORS, [0], wanted))


def test_a_read_of_dram_must_come_after_the_write() -> None:
    write = WriteHostOp(dram_addr=128, rows=4, runs=2, dram_stride=32, ub_stride=4)
    assert order(write, ReadHostOp(dram_addr=128, rows=8)) == []
    write = WriteHostOp(dram_addr=128, rows=4)
    assert order(write, ReadHostOp(dram_addr=128, rows=5)) == [
        "instruction 1, tpu.read_host, must read y after it was written"
    ]
    assert order(ReadHostOp(rows=8)) == []


def test_an_output_must_be_complete_at_the_end() -> None:
    assert order(WriteHostOp(dram_addr=128, rows=5), wanted=[128]) == [
        "the end must leave y complete, not without 3 rows"
    ]


def fused_pool(net):
    return net(3).input(1, 9, 5, 3).conv(3, pads=(1, 1, 1, 1)).pool((3, 3), (2, 2))


def parts_and_average(net):
    made = net(4).input(1, 5, 5, 6).conv(3, (3, 3), pads=(2, 1, 1, 2))
    return made.average((3, 2), (2, 2)).mean((1, 2)).flatten().fully_connected(3)


def narrow_depthwise(net):
    return net(8).input(1, 3, 12, 3).conv(3, (3, 3), (2, 1), pads=(1, 1, 1, 1), groups=3)


@pytest.mark.parametrize("rows", [8, 24])
def test_networks_beyond_the_buffer_are_golden_on_the_rtl(net, rows) -> None:
    small = npu(rows, "array.rows=4", "array.cols=2", "memory.accumulator_rows=32")
    device = open_device(small, 1 << 17, engine="compiled")
    for build in (fused_pool, parts_and_average, narrow_depthwise):
        executable = compile_model(build(net).model(), small, strict=True)
        assert executable.memory.total_bytes <= 1 << 17
        rng = np.random.default_rng(1)
        arrays = {
            info.name: rng.integers(-128, 128, info.shape).astype(np.int8)
            for info in executable.inputs
        }
        result = Runtime(executable, device).run(arrays, check=True)
        assert result.mismatches == ()
        assert np.unique(list(result.outputs.values())[0]).size > 1
        estimate = executable.summary.estimated_cycles
        assert 0.6 < estimate / result.stats.cycles < 1.4, (build, estimate, result.stats.cycles)
