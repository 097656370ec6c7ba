"""Views through reshapes and transposes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.sw.frontends.builder import GraphBuilder
from npulse.sw.ir.graph import ReshapeOp, TransposeOp
from npulse.sw.ir.types import QuantAttr, tensor_type, type_of
from npulse.sw.passes.views import image_shape, views


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((1, 4, 5, 6), (4, 5, 6)),
        ((1, 5, 6), (1, 5, 6)),
        ((7, 6), (1, 7, 6)),
        ((6,), (1, 1, 6)),
        ((2, 4, 5, 6), None),
        ((2, 5, 6), None),
        ((1, 1, 4, 5, 6), None),
    ],
)
def test_image_of_a_tensor(shape, image) -> None:
    assert image_shape(shape) == image


def apply(array, op):
    if isinstance(op, TransposeOp):
        return array.transpose([int(v) for v in op.permutation.get_values()])
    assert isinstance(op, ReshapeOp)
    return array.reshape(type_of(op.result).get_shape())


@given(st.data())
def test_order_is_what_the_layout_operators_do(data) -> None:
    builder = GraphBuilder()
    shape = (1, *data.draw(st.tuples(*[st.integers(1, 4)] * 3)))
    value = builder.argument(tensor_type(shape, np.int8, QuantAttr.of(1.0)), "x")
    stored = np.arange(np.prod(shape)).reshape(shape)
    expected = stored
    for index in range(data.draw(st.integers(0, 3))):
        rank = len(type_of(value).get_shape())
        if data.draw(st.booleans()):
            order = data.draw(st.permutations(range(rank)))
            value = builder.transpose(value, order, "t", f"t{index}")
        else:
            value = builder.reshape(value, (1, stored.size), "r", f"r{index}")
    chain = []
    while isinstance(value.owner, ReshapeOp | TransposeOp) and len(chain) < 9:
        chain.append(value.owner)
        value = value.owner.input
    for op in reversed(chain):
        expected = apply(expected, op)
    last = chain[0].result if chain else value
    found = views(last)
    assert found[0].base is value
    assert (found[0].order == expected).all()
    if image_shape(type_of(last).get_shape()) is not None:
        assert found[-1].base is last
        assert found[-1].in_order


def test_channels_are_kept_by_merging_pixels_only() -> None:
    builder = GraphBuilder()
    x = builder.argument(tensor_type((1, 2, 3, 4), np.int8, QuantAttr.of(1.0)), "x")
    pixels = builder.reshape(x, (6, 4), "r", "pixels")
    flat = builder.reshape(x, (1, 24), "r", "flat")
    turned = builder.transpose(x, (0, 2, 1, 3), "t", "turned")
    assert views(pixels)[0].channels_kept
    assert not views(flat)[0].channels_kept
    assert not views(turned)[0].in_order
