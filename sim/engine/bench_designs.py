"""Designs that the benchmark runs, each with its own stimulus and a checksum of what it made.

Stimulus and checksum are hardware, so that pysim, Verilator and the engine do the same work and
can be compared bit by bit at the end.
"""

from functools import reduce
from operator import xor

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from npulse.hw.grid import Flow, Grid

__all__ = ["Control", "DrivenArray", "Pe"]


class Pe(wiring.Component):
    """int8 multiply-add with double-buffered weights, taken by a swap wave.

    Timing
    ------
    ``psum_o[t+1] = psum_i[t] + act_i[t] * active[t]``; weights shift south each cycle and are kept
    where ``load_i``; ``active[t+1] = shadow[t]`` where ``swap_i[t]``.
    """

    act_i: Signal
    act_o: Signal
    swap_i: Signal
    swap_o: Signal
    psum_i: Signal
    psum_o: Signal
    weight_i: Signal
    weight_o: Signal
    load_i: Signal
    load_o: Signal

    def __init__(self) -> None:
        ports = {"act": signed(8), "swap": 1, "psum": signed(32), "weight": signed(8), "load": 1}
        super().__init__(
            {f"{n}_{d}": f(s) for n, s in ports.items() for d, f in (("i", In), ("o", Out))}
        )

    def elaborate(self, platform: object) -> Module:
        """Build the cell."""
        m = Module()
        shadow, active = Signal(signed(8)), Signal(signed(8))
        m.d.sync += [
            self.act_o.eq(self.act_i),
            self.swap_o.eq(self.swap_i),
            self.weight_o.eq(self.weight_i),
            self.load_o.eq(self.load_i),
            self.psum_o.eq(self.psum_i + self.act_i * active),
        ]
        with m.If(self.load_i):
            m.d.sync += shadow.eq(self.weight_i)
        with m.If(self.swap_i):
            m.d.sync += active.eq(shadow)
        return m


def _noise(m: Module, width: int, seed: int) -> Signal:
    """Register of pseudo-random bits: a 64-bit Xorshift repeated to `width`.

    Ref: Marsaglia, Xorshift RNGs, Journal of Statistical Software 8 (2003), shifts 13, 7, 17.
    """
    state = Signal(64, init=0x9E3779B97F4A7C15 ^ seed)
    first, second = Signal(64), Signal(64)
    m.d.comb += [first.eq(state ^ (state << 13)), second.eq(first ^ (first >> 7))]
    m.d.sync += state.eq(second ^ (second << 17))
    copies = Signal(width)
    m.d.comb += copies.eq(Cat(state for _ in range(-(-width // 64))))
    return copies


class DrivenArray(wiring.Component):
    """Weight-stationary array under random activations, weights, loads and swaps.

    Attributes
    ----------
    checksum : Signal
        Exclusive or, over all cycles, of the sums that left the array.
    """

    checksum: Signal

    def __init__(self, rows: int, cols: int) -> None:
        self.rows, self.cols = rows, cols
        super().__init__({"checksum": Out(32)})

    def elaborate(self, platform: object) -> Module:
        """Build the array between its stimulus and its checksum."""
        m = Module()
        flows = {"act": 1, "swap": 1, "psum": 0, "weight": 0, "load": 0}
        roles = {name: Flow(axis) for name, axis in flows.items()}
        m.submodules.array = array = Grid(Pe, (self.rows, self.cols), roles)
        noise = _noise(m, 8 * max(self.rows, self.cols), 1)
        waves = Signal(8)
        m.d.sync += waves.eq(waves + 1)
        cast = Value.cast
        m.d.comb += [
            cast(array.act_i).eq(noise[: 8 * self.rows]),
            cast(array.weight_i).eq(noise[: 8 * self.cols]),
            cast(array.swap_i).eq(Mux(waves == 0, ~0, 0)),
            cast(array.load_i).eq(Mux(waves == 128, ~0, 0)),
        ]
        sums = cast(array.psum_o)
        one = reduce(xor, (sums.word_select(column, 32) for column in range(self.cols)))
        m.d.sync += self.checksum.eq(self.checksum ^ one)
        return m


class Cluster(wiring.Component):
    """Four FIFOs, an arbiter, a state machine, a scoreboard and an ALU: about 300 cells."""

    word: Signal
    valid: Signal
    result: Signal

    def __init__(self) -> None:
        super().__init__({"word": In(32), "valid": In(1), "result": Out(32)})

    def elaborate(self, platform: object) -> Module:
        """Build the cluster."""
        m = Module()
        fifos = [SyncFIFO(width=32, depth=8) for _ in range(4)]
        for index, fifo in enumerate(fifos):
            m.submodules[f"fifo{index}"] = fifo
            m.d.comb += fifo.w_data.eq(self.word ^ index)
            m.d.comb += fifo.w_en.eq(self.valid & (self.word[:2] == index))
        grant, busy = Signal(2), Signal(8)
        registers = Array(Signal(32, name=f"r{n}") for n in range(8))
        with m.Switch(grant):
            for index in range(4):
                with m.Case(index):
                    for step in range(1, 4):
                        with m.If(fifos[(index + 4 - step) % 4].r_rdy):
                            m.d.sync += grant.eq((index + 4 - step) % 4)
        head, there = Signal(32), Signal()
        m.d.comb += head.eq(Array(f.r_data for f in fifos)[grant])
        m.d.comb += there.eq(Array(f.r_rdy for f in fifos)[grant])
        a, b, out = Signal(32), Signal(32), Signal(32)
        opcode, target = Signal(3), Signal(3)
        with m.FSM():
            with m.State("FETCH"), m.If(there):
                m.d.comb += [fifo.r_en.eq(grant == n) for n, fifo in enumerate(fifos)]
                m.d.sync += [a.eq(registers[head[4:7]]), b.eq(head), target.eq(head[8:11])]
                m.d.sync += opcode.eq(head[12:15])
                m.next = "ISSUE"
            with m.State("ISSUE"), m.If(~busy.bit_select(target, 1)):
                m.d.sync += busy.bit_select(target, 1).eq(1)
                m.next = "EXECUTE"
            with m.State("EXECUTE"):
                with m.Switch(opcode):
                    for code, value in enumerate(
                        (
                            a + b,
                            a - b,
                            a & b,
                            a | b,
                            a ^ b,
                            a << b[:5],
                            a >> b[:5],
                            Mux(a < b, a, b),
                        )
                    ):
                        with m.Case(code):
                            m.d.sync += out.eq(value)
                m.next = "RETIRE"
            with m.State("RETIRE"):
                m.d.sync += [registers[target].eq(out), busy.bit_select(target, 1).eq(0)]
                m.next = "FETCH"
        m.d.comb += self.result.eq(out)
        return m


class Control(wiring.Component):
    """`clusters` clusters under random words; about 300 cells each.

    Attributes
    ----------
    checksum : Signal
        Exclusive or, over all cycles, of the results of all clusters.
    """

    checksum: Signal

    def __init__(self, clusters: int) -> None:
        self.clusters = clusters
        super().__init__({"checksum": Out(32)})

    def elaborate(self, platform: object) -> Module:
        """Build the clusters as a ring: each takes the result of the one before."""
        m = Module()
        clusters = [Cluster() for _ in range(self.clusters)]
        noise = _noise(m, 64, 2)
        for index, cluster in enumerate(clusters):
            m.submodules[f"cluster{index}"] = cluster
            m.d.comb += cluster.word.eq(noise[:32] ^ clusters[index - 1].result ^ index)
            m.d.comb += cluster.valid.eq(noise[32 + index % 32])
        one = reduce(xor, (cluster.result for cluster in clusters))
        m.d.sync += self.checksum.eq(self.checksum ^ one)
        return m
