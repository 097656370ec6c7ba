"""Int8 operators of TFLite through the importer and golden, against LiteRT's BUILTIN_REF."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from npulse.sw.errors import UserError
from npulse.sw.frontends.load import load_model
from npulse.sw.frontends.model import Model
from npulse.sw.interpret import interpret
from npulse.sw.ir.graph import RequantizeOp

X, Y = (0.047, -11), (0.081, 23)  #: scale and zero point


@dataclass
class OneOp:
    """Model of one operator: activations, then constants, and the shapes of the outputs."""

    kind: str
    inputs: list[tuple[Any, ...]]  #: shape, (scale, zero point) of each activation
    outputs: list[tuple[Any, ...]]
    constants: dict[int, np.ndarray] = field(default_factory=dict)  #: by place among the inputs
    quants: dict[int, tuple[Any, int]] = field(default_factory=dict)  #: of constants
    options: Any = None
    op: str = ""  #: of the graph
    dtype: Any = np.int8


def options(name: str, **values: Any) -> Any:
    made = getattr(schema, f"{name}OptionsT")()
    for key, value in values.items():
        setattr(made, key, value)
    return made


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def random_codes(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)


def build(builder: Any, case: OneOp) -> bytes:
    activations = iter(case.inputs)
    places, given = [], []
    for place in range(len(case.inputs) + len(case.constants)):
        if place in case.constants:
            data = case.constants[place]
            scale, zero = case.quants.get(place, (None, 0))
            places.append(builder.tensor(f"c{place}", data.shape, scale, zero, data))
        else:
            shape, quant = next(activations)
            places.append(builder.tensor(f"x{place}", shape, *quant, dtype=case.dtype))
            given.append(places[-1])
    made = [
        builder.tensor(f"y{i}", shape, *quant, dtype=case.dtype)
        for i, (shape, quant) in enumerate(case.outputs)
    ]
    builder.op(case.kind, places, made, case.options)
    return builder.build(given, made)


def batches_of(model: Model, count: int, seed: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        [
            rng.integers(np.iinfo(i.dtype).min, np.iinfo(i.dtype).max + 1, i.shape).astype(i.dtype)
            for i in model.inputs
        ]
        for _ in range(count)
    ]


def load_bytes(content: bytes, folder: Path) -> Model:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return load_model(path)


def assert_equals_litert(content: bytes, folder: Path, litert: Any) -> Model:
    model = load_bytes(content, folder)
    batches = batches_of(model, 3, 7)
    names = [info.name for info in model.inputs]
    for arrays, due in zip(batches, litert(content, batches), strict=True):
        found = interpret(model, dict(zip(names, arrays, strict=True)))
        assert [a.dtype for a in found.values()] == [b.dtype for b in due]
        for a, b in zip(found.values(), due, strict=True):
            np.testing.assert_array_equal(a, b)
    return model


IMAGE = (1, 5, 6, 4)
TWO = [(IMAGE, X), (IMAGE, (0.019, 40))]
STRIDED = dict(beginMask=0, endMask=0, ellipsisMask=0, newAxisMask=0, shrinkAxisMask=0)
CASES = {
    "sub": OneOp("SUB", TWO, [(IMAGE, Y)], options=options("Sub"), op="graph.sub"),
    "sub_relu6": OneOp(
        "SUB", TWO, [(IMAGE, Y)], options=options("Sub", fusedActivationFunction=3), op="graph.sub"
    ),
    "sub_broadcast": OneOp(
        "SUB",
        [(IMAGE, X), ((1, 1, 1, 4), (0.3, 5))],
        [(IMAGE, Y)],
        options=options("Sub"),
        op="graph.sub",
    ),
    "add_constant": OneOp(
        "ADD",
        [(IMAGE, X)],
        [(IMAGE, Y)],
        {1: random_codes((4,))},
        {1: (0.02, 3)},
        options("Add"),
        "graph.add",
    ),
    "mul": OneOp("MUL", TWO, [(IMAGE, Y)], options=options("Mul"), op="graph.mul"),
    "mul_relu": OneOp(
        "MUL", TWO, [(IMAGE, Y)], options=options("Mul", fusedActivationFunction=1), op="graph.mul"
    ),
    "minimum": OneOp(
        "MINIMUM",
        [(IMAGE, X), ((6, 4), X)],
        [(IMAGE, X)],
        options=options("MaximumMinimum"),
        op="graph.minimum",
    ),
    "maximum": OneOp(
        "MAXIMUM",
        [(IMAGE, X), (IMAGE, X)],
        [(IMAGE, X)],
        options=options("MaximumMinimum"),
        op="graph.maximum",
    ),
    "prelu": OneOp(
        "PRELU",
        [(IMAGE, X)],
        [(IMAGE, Y)],
        {1: random_codes((1, 1, 4))},
        {1: (0.011, 9)},
        op="graph.prelu",
    ),
    "logistic": OneOp("LOGISTIC", [(IMAGE, X)], [(IMAGE, (1 / 256, -128))], op="graph.lut"),
    "tanh": OneOp("TANH", [(IMAGE, X)], [(IMAGE, (1 / 128, 0))], op="graph.lut"),
    "gelu": OneOp("GELU", [(IMAGE, X)], [(IMAGE, Y)], options=options("Gelu"), op="graph.lut"),
    "gelu_tanh": OneOp(
        "GELU",
        [(IMAGE, X)],
        [(IMAGE, Y)],
        options=options("Gelu", approximate=True),
        op="graph.lut",
    ),
    "leaky_relu": OneOp(
        "LEAKY_RELU",
        [(IMAGE, X)],
        [(IMAGE, Y)],
        options=options("LeakyRelu", alpha=0.13),
        op="graph.lut",
    ),
    "hard_swish": OneOp("HARD_SWISH", [(IMAGE, X)], [(IMAGE, (0.04, -120))], op="graph.lut"),
    "mean": OneOp(
        "MEAN",
        [(IMAGE, X)],
        [((1, 4), Y)],
        {1: ints(1, 2)},
        options=options("Reducer", keepDims=False),
        op="graph.mean",
    ),
    "mean_keeps_axes": OneOp(
        "MEAN",
        [(IMAGE, X)],
        [((1, 1, 1, 4), X)],
        {1: ints(2, 1)},
        options=options("Reducer", keepDims=True),
        op="graph.mean",
    ),
    "mean_of_channels": OneOp(
        "MEAN",
        [(IMAGE, X)],
        [((1, 5, 6), Y)],
        {1: ints(-1)},
        options=options("Reducer", keepDims=False),
        op="graph.mean",
    ),
    "average_pool_same": OneOp(
        "AVERAGE_POOL_2D",
        [(IMAGE, X)],
        [((1, 3, 2, 4), X)],
        options=options("Pool2D", padding=0, strideH=2, strideW=3, filterHeight=3, filterWidth=3),
        op="graph.average_pool2d",
    ),
    "pad": OneOp(
        "PAD",
        [(IMAGE, X)],
        [((1, 8, 7, 4), X)],
        {1: np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32)},
        options=options("Pad"),
        op="graph.pad",
    ),
    "padv2": OneOp(
        "PADV2",
        [(IMAGE, X)],
        [((1, 5, 8, 4), X)],
        {1: np.array([[0, 0], [0, 0], [1, 1], [0, 0]], np.int32), 2: np.array([77], np.int8)},
        {2: X},
        options("PadV2"),
        "graph.pad",
    ),
    "concatenation": OneOp(
        "CONCATENATION",
        [(IMAGE, X), ((1, 5, 2, 4), X)],
        [((1, 5, 8, 4), X)],
        options=options("Concatenation", axis=-2),
        op="graph.concat",
    ),
    "slice": OneOp(
        "SLICE",
        [(IMAGE, X)],
        [((1, 2, 5, 4), X)],
        {1: ints(0, 3, 1, 0), 2: ints(1, 2, -1, 4)},
        options=options("Slice"),
        op="graph.slice",
    ),
    "strided_slice": OneOp(
        "STRIDED_SLICE",
        [(IMAGE, X)],
        [((1, 3, 2, 4), X)],
        {1: ints(0, 4, 1, 0), 2: ints(1, 0, 9, 4), 3: ints(1, -2, 3, 1)},
        options=options("StridedSlice", **{**STRIDED, "endMask": 2}),
        op="graph.slice",
    ),
    "strided_slice_shrinks": OneOp(
        "STRIDED_SLICE",
        [(IMAGE, X)],
        [((1, 6, 3), X)],
        {1: ints(0, -2, 0, 1), 2: ints(1, 0, 0, 0), 3: ints(1, 1, 1, 1)},
        options=options("StridedSlice", **{**STRIDED, "endMask": 12, "shrinkAxisMask": 2}),
        op="graph.slice",
    ),
    "strided_slice_adds_an_axis": OneOp(
        "STRIDED_SLICE",
        [(IMAGE, X)],
        [((1, 1, 5, 6, 2), X)],
        {1: ints(0, 0, 2), 2: ints(0, 0, 4), 3: ints(1, 1, 1)},
        options=options("StridedSlice", **{**STRIDED, "newAxisMask": 1, "ellipsisMask": 2}),
        op="graph.slice",
    ),
    "split": OneOp(
        "SPLIT",
        [(IMAGE, X)],
        [((1, 5, 3, 4), X), ((1, 5, 3, 4), X)],
        {0: ints(2)},
        options=options("Split", numSplits=2),
        op="graph.slice",
    ),
    "split_v": OneOp(
        "SPLIT_V",
        [(IMAGE, X)],
        [((1, 5, 6, 1), X), ((1, 5, 6, 3), X)],
        {1: ints(1, 3), 2: ints(-1)},
        options=options("SplitV", numSplits=2),
        op="graph.slice",
    ),
    "transpose": OneOp(
        "TRANSPOSE",
        [(IMAGE, X)],
        [((4, 1, 6, 5), X)],
        {1: ints(3, 0, 2, 1)},
        options=options("Transpose"),
        op="graph.transpose",
    ),
    "squeeze": OneOp(
        "SQUEEZE",
        [(IMAGE, X)],
        [((5, 6, 4), X)],
        options=options("Squeeze", squeezeDims=[0]),
        op="graph.reshape",
    ),
    "expand_dims": OneOp(
        "EXPAND_DIMS",
        [(IMAGE, X)],
        [((1, 5, 1, 6, 4), X)],
        {1: ints(2)},
        options=options("ExpandDims"),
        op="graph.reshape",
    ),
    "resize": OneOp(
        "RESIZE_NEAREST_NEIGHBOR",
        [(IMAGE, X)],
        [((1, 13, 4, 4), X)],
        {1: ints(13, 4)},
        options=options("ResizeNearestNeighbor"),
        op="graph.resize_nearest",
    ),
    "resize_corners": OneOp(
        "RESIZE_NEAREST_NEIGHBOR",
        [(IMAGE, X)],
        [((1, 11, 9, 4), X)],
        {1: ints(11, 9)},
        options=options("ResizeNearestNeighbor", alignCorners=True),
        op="graph.resize_nearest",
    ),
    "resize_half_pixel": OneOp(
        "RESIZE_NEAREST_NEIGHBOR",
        [(IMAGE, X)],
        [((1, 10, 7, 4), X)],
        {1: ints(10, 7)},
        options=options("ResizeNearestNeighbor", halfPixelCenters=True),
        op="graph.resize_nearest",
    ),
    "transpose_conv": OneOp(
        "TRANSPOSE_CONV",
        [(IMAGE, X)],
        [((1, 10, 12, 3), Y)],
        {0: ints(1, 10, 12, 3), 1: random_codes((3, 3, 2, 4)), 3: ints(1500, -900, 10)},
        {1: ([0.01, 0.004, 0.02], 0), 3: (np.float32([0.01, 0.004, 0.02]) * np.float32(0.047), 0)},
        options("TransposeConv", padding=0, strideH=2, strideW=2),
        "graph.transpose_conv2d",
    ),
    "transpose_conv_valid": OneOp(
        "TRANSPOSE_CONV",
        [(IMAGE, X)],
        [((1, 11, 8, 3), Y)],
        {0: ints(1, 11, 8, 3), 1: random_codes((3, 3, 3, 4), 1)},
        {1: (0.01, 0)},
        options("TransposeConv", padding=1, strideH=2, strideW=1),
        "graph.transpose_conv2d",
    ),
    "batch_matmul": OneOp(
        "BATCH_MATMUL",
        [((2, 3, 7), X), ((2, 7, 4), (0.03, 12))],
        [((2, 3, 4), Y)],
        options=options("BatchMatMul"),
        op="graph.batch_matmul",
    ),
    "batch_matmul_adjoint": OneOp(
        "BATCH_MATMUL",
        [((2, 7, 3), X), ((2, 4, 7), (0.03, 12))],
        [((2, 3, 4), Y)],
        options=options("BatchMatMul", adjX=True, adjY=True),
        op="graph.batch_matmul",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operator_equals_litert(
    name: str, tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    case = CASES[name]
    model = assert_equals_litert(build(tflite_builder, case), tmp_path, litert)
    assert case.op in [op.name for op in model.main.body.block.ops]
    assert "graph.host" not in [op.name for op in model.main.body.block.ops]


def test_every_code_of_a_table_equals_litert(
    tflite_builder: Any, tmp_path: Path, litert: Any
) -> None:
    rng = np.random.default_rng(1)
    codes = np.arange(-128, 128).astype(np.int8)
    for kind in ("LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU"):
        for _ in range(6):
            x = (float(10 ** rng.uniform(-3, 0)), int(rng.integers(-128, 128)))
            y = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}.get(kind, (x[0] * 0.7, x[1]))
            made = options("LeakyRelu", alpha=float(rng.uniform(-0.5, 1)))
            case = OneOp(kind, [((256,), x)], [((256,), y)])
            case.options = made if kind == "LEAKY_RELU" else None
            builder = type(tflite_builder)()
            content = build(builder, case)
            (found,) = interpret(load_bytes(content, tmp_path), {"x0": codes}).values()
            np.testing.assert_array_equal(found, litert(content, [[codes]])[0][0])


def test_concatenation_of_other_scales_requantises_with_a_note(
    tflite_builder: Any, tmp_path: Path
) -> None:
    """LiteRT refuses it in int8, so the reference is QUANTIZE before the concatenation."""
    case = OneOp(
        "CONCATENATION",
        [((1, 4), X), ((1, 3), (0.1, 5))],
        [((1, 7), X)],
        options=options("Concatenation", axis=1),
    )
    model = load_bytes(build(tflite_builder, case), tmp_path)
    assert model.notes == ("CONCATENATION 'y0': input 1 is requantised to the output's scale",)
    assert sum(isinstance(op, RequantizeOp) for op in model.main.body.block.ops) == 1
    a, b = np.int8([[1, 2, 3, 4]]), np.int8([[5, 6, -5]])
    (found,) = interpret(model, {"x0": a, "x1": b}).values()
    assert found.tolist() == [[1, 2, 3, 4, -11, -9, -32]]  # (code - 5) * 0.1 / 0.047 - 11


def change(case: OneOp, **changes: Any) -> OneOp:
    return OneOp(**{**vars(case), **changes})


MESSAGES: dict[str, tuple[Callable[[], OneOp], str]] = {
    "computed axes": (
        lambda: change(CASES["mean"], inputs=[(IMAGE, X), ((2,), X)], constants={}),
        "MEAN node 'y0': 'x1' must be constant integers; give the model static shapes",
    ),
    "axis": (
        lambda: change(CASES["mean"], constants={1: ints(4)}),
        "MEAN node 'y0': axis must be from -4 to 3, not 4",
    ),
    "mean shape": (
        lambda: change(CASES["mean"], constants={1: ints(1)}),
        "MEAN node 'y0': output must be the mean over axes [1], not 1x4",
    ),
    "paddings": (
        lambda: change(CASES["pad"], constants={1: ints(1, 2)}),
        "PAD node 'y0': paddings must be 2 for each of 4 axes, not [1, 2]",
    ),
    "slice": (
        lambda: change(CASES["slice"], constants={1: ints(0, 3, 1, 0), 2: ints(1, 4, -1, 4)}),
        "SLICE node 'y0': slice of axis 1 must lie in its 5 elements, not 3 to 7; convert the "
        "model again",
    ),
    "split": (
        lambda: change(CASES["split"], outputs=[((1, 5, 3, 4), X), ((1, 5, 2, 4), X)]),
        "SPLIT node 'y0': outputs must have 6 elements on axis 2, not 5",
    ),
    "permutation": (
        lambda: change(CASES["transpose"], constants={1: ints(0, 1, 1, 2)}),
        "TRANSPOSE node 'y0': permutation must order the axes 0 to 3, not [0, 1, 1, 2]",
    ),
    "hard swish": (
        lambda: change(CASES["hard_swish"], outputs=[(IMAGE, (0.00001, 0))]),
        "HARD_SWISH node 'y0': scale must be at least input_scale / 128 for hard-swish, not "
        "9.999999747378752e-06 with input_scale 0.04699999839067459; quantise the model again",
    ),
    "concatenation": (
        lambda: change(
            CASES["concatenation"],
            options=options("Concatenation", axis=2, fusedActivationFunction=1),
        ),
        "CONCATENATION node 'y0': fused activation must be NONE; write it as an operator of its "
        "own",
    ),
    "scales": (
        lambda: change(CASES["maximum"], outputs=[(IMAGE, Y)]),
        "graph.maximum 'y0': a, b and result must have one scale and zero point; convert or "
        "quantise the model again",
    ),
    "strides": (
        lambda: change(
            CASES["strided_slice"],
            constants={1: ints(0, 0), 2: ints(1, 1), 3: ints(1, 0)},
        ),
        "STRIDED_SLICE node 'y0': begin, end and strides must match, not [0, 0], [1, 1], [1, 0]",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_message_names_file_node_rule_and_remedy(
    name: str, tflite_builder: Any, tmp_path: Path
) -> None:
    make, message = MESSAGES[name]
    with pytest.raises(UserError) as caught:
        load_bytes(build(tflite_builder, make()), tmp_path)
    assert str(caught.value) == f"{tmp_path / 'model.tflite'}: {message}"


def test_slice_of_two_thousand_million_elements_is_refused_at_once(
    tflite_builder: Any, tmp_path: Path
) -> None:
    size = 2**31 - 1
    case = change(CASES["slice"], constants={1: ints(0, 0, 0, 0), 2: ints(1, size, 6, 4)})
    with pytest.raises(UserError) as caught:
        load_bytes(build(tflite_builder, case), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'model.tflite'}: SLICE node 'y0': slice of axis 1 must lie in its 5 "
        f"elements, not 0 to {size}; convert the model again"
    )


def test_tensor_beyond_the_limit_is_refused_before_any_array(
    tflite_builder: Any, tmp_path: Path
) -> None:
    case = OneOp("LOGISTIC", [((1 << 20, 1 << 20), X)], [((1 << 20, 1 << 20), Y)])
    with pytest.raises(UserError) as caught:
        load_bytes(build(tflite_builder, case), tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'model.tflite'}: tensor 'x0' must have at most 1073741824 bytes, not shape "
        "1048576x1048576; convert the model again"
    )
