"""Reads a TFLite flatbuffer into plain Python, so that the importer never touches a raw offset.

The flatbuffer accessors follow any offset that a damaged file holds. They are used here only, each
vector is bounded by the file, and whatever they raise becomes one `UserError`.

Ref: TensorFlow Lite schema, ``tensorflow/compiler/mlir/lite/schema/schema.fbs``, version 3.
"""

import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

from npulse.sw.errors import UserError, shorten

#: File identifier at byte 4.
IDENTIFIER = b"TFL3"

_DTYPES = {
    tflite.TensorType.FLOAT32: np.float32,
    tflite.TensorType.FLOAT16: np.float16,
    tflite.TensorType.FLOAT64: np.float64,
    tflite.TensorType.INT8: np.int8,
    tflite.TensorType.INT16: np.int16,
    tflite.TensorType.INT32: np.int32,
    tflite.TensorType.INT64: np.int64,
    tflite.TensorType.UINT8: np.uint8,
    tflite.TensorType.UINT16: np.uint16,
    tflite.TensorType.UINT32: np.uint32,
    tflite.TensorType.UINT64: np.uint64,
    tflite.TensorType.BOOL: np.bool_,
}
_POOL = (
    "Padding",
    "StrideW",
    "StrideH",
    "FilterWidth",
    "FilterHeight",
    "FusedActivationFunction",
)
_CONV = (
    "Padding",
    "StrideW",
    "StrideH",
    "DilationWFactor",
    "DilationHFactor",
    "FusedActivationFunction",
)
#: Options that the importer reads, by operator: class of the schema and its fields.
_OPTIONS: dict[str, tuple[type, tuple[str, ...]]] = {
    "CONV_2D": (tflite.Conv2DOptions, _CONV),
    "DEPTHWISE_CONV_2D": (tflite.DepthwiseConv2DOptions, _CONV),
    "FULLY_CONNECTED": (
        tflite.FullyConnectedOptions,
        ("FusedActivationFunction", "WeightsFormat", "KeepNumDims"),
    ),
    "MAX_POOL_2D": (tflite.Pool2DOptions, _POOL),
    "AVERAGE_POOL_2D": (tflite.Pool2DOptions, _POOL),
    "ADD": (tflite.AddOptions, ("FusedActivationFunction", "PotScaleInt16")),
    "SUB": (tflite.SubOptions, ("FusedActivationFunction", "PotScaleInt16")),
    "MUL": (tflite.MulOptions, ("FusedActivationFunction",)),
    "LEAKY_RELU": (tflite.LeakyReluOptions, ("Alpha",)),
    "GELU": (tflite.GeluOptions, ("Approximate",)),
    "CONCATENATION": (tflite.ConcatenationOptions, ("Axis", "FusedActivationFunction")),
    "STRIDED_SLICE": (
        tflite.StridedSliceOptions,
        ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask", "Offset"),
    ),
    "RESIZE_NEAREST_NEIGHBOR": (
        tflite.ResizeNearestNeighborOptions,
        ("AlignCorners", "HalfPixelCenters"),
    ),
    "TRANSPOSE_CONV": (
        tflite.TransposeConvOptions,
        ("Padding", "StrideW", "StrideH", "FusedActivationFunction"),
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        tflite.UnidirectionalSequenceLSTMOptions,
        ("FusedActivationFunction", "CellClip", "ProjClip", "TimeMajor"),
    ),
    "SVDF": (tflite.SVDFOptions, ("Rank", "FusedActivationFunction")),
    "VAR_HANDLE": (tflite.VarHandleOptions, ("SharedName",)),
    "CALL_ONCE": (tflite.CallOnceOptions, ("InitSubgraphIndex",)),
    "BATCH_MATMUL": (tflite.BatchMatMulOptions, ("AdjX", "AdjY")),
    "SOFTMAX": (tflite.SoftmaxOptions, ("Beta",)),
}
_OPERATOR_NAMES = {
    code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)
}


@dataclass(frozen=True)
class TfliteTensor:
    """Tensor of a subgraph; ``data`` is None for an activation."""

    index: int
    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]  #: -1 where the shape is dynamic; empty when absent
    dtype: np.dtype[Any] | None  #: None for a type without a numpy type
    scales: NDArray[np.float32]  #: (0,) when not quantised
    zero_points: NDArray[np.int64]
    axis: int
    data: NDArray[Any] | None
    variable: bool = False  #: kept from run to run
    unsigned: bool = False  #: uint8 in the file, made int8 by `tflite_unsigned`


@dataclass(frozen=True)
class TfliteOperator:
    """Operator; an absent optional input is -1."""

    kind: str  #: name in the schema, or ``CUSTOM:name``
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any]
    intermediates: tuple[int, ...] = ()  #: tensors that hold scales only


@dataclass(frozen=True)
class TfliteGraph:
    """First subgraph of a file."""

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    subgraphs: int  #: in the file
    others: tuple["TfliteGraph", ...] = ()  #: all subgraphs but the first


def read_tflite(content: bytes, path: str) -> TfliteGraph:
    """Read the first subgraph; `UserError` for a file that is damaged or cut short."""
    try:
        return _Reader(content, path).model_graph()
    except (struct.error, ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
        raise UserError(
            f"{path} is not a valid TFLite file: it is truncated or damaged ({_one_line(error)}); "
            f"download or convert it again"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


class _Reader:
    def __init__(self, content: bytes, path: str) -> None:
        self.content = content
        self.path = path
        self.model = tflite.Model.GetRootAs(content, 0)

    def bounded(self, name: str, count: int) -> range:
        """Indices of a vector; one longer than the file is damage."""
        if count > len(self.content):
            raise ValueError(f"{name} says {count} entries in {len(self.content)} bytes")
        return range(count)

    def model_graph(self) -> TfliteGraph:
        subgraphs = self.model.SubgraphsLength()
        if self.model.Version() != 3 or subgraphs < 1:
            raise ValueError(f"schema version {self.model.Version()}, {subgraphs} subgraphs")
        first, *others = (self.graph(i) for i in self.bounded("subgraphs", subgraphs))
        return replace(first, subgraphs=subgraphs, others=tuple(others))

    def graph(self, number: int) -> TfliteGraph:
        graph = self.required(self.model.Subgraphs(number), f"subgraph {number}")
        tensors = tuple(
            self.tensor(graph, i) for i in self.bounded("tensors", graph.TensorsLength())
        )
        operators = tuple(
            self.operator(graph, i) for i in self.bounded("operators", graph.OperatorsLength())
        )
        ends = (graph.InputsAsNumpy, graph.OutputsAsNumpy)
        inputs, outputs = (self.ints(read()) for read in ends)
        lists = [
            inputs,
            outputs,
            *(op.inputs for op in operators),
            *(op.outputs for op in operators),
            *(op.intermediates for op in operators),
        ]
        for index in (i for ints in lists for i in ints):
            if not -1 <= index < len(tensors):
                raise ValueError(f"tensor {index} does not exist")
        if min((*inputs, *outputs), default=0) < 0:
            raise ValueError("an input or output of the graph is absent")
        return TfliteGraph(tensors, operators, inputs, outputs, 1)

    def required(self, table: Any, name: str) -> Any:
        if table is None:
            raise ValueError(f"{name} is missing")
        return table

    def ints(self, array: Any) -> tuple[int, ...]:
        """Turn a vector of the accessors, which is 0 when absent, into integers."""
        return () if isinstance(array, int) else tuple(int(v) for v in array)

    def tensor(self, graph: Any, index: int) -> TfliteTensor:
        table = self.required(graph.Tensors(index), f"tensor {index}")
        name = (table.Name() or b"").decode("utf-8", "replace")
        shape = self.ints(table.ShapeAsNumpy())
        if any(d < 0 for d in shape):
            raise ValueError(f"tensor {index} has a negative dimension")
        dtype_class = _DTYPES.get(table.Type())
        dtype = None if dtype_class is None else np.dtype(dtype_class)
        scales, zeros = np.zeros(0, np.float32), np.zeros(0, np.int64)
        axis = 0
        quant = table.Quantization()
        if quant is not None and quant.ScaleLength():
            scales = np.array(quant.ScaleAsNumpy(), np.float32)
            zeros = np.zeros(len(scales), np.int64)
            if quant.ZeroPointLength():
                zeros = np.array(quant.ZeroPointAsNumpy(), np.int64)
            axis = quant.QuantizedDimension()
        signature = self.ints(table.ShapeSignatureAsNumpy())
        data = self.buffer(table.Buffer(), index, shape, dtype)
        return TfliteTensor(
            index, name, shape, signature, dtype, scales, zeros, axis, data, table.IsVariable()
        )

    def buffer(
        self, number: int, index: int, shape: tuple[int, ...], dtype: np.dtype[Any] | None
    ) -> NDArray[Any] | None:
        """Contents of a constant; buffer 0 is the empty one by definition."""
        if number == 0 or dtype is None:
            return None
        if number >= self.model.BuffersLength():
            raise ValueError(f"tensor {index} refers to buffer {number}, which does not exist")
        table = self.required(self.model.Buffers(number), f"buffer {number}")
        if not table.DataLength():
            return None
        raw = np.array(table.DataAsNumpy(), np.uint8).tobytes()
        due = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if len(raw) != due:
            raise ValueError(
                f"tensor {index} of shape {list(shape)} needs {due} bytes and has {len(raw)}"
            )
        return np.frombuffer(raw, dtype).reshape(shape).copy()

    def operator(self, graph: Any, index: int) -> TfliteOperator:
        table = self.required(graph.Operators(index), f"operator {index}")
        number = table.OpcodeIndex()
        if number >= self.model.OperatorCodesLength():
            raise ValueError(f"operator {index} has code {number}, which does not exist")
        code = self.required(self.model.OperatorCodes(number), f"operator code {number}")
        # Files from before schema 3a hold the code in a byte of its own; the larger one is right.
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        kind = _OPERATOR_NAMES.get(builtin, f"operator code {builtin}")
        if kind == "CUSTOM":
            kind = f"CUSTOM:{shorten((code.CustomCode() or b'').decode('utf-8', 'replace'))}"
        return TfliteOperator(
            kind,
            self.ints(table.InputsAsNumpy()),
            self.ints(table.OutputsAsNumpy()),
            self.options(table, kind),
            self.ints(table.IntermediatesAsNumpy()),
        )

    def options(self, table: Any, kind: str) -> dict[str, Any]:
        if kind not in _OPTIONS:
            return {}
        schema, fields = _OPTIONS[kind]
        options = schema()
        union = table.BuiltinOptions()
        if union is None:
            raise ValueError(f"options of {kind} are missing")
        options.Init(union.Bytes, union.Pos)

        values = {field: getattr(options, field)() for field in fields}
        return {
            field: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            for field, value in values.items()
        }
