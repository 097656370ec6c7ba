"""The one on-chip memory primitive: one read port, one write port, a declared latency.

Nothing else in the library names a memory cell of a vendor, so an FPGA mapping replaces this file
alone. Reading a word in the cycle that writes it is undefined in hardware; users prove that they
never do.
"""

from amaranth.hdl import Module, Shape, ShapeLike, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Sram"]


class Sram(wiring.Component):
    """Hold `depth` words, read one and write one each cycle.

    Parameters
    ----------
    depth : int
        Words, at least 1; reading beyond gives zero, writing beyond does nothing.
    shape : ShapeLike
        Shape of a word.
    latency : int
        1, or 2 with the output register that block RAM needs above some 140 MHz.
    granularity : int, optional
        Bits that each bit of `w_en` covers; the whole word unless given.

    Timing
    ------
    ``r_data[t + latency] = words[r_addr[t]]``; a word written in cycle *t* is read from *t + 1*.
    One access a port each cycle; nothing stalls.
    """

    r_addr: Signal  #: Word to read.
    r_data: Signal  #: Word read `latency` cycles ago.
    w_addr: Signal  #: Word to write.
    w_data: Signal
    w_en: Signal  #: One bit for each `granularity` bits.

    def __init__(
        self, *, depth: int, shape: ShapeLike, latency: int = 1, granularity: int | None = None
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1 word, not {depth!r}")
        if latency not in (1, 2):
            raise ValueError(f"latency must be 1 or 2 cycles, not {latency!r}")
        width = Shape.cast(shape).width
        if granularity is not None and (granularity < 1 or width % granularity):
            raise ValueError(
                f"granularity must divide the width of {width} bits, not {granularity!r}"
            )
        self.depth = depth
        self.shape = shape
        self.latency = latency
        self.granularity = granularity
        super().__init__(
            {
                "r_addr": In(range(depth)),
                "r_data": Out(shape),
                "w_addr": In(range(depth)),
                "w_data": In(shape),
                "w_en": In(1 if granularity is None else width // granularity),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(shape=self.shape, depth=self.depth, init=[])
        read, write = words.read_port(), words.write_port(granularity=self.granularity)
        m.d.comb += [
            read.addr.eq(self.r_addr),
            write.addr.eq(self.w_addr),
            write.data.eq(self.w_data),
            write.en.eq(self.w_en),
        ]
        if self.latency == 1:
            m.d.comb += self.r_data.eq(read.data)
        else:
            m.d.sync += self.r_data.eq(read.data)
        return m
