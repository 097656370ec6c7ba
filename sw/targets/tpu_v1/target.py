"""The compiler of the TPU v1 style: all passes in order.

::

    graph   fold_clamp, partition with reasons
    layers  one form for every operator, pooling fused where that costs no cycles
    tile    one macro operator a pass; buffers placed
    tpu     one operator an instruction; Syncs, hoisted reads, proofs
    bytes
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from npulse.hw.spec.flavours import Npu
from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.errors import UserError, shorten
from npulse.sw.frontends.model import Model, main_of
from npulse.sw.interpret import ssa_names
from npulse.sw.ir import tile, tpu
from npulse.sw.ir.graph import GraphOp
from npulse.sw.passes.fold_clamp import Folded, fold_clamp
from npulse.sw.passes.partition import Partition, Segment, host_module, partition
from npulse.sw.passes.place_buffers import Allocation, DoesNotFit, place_buffers
from npulse.sw.targets.executable import (
    Executable,
    HostSegment,
    NpuSegment,
    Placement,
)
from npulse.sw.targets.tpu_v1.check_program import check_program
from npulse.sw.targets.tpu_v1.constants import Constants
from npulse.sw.targets.tpu_v1.dram import Memory, lay_out
from npulse.sw.targets.tpu_v1.emit import emit
from npulse.sw.targets.tpu_v1.fuse import Fusion, fuse_segment
from npulse.sw.targets.tpu_v1.hoist_reads import hoist_reads
from npulse.sw.targets.tpu_v1.insert_syncs import insert_syncs
from npulse.sw.targets.tpu_v1.lower_graph import Border, Lowered, lower_graph
from npulse.sw.targets.tpu_v1.lower_tile import Addresses, lower_tile
from npulse.sw.targets.tpu_v1.placement import Decisions, placements
from npulse.sw.targets.tpu_v1.residency import Residency, decide_residency
from npulse.sw.targets.tpu_v1.summary import summarise
from npulse.sw.targets.tpu_v1.timeline import layer_cycles

__all__ = ["Compiled", "compile_model", "compile_stages"]


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """Every stage of a compilation, for tests and for people who want to look."""

    graph: ModuleOp  #: After the graph passes.
    parts: Partition
    fusions: tuple[Fusion, ...]  #: One for each NPU segment, in order.
    residencies: tuple[Residency, ...]
    tiles: tuple[tile.ProgramOp, ...]
    owners: tuple[Mapping[tpu.InstructionOp, int], ...]  #: Layer of each instruction.
    programs: tuple[tpu.ProgramOp, ...]
    estimates: tuple[tuple[int, ...], ...]  #: Cycles of each layer of each segment.
    allocations: tuple[Allocation, ...]
    constants: Constants
    memory: Memory
    decisions: Decisions
    folded: tuple[Folded, ...]
    names: Mapping[SSAValue, str]  #: Of every value, as the graph of the model has them.


def compile_model(model: Model, npu: Npu, *, strict: bool = False) -> Executable:
    """Compile a model; see `npulse.sw.compile.compile_model`."""
    config = npu.config
    stages = compile_stages(model, config)
    reasons = _reasons(stages)
    if strict:
        _refuse_fallback(model, npu, reasons)
    names = stages.names
    segments = _segments(stages, names)
    _prove(stages, config, segments)
    main = main_of(stages.graph).body.block
    end = main.last_op
    assert end is not None
    return Executable(
        npu=npu,
        segments=segments,
        inputs=model.inputs,
        outputs=model.outputs,
        input_values=tuple(names[a] for a in main.args),
        output_values=tuple(names[v] for v in end.operands),
        memory=stages.memory.map,
        program=b"".join(emit(program) for program in stages.programs),
        weight_image=stages.memory.weight_image,
        reasons=tuple(reasons),
        summary=summarise(
            config,
            stages.fusions,
            stages.estimates,
            stages.programs,
            stages.owners,
            stages.allocations,
            stages.memory,
        ),
        graph=str(model.module),
        weights=dict(model.weights),
        source=model.source,
        origin=model.origin,
        sha256=model.sha256,
        notes=(*model.notes, *(f"clamp {f.node!r} folded into {f.into!r}" for f in stages.folded)),
    )


def _prove(
    stages: Compiled, config: TpuV1Config, segments: Sequence[NpuSegment | HostSegment]
) -> None:
    """Check every program; `ValueError` for a fault of the compiler."""
    on_npu = [segment for segment in segments if isinstance(segment, NpuSegment)]
    for program, segment in zip(stages.programs, on_npu, strict=True):
        check_program(
            program,
            config,
            stages.memory.map,
            given=[binding.address for binding in segment.inputs],
            wanted=[binding.address for binding in segment.outputs],
        )


def compile_stages(model: Model, config: TpuV1Config) -> Compiled:
    """Run all passes; more tensors go to DRAM, and all runs again, until every segment fits."""
    copies: dict[SSAValue, SSAValue] = {}
    graph = model.module.clone(copies)
    folded = fold_clamp(graph)
    names = _names(model.module, copies, folded)
    decisions = Decisions(config)
    parts = partition(graph, decisions.source)
    capacity = config.memory.unified_buffer_rows
    while True:
        try:
            compiled = _compile(model, graph, parts, names, decisions, capacity)
            return replace(compiled, folded=tuple(folded))
        except DoesNotFit as problem:
            # Placement left gaps. With 2 rows nothing stays, and stages leave none.
            capacity = max(2, capacity - max(1, problem.needed_rows - problem.capacity_rows))


def _names(
    module: ModuleOp, copies: Mapping[SSAValue, SSAValue], folded: Sequence[Folded]
) -> dict[SSAValue, str]:
    """Names in the graph of the model, so that golden's trace has every value under the same."""
    names = {copies[value]: name for value, name in ssa_names(module).items()}
    for fold in folded:
        names[fold.by] = names.pop(fold.result)
    return names


def _compile(
    model: Model,
    graph: ModuleOp,
    parts: Partition,
    names: Mapping[SSAValue, str],
    decisions: Decisions,
    capacity: int,
) -> Compiled:
    config = decisions.config
    constants = Constants(config)
    fusions, residencies, lowered, borders = [], list[Residency](), list[Lowered](), list[Border]()
    for segment in (s for s in parts.segments if s.on_npu):
        fusion = fuse_segment(config, segment, model.weights)
        residency = decide_residency(
            config, fusion.layers, segment.inputs, segment.outputs, capacity
        )
        border = _border(segment, residency, names, sum(len(b.slots) for b in borders))
        name = f"npu{len(lowered)}"
        tiles = lower_graph(config, name, fusion.layers, residency.tilings, border, constants)
        tiles.program.verify()
        fusions.append(fusion)
        residencies.append(residency)
        lowered.append(tiles)
        borders.append(border)
    rows = config.memory.unified_buffer_rows
    allocations = [place_buffers(x.program, rows) for x in lowered]
    memory = lay_out(config, constants, borders)
    addresses = Addresses(
        constants, memory.tiles, memory.parameters, [r.address for r in memory.slots]
    )
    programs, owners = [], []
    for tiles in lowered:
        program, origin = lower_tile(config, tiles.program, addresses)
        programs.append(_schedule(config, program))
        owners.append({op: tiles.layer_of[for_] for op, for_ in origin.items()})
    return Compiled(
        graph=graph,
        parts=parts,
        fusions=tuple(fusions),
        residencies=tuple(residencies),
        tiles=tuple(x.program for x in lowered),
        owners=tuple(owners),
        programs=tuple(programs),
        estimates=tuple(
            layer_cycles(config, program, owner, len(fusion.layers))
            for program, owner, fusion in zip(programs, owners, fusions, strict=True)
        ),
        allocations=tuple(allocations),
        constants=constants,
        memory=memory.with_programs([len(list(p.instructions)) for p in programs]),
        decisions=decisions,
        folded=(),
        names=names,
    )


def _schedule(config: TpuV1Config, program: tpu.ProgramOp) -> tpu.ProgramOp:
    insert_syncs(program)
    hoist_reads(program, config)
    return program


def _border(
    segment: Segment, residency: Residency, names: Mapping[SSAValue, str], first_slot: int
) -> Border:
    stored = dict.fromkeys((*segment.inputs, *segment.outputs, *residency.in_dram))
    return Border(
        inputs=segment.inputs,
        outputs=segment.outputs,
        names=names,
        slots={value: first_slot + index for index, value in enumerate(stored)},
    )


def _segments(
    stages: Compiled, names: Mapping[SSAValue, str]
) -> tuple[NpuSegment | HostSegment, ...]:
    found: list[NpuSegment | HostSegment] = []
    index = 0
    for number, segment in enumerate(stages.parts.segments):
        if segment.on_npu:
            found.append(stages.memory.segment(index, f"npu{index}", segment))
            index += 1
            continue
        found.append(
            HostSegment(
                name=f"host{number - index}",
                module=str(host_module(segment)),
                inputs=tuple(names[v] for v in segment.inputs),
                outputs=tuple(names[v] for v in segment.outputs),
            )
        )
    return tuple(found)


def _reasons(stages: Compiled) -> list[Placement]:
    cycles: dict[GraphOp, int] = {}
    fused: dict[GraphOp, str] = {}
    for fusion, estimates in zip(stages.fusions, stages.estimates, strict=True):
        cycles.update(zip(fusion.cycles, estimates, strict=True))
        fused.update(fusion.fused)
    found = placements(stages.parts, stages.decisions, cycles, fused)
    for fold in stages.folded:
        found.append(
            Placement(
                node=fold.node,
                op="graph.clamp",
                placed="npu",
                rule="fused",
                attribute=f"done by node {fold.into!r}",
                remedy="",
                fallback=False,
                estimated_cycles=0,
            )
        )
    return found


def _refuse_fallback(model: Model, npu: Npu, reasons: Sequence[Placement]) -> None:
    bad = [r for r in reasons if r.fallback]
    if not bad:
        return
    first, rules = bad[0], Counter(r.rule for r in bad)
    counts = ", ".join(f"{rule} {count}" for rule, count in rules.items())
    raise UserError(
        f"{model.source}: every operator must run on {npu.name} under --strict, but {len(bad)} of "
        f"{len(reasons)} do not ({counts}), first node {shorten(first.node)!r} ({first.op}): "
        f"{first.attribute}; {first.remedy or 'leave --strict out'}"
    )
