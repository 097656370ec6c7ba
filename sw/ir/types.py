"""Tensor types of the graph dialect: shape, element type and quantisation.

A tensor is the builtin ``tensor`` type of xDSL. A quantised one carries a `QuantAttr` as its
encoding, with ``real = scale * (code - zero_point)``::

    tensor<1x8x8x4xi8, #graph.quant<scale = [0.05], zero_point = [-3]>>
    tensor<16x3x3x4xi8, #graph.quant<scale = [0.1, 0.2, ...], zero_point = [0, 0, ...], axis = 0>>
"""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray
from xdsl.dialects.builtin import (
    I32,
    I64,
    ArrayAttr,
    BFloat16Type,
    DenseArrayBase,
    Float16Type,
    Float32Type,
    Float64Type,
    IntAttr,
    IntegerType,
    NoneAttr,
    Signedness,
    TensorType,
    f32,
    i32,
)
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

_ELEMENTS: dict[np.dtype[Any], Attribute] = {
    np.dtype(np.bool_): IntegerType(1),
    **{np.dtype(f"i{n // 8}"): IntegerType(n) for n in (8, 16, 32, 64)},
    **{np.dtype(f"u{n // 8}"): IntegerType(n, Signedness.UNSIGNED) for n in (8, 16, 32, 64)},
    np.dtype(np.float16): Float16Type(),
    np.dtype(np.float32): Float32Type(),
    np.dtype(np.float64): Float64Type(),
    np.dtype(ml_dtypes.bfloat16): BFloat16Type(),
}
_DTYPES: dict[Attribute, np.dtype[Any]] = {element: dtype for dtype, element in _ELEMENTS.items()}


def has_element_type(dtype: DTypeLike) -> bool:
    """Tell whether a tensor of the graph dialect can hold elements of this numpy type."""
    return np.dtype(dtype) in _ELEMENTS


def element_type(dtype: DTypeLike) -> Attribute:
    """Translate a numpy type; `ValueError` for one that the graph dialect cannot hold."""
    try:
        return _ELEMENTS[np.dtype(dtype)]
    except KeyError:
        known = ", ".join(str(d) for d in _ELEMENTS)
        raise ValueError(f"dtype must be one of {known}, not {dtype!r}") from None


@irdl_attr_definition
class QuantAttr(ParametrizedAttribute):
    """Affine quantisation of a tensor, for the whole of it or for each index along one axis.

    Scales are float32, as both model formats store them. ``axis`` is -1 when one scale holds for
    the whole tensor.
    """

    name = "graph.quant"

    scales: DenseArrayBase[Float32Type]
    zero_points: DenseArrayBase[I32]
    axis: IntAttr

    @staticmethod
    def of(
        scales: float | Sequence[float] | NDArray[np.floating[Any]],
        zero_points: int | Sequence[int] | NDArray[np.integer[Any]] = 0,
        axis: int | None = None,
    ) -> "QuantAttr":
        """Build from plain numbers; one zero point serves all channels."""
        scale_list = [float(s) for s in np.atleast_1d(np.asarray(scales, np.float32))]
        zero_list = [int(z) for z in np.atleast_1d(np.asarray(zero_points, np.int64))]
        if len(zero_list) == 1:
            zero_list *= len(scale_list)
        return QuantAttr(
            DenseArrayBase.from_list(f32, scale_list),
            DenseArrayBase.from_list(i32, zero_list),
            IntAttr(-1 if axis is None else axis),
        )

    def verify(self) -> None:
        scales, zeros = self.scale_array, self.zero_point_array
        if not scales.size or len(zeros) != len(scales):
            raise VerifyException(
                f"quant must have as many zero points as scales and at least one, "
                f"not {len(zeros)} and {len(scales)}"
            )
        if not (np.isfinite(scales) & (scales > 0)).all():
            bad = scales[~(np.isfinite(scales) & (scales > 0))][0]
            raise VerifyException(f"scale must be positive and finite, not {bad}")
        if self.axis.data < 0 and len(scales) != 1:
            raise VerifyException(f"quant without an axis must have 1 scale, not {len(scales)}")

    @property
    def per_tensor(self) -> bool:
        """Whether one scale and zero point hold for the whole tensor."""
        return self.axis.data < 0

    @property
    def scale_array(self) -> NDArray[np.float32]:
        """Scales, (channels,) or (1,) float32."""
        return np.array(self.scales.get_values(), np.float32)

    @property
    def zero_point_array(self) -> NDArray[np.int32]:
        """Zero points, (channels,) or (1,) int32."""
        return np.array(self.zero_points.get_values(), np.int32)

    @property
    def scale(self) -> np.float32:
        """The one scale of a per-tensor quantisation."""
        (value,) = self.scale_array
        return value

    @property
    def zero_point(self) -> int:
        """The one zero point of a per-tensor quantisation."""
        (value,) = self.zero_point_array
        return int(value)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string("scale = ")
            with printer.in_square_brackets():
                printer.print_list(self.scale_array, lambda s: printer.print_float(float(s), f32))
            printer.print_string(", zero_point = ")
            with printer.in_square_brackets():
                printer.print_list(self.zero_point_array, lambda z: printer.print_int(int(z)))
            if not self.per_tensor:
                printer.print_string(f", axis = {self.axis.data}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        axis = -1
        with parser.in_angle_brackets():
            parser.parse_keyword("scale")
            parser.parse_punctuation("=")
            scales = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_number)
            parser.parse_punctuation(",")
            parser.parse_keyword("zero_point")
            parser.parse_punctuation("=")
            zeros = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("axis")
                parser.parse_punctuation("=")
                axis = parser.parse_integer()
        return (
            DenseArrayBase.from_list(f32, [float(s) for s in scales]),
            DenseArrayBase.from_list(i32, zeros),
            IntAttr(axis),
        )


GraphTensor = TensorType[Attribute]


def ints(array: DenseArrayBase[I32] | DenseArrayBase[I64]) -> tuple[int, ...]:
    """Give an array property of an operator, such as strides, as plain integers."""
    return tuple(int(v) for v in array.get_values())


def tensor_type(
    shape: Sequence[int], dtype: DTypeLike, quant: QuantAttr | None = None
) -> GraphTensor:
    """Build a tensor type from plain numbers and a numpy type."""
    dims = ArrayAttr([IntAttr(int(d)) for d in shape])
    return TensorType(element_type(dtype), dims, NoneAttr() if quant is None else quant)


def quant_of(tensor: GraphTensor) -> QuantAttr | None:
    """Quantisation of a tensor type, None when its elements are plain numbers."""
    return tensor.encoding if isinstance(tensor.encoding, QuantAttr) else None


def dtype_of(tensor: GraphTensor) -> np.dtype[Any]:
    """Numpy type of the elements; `ValueError` for an element type without one."""
    try:
        return _DTYPES[tensor.element_type]
    except KeyError:
        raise ValueError(f"no numpy type for elements of {tensor.element_type}") from None


def with_shape(tensor: GraphTensor, shape: Sequence[int]) -> GraphTensor:
    """Copy a tensor type with another shape; the quantisation must be per tensor."""
    return TensorType(tensor.element_type, [int(d) for d in shape], tensor.encoding)


def type_of(value: SSAValue) -> GraphTensor:
    """Tensor type of a value; `TypeError` for a value that is no tensor."""
    if not isinstance(value.type, TensorType):
        raise TypeError(f"value must be a tensor, not {value.type}")
    return value.type
