"""Integer matrix products with an int32 accumulator that wraps.

Letters as in BLAS: C[M, N] = A[M, K] @ B[K, N]. Sums wrap modulo 2**32, and wrapping commutes with
addition, so the order of a sum does not matter: hardware of any shape gives these bits.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.sim.golden.check import require_axes, require_bias, require_bytes, wrap_int32

Array = NDArray[Any]


def _largest(values: Array) -> int:
    return max(int(values.max()), -int(values.min())) if values.size else 0


def exact_product(a: Array, b: Array) -> NDArray[np.int64]:
    """Multiply integer matrices exactly on the floating-point BLAS.

    Every partial sum is an integer of at most ``K * max|a| * max|b|``. A float with a mantissa of
    24 or 53 bits holds all integers up to 2**24 or 2**53, so no addition rounds. For operands of 9
    bits, as after subtracting a zero point, 2**53 allows K up to 10**11.

    Parameters
    ----------
    a : (..., M, K) integers
    b : (..., K, N) integers

    Returns
    -------
    (..., M, N) int64
    """
    bound = a.shape[-1] * _largest(a) * _largest(b)
    if bound > 1 << 53:
        raise ValueError(f"K * max|a| * max|b| must be at most 2**53 to be exact, not {bound}")
    dtype = np.float32 if bound <= 1 << 24 else np.float64
    return np.matmul(a.astype(dtype), b.astype(dtype)).astype(np.int64)


def centre(values: Array, zero_point: int) -> NDArray[np.int16]:
    """Subtract the zero point of bytes; 9 bits hold the difference."""
    return values.astype(np.int16) - np.int16(zero_point)


def accumulate(sums: NDArray[np.int64], bias: Array | None) -> NDArray[np.int32]:
    """Add ``bias (C,)`` to exact sums ``(..., C)`` and wrap to the accumulator."""
    return wrap_int32(sums if bias is None else sums + bias.astype(np.int64))


def matmul(
    a: Array, b: Array, *, a_zero_point: int = 0, b_zero_point: int = 0
) -> NDArray[np.int32]:
    """Compute ``(a - a_zero_point) @ (b - b_zero_point)`` modulo 2**32.

    Parameters
    ----------
    a : (..., M, K) int8 or uint8
    b : (..., K, N) int8 or uint8
        Leading axes broadcast as in `numpy.matmul`.

    Returns
    -------
    (..., M, N) int32
    """
    require_bytes("a", a, "a_zero_point", a_zero_point)
    require_bytes("b", b, "b_zero_point", b_zero_point)
    if min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"a and b must be (..., M, K) and (..., K, N), not {a.shape} and {b.shape}"
        )
    return wrap_int32(exact_product(centre(a, a_zero_point), centre(b, b_zero_point)))


def fully_connected(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    input_zero_point: int = 0,
    weight_zero_point: int = 0,
) -> NDArray[np.int32]:
    """Compute ``(x - input_zero_point) @ (w - weight_zero_point).T + bias`` modulo 2**32.

    Parameters
    ----------
    x : (M, K) int8 or uint8
    w : (N, K) int8 or uint8
        Each row holds the weights of one output, as in TFLite.
    bias : (N,) int32 or None

    Returns
    -------
    (M, N) int32
    """
    require_bytes("x", x, "input_zero_point", input_zero_point)
    require_bytes("w", w, "weight_zero_point", weight_zero_point)
    require_axes("x", x, "M, K")
    require_axes("w", w, "N, K")
    if x.shape[1] != w.shape[1]:
        raise ValueError(f"w must have K = {x.shape[1]} columns as x has, not {w.shape[1]}")
    require_bias(bias, w.shape[0])
    sums = exact_product(centre(x, input_zero_point), centre(w, weight_zero_point).T)
    return accumulate(sums, bias)
