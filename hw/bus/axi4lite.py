"""AXI4-Lite as a signature of flat members that carry their AXI names.

AXI4-Lite is AXI4 with bursts of one beat, no tags and beats of 32 or 64 bits.

Ref: AMBA AXI and ACE Protocol Specification, ARM IHI 0022E, chapter B1.
"""

from amaranth.hdl import Signal
from amaranth.lib.wiring import In, Out, PureInterface, Signature


class Axi4LiteInterface(PureInterface):
    """Members of an AXI4-Lite port."""

    araddr: Signal  #: Byte address to read.
    arprot: Signal  #: Privilege, security and instruction bits; this library ignores them.
    arvalid: Signal  #: A read is offered.
    arready: Signal  #: The read is taken.
    rdata: Signal  #: Word read.
    rresp: Signal  #: `npulse.hw.bus.axi4.Response` of the read.
    rvalid: Signal  #: A word is offered.
    rready: Signal  #: The word is taken.
    awaddr: Signal  #: Byte address to write.
    awprot: Signal  #: As `arprot`.
    awvalid: Signal  #: A write address is offered.
    awready: Signal  #: The write address is taken.
    wdata: Signal  #: Word to write.
    wstrb: Signal  #: One bit a byte of `wdata`: write it.
    wvalid: Signal  #: A word is offered.
    wready: Signal  #: The word is taken.
    bresp: Signal  #: `npulse.hw.bus.axi4.Response` of the write.
    bvalid: Signal  #: A response is offered.
    bready: Signal  #: The response is taken.


class Axi4LiteSignature(Signature):
    """AXI4-Lite port as its manager (master) sees it; a subordinate has it under ``In``.

    Parameters
    ----------
    data_width : int
        Bits in a word: 32 or 64.
    addr_width : int
        Bits of a byte address, 1 to 64.
    """

    def __init__(self, *, data_width: int = 32, addr_width: int = 32) -> None:
        if data_width not in (32, 64):
            raise ValueError(f"data_width must be 32 or 64 bits, not {data_width!r}")
        if not 1 <= addr_width <= 64:
            raise ValueError(f"addr_width must be 1 to 64 bits, not {addr_width!r}")
        self.data_width = data_width
        self.addr_width = addr_width
        address = {"addr": Out(addr_width), "prot": Out(3), "valid": Out(1), "ready": In(1)}
        word = {"data": Out(data_width), "strb": Out(data_width // 8)}
        channels = {
            "ar": address,
            "r": {"data": In(data_width), "resp": In(2), "valid": In(1), "ready": Out(1)},
            "aw": address,
            "w": word | {"valid": Out(1), "ready": In(1)},
            "b": {"resp": In(2), "valid": In(1), "ready": Out(1)},
        }
        super().__init__(
            {
                f"{channel}{name}": member
                for channel, members in channels.items()
                for name, member in members.items()
            }
        )

    def create(self, *, path: tuple[str | int, ...] = (), src_loc_at: int = 0) -> Axi4LiteInterface:
        """Create the signals of the port."""
        return Axi4LiteInterface(self, path=path, src_loc_at=1 + src_loc_at)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axi4LiteSignature) and self.members == other.members

    def __repr__(self) -> str:
        return f"Axi4LiteSignature(data_width={self.data_width}, addr_width={self.addr_width})"
