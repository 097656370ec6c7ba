"""Channels of a simulated memory: AXI4 bursts become accesses of memory rows."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory

from npulse.hw.bus.axi4 import Axi4Interface, Axi4Signature, Burst, Response
from npulse.sim.rtl.delay_queue import DelayQueue
from npulse.sim.rtl.throttle import Stalls, pace, stall

#: Which handshake of a write comes first.
WriteOrder = Literal["address_first", "data_first"]

#: Write bursts whose address may wait for the data of earlier ones.
_WRITE_BURSTS = 4


@dataclass(frozen=True, kw_only=True)
class ChannelConfig:
    """Geometry and pace that the channels of one port share.

    Attributes
    ----------
    bus : Axi4Signature
        Of the port.
    row_bytes, depth_bytes : int
        Of the memory.
    latency_cycles : int
        From the AR handshake to ``rvalid``, and from that of the last W beat to ``bvalid``.
    bytes_per_cycle : Fraction
        Of each direction.
    write_order : str
        `WriteOrder`.
    stalls : Stalls or None
        Random withholding.
    first_channel : int
        Number of this port's first random sequence.
    """

    bus: Axi4Signature
    row_bytes: int
    depth_bytes: int
    latency_cycles: int
    bytes_per_cycle: Fraction
    write_order: WriteOrder
    stalls: Stalls | None
    first_channel: int

    def stall(self, m: Module, channel: str) -> Value:
        """Whether ``channel`` is withheld in this cycle."""
        number = self.first_channel + ("ar", "r", "aw", "w", "b").index(channel)
        return stall(m, self.stalls, number)

    def pace(self, m: Module, spend: Value) -> Value:
        """Whether the byte rate permits a beat in this cycle."""
        return pace(m, self.bus.beat_bytes, self.bytes_per_cycle, spend)


class _Request(data.StructLayout):
    """Burst in a queue; ``addr`` counts beats, ``is_bad`` marks an unsupported kind."""

    def __init__(self, bus: Axi4Signature) -> None:
        width = bus.addr_width - bus.size
        super().__init__({"addr": width, "len": 8, "id": bus.id_width, "is_bad": 1})


def _request(config: ChannelConfig, addr: Value, len_: Value, size: Value, burst: Value) -> Any:
    """Fields of `_Request` but the tag."""
    return {
        "addr": addr[config.bus.size :],
        "len": len_,
        "is_bad": (size != config.bus.size) | (burst != Burst.INCR),
    }


class _Walk:
    """Beat in hand of the burst at the head of a queue.

    ``beat`` counts up from 0, one at a time, whenever ``step``; the queue is popped with the
    last beat.
    """

    def __init__(self, m: Module, config: ChannelConfig, queue: DelayQueue, step: Value) -> None:
        layout = _Request(config.bus)
        self.head = data.View(layout, queue.get.p)
        width = config.bus.addr_width - config.bus.size
        beat, address = Signal(8), Signal(width)
        self.is_last, self.response = Signal(), Signal(2)
        m.d.comb += [
            address.eq(self.head.addr + beat),
            self.is_last.eq(beat == self.head.len),
            queue.get.ready.eq(step & self.is_last),
        ]
        with m.If(step):
            m.d.sync += beat.eq(Mux(self.is_last, 0, beat + 1))
        with m.If(self.head.is_bad):
            m.d.comb += self.response.eq(Response.SLVERR)
        with m.Elif(address >= config.depth_bytes // config.bus.beat_bytes):
            m.d.comb += self.response.eq(Response.DECERR)
        parts = config.row_bytes // config.bus.beat_bytes
        part_bits = parts.bit_length() - 1
        #: Row of the memory, and number of the beat inside that row.
        self.row, self.part = address[part_bits:], address[:part_bits]


def read_channel(config: ChannelConfig, bus: Axi4Interface, port: memory.ReadPort) -> Module:
    """Serve channels AR and R of ``bus`` from a synchronous read port of the memory."""
    m = Module()
    layout = _Request(config.bus)
    m.submodules.queue = queue = DelayQueue(
        width=layout.size,
        entries=config.latency_cycles + 1,
        delay_cycles=config.latency_cycles - 1,
    )
    request = data.View(layout, queue.put.p)
    arready, step, r_ready = Signal(), Signal(), Signal()
    walk = _Walk(m, config, queue, step)
    m.d.comb += [
        arready.eq(queue.put.ready & ~config.stall(m, "ar")),
        bus.arready.eq(arready),
        queue.put.valid.eq(bus.arvalid & arready),
        request.id.eq(bus.arid),
        *(
            getattr(request, name).eq(value)
            for name, value in _request(
                config, bus.araddr, bus.arlen, bus.arsize, bus.arburst
            ).items()
        ),
        r_ready.eq(~bus.rvalid | bus.rready),
        step.eq(queue.get.valid & r_ready & config.pace(m, step) & ~config.stall(m, "r")),
        port.en.eq(step),
        port.addr.eq(walk.row),
    ]
    part = Signal.like(walk.part)
    with m.If(r_ready):
        m.d.sync += [
            bus.rvalid.eq(step),
            bus.rlast.eq(walk.is_last),
            bus.rid.eq(walk.head.id),
            bus.rresp.eq(walk.response),
            part.eq(walk.part),
        ]
    row = Signal(8 * config.row_bytes)
    m.d.comb += row.eq(port.data)
    with m.If(bus.rresp == Response.OKAY):
        m.d.comb += bus.rdata.eq(row.word_select(part, config.bus.data_width))
    return m


def write_channel(config: ChannelConfig, bus: Axi4Interface, port: memory.WritePort) -> Module:
    """Serve channels AW, W and B of ``bus`` through a write port with a byte granularity."""
    m = Module()
    layout = _Request(config.bus)
    m.submodules.queue = queue = DelayQueue(
        width=layout.size, entries=_WRITE_BURSTS, delay_cycles=1
    )
    tag = data.StructLayout({"resp": 2, "id": config.bus.id_width})
    m.submodules.responses = responses = DelayQueue(
        width=tag.size,
        entries=config.latency_cycles + 1,
        delay_cycles=config.latency_cycles - 1,
    )
    request = data.View(layout, queue.put.p)
    awready, step = Signal(), Signal()
    walk = _Walk(m, config, queue, step)
    data_first = bus.wvalid if config.write_order == "data_first" else Const(1, 1)
    m.d.comb += [
        awready.eq(queue.put.ready & data_first & ~config.stall(m, "aw")),
        bus.awready.eq(awready),
        queue.put.valid.eq(bus.awvalid & awready),
        request.id.eq(bus.awid),
        *(
            getattr(request, name).eq(value)
            for name, value in _request(
                config, bus.awaddr, bus.awlen, bus.awsize, bus.awburst
            ).items()
        ),
        bus.wready.eq(
            queue.get.valid & responses.put.ready & config.pace(m, step) & ~config.stall(m, "w")
        ),
        step.eq(bus.wvalid & bus.wready),
        port.addr.eq(walk.row),
        port.data.eq(Cat(bus.wdata for _ in range(config.row_bytes // config.bus.beat_bytes))),
    ]
    with m.If(step & (walk.response == Response.OKAY)):
        offset = Cat(Const(0, config.bus.size), walk.part)
        m.d.comb += port.en.eq(bus.wstrb << offset)

    # The response of a burst is the last fault of its beats.
    fault, answer = Signal(2), data.View(tag, responses.put.p)
    m.d.comb += [
        answer.resp.eq(Mux(walk.response == Response.OKAY, fault, walk.response)),
        answer.id.eq(walk.head.id),
        responses.put.valid.eq(step & walk.is_last),
    ]
    with m.If(step):
        m.d.sync += fault.eq(Mux(walk.is_last, Response.OKAY, answer.resp))
    b_ready, answered = Signal(), data.View(tag, responses.get.p)
    m.d.comb += [
        b_ready.eq((~bus.bvalid | bus.bready) & ~config.stall(m, "b")),
        responses.get.ready.eq(b_ready),
    ]
    with m.If(b_ready):
        m.d.sync += [
            bus.bvalid.eq(responses.get.valid),
            bus.bresp.eq(answered.resp),
            bus.bid.eq(answered.id),
        ]
    with m.Elif(bus.bready):
        m.d.sync += bus.bvalid.eq(0)
    return m
