"""Variables of a TFLite model during its import: what they hold at each point of the graph."""

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from xdsl.ir import SSAValue

from npulse.sw.frontends.tflite_reader import TfliteTensor


@dataclass
class Variable:
    """A variable on its way through the graph."""

    name: str
    initial: NDArray[Any] | None = None
    tensor: TfliteTensor | None = None  #: whose type it has, from its first use
    first: SSAValue | None = None  #: argument that a read before any assignment needs
    value: SSAValue | None = None  #: what it holds now

    @property
    def last(self) -> SSAValue:
        """What it holds now; `ValueError` before its first use."""
        if self.value is None:
            raise ValueError(f"variable {self.name!r} must be used before it has a value")
        return self.value


@dataclass
class Variables:
    """All variables of a model by name, and the handles that refer to them by tensor."""

    by_name: dict[str, Variable] = field(default_factory=dict)
    handles: dict[int, Variable] = field(default_factory=dict)
    read: list[Variable] = field(default_factory=list)  #: before any assignment, in this order

    def handle(self, index: int, name: str) -> None:
        """Let a resource tensor refer to a variable."""
        self.handles[index] = self.by_name.setdefault(name, Variable(name))
