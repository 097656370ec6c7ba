"""Small random quantised networks, as graphs."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from xdsl.ir import SSAValue

from npulse.hw.spec.numerics import RequantScheme
from npulse.sw.frontends.builder import GraphBuilder
from npulse.sw.frontends.model import Model, TensorInfo
from npulse.sw.ir.graph import (
    AveragePool2dOp,
    ClampOp,
    Conv2dOp,
    FullyConnectedOp,
    MaxPool2dOp,
    MeanOp,
    RequantizeOp,
)
from npulse.sw.ir.types import QuantAttr, tensor_type, type_of

Q31 = (
    RequantScheme.TFLITE_Q31_DOUBLE,
    RequantScheme.TFLITE_Q31_SINGLE,
    RequantScheme.TFLITE_Q31_AWAY,
)


def window_output(extent, kernel, stride, dilation, pads):
    return (extent + pads - dilation * (kernel - 1) - 1) // stride + 1


@dataclass
class Net:
    """Appends operators with random weights; ``value`` is the last one."""

    rng: np.random.Generator
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    value: SSAValue | None = None
    inputs: list[TensorInfo] = field(default_factory=list)
    count: int = 0

    def quant(self) -> QuantAttr:
        # Most zero points leave room on both sides, so that few results are clamped.
        reach = 128 if self.rng.integers(3) == 0 else 40
        return QuantAttr.of(
            float(self.rng.uniform(0.03, 0.07)), int(self.rng.integers(-reach, reach))
        )

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    @property
    def shape(self) -> tuple[int, ...]:
        return type_of(self.value).get_shape()

    def input(self, *shape: int) -> "Net":
        quant, name = self.quant(), f"x{len(self.inputs)}"
        self.value = self.builder.argument(tensor_type(shape, np.int8, quant), name)
        self.inputs.append(TensorInfo(name, shape, np.dtype(np.int8), quant, "NHWC"))
        return self

    def _linear(self, kind, weight_shape, out_shape, depth, **options):
        node, channels = self.name(kind.__name__), weight_shape[0]
        per_channel = bool(self.rng.integers(2))
        # Sums of `depth` products of int8 then spread over about 40 codes of the result.
        spread = self.rng.uniform(0.5, 2, channels if per_channel else 1)
        scale = 40 / (74 * 74 * np.sqrt(depth)) * spread
        weights = self.rng.integers(-127, 128, weight_shape).astype(np.int8)
        bias = self.rng.integers(-3000, 3000, channels).astype(np.int32)
        quant = QuantAttr.of(scale, 0, axis=0 if per_channel else None)
        w = self.builder.weight(weights, f"{node}.w", node, quant)
        b = self.builder.weight(bias, f"{node}.b", node)
        low, high = sorted(int(v) for v in self.rng.integers(-128, 128, 2))
        clamp = (-128, 127) if self.rng.integers(5) else (low, high)
        result = tensor_type(out_shape, np.int8, self.quant())
        op = kind(
            self.value,
            w,
            b,
            result,
            node=node,
            clamp=clamp,
            scheme=Q31[int(self.rng.integers(3))],
            **options,
        )
        self.value = self.builder.add(op, node).result
        return self

    def conv(
        self, channels, kernel=(3, 3), strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0), groups=1
    ) -> "Net":
        batch, height, width, depth = self.shape
        out_h = window_output(height, kernel[0], strides[0], dilations[0], pads[0] + pads[2])
        out_w = window_output(width, kernel[1], strides[1], dilations[1], pads[1] + pads[3])
        return self._linear(
            Conv2dOp,
            (channels, *kernel, depth // groups),
            (batch, out_h, out_w, channels),
            kernel[0] * kernel[1] * depth // groups,
            strides=strides,
            dilations=dilations,
            pads=pads,
            groups=groups,
        )

    def fully_connected(self, channels) -> "Net":
        rows, depth = self.shape
        return self._linear(FullyConnectedOp, (channels, depth), (rows, channels), depth)

    def flatten(self, *, channels_first=False) -> "Net":
        if channels_first:
            node = self.name("transpose")
            self.value = self.builder.transpose(self.value, (0, 3, 1, 2), node, node)
        return self.reshape(1, int(np.prod(self.shape)))

    def reshape(self, *shape: int) -> "Net":
        node = self.name("reshape")
        self.value = self.builder.reshape(self.value, shape, node, node)
        return self

    def pool(self, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), clamp=(-128, 127)) -> "Net":
        batch, height, width, depth = self.shape
        node = self.name("pool")
        out_h = window_output(height, kernel[0], strides[0], 1, pads[0] + pads[2])
        out_w = window_output(width, kernel[1], strides[1], 1, pads[1] + pads[3])
        result = tensor_type((batch, out_h, out_w, depth), np.int8, type_of(self.value).encoding)
        op = MaxPool2dOp(
            self.value, result, node=node, kernel=kernel, strides=strides, pads=pads, clamp=clamp
        )
        self.value = self.builder.add(op, node).result
        return self

    def average(self, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0)) -> "Net":
        batch, height, width, depth = self.shape
        node = self.name("average")
        out_h = window_output(height, kernel[0], strides[0], 1, pads[0] + pads[2])
        out_w = window_output(width, kernel[1], strides[1], 1, pads[1] + pads[3])
        result = tensor_type((batch, out_h, out_w, depth), np.int8, type_of(self.value).encoding)
        op = AveragePool2dOp(
            self.value, result, node=node, kernel=kernel, strides=strides, pads=pads
        )
        self.value = self.builder.add(op, node).result
        return self

    def mean(self, axes=(1, 2)) -> "Net":
        node = self.name("mean")
        kept = [1 if axis in axes else extent for axis, extent in enumerate(self.shape)]
        result = tensor_type(tuple(kept), np.int8, self.quant())
        self.value = self.builder.add(MeanOp(self.value, result, node=node, axes=axes), node).result
        return self

    def clamp(self, low=-60, high=80) -> "Net":
        node = self.name("clamp")
        op = ClampOp(self.value, node=node, clamp=(low, high))
        self.value = self.builder.add(op, node).result
        return self

    def requantize(self, scheme=RequantScheme.TFLITE_Q31_DOUBLE) -> "Net":
        node = self.name("requantize")
        result = tensor_type(self.shape, np.int8, self.quant())
        op = RequantizeOp(self.value, result, node=node, clamp=(-128, 127), scheme=scheme)
        self.value = self.builder.add(op, node).result
        return self

    def model(self, *outputs: SSAValue) -> Model:
        values = outputs or (self.value,)
        module = self.builder.finish(values)
        module.verify()
        infos = tuple(
            TensorInfo(f"y{i}", type_of(v).get_shape(), np.dtype(np.int8), None, "NHWC")
            for i, v in enumerate(values)
        )
        return Model(
            module=module,
            weights=self.builder.weights,
            inputs=tuple(self.inputs),
            outputs=infos,
            source="net.onnx",
            sha256="0" * 64,
            origin="onnx",
        )

    def random(self, layers: int) -> "Net":
        """Append up to `layers` random operators that fit."""
        draw = self.rng.integers
        for _ in range(layers):
            if len(self.shape) == 2:
                return self.fully_connected(int(draw(1, 20)))
            height, width, depth = self.shape[1:]
            kind = int(draw(10))
            if kind < 4:
                self._random_conv(height, width, depth)
            elif kind == 4:
                kernel = (int(draw(1, min(4, height) + 1)), int(draw(1, min(4, width) + 1)))
                pads = [int(draw(0, k)) for k in (*kernel, *kernel)]
                strides = (int(draw(1, 4)), int(draw(1, 4)))
                self.pool(kernel, strides, pads, clamp=(-100, 110))
            elif kind == 5:
                self.clamp()
            elif kind == 6:
                self.requantize()
            elif kind == 8:
                kernel = (int(draw(1, height + 1)), int(draw(1, width + 1)))
                self.average(kernel, (int(draw(1, 4)), int(draw(1, 4))))
            elif kind == 9:
                self.mean(((1,), (2,), (1, 2))[int(draw(3))])
            else:
                self.flatten(channels_first=bool(draw(2)))
        return self

    def _random_conv(self, height, width, depth) -> None:
        draw = self.rng.integers
        pads = [int(v) for v in draw(0, 3, 4)]
        dilations = (int(draw(1, 3)), int(draw(1, 3)))
        tall = (height + pads[0] + pads[2] - 1) // dilations[0] + 1
        wide = (width + pads[1] + pads[3] - 1) // dilations[1] + 1
        kernel = (int(draw(1, min(4, tall) + 1)), int(draw(1, min(4, wide) + 1)))
        groups = depth if draw(4) == 0 else 1
        channels = groups * int(draw(1, 3)) if groups > 1 else int(draw(1, 24))
        strides = (int(draw(1, 4)), int(draw(1, 4)))
        self.conv(channels, kernel, strides, dilations, pads, groups)


def network(seed: int = 0) -> Net:
    return Net(np.random.default_rng(seed))


def random_network(seed: int) -> Net:
    net = network(seed)
    height, width, depth = (int(v) for v in net.rng.integers(1, 12, 3))
    return net.input(1, height, width, depth).random(int(net.rng.integers(1, 6)))


@pytest.fixture(scope="session")
def net():
    """Function from a seed to an empty `Net`."""
    return network


@pytest.fixture(scope="session")
def random_net():
    """Function from a seed to a random `Net`."""
    return random_network
