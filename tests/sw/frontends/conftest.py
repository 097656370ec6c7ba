"""LiteRT's reference kernels as a fixture: the bit reference of TFLite int8."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

Array = NDArray[Any]
Litert = Callable[[Path | bytes, Sequence[Sequence[Array]]], list[list[Array]]]


def run_litert(model: Path | bytes, batches: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Run a model on lists of arrays in the order of its inputs, on the BUILTIN_REF kernels."""
    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    interpreter = Interpreter(**source, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    results = []
    for arrays in batches:
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        details = interpreter.get_output_details()
        results.append([np.array(interpreter.get_tensor(d["index"])) for d in details])
    return results


@pytest.fixture(scope="session")
def litert() -> Litert:
    """`run_litert`."""
    return run_litert
