"""Rules that decide whether the NPU can carry out an operator of the graph.

Each rule is a function whose docstring is the text that its user reads, and whose name is its id.
It returns the attribute that breaks it, with its value, or None. The partitioner and the support
matrix of the documentation run the same functions.
"""

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import SSAValue

from npulse.hw.spec.isa import Field
from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import ISA
from npulse.hw.spec.tpu_v1_layout import ROUNDING_CODES, blocks
from npulse.sw.ir.graph import (
    AveragePool2dOp,
    ClampOp,
    Conv2dOp,
    FullyConnectedOp,
    GraphOp,
    MaxPool2dOp,
    MeanOp,
    RequantizeOp,
    WeightOp,
)
from npulse.sw.ir.types import ints, type_of
from npulse.sw.passes.views import View, image_shape, views
from npulse.sw.targets.tpu_v1.averages import average_of

__all__ = ["COMPUTE", "RULES", "Rule", "Violation", "first_violation", "source_view"]

Compute = (
    Conv2dOp | FullyConnectedOp | MaxPool2dOp | AveragePool2dOp | MeanOp | ClampOp | RequantizeOp
)
#: Operators that the NPU carries out when no rule refuses them.
COMPUTE = (
    Conv2dOp,
    FullyConnectedOp,
    MaxPool2dOp,
    AveragePool2dOp,
    MeanOp,
    ClampOp,
    RequantizeOp,
)

Check = Callable[[Compute, TpuV1Config], str | None]


@dataclass(frozen=True)
class Rule:
    """A rule with what it holds for and what helps against it."""

    check: Check
    ops: tuple[type[GraphOp], ...]
    remedy: str

    @property
    def id(self) -> str:
        """Name of the rule."""
        return self.check.__name__

    @property
    def text(self) -> str:
        """The rule as its user reads it."""
        return " ".join((self.check.__doc__ or "").split())


@dataclass(frozen=True)
class Violation:
    """A rule that an operator breaks."""

    rule: str
    attribute: str
    remedy: str


#: All rules in the order in which they are tried.
RULES: list[Rule] = []


def _rule(*ops: type[GraphOp], remedy: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        RULES.append(Rule(check, ops or COMPUTE, remedy))
        return check

    return add


def _limit(name: str, field: str) -> int:
    found: Field = next(f for f in ISA.formats if f.name == name).field(field)
    return found.high


KERNEL_MAX = _limit("MatrixMultiply", "kernel_y")
STRIDE_MAX = _limit("MatrixMultiply", "step_y")
EXTENT_MAX = _limit("MatrixMultiply", "limit_y")
BLOCKS_MAX = _limit("MatrixMultiply", "blocks")
WINDOW_MAX = _limit("Activate", "window_y")
TILES_MAX = _limit("ReadWeights", "tiles")


def first_violation(op: Compute, config: TpuV1Config) -> Violation | None:
    """First rule that refuses an operator, None when the NPU can carry it out."""
    for rule in RULES:
        if isinstance(op, rule.ops):
            attribute = rule.check(op, config)
            if attribute is not None:
                return Violation(rule.id, attribute, rule.remedy)
    return None


def source_view(op: Compute) -> View | None:
    """Stored tensor that the NPU reads for an operator; None when it can read none.

    The furthest one wins, so that as few layout operators as possible are carried out.
    """
    for view in views(SSAValue.get(op.input)):
        if view.channels_kept or (isinstance(op, FullyConnectedOp) and _flattened(view)):
            return view
    return None


def _flattened(view: View) -> bool:
    height, width, _ = view.image
    return view.order.shape[0] == 1 and max(height, width) <= KERNEL_MAX


def _pairs(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))


def _image(value: SSAValue) -> tuple[int, int, int]:
    image = image_shape(type_of(value).get_shape())
    assert image is not None, "the rule on the batch comes first"
    return image


@_rule(remedy="export the model with a batch of 1, and run it once for each image")
def batch_of_one(op: Compute, config: TpuV1Config) -> str | None:
    """The input must have at most 4 axes and, with more than 2, a batch of 1."""
    shape = type_of(op.input).get_shape()
    return None if image_shape(shape) and source_view(op) else f"input shape = {_pairs(shape)}"


@_rule(Conv2dOp, FullyConnectedOp, remedy="fold the computation of weights and bias into constants")
def constant_weights(op: Compute, config: TpuV1Config) -> str | None:
    """Weights and bias must be constants of the model."""
    assert isinstance(op, Conv2dOp | FullyConnectedOp)
    for name, operand in (("weight", op.weight), ("bias", op.bias)):
        if not isinstance(SSAValue.get(operand).owner, WeightOp):
            return f"{name} is computed"
    return None


@_rule(Conv2dOp, FullyConnectedOp, remedy="quantise the weights symmetrically to int8")
def symmetric_weights(op: Compute, config: TpuV1Config) -> str | None:
    """Weights must have a zero point of 0, or fit int8 once it is subtracted."""
    assert isinstance(op, Conv2dOp | FullyConnectedOp)
    zero = op.weight_zero_point
    return None if zero == 0 else f"weight zero point = {zero}"


@_rule(
    Conv2dOp,
    FullyConnectedOp,
    RequantizeOp,
    MeanOp,
    remedy="import with a requantisation scheme that the NPU has",
)
def requantisation_scheme(op: Compute, config: TpuV1Config) -> str | None:
    """Requantisation must be a Q31 scheme: tflite_q31_double, _single or _away."""
    assert isinstance(op, Conv2dOp | FullyConnectedOp | RequantizeOp | MeanOp)
    return None if op.requant_scheme in ROUNDING_CODES else f"scheme = {op.requant_scheme.value}"


@_rule(RequantizeOp, AveragePool2dOp, remedy="quantise the tensor to int8")
def signed_codes(op: Compute, config: TpuV1Config) -> str | None:
    """Input and result of a change of scale or an average must be int8."""
    for name, value in (("input", op.input), ("result", op.result)):
        element = str(type_of(value).element_type)
        if element != "i8":
            return f"{name} elements = {element}"
    return None


@_rule(Conv2dOp, remedy="split the kernel into smaller ones")
def kernel_size(op: Compute, config: TpuV1Config) -> str | None:
    """The kernel must have at most 63 rows and 63 columns."""
    assert isinstance(op, Conv2dOp)
    kernel = type_of(op.weight).get_shape()[1:3]
    return None if max(kernel) <= KERNEL_MAX else f"kernel = {_pairs(kernel)}"


@_rule(Conv2dOp, MaxPool2dOp, remedy="use strides and dilations of at most 31")
def strides_and_dilations(op: Compute, config: TpuV1Config) -> str | None:
    """Strides and dilations must be at most 31."""
    assert isinstance(op, Conv2dOp | MaxPool2dOp)
    if max(ints(op.strides)) > STRIDE_MAX:
        return f"strides = {_pairs(ints(op.strides))}"
    if isinstance(op, Conv2dOp) and max(ints(op.dilations)) > STRIDE_MAX:
        return f"dilations = {_pairs(ints(op.dilations))}"
    return None


@_rule(MaxPool2dOp, remedy="split the pooling into smaller ones")
def pool_window(op: Compute, config: TpuV1Config) -> str | None:
    """A pooling window must be at most 31 x 31 and fit one half of the accumulators."""
    assert isinstance(op, MaxPool2dOp)
    window = ints(op.kernel)
    fits = max(window) <= WINDOW_MAX and window[0] * window[1] <= config.half_rows
    return None if fits else f"kernel = {_pairs(window)}"


@_rule(MeanOp, remedy="transpose so that the mean runs over height and width")
def mean_axes(op: Compute, config: TpuV1Config) -> str | None:
    """A mean must run over height, width or both of a tensor of 4 axes."""
    assert isinstance(op, MeanOp)
    axes, rank = ints(op.axes), len(type_of(op.input).get_shape())
    return None if rank == 4 and set(axes) <= {1, 2} else f"axes = {axes} of {rank}"


@_rule(AveragePool2dOp, MeanOp, remedy="average in steps of smaller windows")
def average_window(op: Compute, config: TpuV1Config) -> str | None:
    """An average must be over at most 63 rows and 63 columns, at strides of at most 31."""
    assert isinstance(op, AveragePool2dOp | MeanOp)
    average = average_of(op)
    if max(average.kernel) > KERNEL_MAX:
        return f"kernel = {_pairs(average.kernel)}"
    return None if max(average.strides) <= STRIDE_MAX else f"strides = {_pairs(average.strides)}"


@_rule(AveragePool2dOp, remedy="pad with an operator of its own, or pool without padding")
def average_border(op: Compute, config: TpuV1Config) -> str | None:
    """Windows of an average must lie within the image: at a padded border the divisor differs
    from pixel to pixel, and the requantiser has one divisor a channel."""
    assert isinstance(op, AveragePool2dOp)
    extents = zip(*(type_of(v).get_shape()[1:3] for v in (op.input, op.result)), strict=True)
    for axis, (size, out) in enumerate(extents):
        kernel, stride, before = (ints(v)[axis] for v in (op.kernel, op.strides, op.pads))
        if before or (out - 1) * stride + kernel > size:
            return f"pads = {_pairs(ints(op.pads))}"
    return None


@_rule(AveragePool2dOp, MeanOp, remedy="use another window")
def average_rounding(op: Compute, config: TpuV1Config) -> str | None:
    """The requantiser must divide every possible sum of a window as the pooling does."""
    assert isinstance(op, AveragePool2dOp | MeanOp)
    average = average_of(op)
    return None if average.factor else f"kernel = {_pairs(average.kernel)}"


@_rule(remedy="split the image into parts of at most 4095 x 4095 pixels")
def image_extent(op: Compute, config: TpuV1Config) -> str | None:
    """Height and width of input and result, padding included, must be at most 4095."""
    pads = ints(op.pads) if isinstance(op, Conv2dOp | MaxPool2dOp) else (0, 0, 0, 0)
    height, width, _ = _image(SSAValue.get(op.input))
    padded = (height + pads[0] + pads[2], width + pads[1] + pads[3])
    if max(padded) > EXTENT_MAX:
        return f"padded input = {_pairs(padded)}"
    extent = _image(op.result)[:2]
    return None if max(extent) <= EXTENT_MAX else f"result = {_pairs(extent)}"


@_rule(remedy="use fewer input channels")
def channel_count(op: Compute, config: TpuV1Config) -> str | None:
    """Channels must take at most 4095 blocks and 65535 weight tiles a pass."""
    view = source_view(op)
    assert view is not None
    height, width, channels = view.image
    count, kernel = blocks(config, channels), 1
    if isinstance(op, Conv2dOp):
        shape = type_of(op.weight).get_shape()
        kernel = shape[1] * shape[2]
    elif isinstance(op, FullyConnectedOp) and not view.channels_kept:
        kernel = height * width
    elif isinstance(op, AveragePool2dOp | MeanOp):
        count, (rows, columns) = 1, average_of(op).kernel
        kernel = rows * columns
    fits = count <= BLOCKS_MAX and count * config.read_groups * kernel <= TILES_MAX
    return None if fits else f"channels = {channels}"
