"""State of one TFLite import: tensors of the file, their values in the graph, and messages."""

import json
import math
from typing import NoReturn

import numpy as np
from xdsl.ir import SSAValue
from xdsl.utils.exceptions import VerifyException

from npulse.sw.errors import UserError, shorten
from npulse.sw.frontends.builder import GraphBuilder
from npulse.sw.frontends.tflite_reader import TfliteGraph, TfliteOperator, TfliteTensor
from npulse.sw.frontends.tflite_variables import Variables
from npulse.sw.ir.graph import HostOp
from npulse.sw.ir.graph_rules import MAX_TENSOR_BYTES, dims
from npulse.sw.ir.types import GraphTensor, QuantAttr, quant_of, tensor_type


class TfliteImporter:
    """Holds the state of one import: tensors of the file and their values in the graph."""

    def __init__(self, graph: TfliteGraph, path: str) -> None:
        self.graph = graph
        self.path = path
        self.builder = GraphBuilder()
        self.values: dict[int, SSAValue] = {}
        self.variables = Variables()

    def fail(self, op: TfliteOperator, sentence: str) -> NoReturn:
        """Raise `UserError` that names file, operator and node."""
        raise UserError(f"{self.path}: {op.kind} node {self.node(op)!r}: {sentence}")

    def node(self, op: TfliteOperator) -> str:
        """Name of an operator, which TFLite does not store: that of its first output."""
        named = [self.graph.tensors[i].name for i in op.outputs if i >= 0]
        return shorten(named[0]) if named and named[0] else f"operator {self._position(op)}"

    def _position(self, op: TfliteOperator) -> int:
        return next(i for i, other in enumerate(self.graph.operators) if other is op)

    def label(self, tensor: TfliteTensor) -> str:
        """Name of a tensor, or its number when it has none."""
        return shorten(tensor.name) or f"tensor {tensor.index}"

    def type_of(self, tensor: TfliteTensor) -> GraphTensor:
        """Translate the type of a tensor; `UserError` for one that the graph cannot hold."""
        if tensor.dtype is None:
            raise UserError(
                f"{self.path}: tensor {self.label(tensor)!r} has an element type that npulse does "
                f"not hold (string, complex, resource, 4-bit); convert the model to int8"
            )
        if math.prod(tensor.shape) * tensor.dtype.itemsize > MAX_TENSOR_BYTES:
            raise UserError(
                f"{self.path}: tensor {self.label(tensor)!r} must have at most {MAX_TENSOR_BYTES} "
                f"bytes, not shape {dims(tensor.shape)}; convert the model again"
            )
        return tensor_type(tensor.shape, tensor.dtype, self.quant(tensor))

    def quant(self, tensor: TfliteTensor) -> QuantAttr | None:
        """Quantisation of a tensor of 8 or 16 bits; that of an int32 bias follows from others."""
        if tensor.dtype not in (np.int8, np.uint8, np.int16) or not len(tensor.scales):
            return None
        axis = tensor.axis if len(tensor.scales) > 1 else None
        info = np.iinfo(tensor.dtype)
        label = f"{self.path}: tensor {self.label(tensor)!r}"
        if axis is not None and not 0 <= axis < len(tensor.shape):
            raise UserError(
                f"{label} must have its scales on one of its {len(tensor.shape)} axes, not {axis}; "
                f"convert the model again"
            )
        if axis is not None and tensor.shape[axis] != len(tensor.scales):
            raise UserError(
                f"{label} must have {tensor.shape[axis]} scales on axis {axis}, "
                f"not {len(tensor.scales)}; convert the model again"
            )
        for zero in tensor.zero_points:
            if not info.min <= zero <= info.max:
                raise UserError(
                    f"{label}: zero point must be from {info.min} to {info.max}, not {zero}; "
                    f"quantise the model again"
                )
        try:
            return QuantAttr.of(tensor.scales, tensor.zero_points, axis)
        except VerifyException as error:
            raise UserError(f"{label}: {error}; quantise the model again") from error

    def value(self, op: TfliteOperator, index: int) -> SSAValue:
        """Value of an input of an operator: an activation, or a constant as a weight."""
        if index < 0:
            self.fail(op, "an input that it needs is absent; convert the model again")
        if index not in self.values:
            tensor = self.graph.tensors[index]
            if tensor.data is None:
                self.fail(
                    op,
                    f"input {self.label(tensor)!r} is computed by no earlier operator (a missing "
                    f"tensor or a cycle); convert the model again",
                )
            self.values[index] = self.builder.weight(
                tensor.data, tensor.name, self.node(op), quant_of(self.type_of(tensor))
            )
        return self.values[index]

    def set_result(self, op: TfliteOperator, value: SSAValue, position: int = 0) -> None:
        """Make a value the output of an operator; the type must be that of the file."""
        index = op.outputs[position]
        tensor = self.graph.tensors[index]
        due = self.type_of(tensor)
        if value.type != due:
            self.fail(op, f"output must be {due}, not {value.type}; convert the model again")
        if index in self.values:
            self.fail(op, f"output {self.label(tensor)!r} is computed twice; convert it again")
        self.builder.name(value, tensor.name)
        self.values[index] = value

    def alias_result(self, op: TfliteOperator, value: SSAValue, position: int = 0) -> None:
        """Make a value that has a name already the output of an operator that changes nothing."""
        name = value.name_hint
        self.set_result(op, value, position)
        value.name_hint = name

    def host(self, op: TfliteOperator, rule: str, decided_by: str, remedy: str) -> None:
        """Append a host operator with the options of the file."""
        inputs = [self.value(op, i) for i in op.inputs if i >= 0]
        results = [self.type_of(self.graph.tensors[i]) for i in op.outputs]
        host = HostOp(
            inputs,
            results,
            node=self.node(op),
            kind=op.kind,
            origin="tflite",
            payload=json.dumps(op.options, sort_keys=True),
            rule=rule,
            decided_by=decided_by,
            remedy=remedy,
        )
        self.builder.add(host)
        for position, result in enumerate(host.results):
            self.set_result(op, result, position)
