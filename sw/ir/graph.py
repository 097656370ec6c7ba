"""Graph dialect: a quantised network as a few dozen operators, activations in NHWC.

One operator of the graph is one operator of the model, or several fused into one (convolution,
bias, activation and requantisation are a single ``graph.conv2d``). Integer operators carry
everything that they need: scales and zero points are on the tensor types
(`npulse.sw.ir.types.QuantAttr`), the clamp and the requantisation scheme are properties. Weights
are not in the IR: ``graph.weight`` names an array of the model
(`npulse.sw.frontends.model.Model.weights`). Every operator has ``node``, the name of the node in
the model, for messages::

    %w = graph.weight @conv1.w {node = "conv1"} : tensor<8x3x3x1xi8, #graph.quant<...>>
    %y = graph.conv2d(%x, %w, %b) {strides = array<i64: 1, 1>, ...} : (...) -> tensor<...>

Integer arithmetic of ``conv2d`` and ``fully_connected``, with zero points ``zx`` and ``zy`` of
input and result, ``w`` symmetric and ``ratio = effective_scales``::

    acc[n] = bias[n] + sum((x - zx) * w[n])                               # int32
    y[n]   = clamp(zy + requantize(acc[n], ratio[n], scheme), clamp[0], clamp[1])
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import (
    DenseArrayBase,
    DictionaryAttr,
    StringAttr,
    SymbolRefAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    var_operand_def,
    var_result_def,
)

from npulse.hw.spec.numerics import RequantScheme, Rounding
from npulse.sw.ir import graph_rules as rules
from npulse.sw.ir.graph_base import FORMAT, GraphOp, IntegerOp, Ints, LinearOp, i32s, i64s
from npulse.sw.ir.graph_elementwise import (
    AddOp,
    LutOp,
    MaximumOp,
    MinimumOp,
    MulOp,
    PreluOp,
    SubOp,
)
from npulse.sw.ir.graph_matrix import BatchMatmulOp, TransposeConv2dOp
from npulse.sw.ir.graph_move import ConcatOp, PadOp, ResizeNearestOp, SliceOp
from npulse.sw.ir.graph_pool import AveragePool2dOp, MeanOp
from npulse.sw.ir.types import GraphTensor, QuantAttr, ints, quant_of, type_of


@irdl_op_definition
class WeightOp(GraphOp):
    """Array of the model by its name; its contents are outside the IR."""

    name = "graph.weight"
    array = prop_def(SymbolRefAttr)
    result = result_def()
    assembly_format = "$array attr-dict `:` type($result)"

    def __init__(self, array: str, tensor: GraphTensor, node: str = "") -> None:
        super().__init__(
            properties={"array": SymbolRefAttr(array), "node": StringAttr(node)},
            result_types=[tensor],
        )

    @property
    def array_name(self) -> str:
        """Name of the array in the weights of the model."""
        return self.array.root_reference.data

    def verify_(self) -> None:
        rules.need_tensor(self, "result", self.result.type)


@irdl_op_definition
class Conv2dOp(LinearOp):
    """Integer 2-D convolution, grouped or depthwise too, with bias, requantisation and clamp.

    Shapes: input (B, H, W, Cin), weight (N, Kh, Kw, Cin / groups), bias (N,) int32, result
    (B, Ho, Wo, N). ``pads`` are top, left, bottom, right; padding has the value of real zero.
    """

    name = "graph.conv2d"
    strides = prop_def(DenseArrayBase.constr(i64))
    dilations = prop_def(DenseArrayBase.constr(i64))
    pads = prop_def(DenseArrayBase.constr(i64))
    groups = prop_def(DenseArrayBase.constr(i64))
    #: ``float32`` where input and weight scale are multiplied in it: TFLite's uint8 kernels.
    product = opt_prop_def(StringAttr)
    assembly_format = FORMAT

    def __init__(
        self,
        input: SSAValue,
        weight: SSAValue,
        bias: SSAValue,
        result: GraphTensor,
        *,
        node: str,
        strides: Ints = (1, 1),
        dilations: Ints = (1, 1),
        pads: Ints = (0, 0, 0, 0),
        groups: int = 1,
        clamp: Ints = (-128, 127),
        scheme: RequantScheme = RequantScheme.TFLITE_Q31_DOUBLE,
        float32_product: bool = False,
    ) -> None:
        super().__init__(
            operands=[input, weight, bias],
            result_types=[result],
            properties={
                "product": StringAttr("float32") if float32_product else None,
                "strides": i64s(strides),
                "dilations": i64s(dilations),
                "pads": i64s(pads),
                "groups": i64s([groups]),
                "clamp": i32s(clamp),
                "scheme": StringAttr(scheme.value),
                "node": StringAttr(node),
            },
        )

    @property
    def group_count(self) -> int:
        """Groups of channels that do not mix."""
        return ints(self.groups)[0]

    @property
    def effective_scales(self) -> NDArray[np.float64]:
        """Factor from accumulator to output code for each output channel, (N,) float64."""
        return self.float32_scales if self.product is not None else super().effective_scales

    def verify_(self) -> None:
        if self.product is not None and self.product.data != "float32":
            rules.fail(self, f"product must be float32 or absent, not {self.product.data!r}")
        rules.verify_conv2d(self)


@irdl_op_definition
class FullyConnectedOp(LinearOp):
    """Integer matrix product with bias, requantisation and clamp.

    Shapes: input (M, K), weight (N, K), bias (N,) int32, result (M, N).
    """

    name = "graph.fully_connected"
    assembly_format = FORMAT

    def __init__(
        self,
        input: SSAValue,
        weight: SSAValue,
        bias: SSAValue,
        result: GraphTensor,
        *,
        node: str,
        clamp: Ints = (-128, 127),
        scheme: RequantScheme = RequantScheme.TFLITE_Q31_AWAY,
    ) -> None:
        super().__init__(
            operands=[input, weight, bias],
            result_types=[result],
            properties={
                "clamp": i32s(clamp),
                "scheme": StringAttr(scheme.value),
                "node": StringAttr(node),
            },
        )

    @property
    def effective_scales(self) -> NDArray[np.float64]:
        """Factor from accumulator to output code for each output channel, (N,) float64.

        With one weight scale, TFLite multiplies input and weight scale in float32
        (GetQuantizedConvolutionMultipler); with one a channel, in double precision.
        """
        return self.float32_scales if self.weight_quant.per_tensor else super().effective_scales

    def verify_(self) -> None:
        rules.verify_fully_connected(self)


@irdl_op_definition
class MaxPool2dOp(GraphOp):
    """Maximum over windows; padding never wins. Shapes: (B, H, W, C) to (B, Ho, Wo, C)."""

    name = "graph.max_pool2d"
    input = operand_def()
    result = result_def()
    kernel = prop_def(DenseArrayBase.constr(i64))
    strides = prop_def(DenseArrayBase.constr(i64))
    pads = prop_def(DenseArrayBase.constr(i64))
    clamp = prop_def(DenseArrayBase.constr(i32))
    assembly_format = FORMAT

    def __init__(
        self,
        input: SSAValue,
        result: GraphTensor,
        *,
        node: str,
        kernel: Ints,
        strides: Ints = (1, 1),
        pads: Ints = (0, 0, 0, 0),
        clamp: Ints = (-128, 127),
    ) -> None:
        super().__init__(
            operands=[input],
            result_types=[result],
            properties={
                "kernel": i64s(kernel),
                "strides": i64s(strides),
                "pads": i64s(pads),
                "clamp": i32s(clamp),
                "node": StringAttr(node),
            },
        )

    @property
    def clamp_range(self) -> tuple[int, int]:
        """Smallest and largest code of the result, inclusive."""
        low, high = ints(self.clamp)
        return low, high

    def verify_(self) -> None:
        rules.verify_pool2d(self)


@irdl_op_definition
class ClampOp(GraphOp):
    """Limit the codes of a quantised tensor (ReLU, ReLU6, Clip); same type in and out."""

    name = "graph.clamp"
    input = operand_def()
    result = result_def()
    clamp = prop_def(DenseArrayBase.constr(i32))
    assembly_format = FORMAT

    def __init__(self, input: SSAValue, *, node: str, clamp: Ints) -> None:
        super().__init__(
            operands=[input],
            result_types=[input.type],
            properties={"clamp": i32s(clamp), "node": StringAttr(node)},
        )

    @property
    def clamp_range(self) -> tuple[int, int]:
        """Smallest and largest code of the result, inclusive."""
        low, high = ints(self.clamp)
        return low, high

    def verify_(self) -> None:
        rules.verify_clamp(self)


@irdl_op_definition
class ReshapeOp(GraphOp):
    """Give the same elements another shape (flatten, squeeze and their kin)."""

    name = "graph.reshape"
    input = operand_def()
    result = result_def()
    assembly_format = FORMAT

    def __init__(self, input: SSAValue, result: GraphTensor, *, node: str) -> None:
        super().__init__(
            operands=[input], result_types=[result], properties={"node": StringAttr(node)}
        )

    def verify_(self) -> None:
        rules.verify_reshape(self)


@irdl_op_definition
class TransposeOp(GraphOp):
    """Permute axes: axis ``i`` of the result is axis ``permutation[i]`` of the input."""

    name = "graph.transpose"
    input = operand_def()
    result = result_def()
    permutation = prop_def(DenseArrayBase.constr(i64))
    assembly_format = FORMAT

    def __init__(
        self, input: SSAValue, result: GraphTensor, *, node: str, permutation: Ints
    ) -> None:
        super().__init__(
            operands=[input],
            result_types=[result],
            properties={"permutation": i64s(permutation), "node": StringAttr(node)},
        )

    def verify_(self) -> None:
        rules.verify_transpose(self)


@irdl_op_definition
class QuantizeOp(GraphOp):
    """Turn float32 into codes: ``saturate(round(x / scale) + zero_point)``.

    ``rounding`` is ``half_even`` (ONNX QuantizeLinear) or ``half_away`` (TFLite QUANTIZE).
    """

    name = "graph.quantize"
    input = operand_def()
    result = result_def()
    rounding = prop_def(StringAttr)
    assembly_format = FORMAT

    def __init__(
        self, input: SSAValue, result: GraphTensor, *, node: str, rounding: Rounding
    ) -> None:
        super().__init__(
            operands=[input],
            result_types=[result],
            properties={"rounding": StringAttr(rounding.value), "node": StringAttr(node)},
        )

    def verify_(self) -> None:
        rules.verify_quantize(self)


@irdl_op_definition
class DequantizeOp(GraphOp):
    """Turn codes into float32: ``(code - zero_point) * scale``, in float32."""

    name = "graph.dequantize"
    input = operand_def()
    result = result_def()
    assembly_format = FORMAT

    def __init__(self, input: SSAValue, result: GraphTensor, *, node: str) -> None:
        super().__init__(
            operands=[input], result_types=[result], properties={"node": StringAttr(node)}
        )

    def verify_(self) -> None:
        rules.verify_dequantize(self)


@irdl_op_definition
class RequantizeOp(IntegerOp):
    """Change scale, zero point or signedness of 8-bit codes, and clamp the result.

    ``y = clamp(zy + requantize(x - zx, scale_x / scale_y, scheme), clamp[0], clamp[1])``
    """

    name = "graph.requantize"
    input = operand_def()
    result = result_def()
    assembly_format = FORMAT

    def __init__(
        self,
        input: SSAValue,
        result: GraphTensor,
        *,
        node: str,
        clamp: Ints,
        scheme: RequantScheme = RequantScheme.TFLITE_Q31_DOUBLE,
    ) -> None:
        super().__init__(
            operands=[input],
            result_types=[result],
            properties={
                "clamp": i32s(clamp),
                "scheme": StringAttr(scheme.value),
                "node": StringAttr(node),
            },
        )

    @property
    def effective_scale(self) -> float:
        """Input scale over output scale, in double precision."""
        x = rules.need_quant(self, "input", self.input.type)
        y = rules.need_quant(self, "result", self.result.type)
        return float(np.float64(x.scale) / np.float64(y.scale))

    @property
    def is_sign_flip(self) -> bool:
        """Whether this only moves between uint8 and int8: code minus or plus 128, always exact."""
        x, y = type_of(self.input), type_of(self.result)
        qx, qy = quant_of(x), quant_of(y)
        if qx is None or qy is None or x.element_type == y.element_type or qx.scale != qy.scale:
            return False
        low, high = rules.code_range(y)
        shift = -128 if low < 0 else 128
        return qy.zero_point - qx.zero_point == shift and self.clamp_range == (low, high)

    def verify_(self) -> None:
        rules.verify_requantize(self)


@irdl_op_definition
class HostOp(GraphOp):
    """Operator that only the host can run, with the reason and all that is needed to run it.

    ``kind`` is the operator in the model, ``origin`` the front-end (``onnx`` or ``tflite``). The
    payload of ``onnx`` is a serialized model of this one node in base 64, that of ``tflite`` the
    options as JSON. ``reason`` has the strings ``rule``, ``decided_by`` and ``remedy``.
    """

    name = "graph.host"
    ORIGINS: ClassVar = ("onnx", "tflite")
    inputs = var_operand_def()
    outputs = var_result_def()
    kind = prop_def(StringAttr)
    origin = prop_def(StringAttr)
    payload = prop_def(StringAttr)
    reason = prop_def(DictionaryAttr)
    assembly_format = FORMAT

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        results: Sequence[GraphTensor],
        *,
        node: str,
        kind: str,
        origin: str,
        payload: str,
        rule: str,
        decided_by: str,
        remedy: str,
    ) -> None:
        reason: dict[str, Attribute] = {
            "rule": StringAttr(rule),
            "decided_by": StringAttr(decided_by),
            "remedy": StringAttr(remedy),
        }
        super().__init__(
            operands=[list(inputs)],
            result_types=[list(results)],
            properties={
                "kind": StringAttr(kind),
                "origin": StringAttr(origin),
                "payload": StringAttr(payload),
                "reason": DictionaryAttr(reason),
                "node": StringAttr(node),
            },
        )

    def why(self) -> dict[str, str]:
        """Reason as plain text: rule id, what decided, and what would help."""
        return {k: v.data for k, v in self.reason.data.items() if isinstance(v, StringAttr)}

    def verify_(self) -> None:
        rules.verify_host(self)


Graph = Dialect(
    "graph",
    [
        WeightOp,
        Conv2dOp,
        FullyConnectedOp,
        MaxPool2dOp,
        ClampOp,
        ReshapeOp,
        TransposeOp,
        QuantizeOp,
        DequantizeOp,
        RequantizeOp,
        HostOp,
        AveragePool2dOp,
        MeanOp,
        AddOp,
        SubOp,
        MulOp,
        PreluOp,
        MinimumOp,
        MaximumOp,
        LutOp,
        PadOp,
        ConcatOp,
        SliceOp,
        ResizeNearestOp,
        TransposeConv2dOp,
        BatchMatmulOp,
    ],
    [QuantAttr],
)
