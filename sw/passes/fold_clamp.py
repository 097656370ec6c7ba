"""Folds a clamp into the operator before it: ReLU, ReLU6 and clip cost nothing then.

Requantisation and maximum are monotonic, so a clamp behind them is one with narrower bounds::

    clamp(clamp(v, a, b), c, d) = clamp(v, clamp(a, c, d), clamp(b, c, d))
"""

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, i32
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from npulse.sw.frontends.model import main_of
from npulse.sw.ir.graph import ClampOp, Conv2dOp, FullyConnectedOp, MaxPool2dOp, RequantizeOp

__all__ = ["fold_clamp"]


def fold_clamp(module: ModuleOp) -> list[tuple[str, str]]:
    """Fold every clamp whose input has no other user; the module changes in place.

    Returns
    -------
    list of (clamp node, node that takes it over)
    """
    folded = []
    for op in list(main_of(module).body.block.ops):
        if not isinstance(op, ClampOp):
            continue
        before = SSAValue.get(op.input).owner
        if isinstance(before, Conv2dOp | FullyConnectedOp | MaxPool2dOp | RequantizeOp) and (
            op.input.has_one_use()
        ):
            low, high = op.clamp_range
            bounds = [max(low, min(high, bound)) for bound in before.clamp_range]
            before.clamp = DenseArrayBase.from_list(i32, bounds)
            folded.append((op.node_name, before.node_name))
            before.result.name_hint = op.result.name_hint
            Rewriter.replace_op(op, [], [before.result])
    return folded
