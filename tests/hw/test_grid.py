import re

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from npulse.hw.grid import Broadcast, Edge, Flow, Grid, PerCell


class Adder(wiring.Component):
    """Adds what passes east to what passes south; shows its sum, and the count at the edge."""

    east_i: In(signed(8))
    east_o: Out(signed(8))
    south_i: In(signed(16))
    south_o: Out(signed(16))
    scale: In(signed(4))
    offset: In(signed(4))
    total: Out(signed(16))
    last: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += [
            self.east_o.eq(self.east_i),
            self.south_o.eq(self.south_i + self.east_i * self.scale),
            self.total.eq(self.south_i + self.offset),
            self.last.eq(self.last + 1),
        ]
        return m


ROLES = {
    "east": Flow(axis=1),
    "south": Flow(axis=0),
    "scale": Broadcast(),
    "offset": Broadcast(axes=(0,)),
    "total": PerCell(),
    "last": Edge(axis=1),
}


def simulate(grid, cycles, seed):
    """Drive random edges; return what went in and came out, one row a cycle."""
    rng = np.random.default_rng(seed)
    rows, cols = grid.shape
    seen = []

    async def bench(ctx):
        for _ in range(cycles):
            east, south = rng.integers(-99, 99, rows), rng.integers(-99, 99, cols)
            offset, scale = rng.integers(-8, 8, cols), int(rng.integers(-8, 8))
            for port, values in (("east_i", east), ("south_i", south), ("offset", offset)):
                for lane, value in enumerate(values):
                    ctx.set(getattr(grid, port)[lane], int(value))
            ctx.set(grid.scale, scale)
            out = {
                port: [ctx.get(getattr(grid, port)[lane]) for lane in range(count)]
                for port, count in (("east_o", rows), ("south_o", cols), ("last", rows))
            }
            out["total"] = [ctx.get(grid.total[i]) for i in range(rows * cols)]
            seen.append(dict(east=east, south=south, offset=offset, scale=scale, **out))
            await ctx.tick()

    sim = Simulator(grid)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return seen


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 2), (1, 4)])
def test_cells_equal_a_numpy_model(shape):
    rows, cols = shape
    seen = simulate(Grid(Adder, shape, ROLES), 20, seed=rows * 10 + cols)
    east, south, total = (np.zeros(shape, int) for _ in range(3))
    for cycle, step in enumerate(seen):
        assert step["east_o"] == east[:, -1].tolist()
        assert step["south_o"] == south[-1].tolist()
        assert step["total"] == total.ravel().tolist()
        assert step["last"] == [cycle % 256] * rows
        east_in = np.column_stack([step["east"], east[:, :-1]])
        south_in = np.vstack([step["south"], south[:-1]])
        total = south_in + step["offset"]
        east, south = east_in, south_in + east_in * step["scale"]


def test_platform_may_lower_the_grid_itself():
    grid = Grid(Adder, (2, 2), ROLES)
    marker = Module()

    class Platform:
        def lower_grid(self, given):
            assert given is grid and given.shape == (2, 2) and given.roles == ROLES
            return marker

    assert grid.elaborate(Platform()) is marker


class Combinational(wiring.Component):
    east_i: In(8)
    east_o: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.east_o.eq(self.east_i)
        return m


class Aliased(Combinational):
    def elaborate(self, platform):
        m = Module()
        held = Signal(8, reset_less=True)
        m.d.sync += held.eq(self.east_i)
        m.d.comb += self.east_o.eq(held)
        return m


def test_refuses_a_combinational_flow_and_takes_a_renamed_register():
    message = (
        "flow output east_o must be a register of the cell, "
        "since no combinational path may cross cells"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        Grid(Combinational, (2,), {"east": Flow()})
    Grid(Aliased, (2,), {"east": Flow()})


@pytest.mark.parametrize(
    "shape, change, message",
    [
        ((0, 2), {}, "shape must have at least one axis of at least 1 cell, not (0, 2)"),
        ((), {}, "shape must have at least one axis of at least 1 cell, not ()"),
        (
            (2, 2),
            {"total": None},
            "roles must cover every port of the cell, but leave out ['total']",
        ),
        ((2, 2), {"west": Flow()}, "roles must name ports of the cell, which has no 'west_i'"),
        ((2, 2), {"east": Flow(axis=2)}, "axis of 'east' must be in 0..1, not 2"),
        ((2, 2), {"offset": Broadcast((3,))}, "axis of 'offset' must be in 0..1, not 3"),
        ((2, 2), {"total": Broadcast()}, "broadcast 'total' must be an input of the cell"),
        ((2, 2), {"scale": Edge()}, "edge 'scale' must be an output of the cell"),
    ],
)
def test_says_which_rule_a_grid_breaks(shape, change, message):
    roles = {name: role for name, role in {**ROLES, **change}.items() if role is not None}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Grid(Adder, shape, roles)


def test_refuses_flow_ports_of_two_shapes():
    class Uneven(wiring.Component):
        east_i: In(8)
        east_o: Out(9)

    message = "flow 'east' must have one shape at both ends, not 8 and 9"
    with pytest.raises(ValueError, match=f"^{message}$"):
        Grid(Uneven, (2,), {"east": Flow()})


class Backwards(wiring.Component):
    east_i: Out(8)
    east_o: In(8)


def test_refuses_a_flow_that_runs_backwards():
    message = "flow 'east' must have an input east_i and an output east_o"
    with pytest.raises(ValueError, match=f"^{message}$"):
        Grid(Backwards, (2,), {"east": Flow()})
