"""Dispatch, queues and FIFOs of the machine without time: what can move, moves.

The units are a network of bounded FIFOs that nothing leaves out of order, so the state in which
nothing can move any more does not depend on the speed of anything. `Machine` computes that state
after each instruction. If the next instruction finds its queue full in it, the queue stays full
for ever: a deadlock. Room is counted on the safe side: the instruction that a unit works on still
takes a place in its queue, and the parameters in use one in their FIFO. More room than that never
makes a deadlock.
"""

from dataclasses import dataclass, field

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import UNITS
from npulse.sw.ir.tpu import (
    ActivateOp,
    HaltOp,
    InstructionOp,
    MatrixMultiplyOp,
    ReadParametersOp,
    ReadWeightsOp,
    SyncOp,
)
from npulse.sw.targets.tpu_v1.rows import weight_tiles

__all__ = ["Machine"]


@dataclass
class _Work:
    """An instruction under way."""

    op: InstructionOp
    order: int  #: Place in the order of dispatch.
    left: int  #: Tiles or entries still to push or to take.
    half: int = 0


@dataclass
class Machine:
    """State of the machine in which nothing can move any more."""

    config: TpuV1Config
    queues: dict[str, list[_Work]] = field(default_factory=lambda: {u: [] for u in UNITS})
    tiles: int = 0  #: Weight tiles in their FIFO.
    entries: int = 0  #: Parameter entries in their FIFO, without the one in use.
    dispatched: int = 0

    def dispatch(self, op: InstructionOp) -> bool:
        """Take an instruction and let everything move; False if it can never be taken."""
        if isinstance(op, SyncOp | HaltOp):
            mask = op.fields["units"] if isinstance(op, SyncOp) else sum(UNITS.values())
            return not any(mask & bit and self.queues[unit] for unit, bit in UNITS.items())
        queue = self.queues[op.unit]
        if len(queue) >= self.config.queue_depth:
            return False
        queue.append(self._work(op))
        self.dispatched += 1
        while any([self._move(unit) for unit in UNITS]):
            pass
        return True

    def blocked(self) -> str:
        """What waits for what, for messages."""
        return ", ".join(
            f"{unit} waits in {queue[0].op.name}" for unit, queue in self.queues.items() if queue
        )

    def _work(self, op: InstructionOp) -> _Work:
        left = 0
        if isinstance(op, ReadWeightsOp):
            left = op.fields["tiles"]
        elif isinstance(op, ReadParametersOp):
            left = op.fields["entries"]
        elif isinstance(op, MatrixMultiplyOp):
            left = weight_tiles(self.config, op)
        elif isinstance(op, ActivateOp):
            left = op.fields["switch"]
        half = op.fields.get("acc_addr", 0) // self.config.half_rows
        return _Work(op, self.dispatched, left, half)

    def _move(self, unit: str) -> bool:
        """Carry out the first instruction of a unit as far as it goes; True if it ended."""
        queue = self.queues[unit]
        if not queue or not self._may_start(queue[0]):
            return False
        work = queue[0]
        if isinstance(work.op, ReadWeightsOp):
            moved = min(work.left, self.config.memory.weight_fifo_tiles - self.tiles)
            self.tiles += moved
        elif isinstance(work.op, ReadParametersOp):
            moved = min(work.left, self.config.memory.parameter_entries - 1 - self.entries)
            self.entries += moved
        elif isinstance(work.op, MatrixMultiplyOp):
            moved = min(work.left, self.tiles)
            self.tiles -= moved
        else:
            moved = min(work.left, self.entries)
            self.entries -= moved
        work.left -= moved
        if not work.left:
            queue.pop(0)
        return moved > 0 or not work.left

    def _may_start(self, work: _Work) -> bool:
        """Whether the accumulators are free (matrix) or filled (activate) for an instruction."""
        other = {"matrix": "activate", "activate": "matrix"}.get(work.op.unit)
        if other is None:
            return True
        return not any(w.half == work.half and w.order < work.order for w in self.queues[other])
