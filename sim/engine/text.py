"""LLVM IR as text: a function body being written, and the module around it.

Text is several times faster to make than objects of `llvmlite.ir`, and is hashed as it stands.
"""

__all__ = ["Body", "ModuleText"]


class ModuleText:
    """Functions of a module, and the declarations, helpers and metadata that they need."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.declared: dict[str, None] = {}
        self.helpers: dict[str, str] = {}
        self.ranges: dict[tuple[int, int], int] = {}
        self.widths: dict[int, int] = {}

    def declare(self, line: str) -> None:
        """Add a declaration once."""
        self.declared[line] = None

    def range_of(self, bits: int, width: int) -> str:
        """Metadata which says that a load of `bits` is below ``2**width``."""
        index = self.ranges.setdefault((bits, width), len(self.ranges))
        return f", !range !{index}"

    def lanes_hint(self, lanes: int) -> str:
        """Metadata of a loop's back edge: vectorise with `lanes` elements at once.

        LLVM sizes vectors by the widest type; most of a cell is bytes, which would fill only a
        quarter of a register.
        """
        index = self.widths.setdefault(lanes, 1_000_000 + 2 * len(self.widths))
        return f", !llvm.loop !{index}"

    def text(self) -> str:
        """Return the whole module."""
        metadata = [
            f"!{index} = !{{i{bits} 0, i{bits} {1 << width}}}"
            for (bits, width), index in self.ranges.items()
        ]
        for lanes, index in self.widths.items():
            width = f'!{{!"llvm.loop.vectorize.width", i32 {lanes}}}'
            metadata += [
                f"!{index} = distinct !{{!{index}, !{index + 1}}}",
                f"!{index + 1} = {width}",
            ]
        parts = [*self.declared, *self.helpers.values(), *self.functions, *metadata]
        return "\n".join(parts) + "\n"


class Body:
    """Instructions of one function."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        self.lines: list[str] = []
        self.count = 0

    def op(self, text: str) -> str:
        """Append an instruction with a result, and return its name."""
        self.count += 1
        name = f"%t{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + text)

    def label(self, stem: str) -> str:
        """Name for a basic block, to be opened by `block`."""
        self.count += 1
        return f"{stem}{self.count}"

    def block(self, label: str) -> None:
        """Open a basic block."""
        self.lines.append(label + ":")

    def address(self, base: str, offset: int) -> str:
        """Pointer `offset` bytes past `base`."""
        return self.op(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def load(self, base: str, offset: int, slot: int, width: int) -> str:
        """Load `width` bits from a slot of `slot` bytes, whose upper bits are zero."""
        bits = 8 * slot
        hint = self.module.range_of(bits, width) if width < bits <= 64 else ""
        pointer = self.address(base, offset)
        raw = self.op(f"load i{bits}, ptr {pointer}, align {min(slot, 8)}{hint}")
        return raw if width == bits else self.op(f"trunc i{bits} {raw} to i{width}")

    def store(self, value: str, base: str, offset: int, slot: int, width: int) -> None:
        """Store `width` bits into a slot of `slot` bytes, clearing the rest."""
        bits = 8 * slot
        if width < bits:
            value = self.op(f"zext i{width} {value} to i{bits}")
        pointer = self.address(base, offset)
        self.do(f"store i{bits} {value}, ptr {pointer}, align {min(slot, 8)}")

    def resize(self, value: str, width: int, to: int, *, signed: bool = False) -> str:
        """Truncate or extend."""
        if width == to:
            return value
        if width == 0:
            return "0"
        if width > to:
            return self.op(f"trunc i{width} {value} to i{to}")
        return self.op(f"{'sext' if signed else 'zext'} i{width} {value} to i{to}")
