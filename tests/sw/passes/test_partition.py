"""Segments of a graph, in text."""

from npulse.sw.ir.graph import ClampOp, GraphOp
from npulse.sw.passes.partition import host_module, partition
from npulse.sw.passes.text import parse_module
from npulse.sw.passes.views import views

Q = "#graph.quant<scale = [0.5], zero_point = [0]>"
IMAGE = f"tensor<1x2x2x3xi8, {Q}>"
FLAT = f"tensor<1x12xi8, {Q}>"
FLOAT = "tensor<1x2x2x3xf32>"


def clamp(result: str, operand: str, node: str, kind: str = IMAGE) -> str:
    return (
        f'%{result} = graph.clamp(%{operand}) {{clamp = array<i32: 0, 9>, node = "{node}"}} : '
        f"({kind}) -> {kind}"
    )


def dequantize(result: str, operand: str) -> str:
    return f'%{result} = graph.dequantize(%{operand}) {{node = "{result}"}} : ({IMAGE}) -> {FLOAT}'


def quantize(result: str, operand: str) -> str:
    return (
        f'%{result} = graph.quantize(%{operand}) {{rounding = "half_even", node = "{result}"}} : '
        f"({FLOAT}) -> {IMAGE}"
    )


def reshape(result: str, operand: str) -> str:
    return f'%{result} = graph.reshape(%{operand}) {{node = "{result}"}} : ({IMAGE}) -> {FLAT}'


def split(*lines: str, result: str, kind: str):
    """Partition of a function in which the NPU does the clamps; segments as (side, nodes)."""
    body = "\n".join((*lines, f"func.return %{result} : {kind}"))
    module = parse_module(
        f"builtin.module {{\nfunc.func @main(%x: {IMAGE}) -> ({kind}) {{\n{body}\n}}\n}}"
    )

    def source(op: GraphOp):
        return views(op.input)[0].base if isinstance(op, ClampOp) else None

    found = partition(module, source)
    return found, [(s.on_npu, [op.node_name for op in s.ops]) for s in found.segments]


def test_sides_take_turns_and_pass_values_on() -> None:
    found, sides = split(
        clamp("a", "x", "a"),
        dequantize("f", "a"),
        quantize("q", "f"),
        clamp("b", "q", "b"),
        result="b",
        kind=IMAGE,
    )
    assert sides == [(True, ["a"]), (False, ["f", "q"]), (True, ["b"])]
    names = [
        ([v.name_hint for v in s.inputs], [v.name_hint for v in s.outputs]) for s in found.segments
    ]
    assert names == [(["x"], ["a"]), (["a"], ["q"]), (["q"], ["b"])]


def test_operators_of_one_side_that_are_ready_join_across_the_other() -> None:
    _, sides = split(
        clamp("a", "x", "a"),
        dequantize("f", "a"),
        clamp("b", "a", "b"),
        quantize("q", "f"),
        clamp("c", "q", "c"),
        clamp("d", "b", "d"),
        result="c, %d",
        kind=f"{IMAGE}, {IMAGE}",
    )
    assert sides == [(True, ["a", "b", "d"]), (False, ["f", "q"]), (True, ["c"])]


def test_a_reshape_that_only_the_npu_reads_is_carried_out_by_nobody() -> None:
    found, sides = split(
        clamp("a", "x", "a"), reshape("r", "a"), clamp("b", "r", "b", FLAT), result="b", kind=FLAT
    )
    assert sides == [(True, ["a", "b"])]
    assert [op.node_name for op in found.views] == ["r"]


def test_a_reshape_that_is_an_output_runs_on_the_host() -> None:
    found, sides = split(clamp("a", "x", "a"), reshape("r", "a"), result="r", kind=FLAT)
    assert sides == [(True, ["a"]), (False, ["r"])]
    assert found.views == ()


def test_what_nobody_needs_is_dropped() -> None:
    _, sides = split(clamp("a", "x", "a"), dequantize("f", "x"), result="a", kind=IMAGE)
    assert sides == [(True, ["a"])]


def test_a_host_segment_is_a_module_of_its_own() -> None:
    found, _ = split(
        clamp("a", "x", "a"), dequantize("f", "a"), quantize("q", "f"), result="q", kind=IMAGE
    )
    lines = "\n".join((dequantize("f", "a"), quantize("q", "f"), f"func.return %q : {IMAGE}"))
    expected = f"builtin.module {{\nfunc.func @main(%a: {IMAGE}) -> {IMAGE} {{\n{lines}\n}}\n}}"
    assert str(host_module(found.segments[1])) == str(parse_module(expected))
