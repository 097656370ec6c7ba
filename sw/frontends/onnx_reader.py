"""Reads an ONNX file: protobuf, constants with their sizes checked, nodes in topological order.

Nothing here walks the graph by recursion, so a chain of any depth is read.
"""

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.helper import get_attribute_value, tensor_dtype_to_np_dtype
from onnx.inliner import inline_local_functions

from npulse.sw.errors import UserError, shorten
from npulse.sw.frontends.onnx_check import check_node, check_text, node_label

Array = NDArray[Any]

_AGAIN = "export the model again"


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """Node of the graph with its attributes as Python values."""

    proto: onnx.NodeProto
    label: str  #: its name, or the name of its first output when it has none
    op_type: str
    domain: str  #: empty for the standard operators
    inputs: tuple[str, ...]  #: an absent optional input is the empty string
    outputs: tuple[str, ...]
    captured: tuple[str, ...]  #: outer tensors that its subgraphs read
    attributes: dict[str, Any]

    @property
    def kind(self) -> str:
        """Operator for messages, with the domain when it is not the standard one."""
        return shorten(f"{self.domain}.{self.op_type}" if self.domain else self.op_type)

    @property
    def reads(self) -> tuple[str, ...]:
        """All tensors that it needs, each once, in order."""
        return tuple(dict.fromkeys(n for n in (*self.inputs, *self.captured) if n))


@dataclass
class OnnxGraph:
    """Graph with live nodes in topological order and constants as arrays."""

    path: str
    proto: onnx.ModelProto
    nodes: list[OnnxNode]
    constants: dict[str, Array]
    inputs: list[onnx.ValueInfoProto]  #: without those that are constants
    outputs: list[onnx.ValueInfoProto]
    opsets: dict[str, int]
    notes: list[str] = field(default_factory=list)


def read_onnx(content: bytes, path: str) -> OnnxGraph:
    """Read a file; `UserError` names the tensor or node that breaks a rule."""
    proto = _parse(content, path)
    graph = proto.graph
    constants = dict(_constants(graph.initializer, path))
    inputs = [i for i in graph.input if i.name not in constants]
    opsets = {_domain(o.domain): o.version for o in proto.opset_import}
    for node in graph.node:
        check_node(node, opsets.get(_domain(node.domain), 0), path)
    nodes = [_node(n, path) for n in graph.node]
    nodes = _sorted(nodes, {*constants, *(i.name for i in inputs)}, path)
    produced = {*constants, *(i.name for i in inputs)}
    produced.update(name for node in nodes for name in node.outputs)
    for output in graph.output:
        if output.name not in produced:
            raise UserError(
                f"{path}: output {shorten(output.name)!r} is computed by no node; {_AGAIN}"
            )
    nodes = _live(nodes, {o.name for o in graph.output})
    return OnnxGraph(path, proto, nodes, constants, inputs, list(graph.output), opsets)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _parse(content: bytes, path: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    problem = "its protobuf is truncated, damaged or something else"
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise UserError(
            f"{path} is neither ONNX nor TFLite: {problem}; give an .onnx or .tflite file"
        ) from error
    check_text(proto, path)
    if not proto.HasField("graph") or not proto.opset_import:
        raise UserError(
            f"{path} is not a valid ONNX model: it has no graph or no opset, so {problem}; {_AGAIN}"
        )
    if not proto.graph.output:
        raise UserError(f"{path}: the graph has no output, so nothing can be computed; {_AGAIN}")
    if proto.functions:
        try:
            proto = inline_local_functions(proto)
        except Exception as error:  # C++ code: any error of a damaged function arrives here
            text = " ".join(str(error).split())[:160]
            raise UserError(
                f"{path}: its functions cannot be inlined ({text}); {_AGAIN}"
            ) from error
    if proto.graph.sparse_initializer:
        raise UserError(f"{path}: sparse constants are not supported; store them as dense ones")
    return proto


def _constants(tensors: Iterable[onnx.TensorProto], path: str) -> Iterator[tuple[str, Array]]:
    for tensor in tensors:
        yield tensor.name, read_tensor(tensor, path)


def read_tensor(tensor: onnx.TensorProto, path: str) -> Array:
    """Turn a constant into an array; `UserError` when its size and its shape disagree."""
    label = f"{path}: tensor {shorten(tensor.name)!r}"
    if any(d < 0 for d in tensor.dims):
        raise UserError(f"{label} has the negative dimension {min(tensor.dims)}; {_AGAIN}")
    try:
        dtype = np.dtype(tensor_dtype_to_np_dtype(tensor.data_type))
    except KeyError:
        raise UserError(f"{label} has unknown element type {tensor.data_type}; {_AGAIN}") from None
    raw: bytes | None = tensor.raw_data if tensor.HasField("raw_data") else None
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raw = _external(tensor, path, label)
        tensor = onnx.TensorProto(
            name=tensor.name, dims=tensor.dims, data_type=tensor.data_type, raw_data=raw
        )
    if raw is not None and dtype.kind != "O":
        bits = 4 if dtype.name in ("int4", "uint4", "float4_e2m1fn") else dtype.itemsize * 8
        due = -(-math.prod(tensor.dims) * bits // 8)
        if len(raw) != due and bits >= 8:
            raise UserError(
                f"{label} of shape {list(tensor.dims)} must have {due} bytes, not {len(raw)}; "
                f"{_AGAIN}"
            )
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:
        text = " ".join(str(error).split())[:160]
        raise UserError(
            f"{label} must have the data of its shape {list(tensor.dims)} ({text}); {_AGAIN}"
        ) from error


def _external(tensor: onnx.TensorProto, path: str, label: str) -> bytes:
    """Read data that lies in a file of its own, which must be in the folder of the model."""
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    folder = Path(path).resolve().parent
    try:
        target = (folder / location).resolve()
        inside = target.is_relative_to(folder) and not Path(location).is_absolute()
        offset, length = int(entries.get("offset", 0)), entries.get("length")
    except (ValueError, OSError):
        raise UserError(f"{label} has damaged external data entries; {_AGAIN}") from None
    if not location or not inside:
        raise UserError(
            f"{label}: external data must lie in the folder of the model, not at "
            f"{shorten(location)!r}; move the file beside the model"
        )
    if not target.is_file():
        raise UserError(
            f"{label}: external data file {shorten(location)!r} does not exist; put it beside the "
            f"model"
        )
    count = int(length) if length and length.isdigit() else target.stat().st_size - offset
    if offset < 0 or count < 0 or offset + count > target.stat().st_size:
        raise UserError(
            f"{label}: external data must lie within the {target.stat().st_size} bytes of "
            f"{shorten(location)!r}, not {count} bytes at {offset}; {_AGAIN}"
        )
    with target.open("rb") as file:
        file.seek(offset)
        return file.read(count)


def _node(proto: onnx.NodeProto, path: str) -> OnnxNode:
    label = node_label(proto)
    try:
        attributes = {a.name: get_attribute_value(a) for a in proto.attribute}
    except ValueError as error:
        text = " ".join(str(error).split())[:160]
        raise UserError(
            f"{path}: {proto.op_type} node {label!r} has a damaged attribute ({text}); {_AGAIN}"
        ) from error
    return OnnxNode(
        proto,
        label,
        proto.op_type,
        _domain(proto.domain),
        tuple(proto.input),
        tuple(proto.output),
        tuple(_captured(proto)),
        attributes,
    )


def _captured(proto: onnx.NodeProto) -> Iterator[str]:
    """Names that the subgraphs of a node read from outside, found without recursion."""
    waiting = [
        (graph, frozenset[str]())
        for attribute in proto.attribute
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)
    ]
    while waiting:
        graph, outer = waiting.pop()
        inner = {*outer, *(i.name for i in graph.input), *(t.name for t in graph.initializer)}
        inner.update(name for node in graph.node for name in node.output)
        reads = [name for node in graph.node for name in node.input]
        yield from (n for n in (*reads, *(o.name for o in graph.output)) if n not in inner)
        for node in graph.node:
            for attribute in node.attribute:
                graphs = (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)
                waiting.extend((g, frozenset(inner)) for g in graphs)


def _sorted(nodes: list[OnnxNode], known: set[str], path: str) -> list[OnnxNode]:
    """Order nodes by what they read, keeping the order of the file where it is free."""
    producer: dict[str, OnnxNode] = {}
    for node in nodes:
        for name in (n for n in node.outputs if n):
            if name in producer or name in known:
                raise UserError(
                    f"{path}: {node.kind} node {node.label!r} computes tensor {shorten(name)!r}, "
                    f"which is computed or given elsewhere too; {_AGAIN}"
                )
            producer[name] = node
    missing: list[int] = []
    readers: dict[OnnxNode, list[int]] = {node: [] for node in nodes}
    for index, node in enumerate(nodes):
        for name in node.reads:
            if name not in producer and name not in known:
                raise UserError(
                    f"{path}: {node.kind} node {node.label!r} reads tensor {shorten(name)!r}, "
                    f"which is missing: no node, input or constant has this name; {_AGAIN}"
                )
        sources = {producer[n] for n in node.reads if n in producer}
        missing.append(len(sources))
        for source in sources:
            readers[source].append(index)
    ready = [index for index, count in enumerate(missing) if not count]  # sorted, so a heap
    order: list[OnnxNode] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        for reader in readers[node]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = next(node for node, count in zip(nodes, missing, strict=True) if count)
        raise UserError(
            f"{path}: {stuck.kind} node {stuck.label!r} is part of a cycle or behind one, and a "
            f"graph must have none; {_AGAIN}"
        )
    return order


def _live(nodes: list[OnnxNode], needed: set[str]) -> list[OnnxNode]:
    """Drop nodes that no output needs."""
    kept: list[OnnxNode] = []
    needed = set(needed)
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(node.reads)
    return kept[::-1]
