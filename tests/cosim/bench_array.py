"""Bench of a 4 x 4 array: tiles that follow each other closely, against numpy."""

from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from numpy.typing import NDArray
from streams import reset

ROWS = COLS = 4
#: Bits of the ports that are arrays, one element a row or a column.
ACT_BITS, PSUM_BITS = 8, 18

Matrix = NDArray[np.int64]


def packed(values: list[int], bits: int) -> int:
    """Elements of an array port as one number, the first in the lowest bits."""
    return sum((value % (1 << bits)) << (index * bits) for index, value in enumerate(values))


def element(word: int, index: int, bits: int) -> int:
    """Signed element of an array port."""
    value = (word >> (index * bits)) % (1 << bits)
    return value - (value >> (bits - 1) << bits)


class Schedule:
    """What enters and leaves the array in each cycle, from the timing in its docstring."""

    def __init__(self, tiles: list[tuple[Matrix, Matrix]]) -> None:
        self.west: dict[tuple[int, int], int] = {}
        self.north: dict[tuple[int, int], int] = {}
        self.south: dict[tuple[int, int], int] = {}
        self.swap: set[tuple[int, int]] = set()
        self.load: set[tuple[int, int]] = set()
        enters, start = 0, ROWS + 1
        for acts, weights in tiles:
            self._add(acts, weights, enters, start)
            enters, start = start - 1, start + max(len(acts), ROWS)
        self.cycles = 1 + max(cycle for cycle, _ in self.south)

    def _add(self, acts: Matrix, weights: Matrix, enters: int, start: int) -> None:
        sums = acts @ weights
        self.swap |= {(start + k - 1, k) for k in range(ROWS)}
        self.load |= {(enters + n, n) for n in range(COLS)}
        for (k, n), weight in np.ndenumerate(weights):
            self.north[enters + k + n, n] = int(weight)
        for (m, k), act in np.ndenumerate(acts):
            self.west[start + m + k, k] = int(act)
        for (m, n), due in np.ndenumerate(sums):
            self.south[start + m + n + ROWS, n] = int(due)


@cocotb.test()
async def sums_equal_numpy(dut: Any) -> None:
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    tiles = [
        (rng.integers(-128, 128, (m, ROWS)), rng.integers(-128, 128, (ROWS, COLS)))
        for m in (*rng.integers(1, 9, 40), 4)
    ]
    tiles.append((np.full((2, ROWS), -128), np.full((ROWS, COLS), -128)))
    schedule = Schedule(tiles)
    Clock(dut.clk, 10, unit="ns").start()
    await reset(dut, psum_i=0, act_i=0, swap_i=0, weight_i=0, load_i=0)
    seen = 0
    for cycle in range(schedule.cycles):
        word = int(dut.psum_o.value)
        for n in range(COLS):
            if (cycle, n) in schedule.south:
                seen += 1
                got, due = element(word, n, PSUM_BITS), schedule.south[cycle, n]
                assert got == due, f"column {n} gives {got} instead of {due} in cycle {cycle}"
        dut.act_i.value = packed([schedule.west.get((cycle, k), 77) for k in range(ROWS)], ACT_BITS)
        dut.swap_i.value = packed([(cycle, k) in schedule.swap for k in range(ROWS)], 1)
        dut.weight_i.value = packed(
            [schedule.north.get((cycle, n), -99) for n in range(COLS)], ACT_BITS
        )
        dut.load_i.value = packed([(cycle, n) in schedule.load for n in range(COLS)], 1)
        await FallingEdge(dut.clk)
    assert seen == sum(len(acts) for acts, _ in tiles) * COLS, f"only {seen} sums seen"
