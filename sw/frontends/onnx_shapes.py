"""Makes an ONNX graph static: binds dynamic dimensions, infers shapes, folds constants."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.helper import make_tensor_value_info, tensor_dtype_to_np_dtype

from npulse.sw.errors import UserError, shorten
from npulse.sw.frontends.model import GivenShapes
from npulse.sw.frontends.onnx_host import node_model, run_node
from npulse.sw.frontends.onnx_reader import OnnxGraph, OnnxNode

Array = NDArray[Any]

#: Larger results are computed when the model runs, not stored.
MAX_FOLDED_ELEMENTS = 1 << 24
#: Rounds of inference and folding; each resolves one more level of computed shapes.
MAX_ROUNDS = 8


@dataclass(frozen=True)
class Static:
    """Shape and numpy type of a tensor."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def make_static(graph: OnnxGraph, shapes: GivenShapes) -> dict[str, Static]:
    """Fold constants into ``graph`` and give the type of every tensor that has a static one.

    Raises
    ------
    UserError
        For a dynamic dimension of an input, other than a batch, that ``shapes`` does not decide.
    """
    known = {info.name: _bind(graph, info, shapes) for info in graph.inputs}
    for name, array in graph.constants.items():
        known[name] = Static(array.shape, array.dtype)
    for _ in range(MAX_ROUNDS):
        found = _infer(graph, known)
        known.update(found)
        if not _fold(graph, known) and not found:
            break
    return known


def _bind(graph: OnnxGraph, info: onnx.ValueInfoProto, shapes: GivenShapes) -> Static:
    """Decide the shape of an input."""
    label = f"{graph.path}: input {shorten(info.name)!r}"
    tensor = info.type.tensor_type
    if not info.type.HasField("tensor_type") or not tensor.elem_type:
        raise UserError(f"{label} must be a tensor of a known element type; export the model again")
    try:
        dtype = np.dtype(tensor_dtype_to_np_dtype(tensor.elem_type))
    except KeyError:
        raise UserError(
            f"{label} has unknown element type {tensor.elem_type}; export the model again"
        ) from None
    given = shapes.get(info.name)
    if not tensor.HasField("shape"):
        if given is None:
            raise UserError(f"{label} has no shape, and shapes must be static; state it")
        return Static(tuple(given), dtype)
    dims = tensor.shape.dim
    if given is not None and len(given) == len(dims):
        shape = [
            d.dim_value if d.HasField("dim_value") else g for d, g in zip(dims, given, strict=True)
        ]
        return _checked(label, shape, dtype)
    shape = []
    for axis, dim in enumerate(dims):
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
        elif axis == 0:
            name = shorten(dim.dim_param) or "unnamed"
            graph.notes.append(
                f"input {shorten(info.name)!r}: the symbolic batch dimension {name!r} (axis 0) is 1"
            )
            shape.append(1)
        else:
            raise UserError(
                f"{label}: dimension {axis} ({shorten(dim.dim_param) or 'unnamed'}) is dynamic, "
                f"and shapes must be static; give input data, whose shape decides it, or fix it in "
                f"the model"
            )
    return _checked(label, shape, dtype)


def _checked(label: str, shape: list[int], dtype: np.dtype[Any]) -> Static:
    if any(d < 0 for d in shape):
        raise UserError(
            f"{label} must have dimensions of at least 0, not {shape}; fix them in the model"
        )
    return Static(tuple(shape), dtype)


def _infer(graph: OnnxGraph, known: dict[str, Static]) -> dict[str, Static]:
    """Infer what onnx can, from inputs and constants; declared shapes are not believed."""
    small = {n: a for n, a in graph.constants.items() if a.size <= 1024 and a.dtype.kind != "O"}
    value = onnx.helper.np_dtype_to_tensor_dtype
    unfolded = [node for node in graph.nodes if _inferable(node, known)]
    if not unfolded:
        return {}
    reads = {name for node in unfolded for name in node.reads}
    inputs = [
        make_tensor_value_info(n, value(known[n].dtype), known[n].shape)
        for n in sorted(reads & known.keys())
        if n not in small
    ]
    model = onnx.ModelProto(ir_version=graph.proto.ir_version)
    model.opset_import.extend(graph.proto.opset_import)
    model.graph.name = "g"
    model.graph.input.extend(inputs)
    model.graph.node.extend(node.proto for node in unfolded)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(small[n], n) for n in sorted(reads & small.keys())
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=True)
    except Exception:  # C++ code: what it cannot infer is reported for the node that needs it
        return {}
    found: dict[str, Static] = {}
    for info in inferred.graph.value_info:
        static = _static(info)
        if static is not None:
            found[info.name] = static
    return found


def _inferable(node: OnnxNode, known: dict[str, Static]) -> bool:
    """Whether to infer a node; outside the standard domain an untyped input crashes onnx."""
    if all(name in known for name in node.outputs if name):
        return False
    return not node.domain or all(name in known for name in node.reads)


def _static(info: onnx.ValueInfoProto) -> Static | None:
    tensor = info.type.tensor_type
    if not info.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    if any(not d.HasField("dim_value") or d.dim_value < 0 for d in tensor.shape.dim):
        return None
    try:
        dtype = np.dtype(tensor_dtype_to_np_dtype(tensor.elem_type))
    except KeyError:
        return None
    return Static(tuple(d.dim_value for d in tensor.shape.dim), dtype)


def _fold(graph: OnnxGraph, known: dict[str, Static]) -> bool:
    """Replace nodes with constant results by constants; tell whether any was."""
    kept = []
    for node in graph.nodes:
        results = _folded(graph, node, known)
        if results is None:
            kept.append(node)
            continue
        for name, array in zip(node.outputs, results, strict=False):
            if name:
                graph.constants[name] = array
                known[name] = Static(array.shape, array.dtype)
    changed = len(kept) < len(graph.nodes)
    graph.nodes = kept
    return changed


def _folded(graph: OnnxGraph, node: OnnxNode, known: dict[str, Static]) -> list[Array] | None:
    if node.domain or node.op_type.startswith(("Random", "Bernoulli", "Multinomial")):
        return None
    if node.op_type == "Shape" and node.inputs and node.inputs[0] in known:
        start, end = node.attributes.get("start", 0), node.attributes.get("end")
        return [np.array(known[node.inputs[0]].shape[start:end], np.int64)]
    # Weights stay quantised: DequantizeLinear of a constant is a weight with a scale.
    if node.op_type == "DequantizeLinear" or any(n not in graph.constants for n in node.reads):
        return None
    if any(isinstance(a, onnx.GraphProto) for a in node.attributes.values()):
        return None
    if node.op_type != "Constant":
        sizes = [known[n].shape for n in node.outputs if n in known]
        if len(sizes) < sum(map(bool, node.outputs)):
            return None
        if any(math.prod(shape) > MAX_FOLDED_ELEMENTS for shape in sizes):
            return None
    try:
        feeds = [graph.constants[n] for n in node.reads]
        return run_node(node_model(node, graph.opsets), feeds)
    except Exception:  # the evaluator raises whatever its Python code does; the node stays
        return None
