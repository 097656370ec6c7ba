"""Queue whose entries become visible after a fixed delay, as requests of a slow memory do."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out


class DelayQueue(wiring.Component):
    """First-in first-out queue with a minimum stay; any number of entries may wait in parallel.

    Timing
    ------
    An entry taken on ``put`` in cycle *t* is on ``get`` from *t + delay_cycles*, or from when
    its predecessor leaves. Throughput is one entry a cycle. All handshake outputs are functions
    of registers.

    Parameters
    ----------
    width : int
        Bits in an entry.
    entries : int
        Least number of entries to hold; rounded up to a power of two of at least 2.
    delay_cycles : int
        At least 1.
    """

    put: stream.Interface  #: Entries to hold.
    get: stream.Interface  #: Entries in order.

    def __init__(self, *, width: int, entries: int, delay_cycles: int) -> None:
        if delay_cycles < 1:
            raise ValueError(f"delay_cycles must be at least 1, not {delay_cycles!r}")
        self.depth = 1 << (max(entries, 2) - 1).bit_length()
        self.delay_cycles = delay_cycles
        self.width = width
        signature = stream.Signature(width)
        super().__init__({"put": In(signature), "get": Out(signature)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(shape=self.width, depth=self.depth, init=[])
        write, read = words.write_port(), words.read_port(domain="comb")
        first, put, get = Signal(range(2 * self.depth)), Signal(), Signal()
        end, visible = Signal.like(first), Signal.like(first)

        m.d.comb += [
            self.put.ready.eq((first ^ end) != self.depth),
            self.get.valid.eq(first != visible),
            put.eq(self.put.valid & self.put.ready),
            get.eq(self.get.valid & self.get.ready),
            write.addr.eq(end[:-1]),
            write.data.eq(self.put.p),
            write.en.eq(put),
            read.addr.eq(first[:-1]),
            self.get.p.eq(read.data),
        ]
        m.d.sync += [end.eq(end + put), first.eq(first + get)]
        if self.delay_cycles == 1:
            m.d.comb += visible.eq(end)
        else:
            arrivals = Signal(self.delay_cycles - 1)
            m.d.sync += [
                arrivals.eq(Cat(put, arrivals)),
                visible.eq(visible + arrivals[-1]),
            ]
        return m
