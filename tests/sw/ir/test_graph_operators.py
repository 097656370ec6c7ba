"""Verifier messages and text of the operators that no matrix unit runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects import test as scratch
from xdsl.dialects.builtin import Builtin, StringAttr
from xdsl.dialects.func import Func
from xdsl.ir import SSAValue
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from npulse.sw.frontends.load import load_model
from npulse.sw.ir.graph import Conv2dOp, Graph
from npulse.sw.ir.graph_base import GraphOp
from npulse.sw.ir.graph_elementwise import AddOp, LutOp, MinimumOp, MulOp, PreluOp
from npulse.sw.ir.graph_matrix import BatchMatmulOp, TransposeConv2dOp
from npulse.sw.ir.graph_move import ConcatOp, PadOp, ResizeNearestOp, SliceOp
from npulse.sw.ir.graph_pool import AveragePool2dOp, MeanOp
from npulse.sw.ir.types import QuantAttr, tensor_type

Q = QuantAttr.of(0.5, 3)
OTHER = QuantAttr.of(0.25, 3)


def value(*shape: int, dtype: Any = np.int8, quant: QuantAttr | None = Q) -> SSAValue:
    return scratch.TestOp(result_types=[tensor_type(shape, dtype, quant)]).results[0]


def i8(*shape: int, quant: QuantAttr = Q) -> Any:
    return tensor_type(shape, np.int8, quant)


def pool(y: Any = None, **changes: Any) -> AveragePool2dOp:
    arguments = {"kernel": (2, 2), "strides": (2, 2), **changes}
    return AveragePool2dOp(value(1, 4, 4, 3), y or i8(1, 2, 2, 3), node="p", **arguments)


def mean(axes: tuple[int, ...] = (1, 2), y: Any = None) -> MeanOp:
    return MeanOp(value(1, 4, 5, 3), y or i8(1, 1, 1, 3), node="m", axes=axes)


def lut(table: SSAValue | None = None, y: Any = None) -> LutOp:
    entries = value(256, quant=None) if table is None else table
    return LutOp(value(2, 3), entries, y or i8(2, 3), node="l", function="tanh")


def pad(pads: tuple[int, ...] = (0, 1, 2, 0), y: Any = None, code: int = 3) -> PadOp:
    return PadOp(value(2, 3), y or i8(3, 5), node="d", pads=pads, value=code)


def concat(*inputs: SSAValue, axis: int = 1, y: Any = None) -> ConcatOp:
    return ConcatOp(inputs or [value(2, 3), value(2, 1)], y or i8(2, 4), node="j", axis=axis)


def cut(starts: tuple[int, ...] = (0, 2), steps: tuple[int, ...] = (1, -1)) -> SliceOp:
    return SliceOp(value(2, 3), i8(2, 2), node="s", starts=starts, steps=steps)


def spread(w: tuple[int, ...] = (4, 2, 2, 3), **changes: Any) -> TransposeConv2dOp:
    return TransposeConv2dOp(
        value(1, 3, 3, 3),
        value(*w, quant=QuantAttr.of(0.5)),
        value(4, dtype=np.int32, quant=None),
        i8(1, 6, 6, 4),
        node="t",
        strides=(2, 2),
        **changes,
    )


def product(b: tuple[int, ...] = (2, 4, 5), adjoint: tuple[int, ...] = (0, 0)) -> BatchMatmulOp:
    return BatchMatmulOp(value(2, 3, 4), value(*b), i8(2, 3, 5), node="b", adjoint=adjoint)


def test_operators_with_matching_types_verify() -> None:
    for op in (
        pool(),
        mean(),
        AddOp(value(2, 3), value(3, quant=OTHER), i8(2, 3), node="a"),
        MinimumOp(value(2, 3), value(1), i8(2, 3), node="a"),
        lut(),
        pad(),
        concat(),
        cut(),
        ResizeNearestOp(value(1, 2, 2, 3), i8(1, 5, 7, 3), node="r", corners=True),
        spread(),
        product(),
        product((2, 5, 4), (0, 1)),
    ):
        op.verify_()


CASES: list[tuple[Callable[[], GraphOp], str]] = [
    (
        lambda: pool(i8(1, 2, 2, 3, quant=OTHER)),
        "graph.average_pool2d 'p': result must have the scale and zero point of input",
    ),
    (
        lambda: pool(tensor_type((1, 2, 2, 3), np.uint8, Q)),
        "graph.average_pool2d 'p': result must have the elements of input, not tensor<1x2x2x3xui8, "
        "#graph.quant<scale = [5.000000e-01], zero_point = [3]>>",
    ),
    (
        lambda: pool(kernel=(5, 2)),
        "graph.average_pool2d 'p': window 5x2 must fit in the padded input 4x4",
    ),
    (lambda: mean((2, 1)), "graph.mean 'm': axes must be ones of 0 to 3 in order, not [2, 1]"),
    (lambda: mean((4,)), "graph.mean 'm': axes must be ones of 0 to 3 in order, not [4]"),
    (
        lambda: mean(y=i8(1, 1, 5, 3)),
        "graph.mean 'm': result must have shape 1x1x1x3, not 1x1x5x3",
    ),
    (
        lambda: AddOp(value(2, 3), value(2), i8(2, 3), node="a"),
        "graph.add 'a': a and b must have shapes that broadcast, not 2x3 and 2",
    ),
    (
        lambda: AddOp(value(2, 3), value(3), i8(2, 1), node="a"),
        "graph.add 'a': result must have shape 2x3, not 2x1",
    ),
    (
        lambda: AddOp(value(2, dtype=np.int16), value(2), i8(2), node="a"),
        "graph.add 'a': a must be int8, not int16",
    ),
    (
        lambda: AddOp(value(2), value(2), i8(2), node="a", clamp=(5, 4)),
        "graph.add 'a': clamp must be two integers in order, from -128 to 127, not [5, 4]",
    ),
    (
        lambda: MinimumOp(value(2), value(2, quant=OTHER), i8(2), node="a"),
        "graph.minimum 'a': a, b and result must have one scale and zero point",
    ),
    (
        lambda: MulOp(
            value(2, quant=QuantAttr.of(1e9)),
            value(2, quant=QuantAttr.of(1e9)),
            i8(2, quant=QuantAttr.of(1e-3)),
            node="a",
        ),
        "graph.mul 'a': input scale * weight scale / output scale must be <= 1.07374e+09, not "
        "1e+21",
    ),
    (
        lambda: PreluOp(value(2, quant=QuantAttr.of(1e9)), value(2), i8(2), node="a"),
        "graph.prelu 'a': input scale * weight scale / output scale must be <= 1.07374e+09, not "
        "2e+09",
    ),
    (
        lambda: lut(value(255, quant=None)),
        "graph.lut 'l': table must have shape 256, not 255",
    ),
    (
        lambda: lut(value(256, dtype=np.uint8, quant=None)),
        "graph.lut 'l': table must have the elements of result, not tensor<256xui8>",
    ),
    (lambda: lut(y=i8(3, 2)), "graph.lut 'l': result must have shape 2x3, not 3x2"),
    (lambda: pad((0, 1)), "graph.pad 'd': pads must be 4 integers of at least 0, not [0, 1]"),
    (lambda: pad(code=128), "graph.pad 'd': value must be from -128 to 127, not 128"),
    (lambda: pad(y=i8(3, 4)), "graph.pad 'd': result must have shape 3x5, not 3x4"),
    (
        lambda: pad(y=i8(3, 5, quant=OTHER)),
        "graph.pad 'd': result must have elements and quantisation of input, not tensor<3x5xi8, "
        "#graph.quant<scale = [2.500000e-01], zero_point = [3]>>",
    ),
    (lambda: concat(axis=2), "graph.concat 'j': axis must be one of 0 to 1, not 2"),
    (
        lambda: concat(value(2, 3), value(1, 1)),
        "graph.concat 'j': input 1 must have shape 2x1, not 1x1",
    ),
    (
        lambda: concat(value(2, 3)),
        "graph.concat 'j': inputs must have 4 elements on the axis, not 3",
    ),
    (
        lambda: cut((0, 0)),
        "graph.slice 's': axis 1 must be cut from its 3 elements, not from 0 in 2 steps of -1",
    ),
    (
        lambda: cut((0,), (1,)),
        "graph.slice 's': starts, steps and result must have 2 axes as input has",
    ),
    (
        lambda: ResizeNearestOp(value(1, 2, 2, 3), i8(1, 5, 7, 4), node="r"),
        "graph.resize_nearest 'r': result must have shape 1x5x7x3, not 1x5x7x4",
    ),
    (
        lambda: spread((4, 2, 2, 5)),
        "graph.transpose_conv2d 't': weight must have 3 channels as input has, not 5",
    ),
    (
        lambda: spread(pads=(0, -1)),
        "graph.transpose_conv2d 't': pads must be 2 integers of at least 0, not [0, -1]",
    ),
    (
        lambda: product((2, 3, 5)),
        "graph.batch_matmul 'b': a and b must have one K of at least 1, not 4 and 3",
    ),
    (
        lambda: product((5, 4, 5)),
        "graph.batch_matmul 'b': a and b must have leading axes that broadcast",
    ),
    (lambda: product((4,)), "graph.batch_matmul 'b': b must have at least 2 axes, not 4"),
]


@pytest.mark.parametrize(("build", "message"), CASES)
def test_verifier_names_operator_operand_and_bound(
    build: Callable[[], GraphOp], message: str
) -> None:
    with pytest.raises(VerifyException) as caught:
        build().verify_()
    assert str(caught.value) == message


def test_uint8_kernels_multiply_scales_in_float32() -> None:
    x, w = np.float32(0.0231), np.float32(0.0072)
    conv = Conv2dOp(
        value(1, 3, 3, 1, quant=QuantAttr.of(x)),
        value(1, 1, 1, 1, quant=QuantAttr.of(w, 23)),
        value(1, dtype=np.int32, quant=None),
        i8(1, 3, 3, 1),
        node="c",
        float32_product=True,
    )
    conv.verify_()
    assert conv.weight_zero_point == 23
    assert conv.effective_scales.tolist() == [float(x * w) / 0.5]
    conv.product = StringAttr("double")
    with pytest.raises(VerifyException) as caught:
        conv.verify_()
    assert str(caught.value) == "graph.conv2d 'c': product must be float32 or absent, not 'double'"


def test_text_of_a_stateful_model_round_trips(shared_dir: Path) -> None:
    module = load_model(shared_dir / "models/microwakeword/okay_nabu.tflite").module
    context = Context()
    for dialect in (Builtin, Func, Graph):
        context.load_dialect(dialect)
    again = Parser(context, str(module)).parse_module()
    again.verify()
    assert str(again) == str(module)
