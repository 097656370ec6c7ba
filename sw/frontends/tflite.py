"""Imports a TFLite int8 model: reads the file, then one operator of the graph for each of its own.

Activations are NHWC in the file already. `npulse.sw.frontends.tflite_ops` has the operators.
"""

from npulse.sw.errors import UserError
from npulse.sw.frontends.model import Model, TensorInfo
from npulse.sw.frontends.tflite_context import TfliteImporter
from npulse.sw.frontends.tflite_ops import import_operator
from npulse.sw.frontends.tflite_reader import TfliteTensor, read_tflite
from npulse.sw.ir.types import quant_of, type_of


def import_tflite(content: bytes, path: str, sha256: str) -> Model:
    """Import the first subgraph of a TFLite file.

    Raises
    ------
    UserError
        For a damaged file, a dynamic dimension and an operator that nothing here can run.
    """
    graph = read_tflite(content, path)
    importer = TfliteImporter(graph, path)
    for index in graph.inputs:
        tensor = graph.tensors[index]
        _check_static(importer, tensor)
        importer.values[index] = importer.builder.argument(importer.type_of(tensor), tensor.name)
    for op in graph.operators:
        import_operator(importer, op)
    outputs = []
    for index in graph.outputs:
        if index not in importer.values:
            label = importer.label(graph.tensors[index])
            raise UserError(
                f"{path}: output {label!r} is computed by no operator; convert the model again"
            )
        outputs.append(importer.values[index])
    module = importer.builder.finish(outputs)
    return Model(
        module=module,
        weights=importer.builder.weights,
        inputs=tuple(_info(importer, i) for i in graph.inputs),
        outputs=tuple(_info(importer, i) for i in graph.outputs),
        source=path,
        sha256=sha256,
        origin="tflite",
        notes=tuple(importer.builder.notes),
    )


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


def _info(importer: TfliteImporter, index: int) -> TensorInfo:
    tensor = importer.graph.tensors[index]
    value = type_of(importer.values[index])
    layout = "NHWC" if len(tensor.shape) == 4 else "other"
    assert tensor.dtype is not None  # type_of refused it before
    return TensorInfo(importer.label(tensor), tensor.shape, tensor.dtype, quant_of(value), layout)
