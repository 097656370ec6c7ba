"""LiteRT's reference kernels, and small TFLite and ONNX models made in memory."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
Litert = Callable[[bytes | Path, Sequence[Sequence[Array]]], list[list[Array]]]


def run_litert(model: bytes | Path, batches: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Run a model on lists of arrays in the order of its inputs, on the BUILTIN_REF kernels."""
    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    interpreter = Interpreter(**source, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    results = []
    for arrays in batches:
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        details = interpreter.get_output_details()
        results.append([np.array(interpreter.get_tensor(d["index"])) for d in details])
    return results


@pytest.fixture(scope="session")
def litert() -> Litert:
    """`run_litert`."""
    return run_litert


class TfliteBuilder:
    """Writes a flatbuffer of one subgraph; tensors are int8 unless a constant says otherwise."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.buffers: list[Any] = [schema.BufferT()]
        self.operators: list[Any] = []
        self.codes: list[Any] = []

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        scale: Any = None,
        zero: Any = 0,
        data: Array | None = None,
        dtype: Any = np.int8,
        axis: int = 0,
    ) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape = name.encode(), list(shape)
        kind = np.dtype(dtype if data is None else data.dtype).name
        tensor.type = getattr(schema.TensorType, kind.upper())
        if scale is not None:
            quant = schema.QuantizationParametersT()
            quant.scale = np.atleast_1d(np.asarray(scale, np.float32))
            quant.zeroPoint = np.broadcast_to(np.atleast_1d(zero), quant.scale.shape).astype(
                np.int64
            )
            quant.quantizedDimension = axis
            tensor.quantization = quant
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
            tensor.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def op(self, kind: str, inputs: list[int], outputs: list[int], options: Any = None) -> None:
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.codes)
        operator.inputs, operator.outputs = inputs, outputs
        if options is not None:
            name = type(options).__name__.removesuffix("T")
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, name)
            operator.builtinOptions = options
        self.codes.append(code)
        self.operators.append(operator)

    def build(self, inputs: list[int], outputs: list[int]) -> bytes:
        import flatbuffers

        graph = schema.SubGraphT()
        graph.tensors, graph.operators = self.tensors, self.operators
        graph.inputs, graph.outputs = inputs, outputs
        model = schema.ModelT()
        model.version, model.subgraphs = 3, [graph]
        model.buffers, model.operatorCodes = self.buffers, self.codes
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


@pytest.fixture
def tflite_builder() -> TfliteBuilder:
    """An empty `TfliteBuilder`."""
    return TfliteBuilder()


class OnnxBuilder:
    """Collects nodes and constants of an ONNX graph and writes it."""

    def __init__(self, opset: int = 19) -> None:
        self.opsets = [helper.make_opsetid("", opset)]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def constant(self, name: str, array: Any, dtype: Any = None) -> str:
        self.constants.append(numpy_helper.from_array(np.array(array, dtype), name))
        return name

    def input(self, name: str, shape: Sequence[int | str | None], dtype: Any = np.float32) -> str:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, dtype: Any = np.float32) -> str:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.outputs.append(helper.make_tensor_value_info(name, kind, None))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        attributes.setdefault("name", f"{output}_node")
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def scales(self, name: str, scale: Any, zero: Any, dtype: Any) -> list[str]:
        """Constants ``name.scale`` and ``name.zero``."""
        self.constant(f"{name}.scale", scale, np.float32)
        self.constant(f"{name}.zero", np.broadcast_to(zero, np.shape(scale)), dtype)
        return [f"{name}.scale", f"{name}.zero"]

    def qdq(self, source: str, name: str, scale: float, zero: int, dtype: Any) -> str:
        """Quantise and dequantise; the codes are ``name.codes``."""
        parameters = self.scales(name, scale, zero, dtype)
        self.node("QuantizeLinear", [source, *parameters], f"{name}.codes")
        return self.node("DequantizeLinear", [f"{name}.codes", *parameters], name)

    def weight(self, name: str, integers: Array, scale: Any, zero: Any = 0, axis: int = 0) -> str:
        """Constant behind a DequantizeLinear."""
        parameters = self.scales(name, scale, zero, integers.dtype)
        self.constant(f"{name}.codes", integers)
        return self.node("DequantizeLinear", [f"{name}.codes", *parameters], name, axis=axis)

    def proto(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs, self.constants)
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=10)

    def build(self) -> bytes:
        return self.proto().SerializeToString()


@pytest.fixture
def onnx_builder() -> OnnxBuilder:
    """An empty `OnnxBuilder` of opset 19."""
    return OnnxBuilder()
