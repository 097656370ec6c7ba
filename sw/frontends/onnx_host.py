"""ONNX operators on the host: one-node models for the reference evaluator, with reasons."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from npulse.sw.frontends.onnx_reader import OnnxNode

Array = NDArray[Any]


@dataclass(frozen=True)
class Reason:
    """Why an operator runs on the host."""

    rule: str  #: stable identifier
    decided_by: str  #: attribute, shape or type that decided
    remedy: str  #: what would help


def node_model(node: OnnxNode, opsets: dict[str, int]) -> onnx.ModelProto:
    """Wrap one node in a model whose inputs are what the node reads, each once, in order."""
    model = onnx.ModelProto(ir_version=10)
    for domain, version in opsets.items():
        model.opset_import.add(domain=domain, version=version)
    model.graph.name = "node"
    model.graph.node.append(node.proto)
    for name in node.reads:
        model.graph.input.add(name=name)
    for name in node.outputs:
        if name:
            model.graph.output.add(name=name)
    return model


def payload(model: onnx.ModelProto) -> str:
    """Write a model as text for a ``graph.host`` operator."""
    return base64.b64encode(model.SerializeToString(deterministic=True)).decode("ascii")


def run_node(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    """Run a one-node model; raises whatever the reference evaluator raises."""
    return _run(ReferenceEvaluator(model), inputs)


def run_payload(text: str, inputs: Sequence[Array]) -> list[Array]:
    """Run what `payload` wrote; raises whatever the reference evaluator raises."""
    return _run(_evaluator(text), inputs)


@lru_cache(maxsize=8192)
def _evaluator(text: str) -> ReferenceEvaluator:
    return ReferenceEvaluator(onnx.load_model_from_string(base64.b64decode(text)))


def _run(evaluator: ReferenceEvaluator, inputs: Sequence[Array]) -> list[Array]:
    names = map(str, evaluator.input_names)
    feeds: dict[str, Any] = dict(zip(names, inputs, strict=True))
    with np.errstate(all="ignore"):
        return [np.asarray(result) for result in evaluator.run(None, feeds)]


def evaluator_knows(node: OnnxNode, opsets: dict[str, int]) -> bool:
    """Tell whether the reference evaluator implements an operator in the version of the model."""
    try:
        ReferenceEvaluator(node_model(node, opsets))
    except Exception:  # several kinds, by what is missing
        return False
    return True
