"""Amaranth design to the engine's cells. The only importer of Amaranth's private netlist modules.

The netlist is the one from which Amaranth writes Verilog (`amaranth.hdl._nir`); where pysim
departs from it, the engine follows the netlist.
"""

# The stubs of Amaranth leave out most of its private names.
# pyright: reportAttributeAccessIssue=false

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Fragment, Signal, _nir
from amaranth.hdl._ast import SignalDict, SignalSet
from amaranth.hdl._ir import Design, NetlistEmitter
from amaranth.hdl._mem import MemoryInstance

from npulse.sim.engine import cells
from npulse.sim.engine.cells import CONST, Cell, Event, Run, Value

__all__ = ["Netlist", "Unsupported", "netlist_of", "prepare"]


class Unsupported(NotImplementedError):
    """A construct that the engine does not simulate, with where it is in the source."""


@dataclass
class Netlist:
    """Cells of a design and the names of what they hold.

    Attributes
    ----------
    cells : list of Cell or None
        Numbered as in Amaranth's netlist.
    events : list of Event
        Clock edges; cells refer to them by index.
    signals : SignalDict of Signal to Value
    names : dict of str to Signal
        Hierarchical names, ``module.submodule.signal``.
    memories : dict of str to int
        Hierarchical memory names to cells.
    memory_data : dict of int to int
        ``id`` of a `MemoryData` to its cell.
    modules : list of str
    ports : dict of str to Value
        Outputs by name, if the design was prepared with ports.
    """

    cells: list[Cell | None] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    signals: Any = field(default_factory=SignalDict)
    names: dict[str, Signal] = field(default_factory=dict)
    memories: dict[str, int] = field(default_factory=dict)
    memory_data: dict[int, int] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    ports: dict[str, Value] = field(default_factory=dict)
    domains: dict[str, Any] = field(default_factory=dict)
    #: Name of the module of each cell, without the top's.
    paths: list[str] = field(default_factory=list)
    #: Signals that the design drives combinationally: not to be set, even where an alias of state.
    driven: Any = field(default_factory=SignalSet)

    def path_of(self, cell: int) -> str:
        """Hierarchical name of the module that `cell` lies in; empty for the top."""
        found = self.cells[cell]
        return "" if found is None else self.paths[found.module]


def prepare(elaboratable: Any, platform: object = None, ports: Any = ()) -> Design:
    """Elaborate to a design with all its domains."""
    if isinstance(elaboratable, Design):
        return elaboratable
    return Fragment.get(elaboratable, platform).prepare(ports=ports)  # type: ignore[no-any-return]


def netlist_of(design: Design, grids: Mapping[str, Any] | None = None) -> Netlist:
    """Convert a prepared design.

    Parameters
    ----------
    grids : mapping of str to Grid
        What the black boxes named ``npulse_grid`` stand for, by their parameter ``key``.

    Raises
    ------
    Unsupported
        For formal-only values, foreign instances and I/O buffers.
    amaranth.hdl._nir.CombinationalCycle
        As Amaranth's own `build_netlist`.
    """
    raw = _emit(design)
    return _Reader(raw, design, grids or {}).read()


class _Emitter(NetlistEmitter):
    """Amaranth's emitter without what only its writers of Verilog need."""

    def emit_signal_fields(self) -> None:
        """Leave out the fields of structures, which take a third of the time."""


def _emit(design: Design) -> _nir.Netlist:
    """Make Amaranth's netlist; nets are left unresolved, the reader does that faster."""
    raw = _nir.Netlist()
    _Emitter(raw, design, all_undef_to_ff=True).emit_fragment(design.fragment, None)
    return raw


@contextmanager
def _deep_recursion() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 100_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def refuse_cycles(design: Design) -> None:
    """Raise Amaranth's own error, with its path, if bits of the design depend on themselves."""
    raw = _emit(design)
    with _deep_recursion():  # the check recurses once a net
        raw.check_comb_cycles()


def _source(loc: tuple[str, int] | None) -> str:
    return "unknown source" if loc is None else f"{loc[0]}:{loc[1]}"


class _Reader:
    def __init__(self, raw: _nir.Netlist, design: Design, grids: Mapping[str, Any]) -> None:
        self.raw = raw
        self.design = design
        self.grids = grids
        self.net = Netlist()
        self.event_index: dict[tuple[int, str], int] = {}
        self.runs: dict[tuple[int, ...], Value] = {}
        self.clock_names: dict[int, str] = {}
        self.inits: dict[int, int] | None = None

    def read(self) -> Netlist:
        """Convert cells, then names."""
        clocks = (d.clk for f in self.design.fragments for d in _domains(f))
        for signal in (*clocks, *self.raw.signals):
            value = self.raw.signals.get(signal, ())
            if len(value) == 1:
                self.clock_names.setdefault(self.net_of(value[0]), signal.name)
        for index, cell in enumerate(self.raw.cells):
            handler = _HANDLERS.get(type(cell))
            if handler is None:
                raise Unsupported(
                    f"the engine does not simulate {type(cell).__name__} cells "
                    f"({_source(cell.src_loc)})"
                )
            self.net.cells.append(handler(self, index, cell))
        self._name_signals()
        self._name_memories()
        self._find_driven()
        self.net.modules = [".".join(module.name) for module in self.raw.modules]
        self.net.paths = [".".join(module.name[1:]) for module in self.raw.modules]
        self.net.domains = dict(self.design.fragment.domains)
        return self.net

    def _name_signals(self) -> None:
        for signal, value in self.raw.signals.items():
            self.net.signals[signal] = self.value(value)
        for info in self.design.fragments.values():
            for signal, name in info.signal_names.items():
                if signal in self.raw.signals and name:
                    self.net.names[".".join((*info.name[1:], name))] = signal
        for name, value in self.raw.top.ports_o.items():
            self.net.ports[name] = self.value(value)

    def _name_memories(self) -> None:
        at: dict[str, int] = {}
        for index, cell in enumerate(self.raw.cells):
            if isinstance(cell, _nir.Memory):
                at[".".join((*self.raw.modules[cell.module_idx].name, cell.name))] = index
        for fragment, info in self.design.fragments.items():
            if isinstance(fragment, MemoryInstance):
                index = at[".".join(info.name)]
                self.net.memories[".".join(info.name[1:])] = index
                self.net.memory_data[id(fragment._data)] = index

    def _find_driven(self) -> None:
        for fragment in self.design.fragments:
            for statement in fragment.statements.get("comb", ()):
                self.net.driven.update(statement._lhs_signals())
            if isinstance(fragment, MemoryInstance):
                for port in fragment._read_ports:
                    if port._domain == "comb":
                        self.net.driven.update(port._data._lhs_signals())
            for value, direction in getattr(fragment, "ports", {}).values():
                if direction == "o":
                    self.net.driven.update(value._lhs_signals())

    def value(self, nets: tuple[int, ...]) -> Value:
        """Runs of a tuple of nets; cached, since buses recur."""
        found = self.runs.get(nets)
        if found is None:
            found = self.runs[nets] = _runs(self.nets_of(nets))
        return found

    def nets_of(self, nets: Iterable[int]) -> tuple[int, ...]:
        """Nets behind late-bound ones, which are negative."""
        return tuple(net if net >= 0 else self.net_of(net) for net in nets)

    def net_of(self, net: int) -> int:
        """Net behind a late-bound one."""
        late, connections = net, self.raw.connections
        while net < 0:
            net = connections[net]  # type: ignore[index]
        if late < 0 and connections[late] != net:  # type: ignore[index]
            connections[late] = net  # type: ignore[index,assignment]
        return int(net)

    def edge_of(self, clock: int, cell: Any) -> str:
        """Edge of the domain that a clock drives; a grid's cell does not know it."""
        for fragment in self.design.fragments:
            for domain in _domains(fragment):
                clk = self.nets_of(self.raw.signals.get(domain.clk, ()))
                if clock > 1 and clk == (clock,):
                    if domain.async_reset and domain.rst is not None:
                        raise Unsupported(
                            f"the engine does not simulate grids in a domain with asynchronous "
                            f"reset, here {domain.name!r} ({_source(cell.src_loc)})"
                        )
                    return str(domain.clk_edge)
        return "pos"

    def event(self, clock: int, edge: str) -> int:
        """Index of a clock edge, or -1 for a constant clock."""
        clock = self.net_of(clock)
        if clock < 2:
            return -1
        key = (int(clock), edge)
        if key not in self.event_index:
            self.event_index[key] = len(self.net.events)
            run = Run(clock >> 16, clock & 0xFFFF, 1)
            name = self.clock_names.get(int(clock), "unnamed clock")
            self.net.events.append(Event(run, edge, name))
        return self.event_index[key]

    def init_of(self, index: int) -> int:
        """Initial value of the top's inputs or a read port: that of the signals it drives.

        Neither has an initial value of its own in the netlist.
        """
        if self.inits is None:
            self.inits = self._collect_inits()
        return self.inits.get(index, 0)

    def _collect_inits(self) -> dict[int, int]:
        inits: dict[int, int] = {}
        for signal in self._ports_of_state():
            for bit, net in enumerate(self.nets_of(self.raw.signals.get(signal, ()))):
                if net > 1 and isinstance(self.raw.cells[net >> 16], (_nir.Top, _nir.SyncReadPort)):
                    old = inits.get(net >> 16, 0)
                    inits[net >> 16] = old | (signal.init >> bit & 1) << (net & 0xFFFF)
        return inits

    def _ports_of_state(self) -> Iterator[Signal]:
        """Signals that an input of the top or a read port drives; not their aliases."""
        yield from (signal for _, signal, _ in self.design.ports if isinstance(signal, Signal))
        for fragment in self.design.fragments:
            if isinstance(fragment, MemoryInstance):
                for port in fragment._read_ports:
                    yield from port._data._lhs_signals()


def _domains(fragment: Any) -> Iterable[Any]:
    return getattr(fragment, "domains", {}).values()


def _runs(nets: tuple[int, ...]) -> Value:
    runs, at, end = [], 0, len(nets)
    while at < end:
        net, stop = int(nets[at]), at + 1
        if net < 2:
            while stop < end and nets[stop] < 2:
                stop += 1
            value = sum(1 << bit for bit in range(stop - at) if nets[at + bit])
            runs.append(Run(CONST, value, stop - at))
        elif stop < end and nets[stop] == net:
            while stop < end and nets[stop] == net:
                stop += 1
            runs.append(Run(net >> 16, net & 0xFFFF, stop - at, True))
        else:
            most = at + 0x10000 - (net & 0xFFFF)
            while stop < end and stop < most and nets[stop] == net + (stop - at):
                stop += 1
            runs.append(Run(net >> 16, net & 0xFFFF, stop - at))
        at = stop
    return tuple(runs)


def _common(cell: Any, width: int) -> tuple[int, int, str]:
    return width, cell.module_idx, _source(cell.src_loc)


def _top(reader: _Reader, index: int, cell: Any) -> Cell:
    width = max([2, *(start + width for start, width in cell.ports_i.values())])
    cuts = tuple(sorted({0, 2, *(start for start, _ in cell.ports_i.values())} - {width}))
    init = reader.init_of(index) & -4  # bits 0 and 1 are the constants
    return cells.Input(*_common(cell, width), init=init, cuts=cuts)


def _operator(reader: _Reader, index: int, cell: Any) -> Cell:
    inputs = tuple(reader.value(value) for value in cell.inputs)
    return cells.Operator(*_common(cell, cell.width), op=cell.operator, inputs=inputs)


def _part(reader: _Reader, index: int, cell: Any) -> Cell:
    return cells.Part(
        *_common(cell, cell.width),
        value=reader.value(cell.value),
        signed=cell.value_signed,
        offset=reader.value(cell.offset),
        stride=cell.stride,
    )


def _matches(reader: _Reader, index: int, cell: Any) -> Cell:
    return cells.Matches(
        *_common(cell, 1), value=reader.value(cell.value), patterns=tuple(cell.patterns)
    )


def _priority(reader: _Reader, index: int, cell: Any) -> Cell:
    inputs = tuple(reader.value((net,)) for net in cell.inputs)
    return cells.Priority(
        *_common(cell, len(inputs)), enable=reader.value((cell.en,)), inputs=inputs
    )


def _select(reader: _Reader, index: int, cell: Any) -> Cell:
    arms = tuple(
        cells.Arm(reader.value((arm.cond,)), arm.start, reader.value(arm.value), len(arm.value))
        for arm in cell.assignments
    )
    return cells.Select(
        *_common(cell, len(cell.default)), default=reader.value(cell.default), arms=arms
    )


def _flip_flop(reader: _Reader, index: int, cell: Any) -> Cell:
    event = reader.event(cell.clk, cell.clk_edge)
    arst = reader.net_of(cell.arst)
    if event < 0 and arst == 0:
        return cells.Input(*_common(cell, len(cell.data)), init=cell.init, cuts=(0,))
    return cells.Register(
        *_common(cell, len(cell.data)),
        data=reader.value(cell.data),
        init=cell.init,
        event=event,
        arst=None if arst == 0 else reader.value((arst,)),
    )


def _memory(reader: _Reader, index: int, cell: Any) -> Cell:
    mask = (1 << cell.width) - 1  # signed shapes leave negative integers here
    return cells.Memory(
        *_common(cell, cell.width),
        depth=cell.depth,
        init=tuple(row & mask for row in cell.init) if any(cell.init) else (),
        name=cell.name,
    )


def _write_port(reader: _Reader, index: int, cell: Any) -> Cell:
    return cells.WritePort(
        *_common(cell, 0),
        memory=cell.memory,
        addr=reader.value(cell.addr),
        data=reader.value(cell.data),
        enable=reader.value(cell.en),
        event=reader.event(cell.clk, cell.clk_edge),
    )


def _async_read(reader: _Reader, index: int, cell: Any) -> Cell:
    return cells.AsyncRead(
        *_common(cell, cell.width), memory=cell.memory, addr=reader.value(cell.addr)
    )


def _sync_read(reader: _Reader, index: int, cell: Any) -> Cell:
    return cells.SyncRead(
        *_common(cell, cell.width),
        memory=cell.memory,
        addr=reader.value(cell.addr),
        enable=reader.value((cell.en,)),
        event=reader.event(cell.clk, cell.clk_edge),
        transparent=cell.transparent_for,
        init=reader.init_of(index),
    )


def _check(reader: _Reader, index: int, cell: Any) -> Cell:
    chunks = None
    if cell.format is not None:
        chunks = tuple(
            chunk
            if isinstance(chunk, str)
            else (reader.value(chunk.value), chunk.format_desc, chunk.signed)
            for chunk in cell.format.chunks
        )
    clocked = isinstance(cell, (_nir.SyncPrint, _nir.SyncProperty))
    return cells.Check(
        *_common(cell, 0),
        kind=getattr(cell, "kind", "print"),
        test=reader.value((cell.test,)) if hasattr(cell, "test") else (),
        enable=reader.value((cell.en,)),
        event=reader.event(cell.clk, cell.clk_edge) if clocked else -1,
        chunks=chunks,
        line=cell.src_loc,
    )


def _instance(reader: _Reader, index: int, cell: Any) -> Cell:
    key = cell.parameters.get("key")
    if cell.type != "npulse_grid" or key not in reader.grids:
        raise Unsupported(
            f"the engine does not simulate instances, here {cell.type!r} named {cell.name!r} "
            f"({_source(cell.src_loc)})"
        )
    info = reader.grids[key]
    width = max([0, *(start + width for start, width in cell.ports_o.values())])
    inputs = {name: reader.value(nets) for name, nets in cell.ports_i.items()}
    clock = reader.net_of(cell.ports_i.get("clk", (0,))[0])
    return cells.GridCell(
        *_common(cell, width),
        grid=info,
        key=key,
        inputs=inputs,
        outputs=dict(cell.ports_o),
        event=reader.event(clock, reader.edge_of(clock, cell)),
        cuts=_lane_cuts(info, cell.ports_o),
    )


def _lane_cuts(info: Any, outputs: Mapping[str, tuple[int, int]]) -> tuple[int, ...]:
    """First bit of each element of each output of a grid."""
    cuts = []
    for port, (start, width) in outputs.items():
        if width:
            cuts += range(start, start + width, width // info.lanes_of(port))
    return tuple(cuts)


_HANDLERS: dict[type, Callable[[_Reader, int, Any], Cell]] = {
    _nir.Top: _top,
    _nir.Operator: _operator,
    _nir.Part: _part,
    _nir.Matches: _matches,
    _nir.PriorityMatch: _priority,
    _nir.AssignmentList: _select,
    _nir.FlipFlop: _flip_flop,
    _nir.Memory: _memory,
    _nir.SyncWritePort: _write_port,
    _nir.AsyncReadPort: _async_read,
    _nir.SyncReadPort: _sync_read,
    _nir.AsyncPrint: _check,
    _nir.SyncPrint: _check,
    _nir.AsyncProperty: _check,
    _nir.SyncProperty: _check,
    _nir.Instance: _instance,
}
