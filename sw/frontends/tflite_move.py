"""TFLite operators that only move elements; what says how must be constant.

Ref: TensorFlow Lite ``kernels/{pad,concatenation,slice,strided_slice,split,split_v}.cc`` and
``kernels/resize_nearest_neighbor.cc``.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from xdsl.ir import SSAValue

from npulse.hw.spec.numerics import UINT8
from npulse.sim.golden.lut import LutParameters, float_rescale_table
from npulse.sw.frontends.tflite_context import TfliteImporter
from npulse.sw.frontends.tflite_operands import codes, tensor_at
from npulse.sw.frontends.tflite_reader import TfliteOperator, TfliteTensor
from npulse.sw.ir.graph import RequantizeOp
from npulse.sw.ir.graph_elementwise import LutOp
from npulse.sw.ir.graph_move import ConcatOp, PadOp, ResizeNearestOp, SliceOp
from npulse.sw.ir.graph_rules import code_range, dims
from npulse.sw.ir.types import type_of, with_shape

Handler = Callable[[TfliteImporter, TfliteOperator], None]


def numbers(importer: TfliteImporter, op: TfliteOperator, position: int) -> list[int]:
    """Constant integers that an operator takes as an input."""
    tensor = tensor_at(importer, op, position)
    if tensor.data is None or tensor.data.dtype.kind not in "iu":
        importer.fail(
            op,
            f"{importer.label(tensor)!r} must be constant integers; give the model static shapes",
        )
    return [int(value) for value in tensor.data.ravel()]


def axis_of(importer: TfliteImporter, op: TfliteOperator, axis: int, rank: int) -> int:
    """Axis from 0; a negative one counts from the end."""
    if not -rank <= axis < rank:
        importer.fail(op, f"axis must be from {-rank} to {rank - 1}, not {axis}")
    return axis % rank


def reshape(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append RESHAPE, SQUEEZE and EXPAND_DIMS: the shape of the output is that of the file."""
    source, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    if math.prod(source.shape) != math.prod(result.shape):
        importer.fail(
            op, f"output must have the elements of {dims(source.shape)}, not {dims(result.shape)}"
        )
    _finish(importer, op, importer.value(op, op.inputs[0]))


def _finish(importer: TfliteImporter, op: TfliteOperator, value: SSAValue, place: int = 0) -> None:
    """Give a value the shape of an output and make it that output."""
    index = op.outputs[place]
    result = importer.graph.tensors[index]
    node = importer.node(op)
    if math.prod(type_of(value).get_shape()) != math.prod(result.shape):
        importer.fail(
            op,
            f"output must have the elements of {dims(type_of(value).get_shape())}, not "
            f"{dims(result.shape)}; convert the model again",
        )
    if value.type == importer.type_of(result):
        importer.alias_result(op, value, place)
        return
    importer.set_result(op, importer.builder.reshape(value, result.shape, node, result.name), place)


def _pad(importer: TfliteImporter, op: TfliteOperator) -> None:
    source, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    pads = numbers(importer, op, 1)
    if len(pads) != 2 * len(source.shape):
        importer.fail(op, f"paddings must be 2 for each of {len(source.shape)} axes, not {pads}")
    quant, image = importer.quant(source), importer.value(op, source.index)
    value = quant.zero_point if quant is not None and quant.per_tensor else 0
    if op.kind == "PADV2":
        value = next(iter(numbers(importer, op, 2)), value)
    padded = PadOp(
        image,
        importer.type_of(result),
        node=importer.node(op),
        pads=pads,
        value=value,
    )
    importer.set_result(op, importer.builder.add(padded).result)


def _concatenation(importer: TfliteImporter, op: TfliteOperator) -> None:
    result = tensor_at(importer, op, 0, output=True)
    if op.options["FusedActivationFunction"] != 0:
        importer.fail(op, "fused activation must be NONE; write it as an operator of its own")
    axis = axis_of(importer, op, op.options["Axis"], len(result.shape))
    parts = [_same_scale(importer, op, place, result) for place in range(len(op.inputs))]
    joined = ConcatOp(parts, importer.type_of(result), node=importer.node(op), axis=axis)
    importer.set_result(op, importer.builder.add(joined).result)


def _same_scale(
    importer: TfliteImporter, op: TfliteOperator, place: int, result: TfliteTensor
) -> SSAValue:
    """Input at the scale of the output; TFLite changes that of uint8 codes in float32."""
    tensor, value = tensor_at(importer, op, place), importer.value(op, op.inputs[place])
    due = importer.type_of(result)
    if type_of(value).encoding == due.encoding:
        return value
    x, y = codes(importer, op, tensor), codes(importer, op, result)
    node, target = f"{importer.node(op)}.input{place}", with_shape(due, tensor.shape)
    if not tensor.unsigned:
        importer.builder.notes.append(
            f"{op.kind} {importer.node(op)!r}: input {place} is requantised to the output's scale"
        )
        change = RequantizeOp(value, target, node=node, clamp=code_range(target))
        return importer.builder.add(change, node).result
    parameters = LutParameters(
        input_scale=float(x.scale),
        input_zero_point=x.zero_point + 128,
        scale=float(y.scale),
        zero_point=y.zero_point + 128,
        fmt=UINT8,
    )
    entries = (float_rescale_table(parameters).astype(np.int16) - 128).astype(np.int8)
    table = importer.builder.weight(entries, f"{node}.table", node)
    return importer.builder.add(LutOp(value, table, target, node=node, function="rescale")).result


def _cut(
    importer: TfliteImporter,
    op: TfliteOperator,
    ranges: Sequence[range],
    value: SSAValue,
    place: int = 0,
) -> None:
    """Append a slice of the given indices on each axis, reshaped to the output."""
    shape = tuple(len(r) for r in ranges)
    if shape == type_of(value).get_shape() and all(r.step > 0 for r in ranges):
        _finish(importer, op, value, place)
        return
    cut = SliceOp(
        value,
        with_shape(type_of(value), shape),
        node=importer.node(op),
        starts=[r.start if len(r) else 0 for r in ranges],
        steps=[r.step for r in ranges],
    )
    _finish(importer, op, importer.builder.add(cut, importer.node(op)).result, place)


def _slice(importer: TfliteImporter, op: TfliteOperator) -> None:
    shape = tensor_at(importer, op, 0).shape
    begins, counts = numbers(importer, op, 1), numbers(importer, op, 2)
    if not len(begins) == len(counts) == len(shape):
        importer.fail(op, f"begin and size must be {len(shape)} integers, not {begins}, {counts}")
    ranges = [
        range(b, extent if n == -1 else b + n)
        for extent, b, n in zip(shape, begins, counts, strict=True)
    ]
    _check_ranges(importer, op, shape, ranges)
    _cut(importer, op, ranges, importer.value(op, op.inputs[0]))


def _inside(index: int, extent: int) -> bool:
    return 0 <= index < extent


def _check_ranges(
    importer: TfliteImporter, op: TfliteOperator, shape: Sequence[int], ranges: Sequence[range]
) -> None:
    for axis, (extent, indices) in enumerate(zip(shape, ranges, strict=True)):
        if len(indices) and not (_inside(indices[0], extent) and _inside(indices[-1], extent)):
            importer.fail(
                op,
                f"slice of axis {axis} must lie in its {extent} elements, not "
                f"{indices.start} to {indices.stop}; convert the model again",
            )


def _strided_slice(importer: TfliteImporter, op: TfliteOperator) -> None:
    shape = tensor_at(importer, op, 0).shape
    begins, ends, strides = (numbers(importer, op, position) for position in (1, 2, 3))
    if not len(begins) == len(ends) == len(strides) or 0 in strides:
        importer.fail(op, f"begin, end and strides must match, not {begins}, {ends}, {strides}")
    ranges = strided_ranges(shape, begins, ends, strides, op.options)
    if ranges is None:
        importer.fail(op, f"begin must have an index for at most {len(shape)} axes, not {begins}")
    _check_ranges(importer, op, shape, ranges)
    _cut(importer, op, ranges, importer.value(op, op.inputs[0]))


def strided_ranges(
    shape: Sequence[int],
    begins: Sequence[int],
    ends: Sequence[int],
    strides: Sequence[int],
    options: dict[str, int],
) -> list[range] | None:
    """Indices on each axis of the input, or None where there are more than it has axes.

    Axes that the operator adds or drops have one element and are left to a reshape.
    """

    def is_set(mask: str, position: int) -> bool:
        return bool(options[mask] >> position & 1)

    spans = [k for k in range(len(begins)) if not is_set("NewAxisMask", k)]
    rest = len(shape) - sum(not is_set("EllipsisMask", k) for k in spans)
    if rest < 0:
        return None
    ranges: list[range] = []
    for k in spans:
        if is_set("EllipsisMask", k):
            ranges += [range(extent) for extent in shape[len(ranges) : len(ranges) + rest]]
            continue
        extent = shape[len(ranges)]
        if is_set("ShrinkAxisMask", k):
            first = begins[k] + extent if begins[k] < 0 else begins[k]
            ranges.append(range(first, first + 1))
            continue
        end = ends[k] + begins[k] if options["Offset"] else ends[k]
        part = slice(
            None if is_set("BeginMask", k) else begins[k],
            None if is_set("EndMask", k) else end,
            strides[k],
        )
        ranges.append(range(*part.indices(extent)))
    return [*ranges, *(range(extent) for extent in shape[len(ranges) :])]


def _split(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append SPLIT (axis, input) or SPLIT_V (input, sizes, axis)."""
    first = op.kind == "SPLIT"
    source = tensor_at(importer, op, 1 if first else 0)
    axis_place = 0 if first else 2
    first_axis = next(iter(numbers(importer, op, axis_place)), 0)
    axis = axis_of(importer, op, first_axis, len(source.shape))
    value = importer.value(op, op.inputs[1 if first else 0])
    start = 0
    for place, index in enumerate(op.outputs):
        count = importer.graph.tensors[index].shape[axis : axis + 1]
        end = start + (count[0] if count else 0)
        ranges = [range(extent) for extent in source.shape]
        ranges[axis] = range(start, end)
        _check_ranges(importer, op, source.shape, ranges)
        _cut(importer, op, ranges, value, place)
        start = end
    if start != source.shape[axis]:
        importer.fail(
            op, f"outputs must have {source.shape[axis]} elements on axis {axis}, not {start}"
        )


def _transpose(importer: TfliteImporter, op: TfliteOperator) -> None:
    source, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    rank = len(source.shape)
    order = [axis_of(importer, op, axis, rank) for axis in numbers(importer, op, 1)]
    if sorted(order) != list(range(rank)):
        importer.fail(op, f"permutation must order the axes 0 to {rank - 1}, not {order}")
    value = importer.value(op, op.inputs[0])
    moved = importer.builder.transpose(value, order, importer.node(op), result.name)
    _finish(importer, op, moved)


def _resize_nearest(importer: TfliteImporter, op: TfliteOperator) -> None:
    resized = ResizeNearestOp(
        importer.value(op, op.inputs[0]),
        importer.type_of(tensor_at(importer, op, 0, output=True)),
        node=importer.node(op),
        corners=op.options["AlignCorners"],
        half_pixel=op.options["HalfPixelCenters"],
    )
    importer.set_result(op, importer.builder.add(resized).result)


#: Operators of this file by their names in the schema.
MOVES: dict[str, Handler] = {
    "RESHAPE": reshape,
    "SQUEEZE": reshape,
    "EXPAND_DIMS": reshape,
    "PAD": _pad,
    "PADV2": _pad,
    "CONCATENATION": _concatenation,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "SPLIT": _split,
    "SPLIT_V": _split,
    "TRANSPOSE": _transpose,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
}
