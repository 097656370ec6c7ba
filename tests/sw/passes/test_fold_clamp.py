"""Clamps folded into the operator before them."""

from npulse.sw.passes.fold_clamp import fold_clamp
from npulse.sw.passes.text import parse_module

Q = "#graph.quant<scale = [0.5], zero_point = [3]>"
X = f"tensor<1x4x4x2xi8, {Q}>"
Y = f"tensor<1x2x2x2xi8, {Q}>"


def pool(clamp: str, name: str = "pool") -> str:
    return (
        f"%p = graph.max_pool2d(%x) {{kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, "
        f'pads = array<i64: 0, 0, 0, 0>, clamp = array<i32: {clamp}>, node = "{name}"}} : '
        f"({X}) -> {Y}"
    )


def clamp(result: str, operand: str, bounds: str) -> str:
    return (
        f'{result} = graph.clamp({operand}) {{clamp = array<i32: {bounds}>, node = "relu"}} : '
        f"({Y}) -> {Y}"
    )


def function(*lines: str, result: str) -> str:
    body = "\n    ".join((*lines, f"func.return {result} : {Y}"))
    return f"builtin.module {{\n  func.func @main(%x: {X}) -> {Y} {{\n    {body}\n  }}\n}}"


def test_a_clamp_narrows_the_bounds_before_it() -> None:
    module = parse_module(function(pool("-100, 50"), clamp("%c", "%p", "3, 127"), result="%c"))
    (folded,) = fold_clamp(module)
    assert (folded.node, folded.into) == ("relu", "pool")
    assert folded.by.name_hint == "c"
    assert str(module) == str(
        parse_module(function(pool("3, 50").replace("%p", "%c"), result="%c"))
    )


def test_bounds_beyond_those_before_give_a_constant() -> None:
    module = parse_module(function(pool("-100, 50"), clamp("%c", "%p", "60, 127"), result="%c"))
    fold_clamp(module)
    assert "clamp = array<i32: 60, 60>" in str(module)


def test_two_clamps_in_a_row_fold_both() -> None:
    text = function(
        pool("-128, 127"), clamp("%c", "%p", "3, 127"), clamp("%d", "%c", "-9, 40"), result="%d"
    )
    module = parse_module(text)
    assert len(fold_clamp(module)) == 2
    assert "clamp = array<i32: 3, 40>" in str(module)


def test_a_value_with_another_reader_keeps_its_clamp() -> None:
    text = function(
        pool("-128, 127"), clamp("%c", "%p", "3, 127"), clamp("%d", "%p", "-9, 40"), result="%d"
    )
    module = parse_module(text)
    before = str(module)
    assert fold_clamp(module) == []
    assert str(module) == before
