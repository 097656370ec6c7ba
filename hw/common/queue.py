"""A short first-in first-out queue in few cells.

`amaranth.lib.fifo` has the general ones. Before each unit there is a queue of a handful of words,
and there a ring of power-of-two depth in distributed memory takes a fifth of the cells of
`SyncFIFOBuffered`: cells of control are what bounds the speed of simulation.
"""

from amaranth.hdl import Module, Shape, ShapeLike, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """Queue of `depth` words, a power of two.

    Timing
    ------
    A word taken on ``i`` in cycle *t* is on ``o`` from *t + 1*, at a word a cycle. No
    combinational path from ``o`` to ``i`` or back. `filled` is 0 only if no word is inside, and
    counts a word from the cycle after it was taken.
    """

    i: stream.Interface
    o: stream.Interface
    filled: Signal  #: Words inside.

    def __init__(self, shape: ShapeLike, *, depth: int) -> None:
        if depth < 1 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 1 word, not {depth!r}")
        self.depth = depth
        self.shape = shape
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "filled": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = Shape.cast(self.shape).width
        m.submodules.words = words = memory.Memory(shape=width, depth=self.depth, init=[])
        read, write = words.read_port(domain="comb"), words.write_port()
        # One bit more than an address, so that full and empty differ.
        head, tail = Signal(range(2 * self.depth)), Signal(range(2 * self.depth))
        m.d.comb += [
            self.filled.eq((tail - head)[: len(self.filled)]),
            self.i.ready.eq(self.filled != self.depth),
            self.o.valid.eq(head != tail),
            write.addr.eq(tail[: len(write.addr)]),
            write.data.eq(self.i.payload),
            write.en.eq(self.i.valid & self.i.ready),
            read.addr.eq(head[: len(read.addr)]),
            self.o.payload.eq(read.data),
        ]
        with m.If(write.en):
            m.d.sync += tail.eq(tail + 1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += head.eq(head + 1)
        return m
