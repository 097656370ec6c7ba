"""Division by Python's rules: floor, and 0 where the divisor is 0.

LLVM's division truncates and is undefined for a zero divisor and for MIN / -1. Above 64 bits it
calls a runtime library that a JIT does not have, so there the quotient comes from a
shift-and-subtract loop of our own.
"""

from npulse.sim.engine.text import Body

__all__ = ["divide"]


def divide(body: Body, op: str, left: str, right: str, width: int) -> str:
    """Emit ``u//``, ``u%``, ``s//`` or ``s%`` on operands of `width` bits."""
    zero = body.op(f"icmp eq i{width} {right}, 0")
    safe = body.op(f"select i1 {zero}, i{width} 1, i{width} {right}")
    if op[0] == "u":
        quotient, remainder = _unsigned(body, left, safe, width)
    else:
        quotient, remainder = _floor(body, left, safe, width)
    result = quotient if op.endswith("//") else remainder
    return body.op(f"select i1 {zero}, i{width} 0, i{width} {result}")


def _unsigned(body: Body, left: str, right: str, width: int) -> tuple[str, str]:
    if width <= 64:
        quotient = body.op(f"udiv i{width} {left}, {right}")
        product = body.op(f"mul i{width} {quotient}, {right}")
        return quotient, body.op(f"sub i{width} {left}, {product}")
    body.module.helpers[f"udivrem{width}"] = _loop(width)
    pair = body.op(
        f"call {{i{width}, i{width}}} @udivrem{width}(i{width} {left}, i{width} {right})"
    )
    return tuple(body.op(f"extractvalue {{i{width}, i{width}}} {pair}, {i}") for i in (0, 1))  # type: ignore[return-value]


def _floor(body: Body, left: str, right: str, width: int) -> tuple[str, str]:
    """Divide magnitudes (one bit wider, so that -MIN fits), then restore signs and round down."""
    wide = width + 1
    a, b = (body.resize(name, width, wide, signed=True) for name in (left, right))
    a_negative, b_negative = (body.op(f"icmp slt i{wide} {name}, 0") for name in (a, b))
    magnitudes = [_negate_if(body, n, name, wide) for n, name in ((a_negative, a), (b_negative, b))]
    quotient, remainder = _unsigned(body, magnitudes[0], magnitudes[1], wide)
    differ = body.op(f"xor i1 {a_negative}, {b_negative}")
    inexact = body.op(f"icmp ne i{wide} {remainder}, 0")
    adjust = body.op(f"and i1 {differ}, {inexact}")
    quotient = _negate_if(body, differ, quotient, wide)
    remainder = _negate_if(body, a_negative, remainder, wide)
    less = body.op(f"sext i1 {adjust} to i{wide}")
    quotient = body.op(f"add i{wide} {quotient}, {less}")
    step = body.op(f"select i1 {adjust}, i{wide} {b}, i{wide} 0")
    remainder = body.op(f"add i{wide} {remainder}, {step}")
    return body.resize(quotient, wide, width), body.resize(remainder, wide, width)


def _negate_if(body: Body, cond: str, name: str, width: int) -> str:
    negative = body.op(f"sub i{width} 0, {name}")
    return body.op(f"select i1 {cond}, i{width} {negative}, i{width} {name}")


def _loop(width: int) -> str:
    """Restoring division, one quotient bit a turn, as an internal function."""
    n, wide = width, width + 1
    pair = f"{{i{n}, i{n}}}"
    return f"""define internal {pair} @udivrem{n}(i{n} %a, i{n} %b) noinline {{
entry:
  %bw = zext i{n} %b to i{wide}
  br label %turn
turn:
  %bit = phi i{n} [ {n - 1}, %entry ], [ %below, %turn ]
  %rest = phi i{wide} [ 0, %entry ], [ %left, %turn ]
  %quo = phi i{n} [ 0, %entry ], [ %more, %turn ]
  %doubled = shl i{wide} %rest, 1
  %shifted = lshr i{n} %a, %bit
  %low = and i{n} %shifted, 1
  %next = zext i{n} %low to i{wide}
  %tried = or i{wide} %doubled, %next
  %fits = icmp uge i{wide} %tried, %bw
  %less = sub i{wide} %tried, %bw
  %left = select i1 %fits, i{wide} %less, i{wide} %tried
  %one = zext i1 %fits to i{n}
  %twice = shl i{n} %quo, 1
  %more = or i{n} %twice, %one
  %below = sub i{n} %bit, 1
  %done = icmp eq i{n} %bit, 0
  br i1 %done, label %end, label %turn
end:
  %r = trunc i{wide} %left to i{n}
  %p = insertvalue {pair} poison, i{n} %more, 0
  %q = insertvalue {pair} %p, i{n} %r, 1
  ret {pair} %q
}}"""
