"""Issues reads of weights and parameters before the Sync that they stand behind.

Dispatch runs ahead of the units by as much as their queues hold, so reads need no help but at a
Sync, where dispatch stops: what stands behind could have filled the FIFOs meanwhile. Each Sync
lets as many reads pass as their queue takes when nothing else can move, so that no read can hold
up dispatch for ever.
"""

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.ir.tpu import InstructionOp, ProgramOp, ReadParametersOp, ReadWeightsOp, SyncOp
from npulse.sw.targets.tpu_v1.queues import Machine

__all__ = ["hoist_reads"]

Read = ReadWeightsOp | ReadParametersOp


def hoist_reads(program: ProgramOp, config: TpuV1Config) -> None:
    """Move reads before Syncs; their own order, and that of all others, stays."""
    ops = list(program.instructions)
    reads = [op for op in ops if isinstance(op, Read)]
    machine, order = Machine(config), list[InstructionOp]()
    issued = passed = 0  # reads in the new order, and reads come by in the old one
    for op in ops:
        if isinstance(op, Read):
            passed += 1
            if passed <= issued:
                continue
            issued += 1
        elif isinstance(op, SyncOp):
            while issued < len(reads) and machine.dispatch(reads[issued]):
                order.append(reads[issued])
                issued += 1
        machine.dispatch(op)
        order.append(op)
    for op in ops:
        op.detach()
    program.body.block.add_ops(order)
