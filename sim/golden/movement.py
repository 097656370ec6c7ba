"""Operators that only move elements, of any dtype: pad, slice with steps, nearest-neighbour resize.

Ref: TensorFlow Lite ``kernels/internal/reference/pad.h``, ``reference/strided_slice.h`` and
``reference/resize_nearest_neighbor.h`` (GetNearestNeighbor).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npulse.sim.golden.check import require_axes
from npulse.sim.golden.geometry import Pair

Array = NDArray[Any]


def pad(x: Array, before: Sequence[int], after: Sequence[int], value: int) -> Array:
    """Surround ``x`` with ``value``: ``before`` and ``after`` count elements on each axis."""
    if len(before) != x.ndim or len(after) != x.ndim or min((*before, *after), default=0) < 0:
        raise ValueError(
            f"before and after must be {x.ndim} integers of at least 0, not {list(before)} and "
            f"{list(after)}"
        )
    return np.pad(x, list(zip(before, after, strict=True)), constant_values=value)


def strided_slice(
    x: Array, starts: Sequence[int], steps: Sequence[int], shape: Sequence[int]
) -> Array:
    """Take ``x[start], x[start + step], ...`` on each axis, ``shape`` elements in all.

    ``starts`` are indices from 0, ``steps`` any integers but 0; every element must lie in ``x``.
    """
    if not len(starts) == len(steps) == len(shape) == x.ndim:
        raise ValueError(f"starts, steps and shape must have {x.ndim} integers")
    picks = []
    for axis, (start, step, count) in enumerate(zip(starts, steps, shape, strict=True)):
        indices = start + step * np.arange(count)
        if step == 0 or (count and not (indices.min() >= 0 and indices.max() < x.shape[axis])):
            raise ValueError(
                f"slice of axis {axis} must lie in its {x.shape[axis]} elements, not start at "
                f"{start} with {count} steps of {step}"
            )
        picks.append(indices)
    return np.ascontiguousarray(x[np.ix_(*picks)]) if picks else x.copy()


def nearest_indices(
    source: int, target: int, *, align_corners: bool = False, half_pixel: bool = False
) -> NDArray[np.int64]:
    """Index of the input element that each of ``target`` output elements copies.

    All arithmetic is float32, as in the reference: with ``align_corners`` the position is rounded
    half away from zero, otherwise rounded down.
    """
    spread = align_corners and target > 1
    scale = np.float32(source - 1) / np.float32(target - 1) if spread else None
    if scale is None:
        scale = np.float32(source) / np.float32(target)
    offset = np.float32(0.5 if half_pixel else 0)
    position = (np.arange(target).astype(np.float32) + offset) * scale
    whole = np.floor(position)
    if align_corners:
        whole = np.where(position - whole >= 0.5, whole + 1, whole)
    return whole.astype(np.int64).clip(0, source - 1)


def resize_nearest(
    x: Array, size: Pair, *, align_corners: bool = False, half_pixel: bool = False
) -> Array:
    """Resize images ``(N, H, W, C)`` to ``size`` rows and columns by copying the nearest pixel."""
    require_axes("x", x, "N, H, W, C")
    rows, columns = (
        nearest_indices(source, target, align_corners=align_corners, half_pixel=half_pixel)
        for source, target in zip(x.shape[1:3], size, strict=True)
    )
    return x[:, rows][:, :, columns]
