"""Builds a graph function: operators in order, arrays under unique names."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from npulse.sw.frontends.model import Weights
from npulse.sw.ir.graph import RequantizeOp, ReshapeOp, TransposeOp, WeightOp
from npulse.sw.ir.graph_rules import code_range
from npulse.sw.ir.types import (
    GraphTensor,
    QuantAttr,
    dtype_of,
    quant_of,
    tensor_type,
    type_of,
    with_shape,
)

_Op = TypeVar("_Op", bound=Operation)


class GraphBuilder:
    """Appends operators to one function and collects the arrays that they name."""

    def __init__(self) -> None:
        self.block = Block()
        self.weights: Weights = {}
        self.notes: list[str] = []

    def argument(self, tensor: GraphTensor, name: str) -> SSAValue:
        """Add an argument of the function."""
        value = self.block.insert_arg(tensor, len(self.block.args))
        self.name(value, name)
        return value

    def add(self, op: _Op, name: str = "") -> _Op:
        """Append an operator and name its first result after a tensor of the model."""
        self.block.add_op(op)
        if op.results and name:
            self.name(op.results[0], name)
        return op

    def name(self, value: SSAValue, name: str) -> None:
        """Give a value an SSA name that resembles a tensor's; the printer makes it unique."""
        hint = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "v"
        value.name_hint = f"v{hint}" if hint[0].isdigit() else hint

    def weight(
        self, array: NDArray[Any], name: str, node: str, quant: QuantAttr | None = None
    ) -> SSAValue:
        """Store an array under a name that no other array has, and refer to it."""
        key = name or "weight"
        if key in self.weights and self.weights[key] is not array:
            suffix = 1
            while f"{key}.{suffix}" in self.weights:
                suffix += 1
            key = f"{key}.{suffix}"
        self.weights[key] = array
        tensor = tensor_type(array.shape, array.dtype, quant)
        return self.add(WeightOp(key, tensor, node), key).result

    def reshape(self, value: SSAValue, shape: Sequence[int], node: str, name: str) -> SSAValue:
        """Reshape, or give the value back when it has the shape."""
        if type_of(value).get_shape() == tuple(shape):
            return value
        return self.add(ReshapeOp(value, with_shape(type_of(value), shape), node=node), name).result

    def transpose(self, value: SSAValue, order: Sequence[int], node: str, name: str) -> SSAValue:
        """Transpose; by a reshape when only axes of extent 1 move past others."""
        shape = type_of(value).get_shape()
        due = [shape[axis] for axis in order]
        moving = [axis for axis in order if shape[axis] != 1]
        if list(order) == list(range(len(shape))):
            return value
        if moving == sorted(moving):
            return self.reshape(value, due, node, name)
        tensor = with_shape(type_of(value), due)
        return self.add(TransposeOp(value, tensor, node=node, permutation=order), name).result

    def flip_sign(self, value: SSAValue, node: str, name: str) -> SSAValue:
        """Move 8-bit codes between uint8 and int8, where zero point and codes shift by 128."""
        tensor = type_of(value)
        quant = quant_of(tensor)
        if quant is None:
            raise ValueError(f"value must be quantised to change its sign, not {tensor}")
        signed = dtype_of(tensor) == np.uint8
        zero = quant.zero_point_array + (-128 if signed else 128)
        due = QuantAttr.of(quant.scale_array, zero)
        result = tensor_type(tensor.get_shape(), np.int8 if signed else np.uint8, due)
        clamp = code_range(result)
        return self.add(RequantizeOp(value, result, node=node, clamp=clamp), name).result

    def finish(self, outputs: Sequence[SSAValue]) -> ModuleOp:
        """Close the function and put it into a module."""
        self.block.add_op(ReturnOp(*outputs))
        signature = FunctionType.from_lists(
            [a.type for a in self.block.args], [v.type for v in outputs]
        )
        return ModuleOp([FuncOp("main", signature, Region([self.block]))])
