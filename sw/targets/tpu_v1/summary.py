"""Counts what was compiled."""

from collections import Counter
from collections.abc import Mapping, Sequence

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.ir.tpu import InstructionOp, ProgramOp, ReadWeightsOp, SyncOp
from npulse.sw.passes.allocate import Allocation
from npulse.sw.targets.executable import Layer, Summary
from npulse.sw.targets.tpu_v1.dram import Memory
from npulse.sw.targets.tpu_v1.fuse import Fusion

__all__ = ["summarise"]


def summarise(
    config: TpuV1Config,
    fusions: Sequence[Fusion],
    estimates: Sequence[Sequence[int]],
    programs: Sequence[ProgramOp],
    owners: Sequence[Mapping[InstructionOp, int]],
    allocations: Sequence[Allocation],
    memory: Memory,
) -> Summary:
    """Figures of all NPU segments together; the buffer's are those of the fullest.

    Parameters
    ----------
    estimates : sequence of sequence of int
        For each segment the cycles of its layers.
    owners : sequence of mapping
        For each segment the index of the layer that an instruction is for.
    """
    layers = [
        layer
        for fusion, cycles, program, owner in zip(fusions, estimates, programs, owners, strict=True)
        for layer in _layers(config, fusion, cycles, program, owner)
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


def _layers(
    config: TpuV1Config,
    fusion: Fusion,
    estimates: Sequence[int],
    program: ProgramOp,
    owner: Mapping[InstructionOp, int],
) -> list[Layer]:
    counts: Counter[int] = Counter()
    reads: Counter[int] = Counter()
    stored: dict[int, set[int]] = {}
    syncs = 0
    for op in program.instructions:
        index = owner.get(op)
        if index is None:  # a Sync is for what comes behind it
            syncs += isinstance(op, SyncOp)
            continue
        if op.unit != "host":  # moves, and the Syncs before them, are no layer's
            counts[index] += 1 + syncs
        syncs = 0
        if isinstance(op, ReadWeightsOp):
            first, tiles = op.fields["dram_addr"], op.fields["tiles"]
            reads[index] += tiles
            ends = range(first, first + tiles * config.tile_bytes, config.tile_bytes)
            stored.setdefault(index, set()).update(ends)
    return [
        Layer(
            node=layer.node,
            op=layer.op,
            macs=layer.macs,
            instructions=counts[index],
            tiles=len(stored.get(index, ())),
            tile_reads=reads[index],
            estimated_cycles=estimates[index],
        )
        for index, layer in enumerate(fusion.layers)
    ]
