"""A core with its DRAM: the smallest system that runs a program."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from npulse.hw.bus.axi4 import Axi4Signature
from npulse.sim.rtl.dram import Dram, DramPort
from npulse.sim.rtl.throttle import Stalls

__all__ = ["System", "memory_ports"]


def memory_ports(core: wiring.Component) -> dict[str, Axi4Signature]:
    """AXI4 manager ports of a core by their names."""
    members = core.signature.members.items()
    return {
        name: member.signature
        for name, member in members
        if member.is_signature and isinstance(member.signature, Axi4Signature)
    }


class System(wiring.Component):
    """Wire every AXI4 port of a core to one DRAM and show the rest of the core.

    Parameters
    ----------
    core : wiring.Component
        With an AXI4-Lite port `csr`, an output `interrupt`, and AXI4 manager ports.
    memory_bytes : int
        Bytes that DRAM shall hold at least, from address 0.
    ports : mapping of str to mapping
        For each AXI4 port of the core the `DramPort` parameters that are not its width and
        directions: `latency_cycles`, `bytes_per_cycle`, `write_order`.
    stalls : Stalls or None
        Random stalls of the DRAM.

    Timing
    ------
    Adds no cycle to what `Dram` and the core have.
    """

    csr: Any  #: Control and status registers of the core.
    interrupt: Signal  #: As the core gives it.

    def __init__(
        self,
        core: Any,
        *,
        memory_bytes: int,
        ports: Mapping[str, Mapping[str, Any]],
        stalls: Stalls | None = None,
    ) -> None:
        signatures = memory_ports(core)
        if set(ports) != set(signatures):
            raise ValueError(
                f"ports must be those of the core, {sorted(signatures)}, not {sorted(ports)}"
            )
        row_bytes = max(signature.beat_bytes for signature in signatures.values())
        rows = max(2, -(-memory_bytes // row_bytes))
        self.core = core
        self.dram = Dram(
            depth_bytes=rows * row_bytes,
            ports=[
                DramPort(
                    name=name,
                    data_width=signature.data_width,
                    read=signature.read,
                    write=signature.write,
                    **ports[name],
                )
                for name, signature in signatures.items()
            ],
            stalls=stalls,
        )
        csr = core.signature.members["csr"].signature
        super().__init__({"csr": In(csr.flip()), "interrupt": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.core = core = self.core
        m.submodules.dram = self.dram
        for port in self.dram.ports:
            connect(m, getattr(core, port.name), self.dram.bus(port.name))
        connect(m, flipped(self.csr), core.csr)
        m.d.comb += self.interrupt.eq(core.interrupt)
        return m
