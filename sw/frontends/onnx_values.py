"""Values of an ONNX import in the forms that operators want: codes in NHWC, or plain as in ONNX.

An ONNX tensor may be needed as ONNX has it (NCHW, float or uint8) by a host operator, and as int8
codes in NHWC by an integer operator. A `Value` holds the forms that exist and makes another on
demand, once. A uint8 tensor is held as int8 codes: code and zero point less 128, the same reals.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from npulse.sw.frontends.builder import GraphBuilder
from npulse.sw.ir.graph import DequantizeOp
from npulse.sw.ir.types import QuantAttr, dtype_of, quant_of, tensor_type, type_of

Array = NDArray[Any]

#: Axis of the source for each axis of the result.
TO_NHWC = (0, 2, 3, 1)
TO_NCHW = (0, 3, 1, 2)


@dataclass
class Codes:
    """Int8 codes of an activation, per tensor, in at least one form."""

    shape: tuple[int, ...]  #: as ONNX has it
    quant: QuantAttr  #: for the int8 codes
    native: SSAValue | None = None  #: ``shape``
    nhwc: SSAValue | None = None  #: (N, H, W, C) of a ``shape`` (N, C, H, W)
    #: (N, H * W * C) of an image that ONNX flattens to (N, C * H * W).
    rows: SSAValue | None = None
    image: tuple[int, int, int] = (1, 1, 1)  #: C, H, W of ``rows``

    def as_native(self, builder: GraphBuilder, node: str) -> SSAValue:
        """Codes in the shape of ONNX."""
        if self.native is None:
            if self.nhwc is None:
                assert self.rows is not None  # one form exists always
                channels, height, width = self.image
                shape = (self.shape[0], height, width, channels)
                image = builder.reshape(self.rows, shape, node, f"{node}.nhwc")
                nchw = builder.transpose(image, TO_NCHW, node, f"{node}.nchw")
                self.native = builder.reshape(nchw, self.shape, node, f"{node}.flat")
            else:
                self.native = builder.transpose(self.nhwc, TO_NCHW, node, f"{node}.nchw")
        return self.native

    def as_nhwc(self, builder: GraphBuilder, node: str) -> SSAValue:
        """Codes of a tensor with 4 axes in NHWC."""
        if self.nhwc is None:
            native = self.as_native(builder, node)
            self.nhwc = builder.transpose(native, TO_NHWC, node, f"{node}.nhwc")
        return self.nhwc

    def reshaped(self, builder: GraphBuilder, shape: tuple[int, ...], node: str) -> "Codes":
        """Same codes in another ONNX shape; flattening an NHWC image moves no data."""
        flat = len(self.shape) == 4 and shape == (self.shape[0], math.prod(self.shape[1:]))
        if self.native is None and self.nhwc is not None and flat:
            _, channels, height, width = self.shape
            rows = builder.reshape(self.nhwc, shape, node, f"{node}.rows")
            return Codes(shape, self.quant, rows=rows, image=(channels, height, width))
        native = builder.reshape(self.as_native(builder, node), shape, node, node)
        return Codes(shape, self.quant, native=native)


@dataclass(frozen=True)
class QuantizedArray:
    """Constant of integers with quantisation: ``real = scale * (integers - zero)``.

    Scales and zero points are scalars or lie along ``axis``.
    """

    integers: Array
    scale: NDArray[np.float32]
    zero: NDArray[np.int64]
    axis: int

    def along_axis(self, values: Array) -> Array:
        """Reshape scales or zero points so that they broadcast over the integers."""
        if values.size == 1:
            return values.reshape(())
        shape = [1] * self.integers.ndim
        shape[self.axis] = -1
        return values.reshape(shape)

    def real(self) -> NDArray[np.float32]:
        """What DequantizeLinear gives."""
        centred = self.integers.astype(np.int64) - self.along_axis(self.zero)
        return (centred.astype(np.float32) * self.along_axis(self.scale)).astype(np.float32)


@dataclass
class Value:
    """One ONNX tensor: a constant, plain values, int8 codes, or several of these."""

    name: str
    node: str  #: that computes it, for messages
    dtype: np.dtype[Any]  #: of ONNX
    array: Array | None = None
    quantized: QuantizedArray | None = None  #: constant behind a DequantizeLinear
    plain: SSAValue | None = None
    codes: Codes | None = None

    @property
    def is_real(self) -> bool:
        """Whether this is the float tensor that the codes stand for, not the codes themselves."""
        return self.dtype == np.float32

    @property
    def constant(self) -> Array | None:
        """The constant as ONNX has it, None when it is computed from inputs."""
        if self.array is None and self.quantized is not None:
            self.array = self.quantized.real()
        return self.array

    def as_plain(self, builder: GraphBuilder) -> SSAValue:
        """Value as ONNX has it: shape, type, layout."""
        if self.plain is None:
            constant = self.constant
            if constant is not None:
                self.plain = builder.weight(constant, self.name, self.node)
            else:
                self.plain = self._from_codes(builder)
        return self.plain

    def _from_codes(self, builder: GraphBuilder) -> SSAValue:
        assert self.codes is not None  # a value is constant, plain or codes
        native = self.codes.as_native(builder, self.node)
        if self.is_real:
            real = tensor_type(self.codes.shape, self.dtype)
            change = DequantizeOp(native, real, node=self.node)
            return builder.add(change, self.name).result
        if self.dtype == np.uint8:
            return builder.flip_sign(native, self.node, self.name)
        return native

    def as_codes(self, builder: GraphBuilder) -> Codes | None:
        """Codes, None for a value that is not quantised per tensor in 8 bits."""
        if self.codes is None and self.plain is not None:
            tensor = type_of(self.plain)
            quant = quant_of(tensor)
            if quant is None or not quant.per_tensor or dtype_of(tensor).itemsize != 1:
                return None
            native = self.plain
            if dtype_of(tensor) == np.uint8:
                native = builder.flip_sign(native, self.node, f"{self.name}.int8")
                quant = quant_of(type_of(native))
                assert quant is not None  # flip_sign keeps it
            self.codes = Codes(tensor.get_shape(), quant, native=native)
        return self.codes
