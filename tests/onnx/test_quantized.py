"""Quantised ops as ONNX Runtime computes them on its CPU, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import rlxweb as rlx
from rlxweb.errors import ShapeError, Unsupported
from tests.onnx.made import model, node, value
from tests.onnx.test_saving import runtime

RNG = np.random.default_rng(11)
MS = "com.microsoft"
GPU = pytest.mark.requires_wgpu


def real(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape, dtype=np.float32)


def u8(rng: np.random.Generator, *shape: int) -> Any:
    return rng.integers(0, 256, shape).astype(np.uint8)


def i8(rng: np.random.Generator, *shape: int) -> Any:
    return rng.integers(-127, 128, shape).astype(np.int8)


def one(number: float, dtype: Any = np.float32) -> Any:
    return np.array(number, dtype)


def steps(rng: np.random.Generator, *shape: int) -> Any:
    return rng.uniform(0.005, 0.02, shape).astype(np.float32)


def named(*arrays: Any) -> dict[str, Any]:
    return {f"x{i}": a for i, a in enumerate(arrays)}


def made(
    op: str, fed: Mapping[str, Any], weights: tuple[int, ...], domain: str, **how: Any
) -> Any:
    """A model of one node whose inputs at these places are weights of the model."""
    of = onnx.helper.np_dtype_to_tensor_dtype
    given = {n: a for n, a in fed.items() if a is not None}
    held = {list(fed)[at] for at in weights}
    inputs = [value(n, a.shape, of(a.dtype)) for n, a in given.items() if n not in held]
    names = [n if n in given else "" for n in fed]
    outputs, kind = how.pop("outputs", 1), how.pop("kind", 1)
    out = [f"y{i}" for i in range(outputs)]
    kinds = kind if isinstance(kind, tuple) else (kind,) * outputs
    results = [value(n, None, k) for n, k in zip(out, kinds, strict=True)]
    message = model(
        [node(op, names, out, domain=domain, **how)],
        inputs,
        results,
        opsets={"": 21, MS: 1},
    )
    for name in held & given.keys():
        message.graph.initializer.append(
            onnx.numpy_helper.from_array(given[name], name)
        )
    return message, {n: a for n, a in given.items() if n not in held}


X, Z = u8(RNG, 2, 5, 12), one(121, np.uint8)
SCALE, OUT = one(0.013), one(0.021)
NEAR = (SCALE, Z)
LSTM = (  # of one row: several are quantised in as many parts as there are threads
    real(RNG, 4, 1, 6),
    *(
        i8(RNG, 2, 6, 32),
        i8(RNG, 2, 8, 32),
        real(RNG, 2, 64),
        None,
        real(RNG, 2, 1, 8),
        real(RNG, 2, 1, 8),
        None,
    ),
    *(steps(RNG, 2), np.zeros(2, np.int8), steps(RNG, 2), np.zeros(2, np.int8)),
)
BY_COLUMNS = (
    *LSTM[:8],
    *(steps(RNG, 2, 32), np.zeros((2, 32), np.int8)),
    *(steps(RNG, 2, 32), np.zeros((2, 32), np.int8)),
)

CASES: dict[str, Any] = {
    "dynamic": (
        "DynamicQuantizeLinear",
        named(real(RNG, 3, 40)),
        (),
        {"outputs": 3, "kind": (2, 1, 2)},
    ),
    "to steps": (
        "QuantizeLinear",
        named(3 * real(RNG, 4, 30), SCALE, Z),
        (),
        {"kind": 2},
    ),
    "to steps of channels": (
        "QuantizeLinear",
        named(3 * real(RNG, 4, 6, 5), steps(RNG, 6), i8(RNG, 6)),
        (),
        {"kind": 3},
    ),
    "from blocks": (
        "DequantizeLinear",
        named(i8(RNG, 4, 12), steps(RNG, 4, 3), i8(RNG, 4, 3)),
        (),
        {"axis": 1, "block_size": 4},
    ),
    "weights in blocks": (
        "DequantizeLinear",
        named(i8(RNG, 4, 12), steps(RNG, 4, 3), i8(RNG, 4, 3)),
        (0, 1, 2),
        {"axis": 1, "block_size": 4},
    ),
    "product": (
        "MatMulInteger",
        named(X, i8(RNG, 12, 7), Z, i8(RNG, 7)),
        (),
        {"kind": 6},
    ),
    "product of weights": (
        "MatMulInteger",
        named(u8(RNG, 3, 700), u8(RNG, 700, 5), Z, one(3, np.uint8)),
        (1, 3),
        {"kind": 6},
    ),
    "convolution": (
        "ConvInteger",
        named(u8(RNG, 1, 70, 9, 8), u8(RNG, 6, 70, 3, 3), Z, one(128, np.uint8)),
        (1, 3),
        {"kind": 6, "pads": [1, 1, 1, 1], "strides": [2, 1]},
    ),
    "quantised convolution": (
        "QLinearConv",
        named(
            *(
                u8(RNG, 2, 6, 9, 8),
                *NEAR,
                i8(RNG, 8, 3, 3, 3),
                steps(RNG, 8),
                np.zeros(8, np.int8),
            ),
            *(one(0.4), Z, RNG.integers(-900, 900, 8).astype(np.int32)),
        ),
        (3, 4, 5, 8),
        {"kind": 2, "group": 2, "pads": [1, 0, 1, 0]},
    ),
    "channels last": (
        "QLinearConv",
        named(
            *(
                u8(RNG, 2, 9, 8, 6),
                *NEAR,
                i8(RNG, 8, 6, 3, 3),
                steps(RNG, 8),
                np.zeros(8, np.int8),
            ),
            *(one(0.4), Z, RNG.integers(-900, 900, 8).astype(np.int32)),
        ),
        (3, 4, 5, 8),
        {"kind": 2, "channels_last": 1, "pads": [1, 0, 1, 0], "domain": MS},
    ),
    "quantised product": (
        "QLinearMatMul",
        named(X, *NEAR, i8(RNG, 12, 7), SCALE, one(-3, np.int8), one(0.3), Z),
        (3,),
        {"kind": 2},
    ),
    "sum": (
        "QLinearAdd",
        named(X, *NEAR, u8(RNG, 12), OUT, Z, OUT, Z),
        (),
        {"kind": 2},
    ),
    "elementwise product": (
        "QLinearMul",
        named(X, *NEAR, u8(RNG, 12), OUT, Z, one(0.03), Z),
        (),
        {"kind": 2},
    ),
    "sigmoid": ("QLinearSigmoid", named(X, *NEAR, one(1 / 256), None), (), {"kind": 2}),
    "leaky": ("QLinearLeakyRelu", named(X, *NEAR, OUT, Z), (), {"kind": 2}),
    "softmax": (
        "QLinearSoftmax",
        named(X, *NEAR, one(1 / 256), one(0, np.uint8)),
        (),
        {"kind": 2, "opset": 13},
    ),
    "global pool": (
        "QLinearGlobalAveragePool",
        named(u8(RNG, 2, 4, 5, 5), *NEAR, SCALE, Z),
        (),
        {"kind": 2},
    ),
    "pool": (
        "QLinearAveragePool",
        named(u8(RNG, 2, 4, 6, 5), *NEAR, one(0.0071), Z),
        (),
        {"kind": 2, "kernel_shape": [3, 2], "pads": [1, 0, 1, 1]},
    ),
    "side by side": (
        "QLinearConcat",
        named(OUT, Z, X, *NEAR, u8(RNG, 2, 5, 3), OUT, Z),
        (),
        {"kind": 2, "axis": 2},
    ),
    "chosen": (
        "QLinearWhere",
        named(real(RNG, 5, 12) > 0, X, *NEAR, u8(RNG, 12), OUT, Z, OUT, Z),
        (),
        {"kind": 2},
    ),
    "gemm": (
        "QGemm",
        named(
            *(
                u8(RNG, 5, 12),
                *NEAR,
                i8(RNG, 7, 12),
                steps(RNG, 7),
                np.zeros(7, np.int8),
            ),
            *(RNG.integers(-900, 900, 7).astype(np.int32), one(0.3), Z),
        ),
        (3, 4, 5, 6),
        {"kind": 2, "transB": 1},
    ),
    "gemm to floats": (
        "QGemm",
        named(u8(RNG, 5, 12), *NEAR, u8(RNG, 12, 7), OUT, Z, None, None, None),
        (3,),
        {"alpha": 0.5},
    ),
    "to floats": (
        "MatMulIntegerToFloat",
        named(
            X,
            i8(RNG, 12, 7),
            SCALE,
            steps(RNG, 7),
            Z,
            np.zeros(7, np.int8),
            real(RNG, 7),
        ),
        (1, 3),
        {},
    ),
    "dynamic product": (
        "DynamicQuantizeMatMul",
        named(
            real(RNG, 2, 5, 12), i8(RNG, 12, 7), SCALE, one(0, np.int8), real(RNG, 7)
        ),
        (1,),
        {},
    ),
    "attention": (
        "QAttention",
        named(
            *(u8(RNG, 2, 5, 16), i8(RNG, 16, 48), real(RNG, 48), SCALE, SCALE),
            *(np.array([5, 3], np.int32), Z, one(0, np.int8)),
        ),
        (1,),
        {"num_heads": 4},
    ),
    "embeddings": (
        "QEmbedLayerNormalization",
        named(
            *(np.array([[1, 3, 2], [4, 0, 0]], np.int32), np.zeros((2, 3), np.int32)),
            *(u8(RNG, 5, 8), u8(RNG, 4, 8), u8(RNG, 2, 8), u8(RNG, 8), u8(RNG, 8)),
            np.array([[1, 1, 1], [1, 0, 0]], np.int32),
            *(one(step) for step in (0.011, 0.012, 0.013, 0.014, 0.015)),
            *(one(zero, np.uint8) for zero in (119, 120, 121, 122, 123)),
        ),
        tuple(range(2, 7)) + tuple(range(8, 18)),
        {"epsilon": 1e-5, "outputs": 2, "kind": (1, 6)},
    ),
    "lstm": (
        "DynamicQuantizeLSTM",
        named(*LSTM),
        (1, 2, 3, 8, 9, 10, 11),
        {"hidden_size": 8, "direction": "bidirectional", "outputs": 3},
    ),
    "lstm of scales for columns": (
        "DynamicQuantizeLSTM",
        named(*BY_COLUMNS),
        (1, 2, 3, 8, 9, 10, 11),
        {"hidden_size": 8, "direction": "bidirectional", "outputs": 3},
    ),
}
OWN = """DynamicQuantizeLinear QuantizeLinear DequantizeLinear MatMulInteger ConvInteger
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
def test_as_onnx_runtime_does(name: str, device: str) -> None:
    """Whole numbers are the same; of those that were floats on the way one in fifty
    may be a step off, where a half was rounded.
    """
    op, fed, weights, how = CASES[name]
    domain = "" if op in OWN else MS
    message, given = made(op, fed, weights, **{"domain": domain, **how})
    data = message.SerializeToString()
    want = runtime(data, given)
    got = rlx.onnx.load(data).run(given, device=device)
    for at, right in enumerate(want):
        have = got[f"y{at}"]
        assert (have.shape, have.dtype) == (right.shape, right.dtype)
        if right.dtype.kind == "f":
            np.testing.assert_allclose(have, right, rtol=2e-5, atol=2e-5)
            continue
        off = np.abs(have.astype(np.int64) - right)
        most = 0 if right.dtype == np.int32 else 1
        assert off.max(initial=0) <= most
        assert (off > 0).mean() <= 0.02


def test_four_bits_are_read_and_kept_to(rng: np.random.Generator) -> None:
    """Weights in blocks, activations there and back, and an output of that type."""
    x, scale = real(rng, 3, 8), steps(rng, 2, 6)
    w = rng.integers(-8, 8, (8, 6)).astype(np.int8)
    int4 = onnx.TensorProto.INT4
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["f"], axis=0, block_size=4),
        node("QuantizeLinear", ["x", "t"], ["q"], output_dtype=int4),
        node("DequantizeLinear", ["q", "t"], ["a"]),
        node("MatMul", ["a", "f"], ["y"]),
        node("Shape", ["q"], ["n"]),
    ]
    outputs = [value("y", (3, 6)), value("n", (2,), 7), value("q", (3, 8), int4)]
    message = model(nodes, [value("x", (3, 8))], outputs[:2])
    message.graph.initializer.extend(
        [
            onnx.helper.make_tensor("w", int4, (8, 6), w.reshape(-1)),
            onnx.numpy_helper.from_array(scale, "s"),
            onnx.numpy_helper.from_array(one(0.3), "t"),
        ]
    )
    want = runtime(message.SerializeToString(), {"x": x})
    message.graph.output.append(outputs[2])
    loaded = rlx.onnx.load(message.SerializeToString())
    got = loaded.run({"x": x}, device="cpu")
    np.testing.assert_allclose(got["y"], want[0], rtol=2e-6, atol=1e-6)
    assert got["n"].tolist() == [3, 8]
    assert got["q"].dtype.name == "int4"
    right = np.clip(np.rint(x / np.float32(0.3)), -8, 7)
    np.testing.assert_array_equal(got["q"].astype(np.int8), right)


def test_rows_of_a_quantised_table_are_floats_before_they_are_picked(
    rng: np.random.Generator,
) -> None:
    """A quantised table is floats before rows are picked, so no run widens it."""
    table, at = i8(rng, 50, 4), np.array([3, 49, 3])
    nodes = [
        node("Gather", ["w", "at"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    message = model(nodes, [value("at", (3,), 7)], [value("y", (3, 4))])
    for name, array in {"w": table, "s": SCALE, "z": one(5, np.int8)}.items():
        message.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    loaded = rlx.onnx.load(message.SerializeToString())
    got = loaded.run({"at": at}, device="cpu")["y"]
    np.testing.assert_array_equal(got, (table[at] - np.float32(5)) * SCALE)
    graph = loaded.graph_for({"at": at})
    assert [str(n.type) for n in graph.named("param").values()] == ["[50, 4] f32"]


@pytest.mark.parametrize("says", ["scale [3]", "both are 0"])
def test_what_is_not_done_is_refused(says: str, rng: np.random.Generator) -> None:
    if says == "scale [3]":
        fed, op, how = named(u8(rng, 2, 4), steps(rng, 3)), "DequantizeLinear", {}
    else:
        op, fed, _, how = CASES["attention"]
        how = {**how, "do_rotary": 1}
    message, given = made(op, fed, (), "" if op in OWN else MS, **how)
    with pytest.raises((Unsupported, ShapeError)) as caught:
        rlx.onnx.load(message.SerializeToString()).run(given, device="cpu")
    assert says in str(caught.value)


@pytest.mark.parametrize("kind", ["int4", "uint4", "2 bits", "4 bits", "8 bits"])
@pytest.mark.parametrize(
    ("has_zeros", "device"),
    [(False, "cpu"), (True, "cpu"), pytest.param(True, "vulkan", marks=GPU)],
)
def test_rows_of_a_table_in_blocks(
    kind: str, has_zeros: bool, device: str, rng: np.random.Generator
) -> None:
    """Blocks of 16, of which the last is short."""
    columns, bits = 40, 4 if "int4" in kind else int(kind[0])
    numbers, blocks = onnx.TensorProto.UINT8, 3
    if "int4" in kind:
        numbers = getattr(onnx.TensorProto, kind.upper())
    low, high = (-8, 8) if kind == "int4" else (0, 1 << bits)

    def held(name: str, count: int) -> Any:
        if "int4" in kind:
            drawn = rng.integers(low, high, (9, count))
            return onnx.helper.make_tensor(name, numbers, (9, count), drawn.reshape(-1))
        return onnx.numpy_helper.from_array(u8(rng, 9, -(-count * bits // 8)), name)

    names = ["w", "at", "s", "z"][: 4 if has_zeros else 3]
    how = {} if "int4" in kind else {"bits": bits}
    one_node = node(
        "GatherBlockQuantized", names, ["y"], domain=MS, block_size=16, **how
    )
    message = model(
        [one_node],
        [value("at", (2, 2), 7)],
        [value("y", (2, 2, columns))],
        opsets={"": 21, MS: 1},
    )
    message.graph.initializer.extend(
        [held("w", columns), onnx.numpy_helper.from_array(steps(rng, 9, blocks), "s")]
    )
    if has_zeros:
        message.graph.initializer.append(held("z", blocks))
    data, at = message.SerializeToString(), np.array([[0, 8], [3, 3]])
    (want,) = runtime(data, {"at": at})
    got = rlx.onnx.load(data).run({"at": at}, device=device)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_every_binding_has_the_same_weights(rng: np.random.Generator) -> None:
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
    message = model(nodes, [value("x", ("rows", 8))], [value("y", ("rows", 5), 6)])
    held = onnx.helper.make_tensor("w", int4, (8, 600), rng.integers(-8, 8, 4800))
    message.graph.initializer.append(held)
    for name, array in {"s": steps(rng, 600), "v": i8(rng, 600, 5)}.items():
        message.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    with rlx.onnx.load(message.SerializeToString()) as loaded:
        first, second = (
            loaded.imported({"x": real(rng, rows, 8)}).params for rows in (1, 3)
        )
        assert list(first) == ["w", "v"]
        assert all(first[name] is second[name] for name in first)
        assert {w.dtype.name for w in first.values()} == {"float32"}
