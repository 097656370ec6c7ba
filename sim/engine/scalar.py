"""One emit method for each cell kind: the combinational lowering, shared by grids.

Values are LLVM integers of exactly the netlist's widths; width 0 is the literal 0 and no
instruction. Division, shifts past the end and part selects are made total here, since LLVM's own
are undefined there.
"""

from collections.abc import Sequence

from npulse.sim.engine import cells
from npulse.sim.engine.cells import CONST, Cell, Run, Value, slice_value, value_width
from npulse.sim.engine.divide import divide
from npulse.sim.engine.layout import Layout, slot_bytes
from npulse.sim.engine.schedule import Units
from npulse.sim.engine.text import Body, ModuleText

__all__ = ["Emitter"]

_SAME = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
_COMPARE = {
    "==": "eq",
    "!=": "ne",
    "u<": "ult",
    "u>": "ugt",
    "u<=": "ule",
    "u>=": "uge",
    "s<": "slt",
    "s>": "sgt",
    "s<=": "sle",
    "s>=": "sge",
}


class Emitter:
    """Writes the instructions of units into one function at a time."""

    def __init__(self, netlist_cells: Sequence[Cell | None], units: Units, layout: Layout) -> None:
        self.cells = netlist_cells
        self.units = units
        self.layout = layout
        self.begin(ModuleText())

    def begin(self, module: ModuleText) -> Body:
        """Start a new function, in which no unit is known yet."""
        self.body = Body(module)
        self.known: dict[int, str] = {}
        self.extracts: dict[Run, str] = {}
        self.pointers: dict[int, str] = {}
        self.chains: dict[tuple[int, int], str] = {}
        return self.body

    def load_unit(self, unit: int) -> str:
        """Read a unit that is state, or was computed by an earlier function."""
        width = self.units.width[unit]
        return self.body.load("%s", self.layout.unit[unit], slot_bytes(width), width)

    def memory_pointer(self, memory: int) -> str:
        """Pointer to the first row of a memory."""
        if memory not in self.pointers:
            slot = self.body.address("%m", 8 * self.layout.memories.index(memory))
            self.pointers[memory] = self.body.op(f"load ptr, ptr {slot}, align 8")
        return self.pointers[memory]

    # Operands

    def of_unit(self, unit: int) -> str:
        """Name of the value of `unit` in this function."""
        name = self.known.get(unit)
        if name is None:
            name = self.known[unit] = self.load_unit(unit)
        return name

    def of_run(self, run: Run) -> str:
        """Name of the value of `run`, of type ``i{run.width}``."""
        if run.cell == CONST:
            return str(run.lo)
        name = self.extracts.get(run)
        if name is None:
            name = self.extracts[run] = self._extract(run)
        return name

    def _extract(self, run: Run) -> str:
        if run.repeat:
            bit = self.of_run(Run(run.cell, run.lo, 1))
            return self.body.resize(bit, 1, run.width, signed=True)
        pieces = []
        for unit in self.units.of_run(run):
            lo = max(run.lo, self.units.lo[unit])
            end = min(run.lo + run.width, self.units.lo[unit] + self.units.width[unit])
            pieces.append((self._bits_of_unit(unit, lo - self.units.lo[unit], end - lo), end - lo))
        return self.join(pieces)

    def _bits_of_unit(self, unit: int, lo: int, width: int) -> str:
        whole = self.units.width[unit]
        if whole > 64 and width <= 64 and unit not in self.known and unit in self.layout.unit:
            return self._load_bits(unit, lo, width)
        name = self.of_unit(unit)
        if width == whole:
            return name
        if lo:
            name = self.body.op(f"lshr i{whole} {name}, {lo}")
        return self.body.op(f"trunc i{whole} {name} to i{width}")

    def _load_bits(self, unit: int, lo: int, width: int) -> str:
        """Read a few bits of a wide field in memory without touching the rest."""
        shift, body = lo % 8, self.body
        bits = (shift + width + 7) // 8 * 8
        pointer = body.address("%s", self.layout.unit[unit] + lo // 8)
        name = body.op(f"load i{bits}, ptr {pointer}, align 1")
        if shift:
            name = body.op(f"lshr i{bits} {name}, {shift}")
        return body.resize(name, bits, width)

    def join(self, pieces: list[tuple[str, int]]) -> str:
        """Concatenate ``(name, width)`` pieces, first one lowest."""
        if len(pieces) == 1:
            return pieces[0][0]
        total, at = sum(width for _, width in pieces), 0
        result = ""
        for name, width in pieces:
            if name != "0":
                part = self.body.resize(name, width, total)
                if at:
                    part = self.body.op(f"shl i{total} {part}, {at}")
                result = self.body.op(f"or disjoint i{total} {result}, {part}") if result else part
            at += width
        return result or "0"

    def value(self, value: Value) -> str:
        """Name of the value of a concatenation of runs."""
        if len(value) == 1:
            return self.of_run(value[0])
        if not value:
            return "0"
        head, last = value[:-1], value[-1]
        if (last.repeat or last.width == 1) and _top_bit(head) == (last.cell, last.lo):
            low = value_width(head)
            return self.body.resize(self.value(head), low, low + last.width, signed=True)
        return self.join([(self.of_run(run), run.width) for run in value])

    # Cells

    def compute(self, unit: int) -> str:
        """Emit `unit` and remember its name."""
        cell = self.cells[self.units.cell[unit]]
        lo, width = self.units.lo[unit], self.units.width[unit]
        match cell:
            case cells.Operator():
                name = self._operator(cell, lo, width)
            case cells.Part():
                name = self.part(cell)
            case cells.Matches():
                name = self.matches(cell)
            case cells.Priority():
                name = self.priority(cell, lo)
            case cells.Select():
                name = self.select(cell, lo, width)
            case cells.AsyncRead():
                name = self.async_read(cell)
            case cells.Register():
                name = self.reset_register(cell, unit)
            case _:
                raise AssertionError(f"{type(cell).__name__} is not combinational")
        self.known[unit] = name
        return name

    def _operator(self, cell: cells.Operator, lo: int, width: int) -> str:
        op = cell.op
        if op in ("~", "&", "|", "^", "m"):
            return self.bitwise(cell, lo, width)
        if op in ("b", "r|", "r&", "r^"):
            return self.reduce(op, cell.inputs[0])
        if op in _COMPARE:
            return self.compare(op, cell.inputs)
        operands = [self.value(value) for value in cell.inputs]
        if len(operands) == 1:
            return self.body.op(f"sub i{width} 0, {operands[0]}")
        if op in _SAME:
            return self.body.op(f"{_SAME[op]} i{width} {operands[0]}, {operands[1]}")
        if op in ("<<", "u>>", "s>>"):
            return self.shift(op, operands, width, value_width(cell.inputs[1]))
        return divide(self.body, op, operands[0], operands[1], width)

    def bitwise(self, cell: cells.Operator, lo: int, width: int) -> str:
        """Emit bits ``lo ..`` of a bitwise operator or multiplexer."""
        if cell.op == "m":
            test = self.value(cell.inputs[0])
            yes, no = (self.value(slice_value(v, lo, width)) for v in cell.inputs[1:])
            return self.body.op(f"select i1 {test}, i{width} {yes}, i{width} {no}")
        operands = [self.value(slice_value(value, lo, width)) for value in cell.inputs]
        if cell.op == "~":
            return self.body.op(f"xor i{width} {operands[0]}, -1")
        return self.body.op(f"{_SAME[cell.op]} i{width} {operands[0]}, {operands[1]}")

    def reduce(self, op: str, value: Value) -> str:
        """Emit a reduction to one bit."""
        width = value_width(value)
        if width == 0:
            return "1" if op == "r&" else "0"
        name = self.value(value)
        if op == "r&":
            return self.body.op(f"icmp eq i{width} {name}, -1")
        if op != "r^":
            return self.body.op(f"icmp ne i{width} {name}, 0")
        self.body.module.declare(f"declare i{width} @llvm.ctpop.i{width}(i{width})")
        ones = self.body.op(f"call i{width} @llvm.ctpop.i{width}(i{width} {name})")
        return self.body.resize(ones, width, 1)

    def compare(self, op: str, inputs: Sequence[Value]) -> str:
        """Emit a comparison."""
        width = value_width(inputs[0])
        if width == 0:
            return "1" if op.endswith("=") and op != "!=" else "0"
        left, right = (self.value(value) for value in inputs)
        return self.body.op(f"icmp {_COMPARE[op]} i{width} {left}, {right}")

    def shift(self, op: str, operands: list[str], width: int, amount_width: int) -> str:
        """Emit a shift; an amount of `width` or more leaves zeros, or the sign."""
        if amount_width == 0:
            return operands[0]
        name = {"<<": "shl", "u>>": "lshr", "s>>": "ashr"}[op]
        return self._total_shift(name, operands[0], width, operands[1], amount_width)

    def _total_shift(self, name: str, value: str, width: int, amount: str, bits: int) -> str:
        body = self.body
        in_range = (1 << bits) <= width
        near = body.resize(amount, bits, width)
        if in_range:
            return body.op(f"{name} i{width} {value}, {near}")
        past = body.op(f"icmp uge i{bits} {amount}, {width}")
        if name == "ashr":  # the last bit is the sign, so the amount may be clamped
            near = body.op(f"select i1 {past}, i{width} {width - 1}, i{width} {near}")
            return body.op(f"ashr i{width} {value}, {near}")
        near = body.op(f"select i1 {past}, i{width} 0, i{width} {near}")
        moved = body.op(f"{name} i{width} {value}, {near}")
        return body.op(f"select i1 {past}, i{width} 0, i{width} {moved}")

    def part(self, cell: cells.Part) -> str:
        """Emit ``value >> offset * stride``, with the product wide enough not to wrap."""
        source, count = value_width(cell.value), value_width(cell.offset)
        if source == 0:
            return "0"
        wide = max(source, cell.width)
        value = self.body.resize(self.value(cell.value), source, wide, signed=cell.signed)
        if count and cell.stride:
            bits = count + cell.stride.bit_length()
            amount = self.body.resize(self.value(cell.offset), count, bits)
            if cell.stride != 1:
                amount = self.body.op(f"mul i{bits} {amount}, {cell.stride}")
            name = "ashr" if cell.signed else "lshr"
            value = self._total_shift(name, value, wide, amount, bits)
        return self.body.resize(value, wide, cell.width)

    def matches(self, cell: cells.Matches) -> str:
        """Emit whether any pattern fits."""
        width, result = value_width(cell.value), ""
        for pattern in cell.patterns:
            hit = self._match(cell.value, pattern, width)
            result = self.body.op(f"or i1 {result}, {hit}") if result else hit
        return result or "0"

    def _match(self, value: Value, pattern: str, width: int) -> str:
        if pattern.count("-") == width:
            return "1"
        name = self.value(value)
        if "-" in pattern:
            mask = int(pattern.replace("0", "1").replace("-", "0"), 2)
            name = self.body.op(f"and i{width} {name}, {mask}")
        wanted = int(pattern.replace("-", "0"), 2)
        return self.body.op(f"icmp eq i{width} {name}, {wanted}")

    def priority(self, cell: cells.Priority, bit: int) -> str:
        """Emit one bit of a priority match, against those earlier inputs that can coincide."""
        result = self.value(cell.enable)
        own = cell.inputs[bit]
        if own != (Run(CONST, 1, 1),):
            result = self._and(result, self.value(own))
        rivals = [other for other in cell.inputs[:bit] if not self._disjoint(own, other)]
        if len(rivals) > 4:
            return self._and(result, self._none_before(cell, bit))
        for other in rivals:
            result = self._and(result, self.body.op(f"xor i1 {self.value(other)}, 1"))
        return result

    def _none_before(self, cell: cells.Priority, bit: int) -> str:
        """Emit whether all inputs below `bit` are 0, as a chain that the bits share."""
        key = (id(cell), bit)
        start = bit
        while start and (id(cell), start) not in self.chains:
            start -= 1
        name = self.chains.get((id(cell), start), "1")
        for at in range(start, bit):
            name = self._and(name, self.body.op(f"xor i1 {self.value(cell.inputs[at])}, 1"))
            self.chains[id(cell), at + 1] = name
        return self.chains[key]

    def _and(self, left: str, right: str) -> str:
        return right if left == "1" else self.body.op(f"and i1 {left}, {right}")

    def _disjoint(self, left: Value, right: Value) -> bool:
        if CONST in (left[0].cell, right[0].cell):
            return False
        a, b = self.cells[left[0].cell], self.cells[right[0].cell]
        if not isinstance(a, cells.Matches) or not isinstance(b, cells.Matches):
            return False
        return a.value == b.value and not any(
            _overlap(p, q) for p in a.patterns for q in b.patterns
        )

    def select(self, cell: cells.Select, lo: int, width: int) -> str:
        """Emit bits ``lo ..`` of an assignment list."""
        result = self.value(slice_value(cell.default, lo, width))
        for arm in cell.arms:
            if not (arm.start < lo + width and lo < arm.start + arm.width):
                continue
            cond = self.value(arm.cond)
            value = self.value(slice_value(arm.value, lo - arm.start, width))
            if cond == "1":
                result = value
            elif cond != "0":
                result = self.body.op(f"select i1 {cond}, i{width} {value}, i{width} {result}")
        return result

    def reset_register(self, cell: cells.Register, unit: int) -> str:
        """Emit the output of an asynchronously reset register."""
        assert cell.arst is not None
        width = cell.width
        offset = self.layout.state[self.units.cell[unit]]
        stored = self.body.load("%s", offset, slot_bytes(width), width)
        reset = self.value(cell.arst)
        return self.body.op(f"select i1 {reset}, i{width} {cell.init}, i{width} {stored}")

    def async_read(self, cell: cells.AsyncRead) -> str:
        """Emit a combinational read; past the last row it is 0."""
        name, _ = self.read_row(cell.memory, cell.addr)
        return name

    def read_row(self, index: int, addr: Value) -> tuple[str, str]:
        """Emit the read of a row. Returns its value and whether the address is in range."""
        memory = self.cells[index]
        assert isinstance(memory, cells.Memory)
        body, width = self.body, memory.width
        pointer, inside = self.row_pointer(index, addr)
        slot = slot_bytes(width)
        if memory.depth == 0:
            return "0", "0"
        name = body.load(pointer, 0, slot, width)
        if inside != "1":
            name = body.op(f"select i1 {inside}, i{width} {name}, i{width} 0")
        return name, inside

    def row_pointer(self, index: int, addr: Value) -> tuple[str, str]:
        """Emit the address of a row, of row 0 if out of range, and whether it is in range."""
        memory = self.cells[index]
        assert isinstance(memory, cells.Memory)
        body, bits = self.body, value_width(addr)
        base = self.memory_pointer(index)
        if bits == 0 or memory.depth == 0:
            return base, "1" if memory.depth else "0"
        name, inside = self.value(addr), "1"
        if memory.depth < 1 << bits:
            inside = body.op(f"icmp ult i{bits} {name}, {memory.depth}")
            name = body.op(f"select i1 {inside}, i{bits} {name}, i{bits} 0")
        return self.row_address(index, base, body.resize(name, bits, 64)), inside

    def row_address(self, index: int, base: str, row: str) -> str:
        """Emit the address of a row whose number is an i64."""
        scaled = self.body.op(f"mul i64 {row}, {self.layout.stride[index]}")
        return self.body.op(f"getelementptr i8, ptr {base}, i64 {scaled}")


def _top_bit(value: Value) -> tuple[int, int]:
    last = value[-1]
    if last.cell == CONST:
        return CONST, -1
    return last.cell, last.lo if last.repeat else last.lo + last.width - 1


def _overlap(left: str, right: str) -> bool:
    return all(a == b or "-" in (a, b) for a, b in zip(left, right, strict=True))
