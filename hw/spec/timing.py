"""Latencies of the TPU v1 style in closed form; tests compare them with the RTL cycle by cycle.

Letters as in BLAS, C[M, N] = A[M, K] @ B[K, N]; s is ``memory.sram_latency`` and D is
``array.multiplier_latency``.
"""

from npulse.hw.spec.tpu_v1 import TpuV1Config

__all__ = ["accumulate_delay", "activate_delay", "matrix_cycles", "matrix_drain", "pass_cycles"]


def accumulate_delay(config: TpuV1Config) -> int:
    """Cycles from the grant of a row to its accumulator command at column 0.

    The row enters the array s + 2 cycles after the grant, and its sum leaves column 0 ``rows + D``
    cycles later; the command precedes the sum by the s cycles that the old sum takes.
    """
    return config.array.rows + config.array.multiplier_latency + 2


def matrix_drain(config: TpuV1Config) -> int:
    """Cycles from the grant of a row until its last sum is in the accumulators."""
    return accumulate_delay(config) + config.memory.sram_latency + config.array.cols + 1


def activate_delay(config: TpuV1Config) -> int:
    """Cycles from the read of an accumulator row to the write command of its result."""
    return config.memory.sram_latency + config.requantiser_latency + 3


def pass_cycles(config: TpuV1Config, rows: int) -> int:
    """Cycles from pass to pass with `rows` rows each, when tiles wait in the FIFO: max(M, K).

    The array's rows bound it below because a tile slides in a row a cycle, and so do the s + 2
    cycles that a sum takes before the same accumulator may be added to again.
    """
    return max(rows, config.array.rows, config.memory.sram_latency + 2)


def matrix_cycles(config: TpuV1Config, rows: int, passes: int) -> int:
    """Cycles from the grant of the first row until the last sum is in the accumulators.

    This is (T - 1) * max(M, K) + M + K + N - 2 of `passes` T tiles in an array without registers
    around it, and the constant ``D + s + 4`` for the registers from grant to array and from array
    to accumulator.
    """
    streaming = (passes - 1) * pass_cycles(config, rows) + rows
    return streaming - 1 + matrix_drain(config)
