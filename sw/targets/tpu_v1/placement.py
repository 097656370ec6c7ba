"""Decides where each operator of a graph runs, and says why."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.ir.graph import DequantizeOp, GraphOp, HostOp, QuantizeOp, RequantizeOp
from npulse.sw.passes.partition import LAYOUT, Partition
from npulse.sw.passes.views import View
from npulse.sw.targets.executable import Placement
from npulse.sw.targets.tpu_v1.legality import COMPUTE, Violation, first_violation, source_view

__all__ = ["Decisions", "placements"]

#: Rules by which an operator is on the host by design: --strict allows them.
CONVERSION = Violation(
    "float_border",
    "conversion between float and codes",
    "feed and read quantised codes to leave it out",
)
SIGN_FLIP = Violation(
    "sign_flip", "conversion between uint8 and int8", "feed and read int8 codes to leave it out"
)
LAYOUT_BORDER = Violation("layout_border", "moves data only", "")


def _no_unit(op: GraphOp) -> Violation:
    return Violation(
        "operator.no_hardware",
        f"operator {op.name}",
        "none: the matrix and activation units have no such operation",
    )


@dataclass
class Decisions:
    """Rules of the target, run once for each operator."""

    config: TpuV1Config
    _known: dict[GraphOp, Violation | None] = field(default_factory=dict)

    def violation(self, op: GraphOp) -> Violation | None:
        """Why an operator is on the host, None when it is on the NPU."""
        if op not in self._known:
            self._known[op] = self._decide(op)
        return self._known[op]

    def _decide(self, op: GraphOp) -> Violation | None:
        if isinstance(op, RequantizeOp) and op.is_sign_flip:
            return SIGN_FLIP
        if isinstance(op, COMPUTE):
            return first_violation(op, self.config)
        if isinstance(op, HostOp):
            why = op.why()
            return Violation(why["rule"], why["decided_by"], why["remedy"])
        if isinstance(op, QuantizeOp | DequantizeOp):
            return CONVERSION
        return LAYOUT_BORDER if isinstance(op, LAYOUT) else _no_unit(op)

    def view(self, op: GraphOp) -> View | None:
        """What the NPU reads for an operator, None for one of the host."""
        if not isinstance(op, COMPUTE) or self.violation(op) is not None:
            return None
        return source_view(op)

    def source(self, op: GraphOp) -> SSAValue | None:
        """Stored value that the NPU reads for an operator, None for one of the host."""
        view = self.view(op)
        return None if view is None else view.base


def placements(
    parts: Partition,
    decisions: Decisions,
    cycles: Mapping[GraphOp, int],
    fused: Mapping[GraphOp, str],
) -> list[Placement]:
    """Placement of each operator, those of the NPU with their estimated cycles.

    Parameters
    ----------
    fused : mapping
        Operators that another one does on its way, with that one's node.
    """
    found = []
    on_npu = {v for s in parts.segments if s.on_npu for op in s.ops for v in op.results}
    for segment in parts.segments:
        for op in segment.ops:
            if segment.on_npu:
                found.append(_on_npu(op, cycles.get(op, 0), fused.get(op)))
            else:
                violation = decisions.violation(op)
                assert violation is not None
                found.append(_on_host(op, violation, _is_fallback(op, on_npu, decisions)))
    for op in parts.views:
        found.append(_npu_placement(op, "view", "read in the order in which it is stored", 0))
    return found


def _on_npu(op: GraphOp, cycles: int, host: str | None) -> Placement:
    if host is not None:
        return _npu_placement(op, "fused", f"done by node {host!r}", 0)
    return _npu_placement(op, "layer", "", cycles)


def _npu_placement(op: GraphOp, rule: str, attribute: str, cycles: int) -> Placement:
    return Placement(
        node=op.node_name,
        op=op.name,
        placed="npu",
        rule=rule,
        attribute=attribute,
        remedy="",
        fallback=False,
        estimated_cycles=cycles,
    )


def _is_fallback(op: GraphOp, on_npu: Container[SSAValue], decisions: Decisions) -> bool:
    """Whether the host steps in for the NPU, rather than at a border of the model."""
    if isinstance(op, LAYOUT):
        users = [use.operation for use in op.result.uses]
        read = any(isinstance(u, GraphOp) and decisions.source(u) is op.result for u in users)
        return op.input in on_npu and read
    if isinstance(op, QuantizeOp | DequantizeOp):
        return False
    return decisions.violation(op) is not SIGN_FLIP


def _on_host(op: GraphOp, violation: Violation, fallback: bool) -> Placement:
    return Placement(
        node=op.node_name,
        op=op.kind.data if isinstance(op, HostOp) else op.name,
        placed="host",
        rule=violation.rule,
        attribute=violation.attribute,
        remedy=violation.remedy,
        fallback=fallback,
        estimated_cycles=0,
    )
