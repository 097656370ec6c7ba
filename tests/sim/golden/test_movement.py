"""Moves of elements and transposed convolution against plain numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.sim.golden.conv import conv2d
from npulse.sim.golden.movement import nearest_indices, pad, resize_nearest, strided_slice
from npulse.sim.golden.transpose_conv import transpose_conv2d


@given(st.integers(1, 9), st.data())
def test_strided_slice_is_numpy_slicing(extent: int, data) -> None:
    x = np.arange(2 * extent).reshape(2, extent)
    step = data.draw(st.sampled_from([-3, -1, 1, 2, 4]))
    start = data.draw(st.integers(0, extent - 1))
    expected = x[:, start::step]
    found = strided_slice(x, (0, start), (1, step), expected.shape)
    np.testing.assert_array_equal(found, expected)


@given(st.integers(1, 40), st.integers(1, 40))
def test_nearest_indices_rise_from_first_to_last(source: int, target: int) -> None:
    for corners, half in ((False, False), (True, False), (False, True)):
        indices = nearest_indices(source, target, align_corners=corners, half_pixel=half)
        assert (np.diff(indices) >= 0).all()
        assert indices.min() >= 0 and indices.max() < source
    if target > 1:
        ends = nearest_indices(source, target, align_corners=True)[[0, -1]]
        assert ends.tolist() == [0, source - 1]


def test_doubling_an_image_repeats_each_pixel() -> None:
    x = np.arange(6, dtype=np.int8).reshape(1, 2, 3, 1)
    found = resize_nearest(x, (4, 6))
    np.testing.assert_array_equal(found, x.repeat(2, 1).repeat(2, 2))


def test_pad_puts_the_value_around() -> None:
    found = pad(np.ones((1, 2), np.int16), (1, 0), (0, 2), -7)
    assert found.tolist() == [[-7, -7, -7, -7], [1, 1, -7, -7]]


@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99)
)
def test_transposed_convolution_is_the_adjoint_of_convolution(kh, kw, sh, sw, seed) -> None:
    """<conv(y), x> = <y, transposed(x)> for every image y, kernel and x."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, (1, 3, 2, 5), np.int8)
    w = rng.integers(-9, 9, (4, kh, kw, 5), np.int8)
    size = (2 * sh + kh, sw + kw)
    y = rng.integers(-9, 9, (1, *size, 4), np.int8)
    forward = conv2d(y, np.ascontiguousarray(w.transpose(3, 1, 2, 0)), stride=(sh, sw))
    spread = transpose_conv2d(x, w, size=size, stride=(sh, sw))
    assert (forward.astype(int) * x).sum() == (spread.astype(int) * y).sum()


def test_transposed_convolution_cuts_adds_bias_and_centres() -> None:
    x = np.full((1, 2, 2, 1), 3, np.int8)
    w = np.arange(9, dtype=np.int8).reshape(1, 3, 3, 1)
    whole = transpose_conv2d(x, w, size=(4, 4), input_zero_point=1)
    bias = np.array([100], np.int32)
    cut = transpose_conv2d(x, w, bias, size=(2, 3), before=(1, 1), input_zero_point=1)
    np.testing.assert_array_equal(cut, whole[:, 1:3, 1:4] + 100)
    assert whole[0, 0, 0, 0] == 0 and whole[0, 3, 3, 0] == 2 * 8


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda: pad(np.zeros((1, 1)), (1,), (0, 0), 0),
            "before and after must be 2 integers of at least 0, not [1] and [0, 0]",
        ),
        (
            lambda: strided_slice(np.zeros(4), (2,), (1,), (3,)),
            "slice of axis 0 must lie in its 4 elements, not start at 2 with 3 steps of 1",
        ),
        (
            lambda: strided_slice(np.zeros(4), (2, 0), (1,), (3,)),
            "starts, steps and shape must have 1 integers",
        ),
        (
            lambda: transpose_conv2d(
                np.zeros((1, 1, 1, 2), np.int8), np.zeros((1, 1, 1, 3), np.int8), size=(1, 1)
            ),
            "w must have C = 2 input channels, not 3",
        ),
    ],
)
def test_message_names_the_rule(act, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        act()
    assert str(caught.value) == message
