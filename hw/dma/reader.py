"""Mover from AXI4 memory to a stream of beats."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from npulse.hw.bus.axi4 import Axi4Interface, Axi4Signature, Burst, Response
from npulse.hw.dma.address import BurstGenerator
from npulse.hw.dma.descriptor import TransferDescriptor


class ReadMaster(wiring.Component):
    """Read the beats of descriptors, in order, with several bursts in flight.

    There is no buffer but the output register: a consumer that stalls holds the bus by
    ``bus.rready``. A beat with an error is delivered like any other and noted in ``error``.

    Timing
    ------
    ``bus.arvalid`` rises 3 cycles after a descriptor is taken, ``data.valid`` 1 cycle after
    ``bus.rvalid``. Throughput is a beat and a burst a cycle, also across rows and descriptors, if
    ``outstanding`` bursts cover the latency of the memory. ``bus.rready`` depends
    combinationally on ``data.ready``; ``desc.ready`` on ``bus.arready``; no bus output on a bus
    input.

    Parameters
    ----------
    data_width : int
        Bits in a beat.
    max_burst_beats : int
        Beats in the longest burst, see `npulse.hw.dma.address.BurstGenerator`.
    outstanding : int
        Bursts requested and not wholly received, at most; at least 1.
    """

    desc: stream.Interface  #: Blocks to read (`TransferDescriptor`).
    data: stream.Interface  #: Beats read, registered.
    bus: Axi4Interface  #: Read channels of the memory.
    idle: Signal  #: Every beat of every descriptor taken has left on ``data``.
    error: Signal  #: A response was not OKAY since the last ``clear``.
    clear: Signal  #: Lower ``error``; an error of the same cycle wins.

    def __init__(self, *, data_width: int, max_burst_beats: int = 16, outstanding: int = 4) -> None:
        if outstanding < 1:
            raise ValueError(f"outstanding must be at least 1 burst, not {outstanding!r}")
        self.outstanding = outstanding
        self.bursts = BurstGenerator(data_width=data_width, max_burst_beats=max_burst_beats)
        self.bus_signature = Axi4Signature(data_width=data_width, write=False)
        super().__init__(
            {
                "desc": In(stream.Signature(TransferDescriptor())),
                "data": Out(stream.Signature(data_width)),
                "bus": Out(self.bus_signature),
                "idle": Out(1),
                "error": Out(1),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bursts = bursts = self.bursts
        wiring.connect(m, wiring.flipped(self.desc), bursts.desc)
        bus, in_flight = self.bus, Signal(range(self.outstanding + 1))
        may_issue, issue, take = Signal(), Signal(), Signal()

        m.d.comb += [
            may_issue.eq(in_flight != self.outstanding),
            bus.arvalid.eq(bursts.burst.valid & may_issue),
            bursts.burst.ready.eq(bus.arready & may_issue),
            bus.araddr.eq(bursts.burst.p.addr),
            bus.arlen.eq(bursts.burst.p.len),
            bus.arsize.eq(self.bus_signature.size),
            bus.arburst.eq(Burst.INCR),
            bus.rready.eq(~self.data.valid | self.data.ready),
            issue.eq(bus.arvalid & bus.arready),
            take.eq(bus.rvalid & bus.rready),
        ]
        m.d.sync += in_flight.eq(in_flight + issue - (take & bus.rlast))
        with m.If(bus.rready):
            m.d.sync += [self.data.valid.eq(bus.rvalid), self.data.p.eq(bus.rdata)]

        with m.If(take & (bus.rresp != Response.OKAY)):
            m.d.sync += self.error.eq(1)
        with m.Elif(self.clear):
            m.d.sync += self.error.eq(0)
        m.d.comb += self.idle.eq(~(bursts.busy | self.data.valid | (in_flight != 0)))
        return m
