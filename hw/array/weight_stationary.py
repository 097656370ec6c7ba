"""Weight-stationary systolic array: C[M, N] = A[M, K] @ B[K, N], K rows by N columns of `Pe`."""

from npulse.hw.array.pe import Pe, psum_width
from npulse.hw.grid import Flow, Grid

__all__ = ["weight_stationary_array"]


def weight_stationary_array(*, rows: int, cols: int, multiplier_latency: int = 0) -> Grid:
    """Grid of rows x cols processing elements.

    Edges: ``act_i`` and ``swap_i`` (rows, from the west), ``weight_i``, ``load_i`` and ``psum_i``
    (columns, from the north), ``psum_o`` (columns, to the south).

    Timing
    ------
    With D = `multiplier_latency`: activation A[m, k] enters row k in cycle ``a + m + k``, and
    C[m, n] leaves column n in cycle ``a + m + n + rows + D``. The swap of row k enters in cycle
    ``a + k - 1``. Weight B[k, n] enters column n in cycle ``w + k + n``, the load token with k = 0;
    the tile may be used from ``a = w + rows + 1``, and the next tile may start to enter from
    ``w = a - 1``. So a tile takes max(M, rows) cycles when the next one waits.
    """
    width = psum_width(rows)
    return Grid(
        lambda: Pe(psum_width=width, multiplier_latency=multiplier_latency),
        (rows, cols),
        {
            "act": Flow(axis=1),
            "swap": Flow(axis=1),
            "psum": Flow(axis=0),
            "weight": Flow(axis=0),
            "load": Flow(axis=0),
        },
    )
