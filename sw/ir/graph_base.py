"""What operators of the graph dialect have in common: node, scheme, clamp, operands."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import (
    I32,
    I64,
    DenseArrayBase,
    StringAttr,
    i32,
    i64,
)
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from npulse.hw.spec.numerics import RequantScheme
from npulse.sw.ir import graph_rules as rules
from npulse.sw.ir.types import QuantAttr, ints, type_of

Ints = Sequence[int]
#: Textual form of an operator with operands.
FORMAT = "`(` operands `)` attr-dict `:` functional-type(operands, results)"


def i64s(values: Ints) -> DenseArrayBase[I64]:
    """Write integers as an array property."""
    return DenseArrayBase.from_list(i64, [int(v) for v in values])


def i32s(values: Ints) -> DenseArrayBase[I32]:
    """Write codes as an array property."""
    return DenseArrayBase.from_list(i32, [int(v) for v in values])


class GraphOp(IRDLOperation):
    """What all operators of the dialect have in common."""

    #: Name of the node in the model that this operator came from, for messages.
    node = prop_def(StringAttr)

    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())

    @property
    def node_name(self) -> str:
        """Name of the node in the model."""
        return self.node.data


class IntegerOp(GraphOp):
    """Operator that requantises: it has a scheme and a clamp in the codes of the result."""

    scheme = prop_def(StringAttr)
    clamp = prop_def(DenseArrayBase.constr(i32))

    @property
    def clamp_range(self) -> tuple[int, int]:
        """Smallest and largest code of the result, inclusive."""
        low, high = ints(self.clamp)
        return low, high

    @property
    def requant_scheme(self) -> RequantScheme:
        """Rounding and overflow rules of the requantisation."""
        return RequantScheme(self.scheme.data)


class LinearOp(IntegerOp):
    """Multiply by weights and requantise; operands are activation, weight and bias."""

    input = operand_def()
    weight = operand_def()
    bias = operand_def()
    result = result_def()

    @property
    def input_quant(self) -> QuantAttr:
        """Per-tensor quantisation of the activation."""
        return rules.need_quant(self, "input", self.input.type)

    @property
    def weight_quant(self) -> QuantAttr:
        """Symmetric quantisation of the weight, per tensor or per output channel."""
        return rules.need_quant(self, "weight", self.weight.type)

    @property
    def output_quant(self) -> QuantAttr:
        """Per-tensor quantisation of the result."""
        return rules.need_quant(self, "result", self.result.type)

    @property
    def input_zero_point(self) -> int:
        """Code of real zero in the activation; also the value of padding."""
        return self.input_quant.zero_point

    @property
    def output_zero_point(self) -> int:
        """Code of real zero in the result."""
        return self.output_quant.zero_point

    @property
    def weight_zero_point(self) -> int:
        """Code of real zero in the weight; not 0 in some models of uint8 only."""
        return int(self.weight_quant.zero_point_array[0])

    @property
    def out_channels(self) -> int:
        """Output channels N."""
        return type_of(self.weight).get_shape()[0]

    @property
    def effective_scales(self) -> NDArray[np.float64]:
        """Factor from accumulator to output code for each output channel, (N,) float64.

        In double precision from float32 scales, as TFLite's PopulateConvolutionQuantizationParams.
        """
        product = np.float64(self.input_quant.scale) * self.weight_quant.scale_array
        ratio = product.astype(np.float64) / np.float64(self.output_quant.scale)
        return np.broadcast_to(ratio, (self.out_channels,)).copy()

    @property
    def float32_scales(self) -> NDArray[np.float64]:
        """As `effective_scales`, with input and weight scale multiplied in float32."""
        product = (self.input_quant.scale * self.weight_quant.scale_array).astype(np.float64)
        ratio = product / np.float64(self.output_quant.scale)
        return np.broadcast_to(ratio, (self.out_channels,)).copy()
