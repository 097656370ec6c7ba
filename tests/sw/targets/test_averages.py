"""Averages on the NPU: the factor that divides, the layers, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npulse.hw.spec.flavours import resolve
from npulse.hw.spec.numerics import RequantScheme
from npulse.sim.golden.requant import scale_q31
from npulse.sw.compile import compile_model
from npulse.sw.ir.tpu import MatrixMultiplyOp, ReadWeightsOp
from npulse.sw.targets.tpu_v1.averages import average_factor
from npulse.sw.targets.tpu_v1.target import compile_stages

NPU = resolve("tpu-v1:sim")


def test_a_quarter_is_a_power_of_two() -> None:
    assert average_factor(4) == (1 << 30, -1)


def test_a_third_is_rounded_up_so_that_ties_stay_ties() -> None:
    assert average_factor(3) == ((1 << 32) // 3 + 1, -1)


@given(count=st.integers(1, 63 * 63), sums=st.lists(st.integers(-128, 127), min_size=1))
def test_the_factor_divides_to_nearest_with_ties_away_from_zero(count, sums) -> None:
    factor = average_factor(count)
    assert factor is not None
    total = np.array([v * count + v % count for v in sums], np.int32)
    total = total.clip(-128 * count, 127 * count)
    made = scale_q31(total, *factor, RequantScheme.TFLITE_Q31_AWAY)
    exact = np.abs(total.astype(object)) * 2 + count
    due = [int(np.sign(t)) * int(e // (2 * count)) for t, e in zip(total, exact, strict=True)]
    assert made.tolist() == due


def test_an_average_reads_its_tile_once_and_multiplies_once_a_kernel_place(net) -> None:
    program = compile_stages(net().input(1, 6, 6, 8).average((3, 2)).model(), NPU.config)
    ops = list(program.programs[0].instructions)
    assert [op.fields["tiles"] for op in ops if isinstance(op, ReadWeightsOp)] == [1]
    multiplies = [op.fields for op in ops if isinstance(op, MatrixMultiplyOp)]
    assert [f["switch"] for f in multiplies] == [1, 0, 0, 0, 0, 0]
    assert [f["accumulate"] for f in multiplies] == [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("build", "rule", "attribute"),
    [
        (
            lambda net: net.average((2, 2), (1, 1), (1, 0, 0, 0)),
            "average_border",
            "pads = 1x0x0x0",
        ),
        (
            lambda net: net.average((2, 2), (1, 1), (0, 0, 0, 1)),
            "average_border",
            "pads = 0x0x0x1",
        ),
        (lambda net: net.mean((2, 3)), "mean_axes", "axes = (2, 3) of 4"),
    ],
)
def test_an_average_that_the_requantiser_cannot_make_is_on_the_host(
    net, build, rule, attribute
) -> None:
    executable = compile_model(build(net().input(1, 6, 6, 3)).model(), NPU)
    (reason,) = executable.reasons
    assert (reason.placed, reason.rule, reason.attribute) == ("host", rule, attribute)
    assert reason.fallback


def test_an_average_over_64_rows_is_on_the_host(net) -> None:
    (reason,) = compile_model(net().input(1, 64, 2, 3).mean((1,)).model(), NPU).reasons
    assert (reason.rule, reason.attribute) == ("average_window", "kernel = 64x1")
