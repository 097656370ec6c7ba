"""Rules that keep an operator off the NPU."""

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr

from npulse.hw.spec.flavours import resolve
from npulse.hw.spec.numerics import RequantScheme
from npulse.sw.ir.graph import Conv2dOp, FullyConnectedOp, GraphOp
from npulse.sw.targets.tpu_v1.legality import RULES, first_violation

CONFIG = resolve("tpu-v1:sim").config
BIG = resolve("tpu-v1:sim", ["memory.unified_buffer_rows=131072"]).config


def last_op(net) -> GraphOp:
    return net.value.owner


def test_a_plain_layer_breaks_no_rule(net) -> None:
    for made in (
        net().input(1, 8, 8, 3).conv(4),
        net().input(3, 8).fully_connected(4),
        net().input(1, 8, 8, 3).pool(),
        net().input(1, 8, 8, 3).clamp(),
        net().input(1, 8, 8, 3).requantize(),
    ):
        assert first_violation(last_op(made), CONFIG) is None


@pytest.mark.parametrize(
    ("build", "rule", "attribute"),
    [
        (lambda n: n.input(2, 8, 8, 3).conv(4), "batch_of_one", "input shape = 2x8x8x3"),
        (lambda n: n.input(1, 64, 1, 1).conv(1, (64, 1)), "kernel_size", "kernel = 64x1"),
        (
            lambda n: n.input(1, 40, 3, 1).conv(1, (1, 1), (32, 1)),
            "strides_and_dilations",
            "strides = 32x1",
        ),
        (
            lambda n: n.input(1, 3, 40, 1).conv(1, (1, 2), dilations=(1, 32)),
            "strides_and_dilations",
            "dilations = 1x32",
        ),
        (lambda n: n.input(1, 9, 9, 1).pool((9, 9), (1, 1)), "pool_window", "kernel = 9x9"),
        (lambda n: n.input(1, 1, 32, 1).pool((1, 32), (1, 1)), "pool_window", "kernel = 1x32"),
        (
            lambda n: n.input(1, 4094, 1, 1).conv(1, (1, 1), pads=(1, 0, 1, 0)),
            "image_extent",
            "padded input = 4096x1",
        ),
        (lambda n: n.input(4096, 1).fully_connected(1), "image_extent", "padded input = 1x4096"),
        (
            lambda n: n.input(1, 1, 1, 8 * 4096).conv(1, (1, 1)),
            "channel_count",
            "channels = 32768",
        ),
    ],
)
def test_an_operator_beyond_a_field_breaks_its_rule(net, build, rule, attribute) -> None:
    violation = first_violation(last_op(build(net())), BIG)
    assert violation is not None
    assert (violation.rule, violation.attribute) == (rule, attribute)
    assert violation.remedy


def test_values_at_the_bounds_are_legal(net) -> None:
    for made in (
        net().input(1, 63, 1, 1).conv(1, (63, 1)),
        net().input(1, 40, 3, 1).conv(1, (1, 1), (31, 1)),
        net().input(1, 8, 8, 1).pool((8, 8), (1, 1)),
        net().input(1, 1, 31, 1).pool((1, 31), (1, 1)),
        net().input(1, 4093, 1, 1).conv(1, (1, 1), pads=(1, 0, 1, 0)),
        net().input(1, 1, 1, 8 * 4095).conv(1, (1, 1)),
    ):
        assert first_violation(last_op(made), BIG) is None


def test_a_scheme_that_the_requantiser_lacks_is_refused(net) -> None:
    op = last_op(net().input(1, 8, 8, 3).conv(4))
    assert isinstance(op, Conv2dOp)
    op.scheme = StringAttr(RequantScheme.ONNX_F32_RNE.value)
    violation = first_violation(op, CONFIG)
    assert violation is not None
    assert violation.rule == "requantisation_scheme"
    assert violation.attribute == "scheme = onnx_f32_rne"


def test_weights_that_are_computed_are_refused(net) -> None:
    made = net().input(6, 8)
    weights = made.value
    made.input(3, 8).fully_connected(6)
    op = last_op(made)
    assert isinstance(op, FullyConnectedOp)
    op.operands[1] = weights
    violation = first_violation(op, CONFIG)
    assert violation is not None
    assert (violation.rule, violation.attribute) == ("constant_weights", "weight is computed")


def test_a_change_of_sign_is_no_arithmetic_of_the_npu(net) -> None:
    made = net().input(1, 4, 4, 2)
    made.value = made.builder.flip_sign(made.value, "flip", "flip")
    violation = first_violation(last_op(made), CONFIG)
    assert violation is not None
    assert (violation.rule, violation.attribute) == ("signed_codes", "result elements = ui8")


def test_every_rule_has_a_text_and_a_remedy() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.text.endswith(".")
        assert "must" in rule.text
        assert rule.remedy
        assert rule.ops


def test_bounds_in_the_texts_are_those_of_the_fields() -> None:
    from npulse.sw.targets.tpu_v1 import legality

    texts = {rule.id: rule.text for rule in RULES}
    assert str(legality.KERNEL_MAX) in texts["kernel_size"]
    assert str(legality.STRIDE_MAX) in texts["strides_and_dilations"]
    assert str(legality.WINDOW_MAX) in texts["pool_window"]
    assert str(legality.EXTENT_MAX) in texts["image_extent"]
    assert str(legality.BLOCKS_MAX) in texts["channel_count"]
    assert str(legality.TILES_MAX) in texts["channel_count"]
    assert np.all([legality.KERNEL_MAX == 63, legality.STRIDE_MAX == 31])
