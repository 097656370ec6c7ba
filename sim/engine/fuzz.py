"""Random designs, and the comparison of the engine with pysim on them.

The generator uses every cell kind of the netlist. It keeps away from the four constructs in which
pysim itself departs from the netlist (README, "Where pysim differs"): dynamic part selects of
anything but named signals, a read port that is not enabled under reset, asynchronous resets of
memories, and loops.
"""

# The stubs of Amaranth leave out most of its private names.
# pyright: reportAttributeAccessIssue=false

import random
from typing import Any

from amaranth.hdl import (
    Array,
    Cat,
    ClockDomain,
    Const,
    Elaboratable,
    Module,
    Mux,
    Shape,
    Signal,
    Value,
    signed,
    unsigned,
)
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

from npulse.sim.engine.bulk import Compiled
from npulse.sim.engine.cache import ObjectCache

__all__ = ["Mismatch", "RandomDesign", "check_design"]

#: Narrow widths are common, so that a design stays cheap; each machine boundary is there.
WIDTHS = (*range(1, 9), *range(1, 18), 1, 1, 1, 8, 8, 8, 16, 31, 32, 33, 63, 64, 65, 127, 129, 200)
UNARY = (
    lambda a: ~a,
    lambda a: -a,
    lambda a: a.any(),
    lambda a: a.all(),
    lambda a: a.xor(),
    lambda a: a.bool(),
    lambda a: abs(a),
    lambda a: a.as_signed() if len(a) else a,
    lambda a: a.as_unsigned(),
)
BINARY = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: a & b,
    lambda a, b: a | b,
    lambda a, b: a ^ b,
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
    lambda a, b: Cat(a, b),
    lambda a, b: a << b.as_unsigned()[:3],
    lambda a, b: a >> b.as_unsigned()[:7],
)


class Mismatch(AssertionError):
    """Engine and pysim disagree."""


class RandomDesign(Elaboratable):
    """Random logic in two clock domains.

    Parameters
    ----------
    seed : int
        The same design for the same seed and `statements`.
    statements : int
        Assignments; the design grows with it.

    Attributes
    ----------
    inputs : list of Signal
        To be driven; the clocks and the resets are apart, in `domains`.
    """

    def __init__(self, seed: int, statements: int = 8) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.statements = statements
        self.domains = [
            ClockDomain("sync"),
            ClockDomain("slow", clk_edge=rng.choice(("pos", "neg")), reset_less=rng.random() < 0.4),
        ]
        self.inputs = [self._signal("in", index) for index in range(rng.randint(2, 4))]
        self.readable: list[Signal] = list(self.inputs)
        self.module: Module | None = None

    def _shape(self, most: int = 200) -> Shape:
        width = min(self.rng.choice(WIDTHS), most)
        return signed(width) if self.rng.random() < 0.35 else unsigned(width)

    def _signal(self, stem: str, index: int, **rest: Any) -> Signal:
        shape = self._shape()
        low = -(1 << shape.width - 1) if shape.signed else 0
        init = self.rng.choice((0, self.rng.randrange(1 << shape.width) + low))
        return Signal(shape, init=init, name=f"{stem}{index}", **rest)

    def elaborate(self, platform: object) -> Module:
        """Build the logic; the same one each time."""
        if self.module is None:
            self.module = self._build()
        return self.module

    def _build(self) -> Module:
        m = Module()
        m.domains += self.domains
        self.registers = {
            domain: [
                self._signal(f"{domain}_r", index, reset_less=self.rng.random() < 0.3)
                for index in range(self.rng.randint(1, 4))
            ]
            for domain in ("sync", "slow")
        }
        self.readable += [reg for regs in self.registers.values() for reg in regs]
        for index in range(self.rng.choice((0, 0, 1, 2))):
            self._memory(m, index)
        for index in range(self.statements):
            self._statement(m, index)
        return m

    # Expressions

    def _leaf(self) -> Value:
        if self.rng.random() < 0.12:
            shape = self._shape(40)
            return Const(self.rng.randrange(1 << shape.width), shape)
        return self.rng.choice(self.readable)

    def expression(self, depth: int) -> Value:
        """Make a random expression, at most 200 bits wide."""
        value = self._expression(depth)
        return value if len(value) <= 200 else value[: self.rng.randint(1, 200)]

    def _expression(self, depth: int) -> Value:
        if depth == 0:
            return self._leaf()
        rng, sub = self.rng, lambda: self.expression(depth - 1)
        kind = rng.random()
        if kind < 0.2:
            return rng.choice(UNARY)(sub())
        if kind < 0.62:
            return rng.choice(BINARY)(sub(), sub())
        if kind < 0.72:
            return Mux(sub(), sub(), sub())
        if kind < 0.82:
            return self._static_part(sub())
        if kind < 0.9:
            return self._dynamic_part()
        if kind < 0.95:
            return Array([sub() for _ in range(rng.randint(1, 5))])[sub()]
        return self._match(sub())

    def _static_part(self, value: Value) -> Value:
        if len(value) == 0:
            return value
        start = self.rng.randrange(len(value))
        part = value[start : self.rng.randint(start, len(value))]
        return part.replicate(self.rng.randint(1, 3)) if self.rng.random() < 0.3 else part

    def _dynamic_part(self) -> Value:
        signal, offset = self.rng.choice(self.readable), self.rng.choice(self.readable)
        offset = offset.as_unsigned()[: self.rng.randint(1, 9)]
        width = self.rng.randint(1, min(len(signal), 70))
        if self.rng.random() < 0.5:
            return signal.bit_select(offset, width)
        return signal.word_select(offset, width)

    def _match(self, value: Value) -> Value:
        return value.matches(*(self._pattern(len(value)) for _ in range(self.rng.randint(0, 3))))

    def _pattern(self, width: int) -> str:
        return "".join(self.rng.choice("01---") for _ in range(width))

    # Statements

    def _statement(self, m: Module, index: int) -> None:
        if self.rng.random() < 0.55:
            wire = self._signal("w", index)
            self._nest(m, "comb", wire, self.rng.randint(0, 2))
            self.readable.append(wire)
        elif self.rng.random() < 0.2:
            self._fsm(m, index)
        else:
            domain = self.rng.choice(("sync", "slow"))
            register = self.rng.choice(self.registers[domain])
            self._nest(m, domain, register, self.rng.randint(0, 2))

    def _nest(self, m: Module, domain: str, target: Signal, depth: int) -> None:
        """Assign `target` inside up to `depth` nested conditions."""
        if depth == 0:
            self._assign(m, domain, target)
            return
        if self.rng.random() < 0.5:
            with m.If(self.expression(1).bool()):
                self._nest(m, domain, target, depth - 1)
            if self.rng.random() < 0.5:
                with m.Elif(self.expression(1).bool()):
                    self._assign(m, domain, target)
            if self.rng.random() < 0.5:
                with m.Else():
                    self._nest(m, domain, target, depth - 1)
            return
        test = self.expression(1)[:6]
        with m.Switch(test):
            for _ in range(self.rng.randint(1, 4)):
                patterns = [self._pattern(len(test)) for _ in range(self.rng.randint(1, 2))]
                with m.Case(*patterns):
                    self._nest(m, domain, target, depth - 1)
            if self.rng.random() < 0.5:
                with m.Default():
                    self._assign(m, domain, target)

    def _assign(self, m: Module, domain: str, target: Signal) -> None:
        kind = self.rng.random()
        place: Value = target
        if kind < 0.2:
            start = self.rng.randrange(len(target))
            place = target[start : self.rng.randint(start + 1, len(target))]
        elif kind < 0.35:
            offset = self.rng.choice(self.inputs).as_unsigned()[:5]
            width = self.rng.randint(1, max(1, min(len(target), 8)))
            select = target.bit_select if self.rng.random() < 0.5 else target.word_select
            place = select(offset, width)
        m.d[domain] += place.eq(self.expression(self.rng.randint(1, 3)))

    def _fsm(self, m: Module, index: int) -> None:
        wire = self._signal("f", index)
        domain = self.rng.choice(("sync", "slow"))
        states = [f"S{n}" for n in range(self.rng.randint(2, 5))]
        with m.FSM(domain=domain):
            for state in states:
                with m.State(state):
                    m.d.comb += wire.eq(self.expression(1))
                    with m.If(self.expression(1).bool()):
                        m.next = self.rng.choice(states)
        self.readable.append(wire)

    def _memory(self, m: Module, index: int) -> None:
        rng, shape = self.rng, self._shape()
        depth = rng.choice((1, 2, 3, 4, 5, 8, 13, 16))
        init = [rng.randrange(1 << shape.width) for _ in range(rng.randint(0, depth))]
        if shape.signed:
            init = [row - (1 << shape.width - 1) for row in init]
        m.submodules[f"mem{index}"] = memory = Memory(shape=shape, depth=depth, init=init)
        ports: dict[str, list[Any]] = {"sync": [], "slow": []}
        domain = rng.choice(("sync", "slow"))  # two domains writing one row at once is undefined
        for _ in range(rng.randint(0, 3)):
            whole = shape.signed or rng.random() < 0.4
            grain = None if whole else rng.choice(_divisors(shape.width))
            ports[domain].append(memory.write_port(domain=domain, granularity=grain))
        reads = [self._read_port(memory, ports) for _ in range(rng.randint(1, 3))]
        for port in (*ports["sync"], *ports["slow"]):
            m.d.comb += [port.addr.eq(self._leaf()), port.data.eq(self._leaf())]
            m.d.comb += port.en.eq(self._leaf())
        for port in reads:
            m.d.comb += port.addr.eq(self._leaf())
            if port.domain != "comb":
                m.d.comb += port.en.eq(self._enable(port.domain))
            self.readable.append(Value.cast(port.data))  # type: ignore[arg-type]

    def _read_port(self, memory: Memory, ports: dict[str, list[Any]]) -> Any:
        domain = self.rng.choice(("comb", "sync", "slow"))
        known = [port for port in ports.get(domain, []) if self.rng.random() < 0.6]
        return memory.read_port(domain=domain, transparent_for=known)

    def _enable(self, domain: str) -> Value:
        """Make an enable that is 1 under reset, where pysim and the netlist differ."""
        reset = self.domains[domain == "slow"].rst
        enable = self.rng.choice(self.inputs)[0] if self.rng.random() < 0.5 else Const(1, 1)
        return enable if reset is None else enable | reset


def _divisors(width: int) -> list[int]:
    return [size for size in range(1, width + 1) if width % size == 0]


def check_design(design: RandomDesign, *, instants: int = 12, **options: Any) -> int:
    """Drive a design at random in pysim and the engine; return the values compared.

    Parameters
    ----------
    options
        For `Compiled`. By default level and chunk size vary with the seed, and nothing is cached.

    Raises
    ------
    Mismatch
        Naming the signal, the instant and both values.
    """
    rng = random.Random(design.seed)
    options.setdefault("cache", ObjectCache(None))
    options.setdefault("level", rng.choice((0, 0, 0, 0, 1, 1)))
    options.setdefault("chunk", rng.choice((1, 7, 60, 500, 500, 500)))
    compiled = Compiled(design, **options)
    signals = [s for s in compiled.netlist.signals if len(s)]
    clocks = [domain.clk for domain in design.domains]
    resets = [domain.rst for domain in design.domains if domain.rst is not None]
    known = [s for s in (*design.inputs, *resets) if s in compiled.netlist.signals]
    compared = 0

    async def bench(ctx: Any) -> None:
        nonlocal compared
        levels = 0
        for instant in range(instants):
            for signal in known:
                value = _stimulus(rng, signal, reset=any(signal is r for r in resets))
                ctx.set(signal, value)
                compiled.set(signal, value)
            compared += _compare(ctx, compiled, signals, instant)
            after = rng.randrange(4) if instant else levels
            ctx.set(Cat(*clocks), after)
            _edges(compiled, clocks, levels, after)
            levels = after
            compared += _compare(ctx, compiled, signals, instant)

    simulator = Simulator(design)
    simulator.add_testbench(bench)
    simulator.run()
    return compared


def _stimulus(rng: random.Random, signal: Signal, *, reset: bool) -> int:
    if reset:
        return int(rng.random() < 0.15)
    width = len(signal)
    value = rng.choice((0, 1, (1 << width) - 1, 1 << width - 1, rng.getrandbits(width)))
    value &= (1 << width) - 1
    return value - (1 << width) if signal.shape().signed and value >> width - 1 else value


def _edges(compiled: Compiled, clocks: list[Signal], before: int, after: int) -> None:
    """Step the edges between two levels of the clocks, and move the clocks themselves."""
    mask = 0
    for number, event in enumerate(compiled.netlist.events):
        at = next(i for i, clock in enumerate(clocks) if clock.name == event.name)
        rose = (after >> at & 1) - (before >> at & 1)
        mask |= (rose == (1 if event.edge == "pos" else -1)) << number
    if mask:
        compiled.step_edges(mask)
    for at, clock in enumerate(clocks):
        if clock in compiled.netlist.signals:
            compiled.set(clock, after >> at & 1)


def _compare(ctx: Any, compiled: Compiled, signals: list[Signal], instant: int) -> int:
    for signal in signals:
        theirs, ours = ctx.get(signal), compiled.get(signal)
        if theirs != ours:
            raise Mismatch(
                f"{signal.name} at instant {instant}: pysim {theirs:#x}, engine {ours:#x}"
            )
    return len(signals)
