"""Verifier messages, derived numbers and textual form of the graph dialect."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects import test as scratch
from xdsl.dialects.builtin import Builtin, ModuleOp, StringAttr, i32
from xdsl.dialects.func import Func
from xdsl.ir import SSAValue
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from npulse.hw.spec.numerics import RequantScheme, Rounding
from npulse.sw.frontends.load import load_model
from npulse.sw.ir.graph import (
    ClampOp,
    Conv2dOp,
    DequantizeOp,
    FullyConnectedOp,
    Graph,
    HostOp,
    MaxPool2dOp,
    QuantizeOp,
    RequantizeOp,
    ReshapeOp,
    TransposeOp,
    WeightOp,
)
from npulse.sw.ir.graph_base import GraphOp
from npulse.sw.ir.types import QuantAttr, dtype_of, quant_of, tensor_type, type_of, with_shape

Q = QuantAttr.of(0.5, 3)


def value(shape: tuple[int, ...], dtype: Any = np.int8, quant: QuantAttr | None = Q) -> SSAValue:
    return scratch.TestOp(result_types=[tensor_type(shape, dtype, quant)]).results[0]


def i8(*shape: int) -> Any:
    return tensor_type(shape, np.int8, Q)


W = QuantAttr.of(0.25)


def conv(
    x: tuple[int, ...] = (1, 8, 8, 4),
    w: tuple[int, ...] = (6, 3, 3, 4),
    y: tuple[int, ...] = (1, 6, 6, 6),
    bias: int = 6,
    weight_quant: QuantAttr = W,
    weight_dtype: Any = np.int8,
    bias_dtype: Any = np.int32,
    y_quant: QuantAttr = Q,
    x_dtype: Any = np.int8,
    **properties: Any,
) -> Conv2dOp:
    weight = value(w, weight_dtype, weight_quant)
    b = value((bias,), bias_dtype, None)
    result = tensor_type(y, np.int8, y_quant)
    return Conv2dOp(value(x, x_dtype), weight, b, result, node="c", **properties)


def dense(x: tuple[int, ...] = (2, 5), w: tuple[int, ...] = (3, 5)) -> FullyConnectedOp:
    return FullyConnectedOp(
        value(x), value(w, np.int8, W), value((3,), np.int32, None), i8(2, 3), node="d"
    )


def pool(y: tuple[int, ...] = (1, 4, 4, 2), **properties: Any) -> MaxPool2dOp:
    properties = {"kernel": (2, 2), "strides": (2, 2), **properties}
    return MaxPool2dOp(value((1, 8, 8, 2)), i8(*y), node="p", **properties)


def host(**changes: Any) -> HostOp:
    strings = {"kind": "Foo", "origin": "onnx", "payload": "", "rule": "r", "decided_by": "d"}
    arguments = {"node": "h", "remedy": "m", **strings, **changes}
    return HostOp([value((2,))], [i8(2)], **arguments)


def changed(op: GraphOp, name: str, attribute: Any) -> GraphOp:
    op.properties[name] = attribute
    return op


CASES: list[tuple[Callable[[], GraphOp], str]] = [
    (lambda: conv(x=(8, 8, 4)), "graph.conv2d 'c': input must have 4 axes, not shape 8x8x4"),
    (
        lambda: conv(w=(6, 3, 3, 2)),
        "graph.conv2d 'c': weight must have input channels / groups = 4 / 1 channels and a "
        "multiple of 1 filters, not 2 and 6",
    ),
    (
        lambda: conv(w=(6, 3, 3, 1), groups=4),
        "graph.conv2d 'c': weight must have input channels / groups = 4 / 4 channels and a "
        "multiple of 4 filters, not 1 and 6",
    ),
    (
        lambda: conv(strides=(1, 0)),
        "graph.conv2d 'c': strides must be 2 integers of at least 1, not [1, 0]",
    ),
    (
        lambda: conv(pads=(0, 0, -1, 0)),
        "graph.conv2d 'c': pads must be 4 integers of at least 0, not [0, 0, -1, 0]",
    ),
    (
        lambda: conv(dilations=(4, 1)),
        "graph.conv2d 'c': window 3x3 must fit in the padded input 8x8",
    ),
    (
        lambda: conv(y=(1, 6, 5, 6)),
        "graph.conv2d 'c': result must have shape 1x6x6x6, not 1x6x5x6",
    ),
    (lambda: conv(bias=5), "graph.conv2d 'c': bias must have shape 6, not 5"),
    (lambda: conv(bias_dtype=np.int16), "graph.conv2d 'c': bias must be int32, not int16"),
    (lambda: conv(weight_dtype=np.uint8), "graph.conv2d 'c': weight must be int8, not uint8"),
    (lambda: conv(x_dtype=np.uint8), "graph.conv2d 'c': input must be int8, not uint8"),
    (
        lambda: conv(weight_quant=QuantAttr.of([0.5] * 6, 1, 0)),
        "graph.conv2d 'c': weight must have zero points of 0 when it has a scale for each channel",
    ),
    (
        lambda: conv(weight_quant=QuantAttr.of([0.5] * 4, 0, 3)),
        "graph.conv2d 'c': weight scales must be on axis 0, not 3",
    ),
    (
        lambda: conv(weight_quant=QuantAttr.of([0.5] * 4, 0, 0)),
        "graph.conv2d 'c': weight of shape 6x3x3x4 must have 4 channels on axis 0",
    ),
    (
        lambda: conv(y_quant=QuantAttr.of(0.5, 200)),
        "graph.conv2d 'c': zero point of result must be from -128 to 127, not 200",
    ),
    (
        lambda: conv(clamp=(5, 4)),
        "graph.conv2d 'c': clamp must be two integers in order, from -128 to 127, not [5, 4]",
    ),
    (
        lambda: conv(clamp=(0, 128)),
        "graph.conv2d 'c': clamp must be two integers in order, from -128 to 127, not [0, 128]",
    ),
    (
        lambda: conv(weight_quant=QuantAttr.of(1e10)),
        "graph.conv2d 'c': input scale * weight scale / output scale must be <= 1.07374e+09, not "
        "1e+10",
    ),
    (
        lambda: dense(w=(3, 4)),
        "graph.fully_connected 'd': weight must have 5 columns as input has, not 4",
    ),
    (
        lambda: dense(x=(1, 5)),
        "graph.fully_connected 'd': result must have shape 1x3, not 2x3",
    ),
    (
        lambda: pool(pads=(2, 0, 0, 0)),
        "graph.max_pool2d 'p': pads must be smaller than the window 2x2",
    ),
    (
        lambda: pool(kernel=(9, 2)),
        "graph.max_pool2d 'p': window 9x2 must fit in the padded input 8x8",
    ),
    (
        lambda: pool(y=(1, 4, 4, 3)),
        "graph.max_pool2d 'p': result must have shape 1x4x4x2, not 1x4x4x3",
    ),
    (
        lambda: MaxPool2dOp(
            value((1, 2, 2, 1)),
            tensor_type((1, 1, 1, 1), np.int8, QuantAttr.of(0.25, 3)),
            node="p",
            kernel=(2, 2),
        ),
        "graph.max_pool2d 'p': result must have the scale and zero point of input",
    ),
    (
        lambda: ClampOp(value((2,), np.int8, None), node="k", clamp=(0, 1)),
        "graph.clamp 'k': input must be quantised, not tensor<2xi8>",
    ),
    (
        lambda: ReshapeOp(value((2, 3)), i8(5), node="r"),
        "graph.reshape 'r': result must have 6 elements as input has, not shape 5",
    ),
    (
        lambda: ReshapeOp(value((2, 3)), tensor_type((6,), np.int8), node="r"),
        "graph.reshape 'r': result must have elements and quantisation of input, not tensor<6xi8>",
    ),
    (
        lambda: TransposeOp(value((2, 3)), i8(3, 2), node="t", permutation=(1, 1)),
        "graph.transpose 't': permutation must order the axes 0 to 1, not [1, 1]",
    ),
    (
        lambda: TransposeOp(value((2, 3)), i8(2, 3), node="t", permutation=(1, 0)),
        "graph.transpose 't': result must have shape 3x2, not 2x3",
    ),
    (
        lambda: QuantizeOp(value((2,)), i8(2), node="q", rounding=Rounding.HALF_EVEN),
        "graph.quantize 'q': input must be float32, not int8",
    ),
    (
        lambda: DequantizeOp(value((2,)), i8(2), node="q"),
        "graph.dequantize 'q': result must be float32, not int8",
    ),
    (
        lambda: RequantizeOp(value((2,)), tensor_type((3,), np.uint8, Q), node="q", clamp=(0, 255)),
        "graph.requantize 'q': result must have shape 2, not 3",
    ),
    (
        lambda: host(origin="caffe"),
        "graph.host 'h': origin must be onnx or tflite, not 'caffe'",
    ),
    (
        lambda: WeightOp("w", tensor_type((1 << 16, 1 << 16), np.int8), "w"),
        "graph.weight 'w': result must have at most 1073741824 bytes, not shape 65536x65536",
    ),
]


@pytest.mark.parametrize(("build", "message"), CASES)
def test_verifier_names_operator_operand_and_bound(
    build: Callable[[], GraphOp], message: str
) -> None:
    with pytest.raises(VerifyException) as caught:
        build().verify_()
    assert str(caught.value) == message


def test_what_the_cases_start_from_verifies() -> None:
    for op in (conv(), dense(), pool(), host()):
        op.verify_()


def test_unknown_scheme_is_refused() -> None:
    op = changed(conv(), "scheme", StringAttr("q31"))
    with pytest.raises(VerifyException) as caught:
        op.verify_()
    assert str(caught.value) == (
        "graph.conv2d 'c': scheme must be one of tflite_q31_double, tflite_q31_single, "
        "tflite_q31_away, onnx_f32_rne, not 'q31'"
    )


def test_convolution_rounds_twice_and_product_once_away_from_zero() -> None:
    assert conv().requant_scheme is RequantScheme.TFLITE_Q31_DOUBLE
    assert dense().requant_scheme is RequantScheme.TFLITE_Q31_AWAY


def test_effective_scales_are_double_except_for_a_product_with_one_weight_scale() -> None:
    """TFLite multiplies the two float32 scales in float32 there, which differs in the last bits."""
    x, w, y = np.float32(0.1), np.float32(0.3), np.float32(0.7)
    activation, weight = QuantAttr.of(float(x)), QuantAttr.of(float(w))
    result = QuantAttr.of(float(y))
    product = FullyConnectedOp(
        value((1, 2), np.int8, activation),
        value((3, 2), np.int8, weight),
        value((3,), np.int32, None),
        tensor_type((1, 3), np.int8, result),
        node="d",
    )
    single = np.float64(x * w) / np.float64(y)
    double = np.float64(x) * np.float64(w) / np.float64(y)
    assert single != double
    assert product.effective_scales.tolist() == [single] * 3
    convolution = Conv2dOp(
        value((1, 1, 1, 2), np.int8, activation),
        value((3, 1, 1, 2), np.int8, weight),
        value((3,), np.int32, None),
        tensor_type((1, 1, 1, 3), np.int8, result),
        node="c",
    )
    assert convolution.effective_scales.tolist() == [double] * 3


def test_sign_flip_is_only_a_move_of_128() -> None:
    source = value((2,), np.uint8, QuantAttr.of(0.5, 131))

    def flip(zero: int, scale: float = 0.5, clamp: tuple[int, int] = (-128, 127)) -> bool:
        result = tensor_type((2,), np.int8, QuantAttr.of(scale, zero))
        return RequantizeOp(source, result, node="f", clamp=clamp).is_sign_flip

    assert flip(3)
    assert not flip(4)
    assert not flip(3, scale=0.25)
    assert not flip(3, clamp=(0, 127))


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Graph):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def assert_round_trip(module: ModuleOp) -> None:
    text = str(module)
    again = parse(text)
    again.verify()
    assert str(again) == text
    assert again.is_structurally_equivalent(module)


def test_text_of_the_bundled_model_round_trips() -> None:
    path = Path(__file__).resolve().parents[3] / "sw" / "models" / "digits_int8.onnx"
    assert_round_trip(load_model(path).module)


@pytest.mark.parametrize(
    "name", ["mlperf_tiny/ic01_resnet8_int8.tflite", "onnx/silero_vad_16k_sequence.onnx"]
)
def test_text_of_published_models_round_trips(name: str, shared_dir: Path) -> None:
    assert_round_trip(load_model(shared_dir / "models" / name).module)


def test_text_is_readable() -> None:
    text = """builtin.module {
  func.func @main(%x: tensor<2x2xi8, #graph.quant<scale = [5.000000e-01], zero_point = [3]>>) -> \
tensor<4xi8, #graph.quant<scale = [5.000000e-01], zero_point = [3]>> {
    %y = graph.clamp(%x) {clamp = array<i32: 3, 15>, node = "relu6"} : \
(tensor<2x2xi8, #graph.quant<scale = [5.000000e-01], zero_point = [3]>>) -> \
tensor<2x2xi8, #graph.quant<scale = [5.000000e-01], zero_point = [3]>>
    %z = graph.reshape(%y) {node = "flat"} : \
(tensor<2x2xi8, #graph.quant<scale = [5.000000e-01], zero_point = [3]>>) -> \
tensor<4xi8, #graph.quant<scale = [5.000000e-01], zero_point = [3]>>
    func.return %z : tensor<4xi8, #graph.quant<scale = [5.000000e-01], zero_point = [3]>>
  }
}"""
    module = parse(text)
    module.verify()
    assert str(module) == text


positive = st.floats(2**-126, 2**100, width=32, exclude_min=False)


@given(st.lists(st.tuples(positive, st.integers(-128, 127)), min_size=1, max_size=5))
def test_quantisation_keeps_every_float32_scale_in_text(pairs: list[tuple[float, int]]) -> None:
    scales, zeros = zip(*pairs, strict=True)
    quant = QuantAttr.of(scales, zeros, 0 if len(pairs) > 1 else None)
    context = Context()
    for dialect in (Builtin, Graph):
        context.load_dialect(dialect)
    again = Parser(context, str(quant)).parse_attribute()
    assert isinstance(again, QuantAttr)
    assert again == quant
    assert np.array_equal(again.scale_array, np.array(scales, np.float32))


QUANT_CASES: list[tuple[Callable[[], QuantAttr], str]] = [
    (lambda: QuantAttr.of(0.0), "scale must be positive and finite, not 0.0"),
    (lambda: QuantAttr.of(-1.0), "scale must be positive and finite, not -1.0"),
    (lambda: QuantAttr.of(float("nan")), "scale must be positive and finite, not nan"),
    (lambda: QuantAttr.of(float("inf")), "scale must be positive and finite, not inf"),
    (
        lambda: QuantAttr.of([0.5, 0.25], [0, 0]),
        "quant without an axis must have 1 scale, not 2",
    ),
    (
        lambda: QuantAttr.of([0.5, 0.25], [0, 0, 0], 0),
        "quant must have as many zero points as scales and at least one, not 3 and 2",
    ),
]


@pytest.mark.parametrize(("build", "message"), QUANT_CASES)
def test_quantisation_is_checked_when_made(build: Callable[[], QuantAttr], message: str) -> None:
    with pytest.raises(VerifyException) as caught:
        build()
    assert message in str(caught.value)


def test_types_translate_both_ways() -> None:
    tensor = tensor_type((2, 3), np.uint8, QuantAttr.of(0.5, 200))
    assert str(tensor) == (
        "tensor<2x3xui8, #graph.quant<scale = [5.000000e-01], zero_point = [200]>>"
    )
    assert dtype_of(tensor) == np.uint8
    found = quant_of(with_shape(tensor, (6,)))
    assert found is not None
    assert (found.scale, found.zero_point) == (0.5, 200)


def test_types_without_a_place_in_the_graph_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^dtype must be one of bool, int8, .*, not 'U3'$"):
        tensor_type((1,), "U3")
    with pytest.raises(TypeError, match=r"^value must be a tensor, not i32$"):
        type_of(scratch.TestOp(result_types=[i32]).results[0])
