"""Train the bundled example `digits`, quantise it, and write its files into sw/models.

Needs scikit-learn, for the data alone: training is numpy. Every random choice is seeded, so a run
repeats itself on one machine. Training is a long sum whose last bits follow the BLAS, so another
machine may find other weights; quantisation of a given float model does not depend on the BLAS.

Ref: digits, E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI 1998,
doi:10.24432/C50P49, CC BY 4.0. Spread of initial weights: K. He et al., arXiv:1502.01852, eq. 10.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper

Array = NDArray[Any]
Params = dict[str, Array]

MODELS = Path(__file__).resolve().parents[1] / "sw" / "models"
SEED = 20
TEST_IMAGES = 360
CALIBRATION_IMAGES = 256
BATCH = 32
#: Best of six settings in cross-validation on the training images.
EPOCHS = 40
RATE = 0.05
DECAY = 0.005
#: The first whose DequantizeLinear the reference evaluator of the onnx package runs.
OPSET = 19

#: Kronecker factor that repeats each pixel over the window it was pooled from.
SQUARE = np.ones((2, 2))
CONV = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
#: Operator, name of its output tensor, attributes; each reads the output of the one before.
LAYERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Conv", "conv1", CONV),
    ("Relu", "relu1", {}),
    ("MaxPool", "pool1", POOL),
    ("Conv", "conv2", CONV),
    ("Relu", "relu2", {}),
    ("MaxPool", "pool2", POOL),
    ("Flatten", "flat", {"axis": 1}),
    ("Gemm", "logits", {"transB": 1}),
)
#: Shape of each layer's weights: output channels, then what one output reads.
WEIGHTS = {"conv1": (8, 1, 3, 3), "conv2": (16, 8, 3, 3), "logits": (10, 64)}
#: Layers that only move or choose values, so that their output keeps the scale of their input.
KEEPS_SCALE = ("MaxPool", "Flatten")


def load_images() -> tuple[Array, Array]:
    """Load all images (1797, 1, 8, 8) float32 in 0 to 1 and their digits int64, shuffled."""
    # Imported here since tests use the rest of this file, and scikit-learn is no dependency.
    from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]

    pixels, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(digits))
    images = (pixels.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    return images[order], digits.astype(np.int64)[order]


def patches(x: Array) -> Array:
    """Give the zero-padded 3x3 surroundings of each pixel: (N, C, H, W) to (N, H, W, C, 3, 3)."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5)


def conv(x: Array, weight: Array) -> Array:
    return np.tensordot(patches(x), weight, axes=((3, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def pool(x: Array) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))


OPERATORS: dict[str, Callable[..., Array]] = {
    "Conv": lambda x, weight, bias: conv(x, weight) + bias.reshape(-1, 1, 1),
    "Relu": lambda x: np.maximum(x, 0),
    "MaxPool": pool,
    "Flatten": lambda x: x.reshape(len(x), -1),
    "Gemm": lambda x, weight, bias: x @ weight.T + bias,
}


def forward(params: Params, x: Array) -> dict[str, Array]:
    """Compute every tensor of the network in float64, by name."""
    tensors = {"image": x.astype(np.float64)}
    value = tensors["image"]
    for op, name, _ in LAYERS:
        kinds = ("weight", "bias") if name in WEIGHTS else ()
        value = OPERATORS[op](value, *(params[f"{name}.{kind}"] for kind in kinds))
        tensors[name] = value
    return tensors


def loss_gradient(logits: Array, y: Array) -> Array:
    """Differentiate the mean cross entropy of the softmax with respect to the logits."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (odds / odds.sum(axis=1, keepdims=True) - np.eye(10)[y]) / len(y)


def gradients(params: Params, x: Array, y: Array) -> Params:
    """Differentiate the loss with respect to each parameter, by the chain rule backwards."""
    tensors, grads = forward(params, x), {}
    grad = loss_gradient(tensors["logits"], y)
    sources = ["image", *(name for _, name, _ in LAYERS)]
    for (op, name, _), source in reversed(list(zip(LAYERS, sources, strict=False))):
        before, after = tensors[source], tensors[name]
        if op == "Gemm":
            grads[f"{name}.weight"], grads[f"{name}.bias"] = grad.T @ before, grad.sum(axis=0)
            grad = grad @ params[f"{name}.weight"]
        elif op == "Flatten":
            grad = grad.reshape(before.shape)
        elif op == "MaxPool":
            grad = np.kron(grad, SQUARE) * (before == np.kron(after, SQUARE))
        elif op == "Relu":
            grad = grad * (after > 0)
        else:
            axes = ((0, 2, 3), (0, 1, 2))
            grads[f"{name}.weight"] = np.tensordot(grad, patches(before), axes=axes)
            grads[f"{name}.bias"] = grad.sum(axis=(0, 2, 3))
            grad = conv(grad, params[f"{name}.weight"].swapaxes(0, 1)[:, :, ::-1, ::-1])
    return grads


def train(x: Array, y: Array) -> Params:
    """Minimise the loss by descent with momentum and weight decay, at a rate that falls to 0."""
    rng = np.random.default_rng(SEED)
    params = {f"{name}.bias": np.zeros(shape[0]) for name, shape in WEIGHTS.items()}
    for name, shape in WEIGHTS.items():
        params[f"{name}.weight"] = rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape)
    velocity = {name: np.zeros_like(value) for name, value in params.items()}
    used = len(y) // BATCH * BATCH
    batches = np.array([rng.permutation(len(y))[:used] for _ in range(EPOCHS)]).reshape(-1, BATCH)
    for step, chosen in enumerate(batches):
        rate = RATE * (1 - step / len(batches))
        for name, grad in gradients(params, x[chosen], y[chosen]).items():
            velocity[name] = 0.9 * velocity[name] - rate * (grad + DECAY * params[name])
            params[name] += velocity[name]
    return params


@dataclass
class Graph:
    """Nodes and constants of a model that maps `image` (1, 1, 8, 8) to `logits` (1, 10)."""

    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def constant(self, name: str, value: Array) -> str:
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def model(self) -> ModelProto:
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])
        graph = helper.make_graph(self.nodes, "digits", [image], [logits], self.constants)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=9, producer_name="npulse")
        checker.check_model(model, full_check=True)
        return model


def float_model(params: Params) -> ModelProto:
    graph, value = Graph(), "image"
    for op, name, attributes in LAYERS:
        inputs = [value]
        if name in WEIGHTS:
            for kind in (f"{name}.weight", f"{name}.bias"):
                inputs.append(graph.constant(kind, params[kind].astype(np.float32)))
        value = graph.add(op, inputs, name, **attributes)
    return graph.model()


def activation_scale(x: Array) -> tuple[Array, Array]:
    """Map the range of x, widened to hold zero, onto int8: scale float32, zero point int8."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / 255)
    return np.array(scale), np.array(np.clip(np.rint(-128 - low / scale), -128, 127), np.int8)


def through_int8(graph: Graph, source: str, output: str, scale: tuple[Array, Array]) -> str:
    parts = zip(("scale", "zero"), scale, strict=True)
    names = [graph.constant(f"{output}.{part}", value) for part, value in parts]
    stored = graph.add("QuantizeLinear", [source, *names], f"{output}_int8")
    return graph.add("DequantizeLinear", [stored, *names], output)


def dequantized(graph: Graph, name: str, value: Array, scale: Array, kind: type) -> str:
    """Store value, symmetric and per output channel if scale is a vector, as integers."""
    divisor = scale.reshape(-1, *[1] * (value.ndim - 1)) if scale.ndim else scale
    stored = graph.constant(f"{name}_{np.dtype(kind)}", np.rint(value / divisor).astype(kind))
    names = [stored, graph.constant(f"{name}.scale", scale)]
    attributes = {"axis": 0} if scale.ndim else {}
    return graph.add("DequantizeLinear", names, name, **attributes)


def dequantized_params(graph: Graph, name: str, params: Params, input_scale: Array) -> list[str]:
    """Store int8 weights within 127 either way, and int32 biases in units of the accumulator."""
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    channel_axes = tuple(range(1, weight.ndim)) if weight.ndim == 4 else None
    scale = np.array(np.abs(weight).max(axis=channel_axes) / 127, np.float32)
    return [
        dequantized(graph, f"{name}.weight", weight, scale, np.int8),
        dequantized(graph, f"{name}.bias", bias, np.array(input_scale * scale), np.int32),
    ]


def quantize(model: ModelProto, images: Array) -> ModelProto:
    """Rewrite the float model in QDQ form, with the ranges that its tensors have on images.

    Ranges are summed in float64 and scales rounded to float32, so that a different order of the
    sums in a BLAS leaves the file as it is.
    """
    params = {c.name: numpy_helper.to_array(c).astype(np.float64) for c in model.graph.initializer}
    scales = {name: activation_scale(x) for name, x in forward(params, images).items()}
    graph = Graph()
    scale = scales["image"]
    value = through_int8(graph, "image", "image_dequantized", scale)
    for op, name, attributes in LAYERS:
        inputs = [value]
        if name in WEIGHTS:
            inputs += dequantized_params(graph, name, params, scale[0])
        if op == "Conv":  # rounded once, after its ReLU
            value = graph.add(op, inputs, name, **attributes)
            continue
        real = graph.add(op, inputs, f"{name}_real", **attributes)
        scale = scale if op in KEEPS_SCALE else scales[name]
        value = through_int8(graph, real, name, scale)
    return graph.model()


def save(folder: Path) -> None:
    x, y = load_images()
    calibration = x[TEST_IMAGES:][:CALIBRATION_IMAGES]
    model = float_model(train(x[TEST_IMAGES:], y[TEST_IMAGES:]))
    for name, content in ("float", model), ("int8", quantize(model, calibration)):
        (folder / f"digits_{name}.onnx").write_bytes(content.SerializeToString(deterministic=True))
    np.savez_compressed(folder / "digits_calibration.npz", x=calibration)
    np.savez_compressed(folder / "digits_test.npz", x=x[:TEST_IMAGES], y=y[:TEST_IMAGES])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the files of the bundled example digits.")
    parser.add_argument("--folder", type=Path, default=MODELS, help="where to write them")
    save(parser.parse_args().folder)
