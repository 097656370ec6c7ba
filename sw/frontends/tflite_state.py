"""Variables of a TFLite model: each becomes an input and an output of the graph, by one name.

A graph has no memory of its own. What a variable holds before a run is an input, what it holds
after the run is an output, and whoever runs the model hands one to the next run.
`TensorInfo.initial` names the first contents. Ref: TensorFlow Lite ``kernels/call_once.cc`` and
``kernels/{var_handle,read_variable,assign_variable}.cc``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.sw.errors import UserError
from npulse.sw.frontends.tflite_context import TfliteImporter
from npulse.sw.frontends.tflite_operands import tensor_at
from npulse.sw.frontends.tflite_reader import TfliteGraph, TfliteOperator
from npulse.sw.frontends.tflite_variables import Variable


def run_once(importer: TfliteImporter, graph: TfliteGraph) -> None:
    """Take the first contents of variables from a subgraph that assigns constants.

    Raises
    ------
    UserError
        The subgraph computes something.
    """
    variables = importer.variables
    handles: dict[int, str] = {}
    for op in graph.operators:
        if op.kind == "VAR_HANDLE":
            handles[op.outputs[0]] = op.options["SharedName"]
        elif op.kind == "ASSIGN_VARIABLE" and op.inputs[0] in handles:
            data = graph.tensors[op.inputs[1]].data
            name = handles[op.inputs[0]]
            if data is None:
                raise UserError(
                    f"{importer.path}: variable {name!r} must start from a constant, not from a "
                    f"computed tensor; convert the model again"
                )
            variables.by_name.setdefault(name, Variable(name)).initial = data
        else:
            raise UserError(
                f"{importer.path}: the subgraph that initialises variables must only assign "
                f"constants, not run {op.kind}; convert the model again"
            )


def var_handle(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Take VAR_HANDLE, which makes no value of the graph."""
    tensor_at(importer, op, 0, output=True)
    importer.variables.handle(op.outputs[0], op.options["SharedName"])


def _variable(importer: TfliteImporter, op: TfliteOperator) -> Variable:
    tensor = tensor_at(importer, op, 0)
    if tensor.index not in importer.variables.handles:
        importer.fail(
            op, f"{importer.label(tensor)!r} must be the handle of a variable; convert it again"
        )
    return importer.variables.handles[tensor.index]


def read_variable(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Take READ_VARIABLE: the assigned value, or a new argument of the graph."""
    variable, result = _variable(importer, op), tensor_at(importer, op, 0, output=True)
    if variable.value is None:
        variable.tensor = result
        variable.first = importer.builder.argument(importer.type_of(result), variable.name)
        variable.value = variable.first
        importer.variables.read.append(variable)
    importer.alias_result(op, variable.value)


def assign_variable(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Take ASSIGN_VARIABLE: later reads and the end of the run see the value."""
    variable = _variable(importer, op)
    value = importer.value(op, op.inputs[1])
    if variable.first is not None and value.type != variable.first.type:
        importer.fail(op, f"value must be {variable.first.type} as it was, not {value.type}")
    variable.value = value


def call_once(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Take CALL_ONCE: its subgraph gives variables their first contents."""
    number = op.options["InitSubgraphIndex"]
    if not 1 <= number <= len(importer.graph.others):
        importer.fail(op, f"subgraph must be from 1 to {len(importer.graph.others)}, not {number}")
    run_once(importer, importer.graph.others[number - 1])


def initial_contents(importer: TfliteImporter, variable: Variable) -> NDArray[Any]:
    """First contents of a variable; zeros where no subgraph assigns any, as in TFLite."""
    assert variable.tensor is not None and variable.tensor.dtype is not None
    shape, dtype = variable.tensor.shape, variable.tensor.dtype
    if variable.initial is None:
        return np.zeros(shape, dtype)
    if variable.initial.dtype != dtype or variable.initial.size != np.prod(shape, dtype=int):
        raise UserError(
            f"{importer.path}: variable {variable.name!r} must start from {dtype} of {shape}, not "
            f"{variable.initial.dtype} of {variable.initial.shape}; convert the model again"
        )
    return variable.initial.reshape(shape)


#: Operators of this file by their names in the schema.
STATE = {
    "VAR_HANDLE": var_handle,
    "READ_VARIABLE": read_variable,
    "ASSIGN_VARIABLE": assign_variable,
    "CALL_ONCE": call_once,
}
