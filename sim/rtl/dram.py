"""Memory with AXI4 ports for simulation, itself in Amaranth, so bandwidth effects are RTL facts.

Two simplifications against a real DRAM: latency and rate are constant (no banks, no refresh),
and each direction of each port has a rate of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In
from numpy.typing import NDArray

from npulse.hw.bus.axi4 import Axi4Interface, Axi4Signature
from npulse.sim.rtl.dram_channels import ChannelConfig, WriteOrder, read_channel, write_channel
from npulse.sim.rtl.throttle import Stalls

#: Random sequences that a port uses, one a channel.
_CHANNELS = 5
#: Names that a port would hide.
_RESERVED = ("memory", "ports", "bus", "load", "store", "signature", "elaborate")


@dataclass(frozen=True, kw_only=True)
class DramPort:
    """AXI4 port of a `Dram`.

    Attributes
    ----------
    name : str
        Member of the `Dram`.
    data_width : int
        Bits in a beat.
    read, write : bool
        Directions that the port has.
    latency_cycles : int
        From the AR handshake to the first ``rvalid``, and from the last W handshake to
        ``bvalid``; at least 2.
    bytes_per_cycle : Fraction or int
        Rate of each direction, above 0; a beat a cycle or more does not limit.
    write_order : str
        ``"address_first"``: WREADY only after the AW handshake. ``"data_first"``: also AWREADY
        only while WVALID. A manager that makes one channel wait for the other hangs in one of
        them (IHI 0022E, A3.3.1).
    """

    name: str
    data_width: int
    read: bool = True
    write: bool = True
    latency_cycles: int = 2
    bytes_per_cycle: Fraction | int = 1024
    write_order: WriteOrder = "address_first"

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name in _RESERVED:
            raise ValueError(f"name must be a free identifier, not {self.name!r}")
        _ = self.signature  # refuses an illegal width here, where the port is named
        if self.latency_cycles < 2:
            raise ValueError(f"latency_cycles must be at least 2, not {self.latency_cycles!r}")
        if self.bytes_per_cycle <= 0:
            raise ValueError(f"bytes_per_cycle must be above 0, not {self.bytes_per_cycle!r}")
        if self.write_order not in ("address_first", "data_first"):
            raise ValueError(
                f"write_order must be address_first or data_first, not {self.write_order!r}"
            )

    @property
    def signature(self) -> Axi4Signature:
        """Signature of the port; also checks the width."""
        return Axi4Signature(data_width=self.data_width, read=self.read, write=self.write)


class Dram(wiring.Component):
    """One byte-addressed memory behind several AXI4 ports, each a named member.

    The memory, `memory`, has rows of the widest port; byte *b* of row *r* is byte address
    ``r * row_bytes + b`` (little endian), so a driver may map it as an array of bytes. A narrower
    port selects its part of a row. Accesses of ports in one cycle are not ordered: a read sees
    the bytes before the write.

    Supported are INCR bursts of full-width beats; others get SLVERR. A beat outside of the memory
    gets DECERR, reads as 0 and writes nothing; a write burst answers with its last fault.

    Timing
    ------
    As `DramPort` says, exactly, when nothing stalls and no earlier burst is being served.
    Bursts of one direction are served in order and without a gap. The queues are deep enough to
    never limit single-beat bursts a cycle. Combinational paths: ``wvalid`` to ``awready`` with
    ``write_order="data_first"``; no other from input to output.

    Parameters
    ----------
    depth_bytes : int
        Bytes of memory: a positive multiple of the bytes of the widest port, at least 2 rows.
    ports : sequence of DramPort
        At least one, with different names.
    stalls : Stalls or None
        Withhold arready, rvalid, awready, wready and bvalid at random. A raised valid stays.
    """

    def __init__(
        self, *, depth_bytes: int, ports: Sequence[DramPort], stalls: Stalls | None = None
    ) -> None:
        names = [port.name for port in ports]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"ports must be at least one with different names, not {names!r}")
        self.ports = tuple(ports)
        self.row_bytes = max(port.signature.beat_bytes for port in ports)
        if depth_bytes < 2 * self.row_bytes or depth_bytes % self.row_bytes:
            raise ValueError(
                f"depth_bytes must be a multiple of the widest port's {self.row_bytes} bytes "
                f"and at least {2 * self.row_bytes}, not {depth_bytes!r}"
            )
        self.depth_bytes = depth_bytes
        self.stalls = stalls
        super().__init__({port.name: In(port.signature) for port in ports})
        #: Rows of the widest width; little endian.
        self.memory = memory.Memory(
            shape=8 * self.row_bytes, depth=depth_bytes // self.row_bytes, init=[]
        )
        # Made here and not in `elaborate`, so that the component may be elaborated again.
        self._reads = {port.name: self.memory.read_port() for port in ports if port.read}
        self._writes = {
            port.name: self.memory.write_port(granularity=8) for port in ports if port.write
        }

    def bus(self, name: str) -> Axi4Interface:
        """Return the port called ``name``."""
        return getattr(self, name)

    def store(self, ctx: Any, address: int, content: NDArray[np.uint8]) -> None:
        """Put bytes into the memory in pysim.

        Parameters
        ----------
        ctx : simulator context
        address : int
            Byte address of ``content[0]``.
        content : (n,) uint8
        """
        first, last = address // self.row_bytes, -(-(address + len(content)) // self.row_bytes)
        rows = self.load(ctx, first * self.row_bytes, (last - first) * self.row_bytes)
        start = address - first * self.row_bytes
        rows[start : start + len(content)] = content
        for index, row in enumerate(rows.reshape(-1, self.row_bytes)):
            ctx.set(self.memory.data[first + index], int.from_bytes(row.tobytes(), "little"))

    def load(self, ctx: Any, address: int, count: int) -> NDArray[np.uint8]:
        """Return ``count`` bytes from byte address ``address`` in pysim, (count,) uint8."""
        first, last = address // self.row_bytes, -(-(address + count) // self.row_bytes)
        rows = b"".join(
            ctx.get(self.memory.data[row]).to_bytes(self.row_bytes, "little")
            for row in range(first, last)
        )
        start = address - first * self.row_bytes
        return np.frombuffer(rows, np.uint8)[start : start + count].copy()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = self.memory
        for index, port in enumerate(self.ports):
            config = ChannelConfig(
                bus=port.signature,
                row_bytes=self.row_bytes,
                depth_bytes=self.depth_bytes,
                latency_cycles=port.latency_cycles,
                bytes_per_cycle=Fraction(port.bytes_per_cycle),
                write_order=port.write_order,
                stalls=self.stalls,
                first_channel=index * _CHANNELS,
            )
            bus = self.bus(port.name)
            if port.read:
                m.submodules[f"{port.name}_read"] = read_channel(
                    config, bus, self._reads[port.name]
                )
            if port.write:
                m.submodules[f"{port.name}_write"] = write_channel(
                    config, bus, self._writes[port.name]
                )
        return m
