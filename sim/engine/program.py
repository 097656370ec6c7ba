"""Netlist to one module of LLVM IR: a cycle, the evaluation of all nets, the loop of a run.

Functions hold at most `CHUNK` units, since code generation is superlinear in one basic block.
Values that cross from one to another go through the state block. Registers get their next value
in a shadow, copied at the end of the cycle for the clock edges of this step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from npulse.sim.engine import cells
from npulse.sim.engine.cells import Value
from npulse.sim.engine.effects import Effects
from npulse.sim.engine.grid import Grids
from npulse.sim.engine.layout import Control, Layout, slot_bytes
from npulse.sim.engine.netlist import Netlist
from npulse.sim.engine.scalar import Emitter
from npulse.sim.engine.schedule import Cut, Units, sinks_of
from npulse.sim.engine.text import ModuleText

__all__ = ["CHUNK", "Program", "plan"]

#: Units a function; 500 to 1,000 measured best, and one function of 40 k units never finishes.
CHUNK = 500

Step = tuple[int, int]


@dataclass
class Program:
    """A scheduled netlist with its layout.

    Attributes
    ----------
    cycle_order, eval_order : list of (int, int)
        ``(0, unit)`` or ``(1, root)``.
    sinks : list of int
        Cells that the roots of `cycle_order` stand for.
    """

    netlist: Netlist
    units: Units
    layout: Layout
    sinks: list[int]
    cycle_order: list[Step]
    eval_order: list[Step]
    visible: list[int]
    grids: Grids
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        """Split the orders into functions, and give what crosses between them a place."""
        cycle, look = _split(self.cycle_order, self.chunk), _split(self.eval_order, self.chunk)
        self._cycle_parts = (cycle, self._crossing(cycle))
        self._eval_parts = (look, self._crossing(look) | set(self.visible))
        for _, stored in (self._cycle_parts, self._eval_parts):
            for unit in sorted(stored):
                self.layout.place_unit(unit)

    @property
    def masked(self) -> bool:
        """Whether a step may have other edges than all: several clocks, asynchronous resets."""
        return len(self.netlist.events) > 1 or -1 in self.layout.groups

    def cycle_text(self) -> str:
        """Return the module with ``cycle`` and ``run``."""
        module = ModuleText()
        emitter = Emitter(self.netlist.cells, self.units, self.layout)
        effects = Effects(emitter, self.masked, self.grids)
        names = self._parts(module, emitter, effects, *self._cycle_parts, "part")
        module.functions.append(self._cycle(module, names))
        module.functions.append(_run(len(self.netlist.events)))
        return module.text()

    def eval_text(self) -> str:
        """Return the module with ``eval``, which stores every visible net."""
        module = ModuleText()
        emitter = Emitter(self.netlist.cells, self.units, self.layout)
        effects = Effects(emitter, self.masked)
        names = self._parts(module, emitter, effects, *self._eval_parts, "look")
        calls = "\n".join(f"  call void @{name}(ptr %s, ptr %m, i64 0)" for name in names)
        module.functions.append(f"define void @eval(ptr %s, ptr %m) {{\n{calls}\n  ret void\n}}")
        return module.text()

    def _parts(
        self,
        module: ModuleText,
        emitter: Emitter,
        effects: Effects,
        chunks: list[list[Step]],
        stored: set[int],
        stem: str,
    ) -> list[str]:
        names = []
        for number, chunk in enumerate(chunks):
            body = emitter.begin(module)
            for kind, index in chunk:
                if kind:
                    effects.emit(self.sinks[index])
                    continue
                name = emitter.compute(index)
                if index in stored:
                    width = self.units.width[index]
                    body.store(name, "%s", self.layout.unit[index], slot_bytes(width), width)
            names.append(f"{stem}{number}")
            lines = "\n".join(body.lines)
            module.functions.append(
                f"define internal void @{names[-1]}(ptr noalias %s, ptr noalias %m, i64 %mask) "
                f"noinline {{\nentry:\n{lines}\n  ret void\n}}"
            )
        return names

    def _crossing(self, chunks: list[list[Step]]) -> set[int]:
        """Units computed in one chunk and read in a later one."""
        home: dict[int, int] = {}
        crossing: set[int] = set()
        for number, chunk in enumerate(chunks):
            for kind, index in chunk:
                if kind:
                    reads = self.units.of_values(self.sink_values[self.sinks[index]])
                else:
                    home[index] = number
                    reads = self.units.deps(index)
                crossing.update(unit for unit in reads if home.get(unit, number) != number)
        return crossing

    @cached_property
    def sink_values(self) -> dict[int, list[Value]]:
        """What each sink reads, by cell."""
        return dict(sinks_of(self.netlist.cells))

    def _cycle(self, module: ModuleText, names: list[str]) -> str:
        lines = [f"  call void @{name}(ptr %s, ptr %m, i64 %mask)" for name in names]
        # Grids before the registers move: they read values from before the edge.
        lines += self.grids.calls(module, self.masked)
        module.declare(
            "declare void @llvm.memcpy.p0.p0.i64("
            "ptr noalias writeonly, ptr noalias readonly, i64, i1)"
        )
        for event, region in self.layout.groups.items():
            lines += self._commit(event, region.start, region.size)
        text = "\n".join(lines)
        return f"define void @cycle(ptr %s, ptr %m, i64 %mask) {{\nentry:\n{text}\n  ret void\n}}"

    def _commit(self, event: int, start: int, size: int) -> list[str]:
        shadow = start + self.layout.shadow
        tag = f"c{event}" if event >= 0 else "ca"
        copy = [
            f"  %{tag}.d = getelementptr i8, ptr %s, i64 {start}",
            f"  %{tag}.n = getelementptr i8, ptr %s, i64 {shadow}",
            f"  call void @llvm.memcpy.p0.p0.i64(ptr align 64 %{tag}.d, ptr align 64 %{tag}.n, "
            f"i64 {size}, i1 false)",
        ]
        if event < 0 or not self.masked:
            return copy
        test = [
            f"  %{tag}.b = lshr i64 %mask, {event}",
            f"  %{tag}.t = trunc i64 %{tag}.b to i1",
            f"  br i1 %{tag}.t, label %{tag}.do, label %{tag}.end",
            f"{tag}.do:",
        ]
        return [*test, *copy, f"  br label %{tag}.end", f"{tag}.end:"]


def plan(netlist: Netlist, chunk: int = CHUNK, *, eager_checks: bool = False) -> Program:
    """Order the netlist and lay it out.

    Parameters
    ----------
    eager_checks : bool
        Have combinational checks in ``eval`` instead of in ``cycle``.

    Raises
    ------
    schedule.Loop
        If a bit depends on itself.
    """
    units = Units(netlist.cells)
    sinks = sinks_of(netlist.cells)
    writes = {
        i for i, (cell, _) in enumerate(sinks) if isinstance(netlist.cells[cell], cells.WritePort)
    }
    eager = {
        i for i, (cell, _) in enumerate(sinks) if eager_checks and _is_comb_check(netlist, cell)
    }
    while True:
        try:
            roots = [units.of_values(values) for _, values in sinks]
            cycle_order = _order(units, roots, set(range(len(roots))) - eager, writes)
            visible = _visible(netlist, units)
            eval_order = _order(units, [*roots, visible], {*eager, len(roots)}, writes)
            break
        except Cut:
            continue
    eval_order = [step for step in eval_order if step != (1, len(roots))]
    layout = Layout(netlist.cells, units).place()
    indices = [index for index, _ in sinks]
    grids = Grids(netlist.cells, layout)
    return Program(netlist, units, layout, indices, cycle_order, eval_order, visible, grids, chunk)


def _is_comb_check(netlist: Netlist, index: int) -> bool:
    cell = netlist.cells[index]
    return isinstance(cell, cells.Check) and cell.event < 0


def _order(
    units: Units, roots: Sequence[Sequence[int]], chosen: set[int], writes: set[int]
) -> list[Step]:
    """Order what the chosen roots need, keeping their numbers; writes of memories go last."""
    numbers = sorted(chosen)
    places = [place for place, number in enumerate(numbers) if number in writes]
    steps = units.order([roots[number] for number in numbers], places)
    return [(1, numbers[index]) if kind else (0, index) for kind, index in steps]


def _visible(netlist: Netlist, units: Units) -> list[int]:
    values = [*netlist.signals.values(), *netlist.ports.values()]
    return [unit for unit in units.of_values(values) if not units.is_state(unit)]


def _split(order: Sequence[Step], most: int) -> list[list[Step]]:
    return [list(order[at : at + most]) for at in range(0, len(order), most)]


def _word(name: str, offset: int, base: str = "%s") -> str:
    return f"  {name} = getelementptr i8, ptr {base}, i64 {offset}\n"


def _run(events: int) -> str:
    """Text of ``run(state, memories, cycles) -> cycles done``.

    Each turn: end if the until-function is true, sample the probes, step all the edges of one
    reference cycle, end if a check fired or a ring is full.
    """
    pointers = "".join(
        _word(f"%p.{name}", getattr(Control, name.upper()))
        for name in (
            "cycle", "stop", "until", "probe", "calendar", "calendar_length", "calendar_at"
        )
    )  # fmt: skip
    if events <= 1:
        step = "  call void @cycle(ptr %s, ptr %m, i64 1)\n  br label %counted\n"
    else:
        step = """  br label %edge
edge:
  %at = load i64, ptr %p.calendar_at, align 8
  %slot = getelementptr i64, ptr %calendar, i64 %at
  %mask = load i64, ptr %slot, align 8
  call void @cycle(ptr %s, ptr %m, i64 %mask)
  %after = add i64 %at, 1
  %wrap = icmp eq i64 %after, %length
  %at.next = select i1 %wrap, i64 0, i64 %after
  store i64 %at.next, ptr %p.calendar_at, align 8
  %last = icmp slt i64 %mask, 0
  br i1 %last, label %counted, label %edge
"""
    return f"""define i64 @run(ptr %s, ptr %m, i64 %n) {{
entry:
{pointers}  %until = load ptr, ptr %p.until, align 8
  %probe = load ptr, ptr %p.probe, align 8
  %calendar = load ptr, ptr %p.calendar, align 8
  %length = load i64, ptr %p.calendar_length, align 8
  %watch = icmp ne ptr %until, null
  %sample = icmp ne ptr %probe, null
  br label %turn
turn:
  %i = phi i64 [ 0, %entry ], [ %i.next, %counted ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %test, label %end
test:
  br i1 %watch, label %ask, label %look
ask:
  %met = call i1 %until(ptr %s, ptr %m)
  br i1 %met, label %end, label %look
look:
  br i1 %sample, label %take, label %step
take:
  call void %probe(ptr %s, ptr %m)
  br label %step
step:
{step}counted:
  %cycle = load i64, ptr %p.cycle, align 8
  %cycle.next = add i64 %cycle, 1
  store i64 %cycle.next, ptr %p.cycle, align 8
  %i.next = add i64 %i, 1
  %stop = load i64, ptr %p.stop, align 8
  %go = icmp eq i64 %stop, 0
  br i1 %go, label %turn, label %halted
halted:
  ret i64 %i.next
end:
  ret i64 %i
}}"""
