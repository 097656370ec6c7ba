"""Lowers the layers of one NPU segment to the tile dialect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_layout import tensor_rows
from npulse.sw.ir.tile import BufferOp, ConvPassOp, LoadOp, ProgramOp, StoreOp
from npulse.sw.targets.tpu_v1.chunks import Geometry, choose_chunk, layer_cycles
from npulse.sw.targets.tpu_v1.constants import Constants, Pass, input_blocks
from npulse.sw.targets.tpu_v1.layers import Layer

__all__ = ["Border", "geometry_of", "layer_estimate", "lower_graph"]


@dataclass(frozen=True, kw_only=True)
class Border:
    """Values that a segment takes from DRAM and leaves there, with the name of each."""

    inputs: Sequence[SSAValue]
    outputs: Sequence[SSAValue]
    names: Mapping[SSAValue, str]
    #: Index of the DRAM range of each value that crosses.
    slots: Mapping[SSAValue, int] = field(default_factory=dict)


def geometry_of(layer: Layer) -> Geometry:
    """Output pixels and windows of a layer."""
    return Geometry(
        out=layer.out_image[:2],
        size=layer.size,
        window=layer.window,
        strides=layer.window_strides,
        origin=layer.window_origin,
    )


def _pass_tile_counts(config: TpuV1Config, layer: Layer) -> list[int]:
    """Weight tiles of each pass, without packing them."""
    kernel = layer.kernel[0] * layer.kernel[1]
    spans = (input_blocks(config, layer, n) for n in range(-(-layer.channels // config.array.cols)))
    return [(end - start) * config.read_groups * kernel for start, end in spans]


def layer_estimate(config: TpuV1Config, layer: Layer) -> int | None:
    """Cycles of a layer, without fill and drain; None when a window does not fit a chunk."""
    geometry = geometry_of(layer)
    counts = _pass_tile_counts(config, layer)
    chunk = choose_chunk(config, geometry, max(counts))
    if chunk is None:
        return None
    return sum(layer_cycles(config, geometry, chunk, tiles) for tiles in counts)


def lower_graph(
    config: TpuV1Config,
    name: str,
    layers: Sequence[Layer],
    border: Border,
    constants: Constants,
) -> ProgramOp:
    """Tile program of a segment, its buffers without a place.

    An input is loaded before its first reader and an output stored after its writer, so that
    neither takes room for longer than it must.
    """
    ops: list[Operation] = []
    buffers: dict[SSAValue, BufferOp] = {}
    for layer in layers:
        if layer.base not in buffers:
            buffers[layer.base] = _buffer(config, ops, border.names[layer.base], layer.image)
            ops.append(_move(LoadOp, buffers[layer.base], layer.base, border))
        target = _buffer(config, ops, border.names[layer.result], layer.out_image)
        buffers[layer.result] = target
        ops.extend(_passes(config, layer, buffers[layer.base], target, constants))
        if layer.result in border.outputs:
            ops.append(_move(StoreOp, target, layer.result, border))
    return ProgramOp(name, ops)


def _buffer(
    config: TpuV1Config, ops: list[Operation], name: str, image: tuple[int, int, int]
) -> BufferOp:
    buffer = BufferOp(name, image, tensor_rows(config, *image))
    buffer.result.name_hint = name if SSAValue.is_valid_name(name) else None
    ops.append(buffer)
    return buffer


def _move(
    kind: type[LoadOp] | type[StoreOp], buffer: BufferOp, value: SSAValue, border: Border
) -> Operation:
    return kind(buffer.result, border.names[value], border.slots[value])


def _passes(
    config: TpuV1Config, layer: Layer, source: BufferOp, target: BufferOp, constants: Constants
) -> list[ConvPassOp]:
    name = constants.name_of(layer.node)
    passes = constants.add(name, layer)
    chunk = choose_chunk(config, geometry_of(layer), max(p.tiles for p in passes))
    assert chunk is not None, "the rule on windows and the fusion of pooling see to this"
    return [
        ConvPassOp(
            source.result,
            target.result,
            node=layer.node,
            constants=name,
            numbers=_numbers(config, layer, index, part),
            pairs=_pairs(layer, chunk),
        )
        for index, part in enumerate(passes)
    ]


def _numbers(config: TpuV1Config, layer: Layer, index: int, part: Pass) -> dict[str, int]:
    block, group = divmod(index, config.write_groups)
    return {
        "first_tile": part.first_tile,
        "tiles": part.tiles,
        "entry": part.entry,
        "fill": layer.fill,
        "first_block": part.first_block,
        "blocks": part.blocks,
        "target_block": block,
        "lane_group": group,
    }


def _pairs(layer: Layer, chunk: tuple[int, int]) -> dict[str, tuple[int, int]]:
    return {
        "source_size": layer.source_size,
        "kernel": layer.kernel,
        "strides": layer.strides,
        "dilations": layer.dilations,
        "origin": layer.origin,
        "size": layer.size,
        "window": layer.window,
        "window_strides": layer.window_strides,
        "window_origin": layer.window_origin,
        "chunk": chunk,
    }
