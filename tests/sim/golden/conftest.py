"""Models of one operator for the peers of golden: LiteRT's BUILTIN_REF and onnx.reference."""

from typing import Any

import numpy as np
import pytest


class LiteRt:
    """Builds models of one operator and runs them on BUILTIN_REF."""

    def __init__(self) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self.schema = schema

    def tensor(self, shape, dtype: str, scale=None, zero_point: int = 0, data=None, axis: int = 0):
        """Describe a tensor: ``scale`` None, a float, or one a channel of ``axis``."""
        return dict(
            shape=shape, dtype=dtype, scale=scale, zero_point=zero_point, data=data, axis=axis
        )

    def run(self, op: str, tensors: list, inputs: list, *, options=None, version: int = 2):
        """Run operator ``op``; the last tensor is its output, those with data are constants."""
        content = self._model(op, tensors, options, version)
        return run_builtin_ref(content, inputs)

    def _tensor(self, model: Any, name: str, about: dict) -> Any:
        schema = self.schema
        tensor = schema.TensorT()
        tensor.name, tensor.shape = name, list(about["shape"])
        tensor.type = getattr(schema.TensorType, about["dtype"])
        if about["data"] is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(about["data"].tobytes(), np.uint8)
            model.buffers.append(buffer)
            tensor.buffer = len(model.buffers) - 1
        if about["scale"] is not None:
            quantization = schema.QuantizationParametersT()
            quantization.scale = np.atleast_1d(np.float32(about["scale"]))
            count = quantization.scale.size
            quantization.zeroPoint = np.full(count, about["zero_point"], np.int64)
            quantization.quantizedDimension = about["axis"]
            tensor.quantization = quantization
        return tensor

    def _model(self, op: str, tensors: list, options: Any, version: int) -> bytes:
        import flatbuffers

        schema = self.schema
        model = schema.ModelT()
        model.version, model.buffers = 3, [schema.BufferT()]
        graph = schema.SubGraphT()
        graph.tensors = [self._tensor(model, f"t{i}", about) for i, about in enumerate(tensors)]
        operator = schema.OperatorT()
        operator.opcodeIndex = 0
        operator.inputs, operator.outputs = list(range(len(tensors) - 1)), [len(tensors) - 1]
        graph.inputs = [i for i in operator.inputs if tensors[i]["data"] is None]
        graph.outputs = operator.outputs
        if options is not None:
            kind = type(options).__name__.removesuffix("T")
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            operator.builtinOptions = options
        graph.operators, model.subgraphs = [operator], [graph]
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, op)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = version
        model.operatorCodes = [code]
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def run_builtin_ref(content: bytes, inputs: list) -> np.ndarray:
    """Invoke a model once on BUILTIN_REF and return its first output."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    for about, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(about["index"], value)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


@pytest.fixture(scope="session")
def litert() -> LiteRt:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    return LiteRt()


@pytest.fixture(scope="session")
def builtin_ref():
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    return run_builtin_ref


def onnx_reference(op: str, inputs: list) -> np.ndarray:
    """Run one ONNX operator of opset 21 on onnx's reference evaluator."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    names = [f"i{index}" for index in range(len(inputs))]
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), None)
        for name, value in zip(names, inputs, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    node = helper.make_node(op, names, ["y"])
    graph = helper.make_graph([node], "one", values, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))[0]


@pytest.fixture(scope="session")
def onnx_ref():
    return onnx_reference
