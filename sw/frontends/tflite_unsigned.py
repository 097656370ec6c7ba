"""Turns a TFLite model of uint8 codes into one of int8 codes: code and zero point less 128.

Models from before 2019 hold uint8 activations and weights. Real values stay what they are, so all
int8 operators serve both; where the uint8 kernel of TFLite computes in another way the importer
looks at `TfliteTensor.unsigned`. The user's inputs and outputs stay uint8.
"""

from dataclasses import replace

import numpy as np

from npulse.sw.frontends.tflite_reader import TfliteGraph, TfliteTensor
from npulse.sw.ir.types import GraphTensor, QuantAttr, quant_of, tensor_type

#: Operators that an int8 model may use on uint8 tensors at its border.
_BORDER = ("QUANTIZE", "DEQUANTIZE")


def is_unsigned(graph: TfliteGraph) -> bool:
    """Tell whether an operator other than a change of type computes on uint8 codes."""
    return any(
        _is_codes(graph.tensors[index])
        for op in graph.operators
        if op.kind not in _BORDER
        for index in (*op.inputs, *op.outputs)
        if index >= 0
    )


def _is_codes(tensor: TfliteTensor) -> bool:
    return tensor.dtype == np.uint8 and bool(len(tensor.scales))


def to_signed(graph: TfliteGraph) -> TfliteGraph:
    """Copy a graph with every quantised uint8 tensor as int8."""
    tensors = tuple(_signed(t) if _is_codes(t) else t for t in graph.tensors)
    return replace(graph, tensors=tensors)


def unsigned_type(tensor: GraphTensor) -> GraphTensor:
    """Type of a tensor as the file has it, from that of its int8 codes."""
    quant = quant_of(tensor)
    if quant is None:
        raise ValueError(f"tensor must be quantised, not {tensor}")
    stored = QuantAttr.of(quant.scale_array, quant.zero_point_array + 128)
    return tensor_type(tensor.get_shape(), np.uint8, stored)


def _signed(tensor: TfliteTensor) -> TfliteTensor:
    data = None if tensor.data is None else (tensor.data ^ np.uint8(128)).view(np.int8)
    return replace(
        tensor,
        dtype=np.dtype(np.int8),
        zero_points=tensor.zero_points - 128,
        data=data,
        unsigned=True,
    )
