"""State of one ONNX import: tensors by name, their readers, and the way to the host."""

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from npulse.sw.errors import UserError, shorten
from npulse.sw.frontends.builder import GraphBuilder
from npulse.sw.frontends.onnx_host import Reason, evaluator_knows, node_model, payload
from npulse.sw.frontends.onnx_reader import OnnxGraph, OnnxNode
from npulse.sw.frontends.onnx_shapes import Static
from npulse.sw.frontends.onnx_values import Codes, QuantizedArray, Value
from npulse.sw.ir.graph import HostOp
from npulse.sw.ir.types import GraphTensor, QuantAttr, has_element_type, tensor_type

Array = NDArray[Any]


class OnnxImporter:
    """Translates node by node; `npulse.sw.frontends.onnx_qdq` and its kin have the operators."""

    def __init__(self, graph: OnnxGraph, static: dict[str, Static]) -> None:
        self.graph = graph
        self.static = static
        self.builder = GraphBuilder()
        self.values: dict[str, Value] = {}
        self.absorbed: set[OnnxNode] = set()  #: nodes fused into an earlier one
        self.outputs = {info.name for info in graph.outputs}
        self.readers: dict[str, list[OnnxNode]] = {}
        for node in graph.nodes:
            for name in node.reads:
                self.readers.setdefault(name, []).append(node)
        self._known: dict[tuple[str, str], bool] = {}
        for name, array in graph.constants.items():
            self.values[name] = Value(name, name, array.dtype, array=array)

    def fail(self, node: OnnxNode, sentence: str) -> NoReturn:
        """Raise `UserError` that names file, operator and node."""
        raise UserError(f"{self.graph.path}: {node.kind} node {node.label!r}: {sentence}")

    def note(self, node: OnnxNode, sentence: str) -> None:
        """Record a decision that the user should know."""
        self.builder.notes.append(f"{node.kind} node {node.label!r}: {sentence}")

    def opset(self) -> int:
        """Version of the standard operators."""
        return self.graph.opsets.get("", 1)

    def input(self, node: OnnxNode, position: int) -> Value | None:
        """Value of an input, None when it is absent; one of a later node has no form yet."""
        if position >= len(node.inputs) or not node.inputs[position]:
            return None
        name = node.inputs[position]
        return self.values.get(name) or Value(name, node.label, np.dtype(np.void))

    def constant(self, node: OnnxNode, position: int) -> Array | None:
        """Array of a constant input, None when it is absent or computed from inputs."""
        value = self.input(node, position)
        return None if value is None else value.constant

    def known(self, node: OnnxNode, name: str) -> Static:
        """Static type of a tensor; `UserError` names the node that makes it dynamic."""
        static = self.static.get(name)
        if static is None:
            self.fail(
                node,
                f"the shape of tensor {shorten(name)!r} must be static, but inference finds none: "
                f"the input shapes do not fit, or it depends on data; fix them or replace the "
                f"operator",
            )
        return static

    def only_reader(self, name: str) -> OnnxNode | None:
        """The one node that reads a tensor which is no output, else None."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def plain(self, value: Value) -> SSAValue:
        """Value as ONNX has it; `UserError` for elements that the graph cannot hold."""
        if not has_element_type(value.dtype):
            raise UserError(
                f"{self.graph.path}: tensor {shorten(value.name)!r} has elements of {value.dtype}, "
                f"which npulse does not hold; cast them to a plain number type"
            )
        return value.as_plain(self.builder)

    def set_codes(self, node: OnnxNode, name: str, codes: Codes, dtype: Any) -> None:
        """Make codes the value of a tensor."""
        self.values[name] = Value(name, node.label, np.dtype(dtype), codes=codes)

    def quantization(
        self, node: OnnxNode, scale: int, zero: int, axis: int | None = None
    ) -> QuantizedArray | None:
        """Scale and zero point of a node from two of its inputs; None unless constant.

        The integers of the result are empty. A scale that is no positive number is a `UserError`.
        """
        scales = self.constant(node, scale)
        zeros_value = self.input(node, zero)
        zeros = None if zeros_value is None else zeros_value.constant
        if scales is None or (zeros_value is not None and zeros is None):
            return None
        if scales.dtype.kind not in "fV" or scales.ndim > 1:
            return None
        numbers = scales.astype(np.float32)
        bad = numbers[~(np.isfinite(numbers) & (numbers > 0))]
        if bad.size:
            self.fail(
                node, f"scale must be positive and finite, not {bad[0]}; quantise the model again"
            )
        if zeros is None:
            zeros = np.zeros(scales.shape, np.int64)
        if zeros.dtype.kind not in "iuV" or zeros.size not in (1, scales.size) or not scales.size:
            return None
        whole = np.broadcast_to(zeros.astype(np.int64).reshape(-1), (scales.size,))
        return QuantizedArray(np.zeros(0), numbers.reshape(-1), whole, 0 if axis is None else axis)

    def activation_quant(
        self, node: OnnxNode, scale: int, zero: int, dtype: Any
    ) -> QuantAttr | None:
        """Per-tensor quantisation of int8 codes for an int8 or uint8 tensor, None if it is none.

        A uint8 tensor is held as int8: its zero point moves by 128 as its codes do.
        """
        found = self.quantization(node, scale, zero)
        if found is None or found.scale.size != 1 or dtype not in (np.int8, np.uint8):
            return None
        shift = 128 if dtype == np.uint8 else 0
        value = int(found.zero[0]) - shift
        if not -128 <= value <= 127:
            self.fail(
                node,
                f"zero point must be from {-128 + shift} to {127 + shift}, not {value + shift}; "
                f"quantise the model again",
            )
        return QuantAttr.of(found.scale, value)

    def host(self, node: OnnxNode, reason: Reason) -> None:
        """Append a host operator; `UserError` when the reference evaluator does not have it."""
        key = node.domain, node.op_type
        if key not in self._known:
            self._known[key] = evaluator_knows(node, self.graph.opsets)
        if not self._known[key]:
            self.fail(
                node,
                "the operator is known to neither npulse nor the ONNX reference; replace it or "
                "register it as an ONNX function in the model",
            )
        inputs = [self.plain(self.values[name]) for name in node.reads]
        names = [name for name in node.outputs if name]
        op = HostOp(
            inputs,
            [self.result_type(node, name) for name in names],
            node=node.label,
            kind=node.kind,
            origin="onnx",
            payload=payload(node_model(node, self.graph.opsets)),
            rule=reason.rule,
            decided_by=reason.decided_by,
            remedy=reason.remedy,
        )
        self.builder.add(op)
        for name, result in zip(names, op.results, strict=True):
            self.builder.name(result, name)
            dtype = self.known(node, name).dtype
            self.values[name] = Value(name, node.label, dtype, plain=result)

    def result_type(self, node: OnnxNode, name: str) -> GraphTensor:
        """Type of a tensor as ONNX has it, with quantisation when a reader or writer states it."""
        static = self.known(node, name)
        shape, dtype = static.shape, static.dtype
        if not has_element_type(dtype):
            self.fail(
                node,
                f"tensor {shorten(name)!r} has elements of {dtype}, which npulse does not hold; "
                f"cast them to a plain number type",
            )
        return tensor_type(shape, dtype, self.stated_quant(node, name, shape, dtype))

    def stated_quant(
        self, writer: OnnxNode | None, name: str, shape: tuple[int, ...], dtype: Any
    ) -> QuantAttr | None:
        """Quantisation that the writer or the first reader of an 8-bit tensor states."""
        if dtype not in (np.int8, np.uint8):
            return None
        places = []
        if writer is not None and writer.op_type == "QuantizeLinear":
            places.append((writer, 1, 2))
        for reader in self.readers.get(name, []):
            position = reader.inputs.index(name) if name in reader.inputs else -1
            if (reader.op_type, position) == ("DequantizeLinear", 0):
                places.append((reader, 1, 2))
            elif (reader.op_type, position) in _STATED:
                places.append((reader, position + 1, position + 2))
        for node, scale, zero in places:
            found = self.activation_quant(node, scale, zero, dtype)
            if found is not None:
                shift = 128 if dtype == np.uint8 else 0
                return QuantAttr.of(found.scale_array, found.zero_point + shift)
        return None


#: Inputs of operators that are followed by their scale and zero point.
_STATED = {
    ("QLinearConv", 0),
    ("QLinearMatMul", 0),
    ("QLinearMatMul", 3),
    ("QGemm", 0),
}
