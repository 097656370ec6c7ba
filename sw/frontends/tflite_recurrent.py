"""Recurrent layers of TFLite as host operators, their state an input and an output of the graph.

Ref: TensorFlow Lite ``kernels/unidirectional_sequence_lstm.cc`` and ``kernels/svdf.cc``. Both keep
state in variable tensors, which start from real zero.
"""

import json
import math

import numpy as np

from npulse.sw.frontends.tflite_context import TfliteImporter
from npulse.sw.frontends.tflite_operands import CONVERT, codes, tensor_at
from npulse.sw.frontends.tflite_reader import TfliteOperator
from npulse.sw.frontends.tflite_variables import Variable
from npulse.sw.ir.graph import HostOp
from npulse.sw.ir.types import QuantAttr

# Places of the inputs of UNIDIRECTIONAL_SEQUENCE_LSTM.
_WEIGHTS = tuple(range(1, 9))
_BIASES = tuple(range(12, 16))
_STATE, _CELL = 18, 19
_ABSENT = {
    "peephole connections": (9, 10, 11),
    "a projection": (16, 17),
    "layer normalisation": (20, 21, 22, 23),
}
_TANH = 4  #: ActivationFunctionType of the schema
_RELU = 1


def _is_present(op: TfliteOperator, place: int) -> bool:
    return place < len(op.inputs) and op.inputs[place] >= 0


def _variable(importer: TfliteImporter, op: TfliteOperator, place: int, dtype: type) -> Variable:
    """State of a layer as an argument of the graph that starts from real zero."""
    tensor = tensor_at(importer, op, place)
    label = importer.label(tensor)
    quant = importer.quant(tensor)
    if not tensor.variable or tensor.dtype != dtype or quant is None or not quant.per_tensor:
        importer.fail(op, f"state {label!r} must be a quantised {np.dtype(dtype)} variable")
    if tensor.index in importer.values:
        importer.fail(op, f"state {label!r} must belong to this operator only")
    due = importer.type_of(tensor)  # refuses a size that no array can have
    start = np.full(tensor.shape, quant.zero_point, tensor.dtype)
    variable = Variable(label, initial=start, tensor=tensor)
    variable.first = importer.builder.argument(due, label)
    importer.variables.read.append(variable)
    importer.values[tensor.index] = variable.first
    return variable


def _append(
    importer: TfliteImporter,
    op: TfliteOperator,
    places: tuple[int, ...],
    states: list[Variable],
    options: dict[str, object],
) -> None:
    """Append a host operator whose results are the output and the new states."""
    result = tensor_at(importer, op, 0, output=True)
    types = [importer.type_of(result)]
    types += [importer.type_of(v.tensor) for v in states if v.tensor is not None]
    host = HostOp(
        [importer.value(op, op.inputs[place]) for place in places],
        types,
        node=importer.node(op),
        kind=op.kind,
        origin="tflite",
        payload=json.dumps(options, sort_keys=True),
        rule="operator.no_hardware",
        decided_by=f"operator {op.kind}",
        remedy="none: no unit of the NPU keeps the state of a recurrent layer",
    )
    importer.builder.add(host)
    importer.set_result(op, host.results[0])
    for variable, value in zip(states, host.results[1:], strict=True):
        variable.value = value


def unidirectional_sequence_lstm(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append an int8 LSTM with int16 cell state."""
    for what, places in _ABSENT.items():
        if any(_is_present(op, place) for place in places):
            importer.fail(op, f"the layer must have no {what}; {CONVERT}")
    source, result = tensor_at(importer, op, 0), tensor_at(importer, op, 0, output=True)
    codes(importer, op, source)
    codes(importer, op, result)
    for place in _WEIGHTS:
        codes(importer, op, tensor_at(importer, op, place))
    for place in _BIASES:
        if tensor_at(importer, op, place).dtype != np.int32:
            importer.fail(op, f"bias {place - _BIASES[0]} must be int32; {CONVERT}")
    if op.options["FusedActivationFunction"] != _TANH:
        importer.fail(op, "fused activation must be TANH; convert the model again")
    if len(source.shape) != 3:
        importer.fail(op, f"input must have 3 axes, not {len(source.shape)}")
    hidden = _hidden(importer, op)
    states = [
        _variable(importer, op, _STATE, np.int8),
        _variable(importer, op, _CELL, np.int16),
    ]
    cell = importer.quant(tensor_at(importer, op, _CELL))
    assert cell is not None
    power = round(math.log2(float(cell.scale)))
    if float(cell.scale) != 2.0**power or not -15 <= power <= -9:
        importer.fail(
            op, f"cell state must have a scale of 2**-15 to 2**-9, a power of 2, not {cell.scale}"
        )
    clip = op.options["CellClip"]
    options = {
        "hidden_scale": float(hidden.scale),
        "hidden_zero_point": hidden.zero_point,
        "cell_scale_log2": power,
        "cell_clip": int(min(clip / float(cell.scale), 32767)) if clip > 0 else 0,
        "time_major": bool(op.options["TimeMajor"]),
    }
    _append(importer, op, (0, *_WEIGHTS, *_BIASES, _STATE, _CELL), states, options)


def _hidden(importer: TfliteImporter, op: TfliteOperator) -> QuantAttr:
    """Quantisation of the hidden state, which the file keeps in an intermediate tensor."""
    places = op.intermediates
    quant = importer.quant(importer.graph.tensors[places[4]]) if len(places) == 5 else None
    if quant is None or not quant.per_tensor:
        importer.fail(op, f"5 intermediate tensors with scales must be present; {CONVERT}")
    return quant


def svdf(importer: TfliteImporter, op: TfliteOperator) -> None:
    """Append an int8 SVDF layer; the state is int8 or int16 with weights of time alike."""
    codes(importer, op, tensor_at(importer, op, 0))
    codes(importer, op, tensor_at(importer, op, 0, output=True))
    codes(importer, op, tensor_at(importer, op, 1))
    time = tensor_at(importer, op, 2)
    if time.dtype not in (np.int8, np.int16) or importer.quant(time) is None:
        importer.fail(op, f"weights of time must be int8 or int16, not {time.dtype}; {CONVERT}")
    if op.options["FusedActivationFunction"] != _RELU:
        importer.fail(op, "fused activation must be RELU; convert the model again")
    places = (0, 1, 2, 3, 4) if _is_present(op, 3) else (0, 1, 2, 4)
    kind = np.int8 if time.dtype == np.int8 else np.int16
    states = [_variable(importer, op, 4, kind)]
    _append(importer, op, places, states, {"rank": op.options["Rank"]})


#: Operators of this file by their names in the schema.
RECURRENT = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": unidirectional_sequence_lstm,
    "SVDF": svdf,
}
