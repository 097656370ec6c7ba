"""Decides which tensors stay in the unified buffer and which live in DRAM.

All stay while they fit. Where the tensors in use during a layer do not, some go to DRAM: first
those that cost the fewest moves beyond the one that an input or an output makes anyway, and of
these the largest. A layer whose source or target lives in DRAM gets the rows that the others leave
for its stages, and at least half the buffer where it can use so much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_layout import tensor_rows
from npulse.sw.targets.tpu_v1.layers import Layer
from npulse.sw.targets.tpu_v1.tiling import Tiling, choose_tiling

__all__ = ["Residency", "decide_residency"]


@dataclass(frozen=True, kw_only=True)
class Residency:
    """Values in DRAM, and the tiling of each layer that one of them concerns."""

    in_dram: tuple[SSAValue, ...]
    tilings: tuple[Tiling | None, ...]  #: One a layer; None where source and target stay.


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    """A stored tensor of a segment."""

    rows: int
    first: int  #: Layer that makes or first reads it.
    last: int
    moves: int  #: Moves of the whole tensor that living in DRAM adds.


def _tensors(
    config: TpuV1Config,
    layers: Sequence[Layer],
    inputs: Sequence[SSAValue],
    outputs: Sequence[SSAValue],
) -> dict[SSAValue, _Tensor]:
    images = {layer.base: layer.image for layer in layers}
    images |= {layer.result: layer.out_image for layer in layers}
    makers = {layer.result: index for index, layer in enumerate(layers)}
    found = {}
    for value, image in images.items():
        readers = [index for index, layer in enumerate(layers) if layer.base is value]
        used = [*readers, *([makers[value]] if value in makers else [])]
        due = (value in inputs) + (value in outputs)
        found[value] = _Tensor(
            rows=tensor_rows(config, *image),
            first=min(used),
            last=max(used),
            moves=len(readers) + (value in makers) - due,
        )
    return found


def decide_residency(
    config: TpuV1Config,
    layers: Sequence[Layer],
    inputs: Sequence[SSAValue],
    outputs: Sequence[SSAValue],
    capacity: int,
) -> Residency:
    """Place each tensor so that every layer finds its rows within `capacity`, at least 2.

    Parameters
    ----------
    inputs, outputs : sequence of SSAValue
        Values that cross the border of the segment, which are in DRAM anyway.
    """
    tensors = _tensors(config, layers, inputs, outputs)
    in_dram: list[SSAValue] = []
    while True:
        over = [_over(layers, tensors, in_dram, step, capacity) for step in range(len(layers))]
        worst = max(range(len(layers)), key=lambda step: over[step], default=0)
        if not layers or over[worst] <= 0:
            break
        live = _live(tensors, in_dram, worst)
        in_dram.append(min(live, key=lambda v: (tensors[v].moves, -tensors[v].rows)))
    return Residency(
        in_dram=tuple(in_dram),
        tilings=tuple(
            _tiling(config, layer, capacity - _resident(tensors, in_dram, step), in_dram)
            for step, layer in enumerate(layers)
        ),
    )


def _live(
    tensors: dict[SSAValue, _Tensor], in_dram: Sequence[SSAValue], step: int
) -> list[SSAValue]:
    return [v for v, t in tensors.items() if v not in in_dram and t.first <= step <= t.last]


def _resident(tensors: dict[SSAValue, _Tensor], in_dram: Sequence[SSAValue], step: int) -> int:
    return sum(tensors[v].rows for v in _live(tensors, in_dram, step))


def _over(
    layers: Sequence[Layer],
    tensors: dict[SSAValue, _Tensor],
    in_dram: Sequence[SSAValue],
    step: int,
    capacity: int,
) -> int:
    """Rows that a layer lacks."""
    ends = (layers[step].base, layers[step].result)
    staged = sum(tensors[value].rows for value in ends if value in in_dram)
    return _resident(tensors, in_dram, step) + min(staged, max(2, capacity // 2)) - capacity


def _tiling(
    config: TpuV1Config, layer: Layer, free: int, in_dram: Sequence[SSAValue]
) -> Tiling | None:
    source, target = layer.base in in_dram, layer.result in in_dram
    if not source and not target:
        return None
    return choose_tiling(config, layer, free, source=source, target=target)
