"""Every operator as a convolution with a window: against golden."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import DenseArrayBase, i32

from npulse.sim.golden.conv import conv2d
from npulse.sim.golden.pool import max_pool2d
from npulse.sim.golden.requant import requantize
from npulse.sw.interpret import interpret
from npulse.sw.passes.views import views
from npulse.sw.targets.tpu_v1.layers import fold_zero_point, fuse_pool, layer_of


def carry_out(layer, stored: np.ndarray) -> np.ndarray:
    """What a layer means, by golden convolution, requantisation and pooling; (H, W, O) int8."""
    height, width = layer.source_size
    image = stored.reshape(1, height, width, -1)
    outer = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(layer.size, layer.strides, layer.kernel, layer.dilations, strict=True)
    ]
    top, left = (-o for o in layer.origin)
    bottom, right = (max(0, outer[0] - top - height), max(0, outer[1] - left - width))
    padded = np.pad(
        image, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=layer.fill
    )
    acc = conv2d(
        padded[:, : outer[0], : outer[1]],
        layer.weights,
        layer.bias,
        stride=layer.strides,
        dilation=layer.dilations,
        groups=layer.groups,
    )
    codes = requantize(
        acc,
        layer.multiplier,
        layer.shift.astype(np.int32),
        zero_point=layer.zero_point,
        act_min=layer.clamp[0],
        act_max=layer.clamp[1],
        scheme=layer.scheme,
    )
    return windows(layer, codes)[0]


def windows(layer, codes: np.ndarray) -> np.ndarray:
    out_y, out_x, _ = layer.out_image
    reach = [
        o + (n - 1) * s + w
        for o, n, s, w in zip(
            layer.window_origin, (out_y, out_x), layer.window_strides, layer.window, strict=True
        )
    ]
    before = tuple(-o for o in layer.window_origin)
    after = tuple(max(0, r - n) for r, n in zip(reach, layer.size, strict=True))
    return max_pool2d(
        codes,
        layer.window,
        stride=layer.window_strides,
        padding=((before[0], after[0]), (before[1], after[1])),
        act_min=-128,
        act_max=127,
    )[:, :out_y, :out_x]


def check(made, seed: int = 0) -> None:
    """Compare the last operator of a network, as a layer, with golden on a random input."""
    layer = layer_of(made.value.owner, made.builder.weights)
    model = made.model()
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, model.inputs[0].shape).astype(np.int8)
    expected = interpret(model, {"x0": x})["y0"]
    assert (carry_out(layer, x).ravel() == expected.ravel()).all()
    assert np.unique(expected).size > 1


@pytest.mark.parametrize("seed", range(8))
def test_convolutions_are_golden_with_the_zero_point_in_the_bias(net, seed) -> None:
    check(
        net(seed).input(1, 7, 6, 4).conv(6, (3, 2), (2, 1), (1, 2), (1, 2, 2, 1), 1 + seed % 2),
        seed,
    )


@pytest.mark.parametrize("channels_first", [False, True])
def test_a_flattened_image_permutes_the_weights_instead(net, channels_first) -> None:
    made = net(2).input(1, 3, 4, 5).flatten(channels_first=channels_first).fully_connected(9)
    check(made)
    layer = layer_of(made.value.owner, made.builder.weights)
    assert layer.kernel == (3, 4)
    assert layer.image == (3, 4, 5)


def test_a_matrix_is_an_image_of_pixels(net) -> None:
    check(net(3).input(6, 5).fully_connected(9))


def test_pixels_of_an_image_become_rows_of_a_matrix(net) -> None:
    made = net(3).input(1, 2, 3, 5).reshape(6, 5).fully_connected(9)
    assert layer_of(made.value.owner, made.builder.weights).source_size == (1, 6)
    check(made)


@pytest.mark.parametrize("seed", range(4))
def test_copies_are_golden(net, seed) -> None:
    check(net(seed).input(1, 5, 6, 3).pool((3, 2), (2, 1), (1, 0, 2, 1), (-90, 70)))
    check(net(seed).input(1, 5, 6, 3).clamp())
    check(net(seed).input(1, 5, 6, 3).requantize())


def test_a_copy_counts_no_multiply_adds(net) -> None:
    made = net().input(1, 5, 6, 3).pool()
    assert layer_of(made.value.owner, {}).macs == 0
    made = net().input(1, 5, 6, 3).conv(4)
    assert layer_of(made.value.owner, made.builder.weights).macs == 3 * 4 * 4 * 27


@pytest.mark.parametrize(
    ("conv_clamp", "pool_clamp", "bounds"),
    [
        ((-128, 127), (-20, 10), (-20, 10)),
        ((-15, 5), (-20, 10), (-15, 5)),
        ((-60, 5), (-20, 10), (-20, 5)),
        ((-10, 60), (-20, 10), (-10, 10)),
        ((30, 60), (-20, 10), (10, 10)),
    ],
)
def test_a_fused_pool_is_golden_and_clamps_both_ways(net, conv_clamp, pool_clamp, bounds) -> None:
    made = net(4).input(1, 6, 6, 2).conv(3).pool((2, 2), (2, 2), clamp=pool_clamp)
    pool = made.value.owner
    pool.input.owner.clamp = DenseArrayBase.from_list(i32, conv_clamp)
    layer = fuse_pool(layer_of(pool.input.owner, made.builder.weights), pool)
    assert layer.clamp == bounds
    x = np.random.default_rng(1).integers(-128, 128, (1, 6, 6, 2)).astype(np.int8)
    assert (carry_out(layer, x) == interpret(made.model(), {"x0": x})["y0"]).all()


@given(st.integers(-128, 127), st.integers(0, 2**32 - 1))
def test_the_folded_bias_wraps_as_the_accumulator_does(zero, seed) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(-128, 128, (3, 2, 2, 5)).astype(np.int8)
    bias = rng.integers(-(2**31), 2**31, 3).astype(np.int32)
    x = rng.integers(-128, 128, (1, 2, 2, 5)).astype(np.int8)
    folded = conv2d(x, weights, fold_zero_point(bias, weights, zero))
    assert (folded == conv2d(x, weights, bias, input_zero_point=zero)).all()


def test_a_view_beyond_the_kernel_limit_is_read_as_it_is(net) -> None:
    made = net().input(1, 64, 1, 1).flatten().fully_connected(2)
    layer = layer_of(made.value.owner, made.builder.weights)
    assert layer.base is views(made.value.owner.input)[-1].base
    assert layer.kernel == (1, 1)
