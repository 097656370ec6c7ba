"""Imports an ONNX model: int8 parts as integer operators, the rest as host operators.

Inputs and outputs of the graph keep the layout and type of the model; transposes to NHWC and back
are operators of the graph, and none is left between integer operators.
"""

import numpy as np
from xdsl.ir import SSAValue

from npulse.sw.errors import UserError, shorten
from npulse.sw.frontends.model import GivenShapes, Model, TensorInfo
from npulse.sw.frontends.onnx_context import OnnxImporter
from npulse.sw.frontends.onnx_ops import import_node
from npulse.sw.frontends.onnx_reader import read_onnx
from npulse.sw.frontends.onnx_shapes import make_static
from npulse.sw.frontends.onnx_values import Value
from npulse.sw.ir.types import dtype_of, has_element_type, quant_of, tensor_type, type_of


def import_onnx(content: bytes, path: str, sha256: str, shapes: GivenShapes) -> Model:
    """Import an ONNX file.

    Raises
    ------
    UserError
        For a damaged file, a dynamic dimension that ``shapes`` does not decide, a missing tensor, a
        cycle, an unusable scale, and an operator that neither npulse nor the ONNX reference has.
    """
    graph = read_onnx(content, path)
    static = make_static(graph, shapes)
    importer = OnnxImporter(graph, static)
    importer.builder.notes.extend(graph.notes)
    arguments = [_argument(importer, info.name) for info in graph.inputs]
    for node in graph.nodes:
        import_node(importer, node)
    outputs = [importer.plain(importer.values[o.name]) for o in graph.outputs]
    module = importer.builder.finish(outputs)
    return Model(
        module=module,
        weights=importer.builder.weights,
        inputs=tuple(_info(i.name, v) for i, v in zip(graph.inputs, arguments, strict=True)),
        outputs=tuple(_info(o.name, v) for o, v in zip(graph.outputs, outputs, strict=True)),
        source=path,
        sha256=sha256,
        origin="onnx",
        notes=tuple(importer.builder.notes),
    )


def _argument(importer: OnnxImporter, name: str) -> SSAValue:
    static = importer.static[name]
    if not has_element_type(static.dtype):
        raise UserError(
            f"{importer.graph.path}: input {shorten(name)!r} has elements of {static.dtype}, which "
            f"npulse does not hold; cast it outside the model"
        )
    quant = importer.stated_quant(None, name, static.shape, static.dtype)
    value = importer.builder.argument(tensor_type(static.shape, static.dtype, quant), name)
    importer.values[name] = Value(name, name, np.dtype(static.dtype), plain=value)
    return value


def _info(name: str, value: SSAValue) -> TensorInfo:
    tensor = type_of(value)
    layout = "NCHW" if len(tensor.get_shape()) == 4 else "other"
    return TensorInfo(name, tensor.get_shape(), dtype_of(tensor), quant_of(tensor), layout)
