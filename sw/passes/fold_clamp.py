"""Folds a clamp into the operator before it: ReLU, ReLU6 and clip cost nothing then.

Requantisation and maximum are monotonic, so a clamp behind them is one with narrower bounds::

    clamp(clamp(v, a, b), c, d) = clamp(v, clamp(a, c, d), clamp(b, c, d))
"""

from dataclasses import dataclass

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i32
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from npulse.sw.frontends.model import main_of
from npulse.sw.ir.graph import (
    AveragePool2dOp,
    ClampOp,
    Conv2dOp,
    FullyConnectedOp,
    MaxPool2dOp,
    MeanOp,
    RequantizeOp,
)

__all__ = ["Folded", "fold_clamp"]


#: Operators that end in a clamp of their own.
_MONOTONIC = (
    AveragePool2dOp,
    Conv2dOp,
    FullyConnectedOp,
    MaxPool2dOp,
    MeanOp,
    RequantizeOp,
)


@dataclass(frozen=True, kw_only=True)
class Folded:
    """A clamp that is gone."""

    node: str
    into: str  #: Node that takes it over.
    result: SSAValue  #: What the clamp made.
    by: SSAValue  #: What has this value now.


def fold_clamp(module: ModuleOp) -> list[Folded]:
    """Fold every clamp whose input has no other user; the module changes in place.

    Returns
    -------
    list of Folded
        In order, so that of two in a row the later tells whose value stays.
    """
    folded = []
    for op in list(main_of(module).body.block.ops):
        if not isinstance(op, ClampOp):
            continue
        before = SSAValue.get(op.input).owner
        if isinstance(before, _MONOTONIC) and op.input.has_one_use():
            low, high = op.clamp_range
            bounds = [max(low, min(high, bound)) for bound in before.clamp_range]
            before.clamp = DenseArrayBase.from_list(i32, bounds)
            folded.append(
                Folded(node=op.node_name, into=before.node_name, result=op.result, by=before.result)
            )
            before.result.name_hint = op.result.name_hint
            Rewriter.replace_op(op, [], [before.result])
    return folded
