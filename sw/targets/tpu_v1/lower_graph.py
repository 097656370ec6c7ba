"""Lowers the layers of one NPU segment to the tile dialect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_layout import tensor_rows
from npulse.sw.ir.tile import BufferOp, ConvPassOp, LoadOp, ProgramOp, StoreOp
from npulse.sw.targets.tpu_v1.chunks import choose_chunk
from npulse.sw.targets.tpu_v1.constants import Constants, Pass, repeats
from npulse.sw.targets.tpu_v1.layers import Layer
from npulse.sw.targets.tpu_v1.regions import geometry_of
from npulse.sw.targets.tpu_v1.stream import End, Streamed
from npulse.sw.targets.tpu_v1.tiling import Tiling

__all__ = ["Border", "Lowered", "lower_graph"]


@dataclass(frozen=True, kw_only=True)
class Border:
    """Values that a segment takes from DRAM and leaves there, with the name of each."""

    inputs: Sequence[SSAValue]
    outputs: Sequence[SSAValue]
    names: Mapping[SSAValue, str]
    #: Index of the DRAM range of each value that crosses.
    slots: Mapping[SSAValue, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A tile program and, for each of its operators, the index of the layer that it is for."""

    program: ProgramOp
    layer_of: Mapping[Operation, int]


def lower_graph(
    config: TpuV1Config,
    name: str,
    layers: Sequence[Layer],
    tilings: Sequence[Tiling | None],
    border: Border,
    constants: Constants,
) -> Lowered:
    """Tile program of a segment, its buffers without a place.

    An input is loaded before its first reader and an output stored after its writer, so that
    neither takes room for longer than it must. A value is in a buffer unless the tiling of a
    layer takes it through stages.
    """
    ops: list[Operation] = []
    owner: dict[Operation, int] = {}
    buffers: dict[SSAValue, BufferOp] = {}
    in_dram = _in_dram(layers, tilings)
    for index, (layer, tiling) in enumerate(zip(layers, tilings, strict=True)):
        start = len(ops)
        if layer.base not in buffers and layer.base not in in_dram:
            buffers[layer.base] = _buffer(config, ops, border.names[layer.base], layer.image)
            ops.append(_move(LoadOp, buffers[layer.base], layer.base, border))
        if layer.result not in in_dram:
            made = _buffer(config, ops, border.names[layer.result], layer.out_image)
            buffers[layer.result] = made
        ends = [_end(value, border, buffers) for value in (layer.base, layer.result)]
        ops.extend(_layer(config, layer, tiling, ends, constants))
        if layer.result in border.outputs and layer.result not in in_dram:
            ops.append(_move(StoreOp, buffers[layer.result], layer.result, border))
        owner.update(dict.fromkeys(ops[start:], index))
    return Lowered(program=ProgramOp(name, ops), layer_of=owner)


def _in_dram(layers: Sequence[Layer], tilings: Sequence[Tiling | None]) -> set[SSAValue]:
    found = set()
    for layer, tiling in zip(layers, tilings, strict=True):
        if tiling is not None:
            found |= {layer.base} if tiling.source_rows else set()
            found |= {layer.result} if tiling.target_rows else set()
    return found


def _end(value: SSAValue, border: Border, buffers: Mapping[SSAValue, BufferOp]) -> End:
    return End(
        value=border.names[value], slot=border.slots.get(value, 0), buffer=buffers.get(value)
    )


def _layer(
    config: TpuV1Config,
    layer: Layer,
    tiling: Tiling | None,
    ends: Sequence[End],
    constants: Constants,
) -> Sequence[Operation]:
    """Operators that compute a layer."""
    name = constants.name_of(layer.node)
    passes = constants.add(name, layer)
    source, target = ends
    if tiling is None:
        assert source.buffer is not None
        assert target.buffer is not None
        return _passes(config, layer, name, passes, (source.buffer, target.buffer))
    return Streamed(
        config=config,
        layer=layer,
        tiling=tiling,
        constants=name,
        passes=passes,
        source=source,
        target=target,
    ).ops()


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
    config: TpuV1Config,
    layer: Layer,
    name: str,
    passes: Sequence[Pass],
    buffers: tuple[BufferOp, BufferOp],
) -> list[ConvPassOp]:
    chunk = choose_chunk(config, geometry_of(layer), max(p.tiles for p in passes))
    assert chunk is not None, "the rule on windows and the fusion of pooling see to this"
    return [
        ConvPassOp(
            buffers[0].result,
            buffers[1].result,
            node=layer.node,
            constants=name,
            numbers=_numbers(config, layer, index, part),
            pairs=_pairs(layer, chunk),
        )
        for index, part in enumerate(passes)
    ]


def _numbers(config: TpuV1Config, layer: Layer, index: int, part: Pass) -> dict[str, int]:
    block, group = divmod(index, config.write_groups)
    places = repeats(config, layer)
    return {
        **({"repeat": places} if places > 1 else {}),
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
