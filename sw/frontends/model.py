"""A model as npulse holds it after import: the graph, its weights, and its inputs and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from npulse.sw.ir.types import QuantAttr

#: Arrays of a model by name; ``graph.weight`` refers to these names.
Weights = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class TensorInfo:
    """Input or output of a model, as its user sees it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    quant: QuantAttr | None
    layout: str  #: ``NHWC`` or ``NCHW`` for an image (TFLite, ONNX), ``other`` below 4 axes
    #: Array among the weights that an input has when its user gives none: the first contents of a
    #: variable, whose contents after the run are the output of the same name.
    initial: str | None = None

    def check(self, array: NDArray[Any], name: str | None = None) -> str | None:
        """Say in one sentence why an array is not this tensor, None if it is."""
        label = self.name if name is None else name
        if array.shape != self.shape:
            return f"input {label} must have shape {self.shape}, not {array.shape}"
        if array.dtype != self.dtype:
            return f"input {label} must have dtype {self.dtype}, not {array.dtype}"
        return None


@dataclass(frozen=True)
class Model:
    """Graph module with one function ``main``, weights by name, and the border of the model.

    ``inputs`` and ``outputs`` are in the order of the arguments and results of ``main``.
    """

    module: ModuleOp
    weights: Weights
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    source: str  #: path as given, for messages
    sha256: str  #: of the file
    origin: str  #: front-end: ``onnx`` or ``tflite``
    notes: tuple[str, ...] = field(default=())  #: what the importer decided by itself

    @property
    def main(self) -> FuncOp:
        """The one function of the module."""
        return main_of(self.module)


def main_of(module: ModuleOp) -> FuncOp:
    """Find the function of a graph module; `ValueError` unless there is exactly one."""
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    if len(functions) != 1:
        raise ValueError(f"module must have 1 function, not {len(functions)}")
    return functions[0]


#: Shapes of the arrays that a user gives, by input name; they decide dynamic dimensions.
GivenShapes = Mapping[str, tuple[int, ...]]
