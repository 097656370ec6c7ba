"""Counts what was compiled."""

from collections import Counter
from collections.abc import Sequence

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.ir.tpu import ProgramOp, ReadWeightsOp
from npulse.sw.passes.allocate import Allocation
from npulse.sw.targets.executable import Layer, Summary
from npulse.sw.targets.tpu_v1.dram import Memory
from npulse.sw.targets.tpu_v1.fuse import Fusion
from npulse.sw.targets.tpu_v1.lower_graph import layer_estimate

__all__ = ["summarise"]


def summarise(
    config: TpuV1Config,
    fusions: Sequence[Fusion],
    programs: Sequence[ProgramOp],
    allocations: Sequence[Allocation],
    memory: Memory,
) -> Summary:
    """Figures of all NPU segments together; the buffer's are those of the fullest."""
    layers = [
        layer
        for fusion, program in zip(fusions, programs, strict=True)
        for layer in _layers(config, fusion, program)
    ]
    return Summary(
        layers=tuple(layers),
        instructions=sum(memory.instructions),
        weight_bytes=len(memory.weight_image),
        sram_peak_rows=max((a.peak_rows for a in allocations), default=0),
        sram_lower_bound_rows=max((a.lower_bound_rows for a in allocations), default=0),
        sram_capacity_rows=config.memory.unified_buffer_rows,
        row_bytes=config.lanes,
        macs=sum(layer.macs for layer in layers),
        estimated_cycles=sum(layer.estimated_cycles for layer in layers),
    )


def _layers(config: TpuV1Config, fusion: Fusion, program: ProgramOp) -> list[Layer]:
    # Moves to and from DRAM carry names of values, which may equal those of nodes.
    counts = Counter(op.node_name for op in program.instructions if op.unit != "host")
    reads: Counter[str] = Counter()
    stored: dict[str, set[int]] = {}
    for op in program.instructions:
        if isinstance(op, ReadWeightsOp):
            first, tiles = op.fields["dram_addr"], op.fields["tiles"]
            reads[op.node_name] += tiles
            ends = range(first, first + tiles * config.tile_bytes, config.tile_bytes)
            stored.setdefault(op.node_name, set()).update(ends)
    return [
        Layer(
            node=layer.node,
            op=layer.op,
            macs=layer.macs,
            instructions=counts[layer.node],
            tiles=len(stored.get(layer.node, ())),
            tile_reads=reads[layer.node],
            estimated_cycles=layer_estimate(config, layer) or 0,
        )
        for layer in fusion.layers
    ]
