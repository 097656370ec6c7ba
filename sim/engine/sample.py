"""Small functions beside the cycle: the test that ends a run, the sampling of probes.

Each evaluates the cone of a few signals from the state, so that nothing else is recompiled.
"""

from collections.abc import Sequence

from npulse.sim.engine.cells import Value, value_width
from npulse.sim.engine.layout import Control, slot_bytes
from npulse.sim.engine.program import Program
from npulse.sim.engine.scalar import Emitter
from npulse.sim.engine.text import Body, ModuleText

__all__ = ["probe_offsets", "probe_text", "until_text"]


def _cone(program: Program, values: Sequence[Value]) -> tuple[ModuleText, Emitter, list[str]]:
    module = ModuleText()
    emitter = Emitter(program.netlist.cells, program.units, program.layout)
    emitter.begin(module)
    for kind, unit in program.units.order([program.units.of_values(values)]):
        if not kind:
            emitter.compute(unit)
    return module, emitter, [emitter.value(value) for value in values]


def until_text(program: Program, value: Value) -> str:
    """Text of ``until(state, memories) -> i1``, true if `value` is not zero."""
    module, emitter, (name,) = _cone(program, [value])
    width = value_width(value)
    met = emitter.body.op(f"icmp ne i{width} {name}, 0") if width else "0"
    lines = "\n".join(emitter.body.lines)
    module.functions.append(
        f"define i1 @until(ptr %s, ptr %m) {{\nentry:\n{lines}\n  ret i1 {met}\n}}"
    )
    return module.text()


def probe_offsets(values: Sequence[Value]) -> tuple[list[int], int]:
    """Byte of each field of a record, after the cycle number, and the size of the record."""
    offsets, at = [], 8
    for value in sorted(values, key=lambda v: -min(slot_bytes(value_width(v)), 8)):
        size = slot_bytes(max(value_width(value), 1))
        at = (at + min(size, 8) - 1) // min(size, 8) * min(size, 8)
        offsets.append((id(value), at))
        at += size
    place = dict(offsets)
    return [place[id(value)] for value in values], (at + 7) // 8 * 8


def probe_text(program: Program, values: Sequence[Value], every: int, on_change: bool) -> str:
    """Text of ``probe(state, memories)``, which appends a record to the ring."""
    module = ModuleText()
    offsets, size = probe_offsets(values)
    lines = _guard(every)
    module_cone, emitter, names = _cone(program, values)
    module.declared, module.helpers = module_cone.declared, module_cone.helpers
    module.ranges = module_cone.ranges
    body = emitter.body
    _append(body, values, names, offsets, size, on_change)
    text = "\n".join([*lines, *body.lines])
    module.functions.append(f"define void @probe(ptr %s, ptr %m) {{\n{text}\n}}")
    return module.text()


def _guard(every: int) -> list[str]:
    if every == 1:
        return ["entry:"]
    return [
        "first:",
        f"  %now.p = getelementptr i8, ptr %s, i64 {Control.CYCLE}",
        "  %now = load i64, ptr %now.p, align 8",
        f"  %phase = urem i64 %now, {every}",
        "  %due = icmp eq i64 %phase, 0",
        "  br i1 %due, label %entry, label %skip",
        "skip:",
        "  ret void",
        "entry:",
    ]


def _append(
    body: Body,
    values: Sequence[Value],
    names: list[str],
    offsets: list[int],
    size: int,
    on_change: bool,
) -> None:
    used_at = body.address("%s", Control.RING_USED)
    used = body.op(f"load i64, ptr {used_at}, align 8")
    ring = body.op(f"load ptr, ptr {body.address('%s', Control.RING)}, align 8")
    row = body.op(f"getelementptr i8, ptr {ring}, i64 {body.op(f'mul i64 {used}, {size}')}")
    if on_change:
        _return_if_same(body, values, names, offsets, size, row)
    cycle = body.op(f"load i64, ptr {body.address('%s', Control.CYCLE)}, align 8")
    body.do(f"store i64 {cycle}, ptr {row}, align 8")
    for value, name, offset in zip(values, names, offsets, strict=True):
        width = value_width(value)
        if width:
            body.store(name, row, offset, slot_bytes(width), width)
    more = body.op(f"add i64 {used}, 1")
    body.do(f"store i64 {more}, ptr {used_at}, align 8")
    rows = body.op(f"load i64, ptr {body.address('%s', Control.RING_ROWS)}, align 8")
    full = body.op(f"icmp uge i64 {more}, {rows}")
    flag = body.op(f"select i1 {full}, i64 2, i64 0")
    stop_at = body.address("%s", Control.STOP)
    old = body.op(f"load i64, ptr {stop_at}, align 8")
    body.do(f"store i64 {body.op(f'or i64 {old}, {flag}')}, ptr {stop_at}, align 8")
    body.do("ret void")


def _return_if_same(
    body: Body,
    values: Sequence[Value],
    names: list[str],
    offsets: list[int],
    size: int,
    row: str,
) -> None:
    """Compare with the record before, which a drain keeps; its cycle is -1 if there is none."""
    before = body.op(f"getelementptr i8, ptr {row}, i64 -{size}")
    cycle = body.op(f"load i64, ptr {before}, align 8")
    same = body.op(f"icmp ne i64 {cycle}, -1")
    for value, name, offset in zip(values, names, offsets, strict=True):
        width = value_width(value)
        if width:
            old = body.load(before, offset, slot_bytes(width), width)
            equal = body.op(f"icmp eq i{width} {name}, {old}")
            same = body.op(f"and i1 {same}, {equal}")
    body.do(f"br i1 {same}, label %same, label %differs")
    body.block("same")
    body.do("ret void")
    body.block("differs")
