"""Proves of a finished program what the hardware does not forgive.

Every address lies within its memory, accumulator rows within a half, every read in DRAM within
what the compiler put there; no unit can wait for ever; FIFOs are empty at the end; Syncs order
every conflict on the unified buffer; and no tensor in DRAM is read before it was written. The
passes before are meant to guarantee all of it: a failure here is a fault of the compiler, not of
the model.
"""

from collections.abc import Iterator, Sequence

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.ir.tpu import (
    ActivateOp,
    HaltOp,
    InstructionOp,
    MatrixMultiplyOp,
    ProgramOp,
    ReadHostOp,
    ReadParametersOp,
    ReadWeightsOp,
    SyncOp,
    WriteHostOp,
)
from npulse.sw.targets.executable import DramMap, DramRange
from npulse.sw.targets.tpu_v1.dram_order import order_faults
from npulse.sw.targets.tpu_v1.insert_syncs import conflicts
from npulse.sw.targets.tpu_v1.queues import Machine
from npulse.sw.targets.tpu_v1.rows import buffer_reads, buffer_writes, dram_span

__all__ = ["check_program", "problems"]


def check_program(
    program: ProgramOp,
    config: TpuV1Config,
    memory: DramMap,
    *,
    given: Sequence[int] | None = None,
    wanted: Sequence[int] = (),
) -> None:
    """Check a program; `ValueError` with its first fault in one sentence.

    Parameters
    ----------
    given, wanted : sequence of int
        Addresses of the tensors that the driver fills (None: all) and reads.
    """
    program.verify()
    for problem in problems(program, config, memory, given=given, wanted=wanted):
        raise ValueError(f"{program.sym_name.data}: {problem}")


def problems(
    program: ProgramOp,
    config: TpuV1Config,
    memory: DramMap,
    *,
    given: Sequence[int] | None = None,
    wanted: Sequence[int] = (),
) -> Iterator[str]:
    """All faults of a program, one sentence each."""
    filled = [r.address for r in memory.tensors] if given is None else given
    for index, op in enumerate(program.instructions):
        for sentence in _address_faults(op, config, memory):
            yield f"instruction {index}, {op.name}, {sentence}"
    yield from conflicts(program)
    yield from order_faults(program, config, memory.tensors, filled, wanted)
    yield from _flow_faults(program, config)


def _address_faults(op: InstructionOp, config: TpuV1Config, memory: DramMap) -> Iterator[str]:
    capacity = config.memory.unified_buffer_rows
    for span in (buffer_reads(op), buffer_writes(op)):
        if span is not None and span.last >= capacity:
            yield f"must stay below row {capacity} of the unified buffer, not reach {span.last}"
    if isinstance(op, MatrixMultiplyOp | ActivateOp):
        yield from _half_faults(op, config)
    if isinstance(op, ActivateOp) and op.fields["group"] >= config.write_groups:
        yield f"must write one of {config.write_groups} lane groups, not {op.fields['group']}"
    yield from _dram_faults(op, config, memory)


def _half_faults(op: MatrixMultiplyOp | ActivateOp, config: TpuV1Config) -> Iterator[str]:
    f, half = op.fields, config.half_rows
    if f["acc_addr"] >= config.memory.accumulator_rows:
        rows = config.memory.accumulator_rows
        yield f"must start below accumulator row {rows}, not at {f['acc_addr']}"
    if isinstance(op, MatrixMultiplyOp):
        end = f["acc_addr"] % half + f["rows_y"] * f["rows_x"]
    else:
        # From the first row of its limits, which a window may start above.
        corner = f["acc_addr"] - f["origin_y"] * f["window_y_rows"] - f["origin_x"]
        end = corner % half + (f["limit_y"] - 1) * f["window_y_rows"] + f["limit_x"]
    if end > half:
        yield f"must stay within {half} accumulator rows of a half, not end at {end}"


def _dram_faults(op: InstructionOp, config: TpuV1Config, memory: DramMap) -> Iterator[str]:
    span = dram_span(config, op)
    if span is None:
        return
    on_host_port = isinstance(op, ReadHostOp | WriteHostOp)
    word = config.bus.host_bytes if on_host_port else config.bus.weight_bytes
    if span.first % word:
        yield f"must address DRAM in words of {word} bytes, not at {span.first}"
    if not any(r.address <= span.first and span.last < r.end for r in _ranges(op, memory)):
        yield f"must stay within one range of DRAM, not touch {span.first} to {span.last}"


def _ranges(op: InstructionOp, memory: DramMap) -> Sequence[DramRange]:
    if isinstance(op, ReadWeightsOp):
        return (memory.weights,)
    return (memory.parameters,) if isinstance(op, ReadParametersOp) else memory.tensors


def _flow_faults(program: ProgramOp, config: TpuV1Config) -> Iterator[str]:
    machine = Machine(config)
    for index, op in enumerate(program.instructions):
        if not machine.dispatch(op):
            place = "the end" if isinstance(op, HaltOp) else f"instruction {index}, {op.name},"
            reason = "units to finish" if isinstance(op, HaltOp | SyncOp) else "room in its queue"
            yield f"{place} must not wait for {reason} for ever, but {machine.blocked()}"
            return
    for count, what in ((machine.tiles, "weight tiles"), (machine.entries, "parameter entries")):
        if count:
            yield f"the end must leave no {what} in their FIFO, not {count}"
