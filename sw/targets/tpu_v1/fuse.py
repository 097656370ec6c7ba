"""Turns the operators of an NPU segment into layers, and fuses pooling into convolutions.

A pooling whose convolution has no other reader is done by the Activate instructions of that
convolution, unless overlapping windows make the rows that chunks compute twice cost more cycles
than a pass over the tensor of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.ir.graph import Conv2dOp, GraphOp, MaxPool2dOp
from npulse.sw.passes.partition import Segment
from npulse.sw.targets.tpu_v1.estimate import layer_estimate
from npulse.sw.targets.tpu_v1.layers import Layer, fuse_pool, layer_of
from npulse.sw.targets.tpu_v1.legality import COMPUTE

__all__ = ["Fusion", "fuse_segment"]


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """Layers of a segment in order, and what became of its operators."""

    layers: tuple[Layer, ...]
    cycles: Mapping[GraphOp, int]  #: Estimate for the operator that each layer is named after.
    fused: Mapping[GraphOp, str]  #: Operators without a layer, with the node that does them.


def fuse_segment(
    config: TpuV1Config, segment: Segment, arrays: Mapping[str, NDArray[Any]]
) -> Fusion:
    """Layers of a segment whose operators no rule refuses."""
    layers: list[Layer] = []
    cycles: dict[GraphOp, int] = {}
    fused: dict[GraphOp, str] = {}
    done: dict[GraphOp, int] = {}  # index of the layer that an operator became
    for op in segment.ops:
        assert isinstance(op, COMPUTE)
        layer = layer_of(op, arrays)
        before = op.input.owner
        if isinstance(op, MaxPool2dOp) and isinstance(before, Conv2dOp) and before in done:
            joined = fuse_pool(layers[done[before]], op)
            together = layer_estimate(config, joined)
            apart = cycles[before] + _estimate(config, layer)
            if op.input.has_one_use() and together is not None and together <= apart:
                layers[done[before]] = joined
                cycles[before], fused[op] = together, before.node_name
                continue
        done[op], cycles[op] = len(layers), _estimate(config, layer)
        layers.append(layer)
    return Fusion(layers=tuple(layers), cycles=cycles, fused=fused)


def _estimate(config: TpuV1Config, layer: Layer) -> int:
    cycles = layer_estimate(config, layer)
    assert cycles is not None, "the rule on windows sees to this"
    return cycles
