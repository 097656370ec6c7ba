"""Whole compilations of random networks: what every program must be."""

import re
from collections import Counter

import numpy as np
import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sw.compile import HostSegment, NpuSegment, compile_model
from npulse.sw.errors import UserError
from npulse.sw.ir.tile import BufferOp, ConvPassOp
from npulse.sw.ir.tpu import ActivateOp, MatrixMultiplyOp, ReadParametersOp, ReadWeightsOp
from npulse.sw.targets.tpu_v1.chunks import chunks
from npulse.sw.targets.tpu_v1.constants import entry_bytes
from npulse.sw.targets.tpu_v1.lower_graph import geometry_of
from npulse.sw.targets.tpu_v1.rows import weight_tiles
from npulse.sw.targets.tpu_v1.target import compile_stages

NPUS = [
    resolve("tpu-v1:sim"),
    resolve("tpu-v1:fpga"),
    resolve("tpu-v1:silicon"),
    resolve("tpu-v1:sim", ["array.rows=5", "array.cols=3"]),
    resolve("tpu-v1:sim", ["array.rows=16", "array.cols=5", "memory.accumulator_rows=32"]),
    resolve("tpu-v1:sim", ["array.rows=3", "array.cols=10", "memory.accumulator_rows=16"]),
    resolve("tpu-v1:sim", ["array.rows=1", "array.cols=1"]),
    resolve(
        "tpu-v1:sim",
        [
            "queue_depth=2",
            "memory.weight_fifo_tiles=2",
            "memory.parameter_entries=2",
            "memory.accumulator_rows=32",
        ],
    ),
    resolve("tpu-v1:sim", ["memory.unified_buffer_rows=200"]),
]
CASES = [(seed, NPUS[seed % len(NPUS)]) for seed in range(27)]


@pytest.mark.parametrize(("seed", "npu"), CASES)
def test_random_networks_compile_to_proven_programs(random_net, seed, npu) -> None:
    model = random_net(seed).model()
    executable = compile_model(model, npu)  # runs `check_program` on every segment
    memory = executable.memory
    assert len(executable.program) == memory.program.length_bytes
    assert (
        len(executable.weight_image) == memory.weights.length_bytes + memory.parameters.length_bytes
    )
    ranges = sorted(
        (memory.weights, memory.parameters, *memory.tensors, memory.program),
        key=lambda r: (r.address, r.end),
    )
    for before, after in zip(ranges, ranges[1:], strict=False):
        assert before.end <= after.address
    assert ranges[-1].end <= memory.total_bytes
    known = set(executable.input_values)
    for segment in executable.segments:
        names = [b if isinstance(b, str) else b.value for b in segment.inputs]
        assert known.issuperset(names)
        known.update(b if isinstance(b, str) else b.value for b in segment.outputs)
    assert known.issuperset(executable.output_values)


@pytest.mark.parametrize(("seed", "npu"), CASES)
def test_every_weight_is_read_once_for_each_chunk(random_net, seed, npu) -> None:
    stages = compile_stages(random_net(seed).model(), npu.config)
    tile_bytes = npu.config.tile_bytes
    for fusion, program in zip(stages.fusions, stages.programs, strict=True):
        reads: Counter[int] = Counter()
        due: Counter[int] = Counter()
        entries: Counter[int] = Counter()
        for op in program.instructions:
            if isinstance(op, ReadWeightsOp):
                first = op.fields["dram_addr"]
                reads.update(first + n * tile_bytes for n in range(op.fields["tiles"]))
            if isinstance(op, ReadParametersOp):
                entries[op.fields["dram_addr"]] += 1
        for tile_program in stages.tiles:
            for op in tile_program.ops:
                if isinstance(op, ConvPassOp) and op.node.data in {x.node for x in fusion.layers}:
                    layer = next(x for x in fusion.layers if x.node == op.node.data)
                    count = len(list(chunks(geometry_of(layer), op.pair("chunk"))))
                    tiles = op.number("tiles")
                    name = op.constants.root_reference.data
                    first = stages.constants.tile_offset(name, op.number("first_tile"))
                    for n in range(tiles):
                        due[first + n * tile_bytes] += count if tiles > 1 else 1
        assert reads == due
        assert set(entries.values()) <= {1}
        assert all((a - stages.memory.parameters) % entry_bytes(npu.config) == 0 for a in entries)


@pytest.mark.parametrize(("seed", "npu"), CASES)
def test_multiplies_and_activates_alternate_halves_and_take_what_is_read(
    random_net, seed, npu
) -> None:
    stages = compile_stages(random_net(seed).model(), npu.config)
    for program in stages.programs:
        ops = list(program.instructions)
        multiplies = [op for op in ops if isinstance(op, MatrixMultiplyOp)]
        activates = [op for op in ops if isinstance(op, ActivateOp)]
        half = npu.config.half_rows
        halves = [op.fields["acc_addr"] // half for op in activates]
        assert halves == [n % 2 for n in range(len(activates))]
        # All that multiplies before an activate fills the half that it empties.
        done = 0
        for op in ops:
            if isinstance(op, MatrixMultiplyOp):
                assert op.fields["acc_addr"] // half == done % 2
            done += isinstance(op, ActivateOp)
        tiles = sum(op.fields["tiles"] for op in ops if isinstance(op, ReadWeightsOp))
        assert tiles == sum(weight_tiles(npu.config, op) for op in multiplies)
        entries = sum(op.fields["entries"] for op in ops if isinstance(op, ReadParametersOp))
        assert entries == sum(op.fields["switch"] for op in activates)


@pytest.mark.parametrize(("seed", "npu"), CASES)
def test_every_output_pixel_of_every_lane_group_is_written_once(random_net, seed, npu) -> None:
    stages = compile_stages(random_net(seed).model(), npu.config)
    for tile_program, program in zip(stages.tiles, stages.programs, strict=True):
        written: Counter[tuple[str, int, int]] = Counter()
        for op in program.instructions:
            if isinstance(op, ActivateOp):
                f = op.fields
                for y in range(f["rows_y"]):
                    for x in range(f["rows_x"]):
                        row = f["ub_addr"] + y * f["ub_y_stride"] + x
                        written[op.node_name, row, f["group"]] += 1
        due: set[tuple[str, int, int]] = set()
        for op in tile_program.ops:
            if isinstance(op, ConvPassOp):
                buffer = op.target.owner
                assert isinstance(buffer, BufferOp)
                pixels = op.out_size[0] * op.out_size[1]
                first = buffer.first_row + op.number("target_block") * pixels
                group = op.number("lane_group")
                due |= {(op.node.data, row, group) for row in range(first, first + pixels)}
        assert set(written) == due
        assert set(written.values()) <= {1}


def test_pooling_is_fused_when_windows_do_not_overlap(net) -> None:
    made = net().input(1, 12, 12, 3).conv(5, pads=(1, 1, 1, 1)).pool()
    executable = compile_model(made.model(), NPUS[0])
    conv, pool = executable.reasons
    assert (pool.rule, pool.attribute) == ("fused", f"done by node {conv.node!r}")
    assert len(executable.summary.layers) == 1


def test_pooling_is_a_pass_of_its_own_when_another_reads_the_convolution(net) -> None:
    made = net().input(1, 12, 12, 3).conv(5)
    conv = made.value
    executable = compile_model(made.pool().model(conv, made.value), NPUS[0])
    assert [layer.op for layer in executable.summary.layers] == [
        "graph.conv2d",
        "graph.max_pool2d",
    ]


def test_pooling_is_a_pass_of_its_own_where_that_costs_less(net) -> None:
    npu = resolve("tpu-v1:sim", ["memory.accumulator_rows=32"])
    made = net().input(1, 16, 16, 16).conv(8, pads=(1, 1, 1, 1)).pool((4, 4), (1, 1))
    layers = compile_model(made.model(), npu).summary.layers
    assert [layer.op for layer in layers] == ["graph.conv2d", "graph.max_pool2d"]


def test_an_operator_in_the_middle_falls_back_with_its_reason(net) -> None:
    made = net().input(1, 40, 3, 4).conv(6, (1, 1)).conv(5, (1, 1), (32, 1)).conv(4, (1, 1))
    executable = compile_model(made.model(), NPUS[0])
    kinds = [type(segment) for segment in executable.segments]
    assert kinds == [NpuSegment, HostSegment, NpuSegment]
    (fallback,) = [r for r in executable.reasons if r.fallback]
    assert (fallback.node, fallback.placed, fallback.rule, fallback.attribute) == (
        "Conv2dOp2",
        "host",
        "strides_and_dilations",
        "strides = 32x1",
    )


def test_strict_refuses_a_fallback_in_one_sentence(net) -> None:
    made = net().input(1, 40, 3, 4).conv(6, (1, 1)).conv(5, (1, 1), (32, 1))
    message = (
        "net.onnx: every operator must run on tpu-v1:sim under --strict, but 1 of 2 do not "
        "(strides_and_dilations 1), first node 'Conv2dOp2' (graph.conv2d): strides = 32x1; "
        "use strides and dilations of at most 31"
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        compile_model(made.model(), NPUS[0], strict=True)


def test_tensors_that_live_too_long_go_to_dram(net) -> None:
    made = net().input(1, 10, 10, 8)
    early = made.conv(8, (1, 1)).value
    late = made.conv(8, (1, 1)).conv(8, (1, 1)).value
    made.value = early  # lives while the two layers between work
    model = made.conv(8, (1, 1)).model(late, made.value)
    npu = resolve("tpu-v1:sim", ["memory.unified_buffer_rows=250"])
    assert compile_stages(model, NPUS[0].config).residencies[0].in_dram == ()
    stages = compile_stages(model, npu.config)
    assert stages.residencies[0].in_dram
    executable = compile_model(model, npu, strict=True)
    assert executable.summary.sram_peak_rows <= 250


def test_names_of_values_are_those_of_the_models_graph(net) -> None:
    made = net().input(1, 8, 8, 2).conv(4)
    made.value.name_hint = "same"
    made.clamp().value.name_hint = "same"
    stages = compile_stages(made.conv(3).model(), NPUS[0].config)
    assert [f.into for f in stages.folded] == ["Conv2dOp1"]
    # What the convolution makes now is what the clamp, ``%same_1``, made in the model.
    assert stages.names[stages.folded[0].by] == "same_1"
    assert "same" not in stages.names.values()


def test_layers_of_one_name_count_apart(net) -> None:
    made = net().input(1, 6, 6, 3).conv(4)
    made.count -= 1  # the next node gets the same name
    stages = compile_model(made.conv(5, (1, 1)).model(), NPUS[0])
    first, second = stages.summary.layers
    assert first.node == second.node
    assert (first.tiles, second.tiles) == (9, 1)
    assert (first.instructions, second.instructions) == (5, 5)


def test_layers_count_the_mathematics(net) -> None:
    executable = compile_model(net().input(1, 8, 8, 3).conv(10).model(), NPUS[0])
    (layer,) = executable.summary.layers
    assert layer.macs == 6 * 6 * 10 * 27 == executable.summary.macs
    assert layer.tiles == layer.tile_reads == 2 * 9
    # 18 tiles of 36 rows each, beside moves of 64 and 72 rows of 8 bytes at 2 bytes a cycle.
    moves = (64 + 72) * 8 // 2
    assert 2 * 9 * 36 + moves < layer.estimated_cycles < 2 * 9 * 36 + moves + 200
    assert np.frombuffer(executable.program, np.uint8).size == 32 * executable.summary.instructions
