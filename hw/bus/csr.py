"""Register bank behind AXI4-Lite, built from a register map.

Ref: AMBA AXI and ACE Protocol Specification, ARM IHI 0022E, chapters A3.3 (order of AW, W and B)
and B1.
"""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Member, Out

from npulse.hw.bus.axi4 import Response
from npulse.hw.bus.axi4lite import Axi4LiteInterface, Axi4LiteSignature
from npulse.hw.spec.regmap import DATA_WIDTH, WORD_BYTES, Register, RegisterMap


def register_shape(register: Register) -> ShapeLike:
    """Shape of a register's member: a struct of its fields, or its width."""
    if not register.fields:
        return register.width
    return data.StructLayout({field.name: field.width for field in register.fields})


def _register_member(register: Register) -> Member:
    """Member through which the core sees a register."""
    shape = register_shape(register)
    if register.access == "ro":
        return In(shape)
    init = register.unpack(register.init) if register.fields else register.init
    return Out(shape, init=init)  # pyright: ignore[reportCallIssue]: stubs know the old name


class CsrBank(wiring.Component):
    """Registers of a map as an AXI4-Lite subordinate.

    Besides ``bus`` there is a member for each register, its name in lower case: an input for
    ``ro``, the value for ``rw``, pulses for ``w1``. SLVERR answers a read or write outside of
    the map and a write to an ``ro`` register, and nothing changes. The two lowest address bits
    are ignored. `wstrb` is obeyed. AW and W may come in any order.

    Timing
    ------
    ``rvalid`` 1 cycle after the AR handshake, with the value that an ``ro`` input had in the
    cycle of the handshake; one read in two cycles. ``bvalid`` 2 cycles after the later of the AW
    and W handshakes; in its first cycle an ``rw`` register has its new value, and a ``w1`` pulse
    is high, for this cycle only. One write in three cycles. A waiting response holds later
    accesses. No output depends combinationally on a bus input.

    Parameters
    ----------
    regmap : RegisterMap
    addr_width : int or None
        Bits of a bus address, at least ``regmap.addr_width``, which is the default.
    """

    #: Cycles from the AR handshake to ``rvalid``.
    read_latency = 1
    #: Cycles from the later of the AW and W handshakes to ``bvalid``.
    write_latency = 2

    bus: Axi4LiteInterface  #: Port of the host.

    def __init__(self, regmap: RegisterMap, *, addr_width: int | None = None) -> None:
        width = regmap.addr_width if addr_width is None else addr_width
        if width < regmap.addr_width:
            raise ValueError(
                f"addr_width must be at least the map's {regmap.addr_width} bits, not {width!r}"
            )
        self.regmap = regmap
        members = {register.name.lower(): _register_member(register) for register in regmap}
        if any(name in ("bus", "regmap") or hasattr(CsrBank, name) for name in members):
            raise ValueError(
                f"register names must not hide members of CsrBank, not {sorted(members)!r}"
            )
        signature = Axi4LiteSignature(data_width=DATA_WIDTH, addr_width=width)
        super().__init__({"bus": In(signature)} | members)

    def port(self, name: str) -> Any:
        """Return the member of the register called ``name``, as in the map."""
        return getattr(self, self.regmap[name].name.lower())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._elaborate_read(m)
        self._elaborate_write(m)
        return m

    def _elaborate_read(self, m: Module) -> None:
        bus = self.bus
        value, response = Signal(DATA_WIDTH), Signal(2)
        with m.Switch(bus.araddr[2:]):
            for register in self.regmap:
                with m.Case(register.offset // WORD_BYTES):
                    if register.access != "w1":
                        m.d.comb += value.eq(Value.cast(self.port(register.name)))
            with m.Default():
                m.d.comb += response.eq(Response.SLVERR)
        m.d.comb += bus.arready.eq(~bus.rvalid)
        with m.If(bus.arready):
            m.d.sync += [
                bus.rvalid.eq(bus.arvalid),
                bus.rdata.eq(value),
                bus.rresp.eq(response),
            ]
        with m.Elif(bus.rready):
            m.d.sync += bus.rvalid.eq(0)

    def _elaborate_write(self, m: Module) -> None:
        bus = self.bus
        addr_full, word_full, commit = Signal(), Signal(), Signal()
        word_addr = Signal(len(bus.awaddr) - 2)
        word, mask = Signal(DATA_WIDTH), Signal(DATA_WIDTH)
        m.d.comb += [
            bus.awready.eq(~addr_full),
            bus.wready.eq(~word_full),
            commit.eq(addr_full & word_full & ~bus.bvalid),
        ]
        with m.If(bus.awready):
            m.d.sync += [addr_full.eq(bus.awvalid), word_addr.eq(bus.awaddr[2:])]
        with m.If(bus.wready):
            strobes = Cat(strobe.replicate(8) for strobe in bus.wstrb)
            m.d.sync += [word_full.eq(bus.wvalid), word.eq(bus.wdata), mask.eq(strobes)]
        with m.If(commit):
            m.d.sync += [addr_full.eq(0), word_full.eq(0), bus.bvalid.eq(1)]
        with m.Elif(bus.bready):
            m.d.sync += bus.bvalid.eq(0)

        targets = {register.name: Signal() for register in self.regmap if register.access != "ro"}
        with m.If(commit):
            m.d.sync += bus.bresp.eq(
                Mux(Cat(targets.values()).any(), Response.OKAY, Response.SLVERR)
            )
        for name, target in targets.items():
            register, port = self.regmap[name], Value.cast(self.port(name))
            m.d.comb += target.eq(word_addr == register.offset // WORD_BYTES)
            if register.access == "w1":
                m.d.sync += port.eq(Mux(commit & target, word & mask, 0))
            else:
                with m.If(commit & target):
                    m.d.sync += port.eq((word & mask) | (port & ~mask))
