"""Quantised ops agree with ONNX Runtime's results on the CPU; unsupported ones are
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import rlxweb as rlx
from rlxweb.core.errors import ShapeError, Unsupported
from tests.float32_products import random_floats
from tests.onnx.model_factory import make_model, node, value_info
from tests.onnx.onnx_runtime import run_onnxruntime

RNG = np.random.default_rng(11)
MICROSOFT_DOMAIN = "com.microsoft"
GPU = pytest.mark.requires_wgpu


def random_uint8(rng: np.random.Generator, *shape: int) -> Any:
    return rng.integers(0, 256, shape).astype(np.uint8)


def random_int8(rng: np.random.Generator, *shape: int) -> Any:
    """Return integers of 7 bits: on a processor without VNNI the runtime adds pairs of
    their products with bytes in 16 bits, which saturate beyond.
    """
    return rng.integers(-64, 64, shape).astype(np.int8)


def scalar(number: float, dtype: Any = np.float32) -> Any:
    return np.array(number, dtype)


def random_scales(rng: np.random.Generator, *shape: int) -> Any:
    return rng.uniform(0.005, 0.02, shape).astype(np.float32)


def named_inputs(*arrays: Any) -> dict[str, Any]:
    return {f"x{i}": a for i, a in enumerate(arrays)}


def single_op_model(
    op: str,
    arrays: Mapping[str, Any],
    weights: tuple[int, ...],
    domain: str,
    **options: Any,
) -> Any:
    """Return a model of one node, whose inputs at the positions `weights` are
    initializers, and its feeds.
    """
    element_type = onnx.helper.np_dtype_to_tensor_dtype
    present_arrays = {n: a for n, a in arrays.items() if a is not None}
    weight_names = {list(arrays)[index] for index in weights}
    inputs = [
        value_info(n, a.shape, element_type(a.dtype))
        for n, a in present_arrays.items()
        if n not in weight_names
    ]
    names = [n if n in present_arrays else "" for n in arrays]
    outputs, kind = options.pop("outputs", 1), options.pop("kind", 1)
    out = [f"y{i}" for i in range(outputs)]
    kinds = kind if isinstance(kind, tuple) else (kind,) * outputs
    results = [value_info(n, None, k) for n, k in zip(out, kinds, strict=True)]
    message = make_model(
        [node(op, names, out, domain=domain, **options)],
        inputs,
        results,
        opsets={"": 21, MICROSOFT_DOMAIN: 1},
    )
    for name in weight_names & present_arrays.keys():
        message.graph.initializer.append(
            onnx.numpy_helper.from_array(present_arrays[name], name)
        )
    return message, {n: a for n, a in present_arrays.items() if n not in weight_names}


X, ZERO_POINT = random_uint8(RNG, 2, 5, 12), scalar(121, np.uint8)
SCALE, OUTPUT_SCALE = scalar(0.013), scalar(0.021)
SCALE_AND_ZERO_POINT = (SCALE, ZERO_POINT)
# Of one row: several are quantised in as many parts as there are threads.
LSTM_INPUTS = (
    random_floats(RNG, 4, 1, 6),
    *(
        random_int8(RNG, 2, 6, 32),
        random_int8(RNG, 2, 8, 32),
        random_floats(RNG, 2, 64),
        None,
        random_floats(RNG, 2, 1, 8),
        random_floats(RNG, 2, 1, 8),
        None,
    ),
    *(
        random_scales(RNG, 2),
        np.zeros(2, np.int8),
        random_scales(RNG, 2),
        np.zeros(2, np.int8),
    ),
)
PER_COLUMN_LSTM_INPUTS = (
    *LSTM_INPUTS[:8],
    *(random_scales(RNG, 2, 32), np.zeros((2, 32), np.int8)),
    *(random_scales(RNG, 2, 32), np.zeros((2, 32), np.int8)),
)

CASES: dict[str, Any] = {
    "dynamic": (
        "DynamicQuantizeLinear",
        named_inputs(random_floats(RNG, 3, 40)),
        (),
        {"outputs": 3, "kind": (2, 1, 2)},
    ),
    "to steps": (
        "QuantizeLinear",
        named_inputs(3 * random_floats(RNG, 4, 30), SCALE, ZERO_POINT),
        (),
        {"kind": 2},
    ),
    "to steps of channels": (
        "QuantizeLinear",
        named_inputs(
            3 * random_floats(RNG, 4, 6, 5), random_scales(RNG, 6), random_int8(RNG, 6)
        ),
        (),
        {"kind": 3},
    ),
    "from blocks": (
        "DequantizeLinear",
        named_inputs(
            random_int8(RNG, 4, 12), random_scales(RNG, 4, 3), random_int8(RNG, 4, 3)
        ),
        (),
        {"axis": 1, "block_size": 4},
    ),
    "weights in blocks": (
        "DequantizeLinear",
        named_inputs(
            random_int8(RNG, 4, 12), random_scales(RNG, 4, 3), random_int8(RNG, 4, 3)
        ),
        (0, 1, 2),
        {"axis": 1, "block_size": 4},
    ),
    "product": (
        "MatMulInteger",
        named_inputs(X, random_int8(RNG, 12, 7), ZERO_POINT, random_int8(RNG, 7)),
        (),
        {"kind": 6},
    ),
    "product of weights": (
        "MatMulInteger",
        named_inputs(
            random_uint8(RNG, 3, 700),
            random_uint8(RNG, 700, 5),
            ZERO_POINT,
            scalar(3, np.uint8),
        ),
        (1, 3),
        {"kind": 6},
    ),
    "convolution": (
        "ConvInteger",
        named_inputs(
            random_uint8(RNG, 1, 70, 9, 8),
            random_uint8(RNG, 6, 70, 3, 3),
            ZERO_POINT,
            scalar(128, np.uint8),
        ),
        (1, 3),
        {"kind": 6, "pads": [1, 1, 1, 1], "strides": [2, 1]},
    ),
    "quantised convolution": (
        "QLinearConv",
        named_inputs(
            *(
                random_uint8(RNG, 2, 6, 9, 8),
                *SCALE_AND_ZERO_POINT,
                random_int8(RNG, 8, 3, 3, 3),
                random_scales(RNG, 8),
                np.zeros(8, np.int8),
            ),
            *(scalar(0.4), ZERO_POINT, RNG.integers(-900, 900, 8).astype(np.int32)),
        ),
        (3, 4, 5, 8),
        {"kind": 2, "group": 2, "pads": [1, 0, 1, 0]},
    ),
    "channels last": (
        "QLinearConv",
        named_inputs(
            *(
                random_uint8(RNG, 2, 9, 8, 6),
                *SCALE_AND_ZERO_POINT,
                random_int8(RNG, 8, 6, 3, 3),
                random_scales(RNG, 8),
                np.zeros(8, np.int8),
            ),
            *(scalar(0.4), ZERO_POINT, RNG.integers(-900, 900, 8).astype(np.int32)),
        ),
        (3, 4, 5, 8),
        {
            "kind": 2,
            "channels_last": 1,
            "pads": [1, 0, 1, 0],
            "domain": MICROSOFT_DOMAIN,
        },
    ),
    "quantised product": (
        "QLinearMatMul",
        named_inputs(
            X,
            *SCALE_AND_ZERO_POINT,
            random_int8(RNG, 12, 7),
            SCALE,
            scalar(-3, np.int8),
            scalar(0.3),
            ZERO_POINT,
        ),
        (3,),
        {"kind": 2},
    ),
    "sum": (
        "QLinearAdd",
        named_inputs(
            X,
            *SCALE_AND_ZERO_POINT,
            random_uint8(RNG, 12),
            OUTPUT_SCALE,
            ZERO_POINT,
            OUTPUT_SCALE,
            ZERO_POINT,
        ),
        (),
        {"kind": 2},
    ),
    "elementwise product": (
        "QLinearMul",
        named_inputs(
            X,
            *SCALE_AND_ZERO_POINT,
            random_uint8(RNG, 12),
            OUTPUT_SCALE,
            ZERO_POINT,
            scalar(0.03),
            ZERO_POINT,
        ),
        (),
        {"kind": 2},
    ),
    "sigmoid": (
        "QLinearSigmoid",
        named_inputs(X, *SCALE_AND_ZERO_POINT, scalar(1 / 256), None),
        (),
        {"kind": 2},
    ),
    "leaky": (
        "QLinearLeakyRelu",
        named_inputs(X, *SCALE_AND_ZERO_POINT, OUTPUT_SCALE, ZERO_POINT),
        (),
        {"kind": 2},
    ),
    "softmax": (
        "QLinearSoftmax",
        named_inputs(X, *SCALE_AND_ZERO_POINT, scalar(1 / 256), scalar(0, np.uint8)),
        (),
        {"kind": 2, "opset": 13},
    ),
    "global pool": (
        "QLinearGlobalAveragePool",
        named_inputs(
            random_uint8(RNG, 2, 4, 5, 5), *SCALE_AND_ZERO_POINT, SCALE, ZERO_POINT
        ),
        (),
        {"kind": 2},
    ),
    "pool": (
        "QLinearAveragePool",
        named_inputs(
            random_uint8(RNG, 2, 4, 6, 5),
            *SCALE_AND_ZERO_POINT,
            scalar(0.0071),
            ZERO_POINT,
        ),
        (),
        {"kind": 2, "kernel_shape": [3, 2], "pads": [1, 0, 1, 1]},
    ),
    "side by side": (
        "QLinearConcat",
        named_inputs(
            OUTPUT_SCALE,
            ZERO_POINT,
            X,
            *SCALE_AND_ZERO_POINT,
            random_uint8(RNG, 2, 5, 3),
            OUTPUT_SCALE,
            ZERO_POINT,
        ),
        (),
        {"kind": 2, "axis": 2},
    ),
    "chosen": (
        "QLinearWhere",
        named_inputs(
            random_floats(RNG, 5, 12) > 0,
            X,
            *SCALE_AND_ZERO_POINT,
            random_uint8(RNG, 12),
            OUTPUT_SCALE,
            ZERO_POINT,
            OUTPUT_SCALE,
            ZERO_POINT,
        ),
        (),
        {"kind": 2},
    ),
    "gemm": (
        "QGemm",
        named_inputs(
            *(
                random_uint8(RNG, 5, 12),
                *SCALE_AND_ZERO_POINT,
                random_int8(RNG, 7, 12),
                random_scales(RNG, 7),
                np.zeros(7, np.int8),
            ),
            *(RNG.integers(-900, 900, 7).astype(np.int32), scalar(0.3), ZERO_POINT),
        ),
        (3, 4, 5, 6),
        {"kind": 2, "transB": 1},
    ),
    "gemm to floats": (
        "QGemm",
        named_inputs(
            random_uint8(RNG, 5, 12),
            *SCALE_AND_ZERO_POINT,
            random_uint8(RNG, 12, 7),
            OUTPUT_SCALE,
            ZERO_POINT,
            None,
            None,
            None,
        ),
        (3,),
        {"alpha": 0.5},
    ),
    "to floats": (
        "MatMulIntegerToFloat",
        named_inputs(
            X,
            random_int8(RNG, 12, 7),
            SCALE,
            random_scales(RNG, 7),
            ZERO_POINT,
            np.zeros(7, np.int8),
            random_floats(RNG, 7),
        ),
        (1, 3),
        {},
    ),
    "dynamic product": (
        "DynamicQuantizeMatMul",
        named_inputs(
            random_floats(RNG, 2, 5, 12),
            random_int8(RNG, 12, 7),
            SCALE,
            scalar(0, np.int8),
            random_floats(RNG, 7),
        ),
        (1,),
        {},
    ),
    "attention": (
        "QAttention",
        named_inputs(
            *(
                random_uint8(RNG, 2, 5, 16),
                random_int8(RNG, 16, 48),
                random_floats(RNG, 48),
                SCALE,
                SCALE,
            ),
            *(np.array([5, 3], np.int32), ZERO_POINT, scalar(0, np.int8)),
        ),
        (1,),
        {"num_heads": 4},
    ),
    "embeddings": (
        "QEmbedLayerNormalization",
        named_inputs(
            *(np.array([[1, 3, 2], [4, 0, 0]], np.int32), np.zeros((2, 3), np.int32)),
            *(
                random_uint8(RNG, 5, 8),
                random_uint8(RNG, 4, 8),
                random_uint8(RNG, 2, 8),
                random_uint8(RNG, 8),
                random_uint8(RNG, 8),
            ),
            np.array([[1, 1, 1], [1, 0, 0]], np.int32),
            *(scalar(step) for step in (0.011, 0.012, 0.013, 0.014, 0.015)),
            *(scalar(zero, np.uint8) for zero in (119, 120, 121, 122, 123)),
        ),
        tuple(range(2, 7)) + tuple(range(8, 18)),
        {"epsilon": 1e-5, "outputs": 2, "kind": (1, 6)},
    ),
    "lstm": (
        "DynamicQuantizeLSTM",
        named_inputs(*LSTM_INPUTS),
        (1, 2, 3, 8, 9, 10, 11),
        {"hidden_size": 8, "direction": "bidirectional", "outputs": 3},
    ),
    "lstm of scales for columns": (
        "DynamicQuantizeLSTM",
        named_inputs(*PER_COLUMN_LSTM_INPUTS),
        (1, 2, 3, 8, 9, 10, 11),
        {"hidden_size": 8, "direction": "bidirectional", "outputs": 3},
    ),
}
ONNX_DOMAIN_OPS = """
DynamicQuantizeLinear QuantizeLinear DequantizeLinear MatMulInteger ConvInteger
    QLinearMatMul QLinearConv""".split()
ON_ADAPTERS = (
    "dynamic",
    "lstm",
    "product of weights",
    "quantised convolution",
    "attention",
)


@pytest.mark.parametrize(
    ("name", "device"),
    [(name, "cpu") for name in CASES]
    + [pytest.param(name, "vulkan", marks=GPU) for name in ON_ADAPTERS],
)
def test_matches_onnx_runtime(name: str, device: str) -> None:
    """Integer results are equal; of those computed through floats, one in fifty may be
    one step off where a half was rounded.
    """
    op, arrays, weights, options = CASES[name]
    domain = "" if op in ONNX_DOMAIN_OPS else MICROSOFT_DOMAIN
    message, feeds = single_op_model(
        op, arrays, weights, **{"domain": domain, **options}
    )
    data = message.SerializeToString()
    want = run_onnxruntime(data, feeds)
    got = rlx.onnx.load(data).run(feeds, device=device)
    for index, expected in enumerate(want):
        output = got[f"y{index}"]
        assert (output.shape, output.dtype) == (expected.shape, expected.dtype)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(output, expected, rtol=2e-5, atol=2e-5)
            continue
        difference = np.abs(output.astype(np.int64) - expected)
        max_difference = 0 if expected.dtype == np.int32 else 1
        assert difference.max(initial=0) <= max_difference
        assert (difference > 0).mean() <= 0.02


def test_int4_weights_activations_and_outputs(rng: np.random.Generator) -> None:
    """Blockwise int4 weights, int4 activations that are dequantised again, and an int4
    output are right.
    """
    x, scale = random_floats(rng, 3, 8), random_scales(rng, 2, 6)
    w = rng.integers(-8, 8, (8, 6)).astype(np.int8)
    int4 = onnx.TensorProto.INT4
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["f"], axis=0, block_size=4),
        node("QuantizeLinear", ["x", "t"], ["q"], output_dtype=int4),
        node("DequantizeLinear", ["q", "t"], ["a"]),
        node("MatMul", ["a", "f"], ["y"]),
        node("Shape", ["q"], ["n"]),
    ]
    outputs = [
        value_info("y", (3, 6)),
        value_info("n", (2,), 7),
        value_info("q", (3, 8), int4),
    ]
    message = make_model(nodes, [value_info("x", (3, 8))], outputs[:2])
    message.graph.initializer.extend(
        [
            onnx.helper.make_tensor("w", int4, (8, 6), w.reshape(-1)),
            onnx.numpy_helper.from_array(scale, "s"),
            onnx.numpy_helper.from_array(scalar(0.3), "t"),
        ]
    )
    want = run_onnxruntime(message.SerializeToString(), {"x": x})
    message.graph.output.append(outputs[2])
    loaded = rlx.onnx.load(message.SerializeToString())
    got = loaded.run({"x": x}, device="cpu")
    np.testing.assert_allclose(got["y"], want[0], rtol=2e-6, atol=1e-6)
    assert got["n"].tolist() == [3, 8]
    assert got["q"].dtype.name == "int4"
    expected_codes = np.clip(np.rint(x / np.float32(0.3)), -8, 7)
    np.testing.assert_array_equal(got["q"].astype(np.int8), expected_codes)


def test_quantised_table_is_dequantised_before_the_gather(
    rng: np.random.Generator,
) -> None:
    """A quantised table is dequantised once, before rows are gathered, so that no run
    converts it.
    """
    table, indices = random_int8(rng, 50, 4), np.array([3, 49, 3])
    nodes = [
        node("Gather", ["w", "at"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    message = make_model(nodes, [value_info("at", (3,), 7)], [value_info("y", (3, 4))])
    for name, array in {"w": table, "s": SCALE, "z": scalar(5, np.int8)}.items():
        message.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    loaded = rlx.onnx.load(message.SerializeToString())
    got = loaded.run({"at": indices}, device="cpu")["y"]
    np.testing.assert_array_equal(got, (table[indices] - np.float32(5)) * SCALE)
    graph = loaded.graph_for({"at": indices})
    assert [str(n.type) for n in graph.named("param").values()] == ["[50, 4] f32"]


@pytest.mark.parametrize("message_part", ["scale [3]", "do_rotary is 1; must be 0"])
def test_unsupported_options_are_refused(
    message_part: str, rng: np.random.Generator
) -> None:
    if message_part == "scale [3]":
        arrays = named_inputs(random_uint8(rng, 2, 4), random_scales(rng, 3))
        op = "DequantizeLinear"
        options = {}
    else:
        op, arrays, _, options = CASES["attention"]
        options = {**options, "do_rotary": 1}
    message, feeds = single_op_model(
        op, arrays, (), "" if op in ONNX_DOMAIN_OPS else MICROSOFT_DOMAIN, **options
    )
    with pytest.raises((Unsupported, ShapeError)) as caught:
        rlx.onnx.load(message.SerializeToString()).run(feeds, device="cpu")
    assert message_part in str(caught.value)


@pytest.mark.parametrize("kind", ["int4", "uint4", "2 bits", "4 bits", "8 bits"])
@pytest.mark.parametrize(
    ("has_zeros", "device"),
    [(False, "cpu"), (True, "cpu"), pytest.param(True, "vulkan", marks=GPU)],
)
def test_gather_block_quantized(
    kind: str, has_zeros: bool, device: str, rng: np.random.Generator
) -> None:
    """Rows of a blockwise quantised table match ONNX Runtime; the last of the blocks of
    16 is short.
    """
    columns, bits = 40, 4 if "int4" in kind else int(kind[0])
    storage_type, blocks = onnx.TensorProto.UINT8, 3
    if "int4" in kind:
        storage_type = getattr(onnx.TensorProto, kind.upper())
    low, high = (-8, 8) if kind == "int4" else (0, 1 << bits)

    def random_tensor(name: str, count: int) -> Any:
        if "int4" in kind:
            codes = rng.integers(low, high, (9, count))
            return onnx.helper.make_tensor(
                name, storage_type, (9, count), codes.reshape(-1)
            )
        return onnx.numpy_helper.from_array(
            random_uint8(rng, 9, -(-count * bits // 8)), name
        )

    names = ["w", "at", "s", "z"][: 4 if has_zeros else 3]
    options = {} if "int4" in kind else {"bits": bits}
    one_node = node(
        "GatherBlockQuantized",
        names,
        ["y"],
        domain=MICROSOFT_DOMAIN,
        block_size=16,
        **options,
    )
    message = make_model(
        [one_node],
        [value_info("at", (2, 2), 7)],
        [value_info("y", (2, 2, columns))],
        opsets={"": 21, MICROSOFT_DOMAIN: 1},
    )
    message.graph.initializer.extend(
        [
            random_tensor("w", columns),
            onnx.numpy_helper.from_array(random_scales(rng, 9, blocks), "s"),
        ]
    )
    if has_zeros:
        message.graph.initializer.append(random_tensor("z", blocks))
    data, indices = message.SerializeToString(), np.array([[0, 8], [3, 3]])
    (want,) = run_onnxruntime(data, {"at": indices})
    got = rlx.onnx.load(data).run({"at": indices}, device=device)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_bindings_share_computed_weights(rng: np.random.Generator) -> None:
    """A constant computed from weights is computed once for all bindings.

    So it lies on a device once.
    """
    int4 = onnx.TensorProto.INT4
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["f"], axis=1),
        node("MatMul", ["x", "f"], ["a"]),
        node("DynamicQuantizeLinear", ["a"], ["q", "t", "z"]),
        node("MatMulInteger", ["q", "v", "z"], ["y"]),
    ]
    message = make_model(
        nodes, [value_info("x", ("rows", 8))], [value_info("y", ("rows", 5), 6)]
    )
    int4_weights = onnx.helper.make_tensor(
        "w", int4, (8, 600), rng.integers(-8, 8, 4800)
    )
    message.graph.initializer.append(int4_weights)
    for name, array in {
        "s": random_scales(rng, 600),
        "v": random_int8(rng, 600, 5),
    }.items():
        message.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    with rlx.onnx.load(message.SerializeToString()) as loaded:
        first, second = (
            loaded.imported({"x": random_floats(rng, row_count, 8)}).params
            for row_count in (1, 3)
        )
        assert list(first) == ["w", "v"]
        assert all(first[name] is second[name] for name in first)
        assert {w.dtype.name for w in first.values()} == {"float32"}
