"""Imports a TFLite int8 model: reads the file, then one operator of the graph for each of its own.

Activations are NHWC in the file already. `npulse.sw.frontends.tflite_ops` has the operators.
"""

from dataclasses import replace

from xdsl.ir import SSAValue

from npulse.sw.errors import UserError
from npulse.sw.frontends.model import Model, TensorInfo
from npulse.sw.frontends.tflite_context import TfliteImporter
from npulse.sw.frontends.tflite_ops import import_operator
from npulse.sw.frontends.tflite_reader import TfliteGraph, TfliteTensor, read_tflite
from npulse.sw.frontends.tflite_state import initial_contents
from npulse.sw.frontends.tflite_unsigned import is_unsigned, to_signed, unsigned_type
from npulse.sw.frontends.tflite_variables import Variable
from npulse.sw.ir.types import quant_of, type_of


def import_tflite(content: bytes, path: str, sha256: str) -> Model:
    """Import the first subgraph of a TFLite file.

    Raises
    ------
    UserError
        For a damaged file, a dynamic dimension and an operator that nothing here can run.
    """
    stored = read_tflite(content, path)
    graph = to_signed(stored) if is_unsigned(stored) else stored
    importer = TfliteImporter(graph, path)
    for index in graph.inputs:
        _check_static(importer, graph.tensors[index])
        importer.values[index] = _argument(importer, graph.tensors[index])
    for op in graph.operators:
        import_operator(importer, op)
    outputs = [_result(importer, index) for index in graph.outputs]
    inputs = tuple(_info(importer, index, stored) for index in graph.inputs)
    results = tuple(_info(importer, index, stored) for index in graph.outputs)
    carried = importer.variables.read
    states = tuple(_state(importer, variable) for variable in carried)
    module = importer.builder.finish([*outputs, *(v.last for v in carried)])
    return Model(
        module=module,
        weights=importer.builder.weights,
        inputs=(*inputs, *states),
        outputs=(*results, *(replace(state, initial=None) for state in states)),
        source=path,
        sha256=sha256,
        origin="tflite",
        notes=tuple(importer.builder.notes),
    )


def _argument(importer: TfliteImporter, tensor: TfliteTensor) -> SSAValue:
    """Argument of the graph; one of uint8 codes becomes int8 at once."""
    builder, due = importer.builder, importer.type_of(tensor)
    if not tensor.unsigned:
        return builder.argument(due, tensor.name)
    given = builder.argument(unsigned_type(due), f"{tensor.name}.codes")
    return builder.flip_sign(given, importer.label(tensor), tensor.name)


def _result(importer: TfliteImporter, index: int) -> SSAValue:
    """Value of an output of the graph, as uint8 codes where the file has them."""
    tensor = importer.graph.tensors[index]
    label = importer.label(tensor)
    if index not in importer.values:
        raise UserError(
            f"{importer.path}: output {label!r} is computed by no operator; convert the model again"
        )
    value = importer.values[index]
    return importer.builder.flip_sign(value, label, label) if tensor.unsigned else value


def _check_static(importer: TfliteImporter, tensor: TfliteTensor) -> None:
    """Refuse a dynamic dimension other than the batch, which the file itself sets to 1."""
    dynamic = [axis for axis, d in enumerate(tensor.signature) if d < 0]
    label = importer.label(tensor)
    if not dynamic:
        return
    if dynamic == [0]:
        importer.builder.notes.append(
            f"input {label!r}: the dynamic batch (axis 0) is {tensor.shape[0]}, as the file says"
        )
        return
    axis = next(axis for axis in dynamic if axis != 0)
    raise UserError(
        f"{importer.path}: input {label!r}: dimension {axis} is dynamic, and shapes must be "
        f"static; convert the model with a fixed input shape"
    )


def _info(importer: TfliteImporter, index: int, stored: TfliteGraph) -> TensorInfo:
    tensor = stored.tensors[index]
    layout = "NHWC" if len(tensor.shape) == 4 else "other"
    assert tensor.dtype is not None  # type_of refused it before
    return TensorInfo(
        importer.label(tensor), tensor.shape, tensor.dtype, importer.quant(tensor), layout
    )


def _state(importer: TfliteImporter, variable: Variable) -> TensorInfo:
    """Input that holds a variable before a run; it starts from an array of the weights."""
    contents = initial_contents(importer, variable)
    value = type_of(variable.last)
    key = f"{variable.name}.initial"
    importer.builder.weight(contents, key, variable.name, quant_of(value))
    importer.builder.notes.append(
        f"variable {variable.name!r} is an input and an output: give each run what the last gave"
    )
    layout = "NHWC" if len(contents.shape) == 4 else "other"
    return TensorInfo(variable.name, contents.shape, contents.dtype, quant_of(value), layout, key)
