"""Field cases: inputs that other tools got wrong, with the values or the error that are due."""

import json
from pathlib import Path

import numpy as np
import pytest

from npulse.sw.errors import UserError
from npulse.sw.frontends.load import load_model
from npulse.sw.interpret import interpret

#: Equal in every bit, as the case asks.
BIT_EXACT = [
    "002_conv_same_unequal_strides",
    "004_conv_1x1_stride2",
    "007_conv_dilation2_same",
    "008_depthwise_two_channels",
    "012_fc_requant_ratio_above_one",
    "013_conv_rounding_ties",
    "018_average_pool_same_negative_sums",
    "019_requantize_int8_to_int8",
    "021_add_scales_ratio_forty",
    "026_qlinearconv_u8s8_large_products",
    "029_quantize_ties_and_saturation",
]
#: Float models: host operators on the ONNX reference, so only the order of additions differs.
CLOSE = [
    "032_convtranspose_output_padding",
    "036_softmax_over_channels",
    "038_clip_only_max",
    "043_output_is_also_an_inner_tensor",
    "048_unnamed_nodes_and_confusing_tensors",
    "051_matmul_of_two_activations",
    "052_symbolic_batch_dimension",
    "055_pruned_output_channel",
    "059_chain_of_1200_nodes",
]
#: Refused with one sentence.
ERRORS = [
    "060_input_batch_does_not_match",
    "061_unknown_operator_in_the_middle",
    "066_raw_data_longer_than_dims",
    "068_tflite_of_eight_bytes",
    "069_tflite_truncated",
]
#: No model file: they configure hardware, not a front-end.
HARDWARE = [
    "075_array_2x2_float",
    "078_array_size_12",
    "079_array_smaller_than_default",
    "084_axi_write_address_waits_for_data",
    "086_second_run_without_reset",
]


def run(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    case = json.loads((folder / "case.json").read_text())
    with np.load(folder / "inputs.npz") as archive:
        inputs = dict(archive)
    shapes = {name: array.shape for name, array in inputs.items()}
    results = interpret(load_model(folder / case["model"], shapes), inputs)
    with np.load(folder / "expected.npz") as archive:
        return results, dict(archive)


@pytest.mark.parametrize("name", BIT_EXACT)
def test_int8_case_is_bit_exact(name: str, shared_dir: Path) -> None:
    results, expected = run(shared_dir / "field_cases" / name)
    assert results.keys() == expected.keys()
    for key, due in expected.items():
        assert results[key].dtype == due.dtype
        assert np.array_equal(results[key], due)


@pytest.mark.parametrize("name", CLOSE)
def test_float_case_is_close(name: str, shared_dir: Path) -> None:
    results, expected = run(shared_dir / "field_cases" / name)
    assert results.keys() == expected.keys()
    for key, due in expected.items():
        np.testing.assert_allclose(results[key], due, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ERRORS)
def test_case_is_refused_in_one_clear_sentence(name: str, shared_dir: Path) -> None:
    folder = shared_dir / "field_cases" / name
    case = json.loads((folder / "case.json").read_text())
    with np.load(folder / "inputs.npz") as archive:
        inputs = dict(archive)
    with pytest.raises(UserError) as caught:
        interpret(load_model(folder / case["model"]), inputs)
    message = str(caught.value)
    assert "\n" not in message
    for words in case["error_must_mention"]:
        assert any(word.lower() in message.lower() for word in words), words


def test_every_case_with_a_model_is_tried(shared_dir: Path) -> None:
    folders = {p.parent.name for p in (shared_dir / "field_cases").glob("*/case.json")}
    listed = {*BIT_EXACT, *CLOSE, *ERRORS, *HARDWARE}
    assert listed <= folders
    without_model = {
        name
        for name in folders
        if json.loads((shared_dir / "field_cases" / name / "case.json").read_text())["model"]
        is None
    }
    assert set(HARDWARE) == without_model & listed
