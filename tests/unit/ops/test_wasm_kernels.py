"""Kernels of WebAssembly run where Python is WebAssembly, and only there.

The tests run in Pyodide under node as well (`./dev test wasm`).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ops.attention.cpu.wasm import KERNELS as ATTENTION_KERNELS
from rlxweb.ops.attention.cpu.wasm import WasmAttention
from rlxweb.ops.conv.cpu.wasm import KERNELS as CONV_KERNELS
from rlxweb.ops.matmul.cpu import wasm as wasm_matmul
from rlxweb.ops.matmul.cpu.wasm import matmul, try_matmul_into, wasm_functions
from tests.ops.kernel_cases.conv import LARGE_GEOMETRIES

IN_WASM = sys.platform == "emscripten"
(WASM_ATTENTION,), (WASM_CONV,) = ATTENTION_KERNELS, CONV_KERNELS
Shape = tuple[int, ...]


@pytest.fixture(autouse=True)
def enable_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable compilation, which is off in other tests."""
    monkeypatch.setenv("RLX_FAST", "background")


def can_attend(q: Shape, dtype: DType = DType.F32, **options: Any) -> bool:
    tensor_type = TensorType(q, dtype)
    op = registry.get("attention")
    attrs = op.check_attrs({"num_heads": q[1], "head_dim": q[3], **options})
    return WASM_ATTENTION.can_run((tensor_type,) * 3, tensor_type, attrs)


def test_wasm_attention_gates() -> None:
    assert can_attend((1, 4, 32, 16)) == IN_WASM
    assert not can_attend((1, 4, 32, 16), DType.F64)
    assert not can_attend((1, 1, 4, 4))
    assert not can_attend((1, 4, 32, 16), softcap=2.0)
    assert not can_attend((1, 4, 32, 16), mask_kind="causal")


def test_wasm_convolutions_run_only_in_wasm() -> None:
    conv = registry.get("conv")
    for _, x, w, options in LARGE_GEOMETRIES:
        types = TensorType(x, DType.F32), TensorType(w, DType.F32)
        attrs = conv.check_attrs(options)
        out = conv.output_type(types, attrs)
        assert WASM_CONV.can_run(types, out, attrs) == IN_WASM


def test_attention_pattern_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products around a softmax, as in networks, are fused into attention."""
    calls, original_call = [], WasmAttention.__call__

    def count_call(self: WasmAttention, *inputs: Any) -> Any:
        calls.append(self)
        return original_call(self, *inputs)

    monkeypatch.setattr(WasmAttention, "__call__", count_call)
    g, shape = rlx.Graph("spelled"), (2, 4, 32, 16)
    q, k, v = (g.input(name, shape) for name in "qkv")
    b = g.input("b", (2, 1, 1, 32))
    scores = q @ k.transpose(0, 1, 3, 2) * 0.25 + b
    g.set_outputs([g.softmax(scores) @ v])
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape, np.float32) for name in "qkv"}
    feeds["b"] = rng.standard_normal((2, 1, 1, 32), np.float32)
    (got,) = rlx.Session("cpu").compile(g).run(feeds)
    assert len(calls) == IN_WASM
    wide = {name: array.astype(np.float64) for name, array in feeds.items()}
    want = wide["q"] @ wide["k"].transpose(0, 1, 3, 2) * 0.25 + wide["b"]
    want = np.exp(want - want.max(-1, keepdims=True))
    want = want / want.sum(-1, keepdims=True) @ wide["v"]
    np.testing.assert_allclose(got, want, 5e-5, 1e-5)


def random_array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check_product(actual: Any, x: Any, y: Any) -> None:
    expected = x.astype(np.float64) @ y.astype(np.float64)
    assert actual.shape == expected.shape
    assert actual.dtype == np.result_type(x, y)
    np.testing.assert_allclose(
        actual, expected, 1e-4, 2e-5 * max(1, x.shape[-1]) ** 0.5
    )


def test_functions_exist_only_in_wasm() -> None:
    assert (wasm_functions() is not None) == IN_WASM
    assert {variant.op for variant in wasm_matmul.KERNELS} == (
        {"matmul", "fused_matmul_bias_act"} if IN_WASM else set()
    )
    x = random_array(64, 64)
    assert try_matmul_into(x, x, np.empty_like(x)) == IN_WASM


def test_nothing_is_compiled_when_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RLX_FAST", "off")
    assert wasm_functions() is None


@settings(max_examples=80)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 150))
def test_products_of_any_size(rows: int, terms: int, columns: int) -> None:
    """Products of any size are right, and nothing is written beyond the result."""
    x, y = random_array(rows, terms), random_array(terms, columns, seed=1)
    buffer = np.full((rows + 2, columns), np.float32(7))
    if not try_matmul_into(x, y, buffer[1:-1]):
        np.matmul(x, y, out=buffer[1:-1])
    check_product(buffer[1:-1], x, y)
    assert (buffer[[0, -1]] == 7).all()


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (random_array(3, 40, 30), random_array(30, 50)),
        (random_array(3, 40, 30), random_array(3, 30, 50)),
        (random_array(2, 1, 40, 30), random_array(3, 30, 50)),
        (random_array(30, 40).T, random_array(50, 30).T),
        (random_array(80, 30)[::2], random_array(30, 100)[:, ::2]),
        (random_array(40, 30)[::-1], random_array(30, 50)[:, ::-1]),
        (np.broadcast_to(random_array(30), (40, 30)), random_array(30, 50)),
        (random_array(40, 60)[:, :30], random_array(30, 80)[:, 7:57]),
        (random_array(200, 3000), random_array(3000, 70)),
        (random_array(4, 0), random_array(0, 9)),
        (random_array(40, 30).astype(np.float64), random_array(30, 50)),
    ],
)
def test_operands_may_have_any_layout(x: Any, y: Any) -> None:
    check_product(matmul(x, y), x, y)


def test_weights_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are packed once, from their second run on, until set again; feeds never
    are.
    """
    packings: list[Any] = []
    packed_matrix = wasm_matmul.WasmPackedMatrix
    monkeypatch.setattr(
        wasm_matmul,
        "WasmPackedMatrix",
        lambda *args: packings.append(1) or packed_matrix(*args),
    )
    g = rlx.Graph("layers")
    x, y, w = g.input("x", (2, 20, 70)), g.input("y", (70, 31)), g.param("w", (70, 31))
    g.set_outputs([x @ w, x @ y])
    compiled = rlx.Session("cpu").compile(g)
    x0, y0 = random_array(2, 20, 70), random_array(70, 31, seed=1)
    for seed in (2, 3):
        w0 = random_array(70, 31, seed=seed)
        compiled.set_param("w", w0)
        for _ in range(3):
            for actual, operand in zip(
                compiled.run({"x": x0, "y": y0}), (w0, y0), strict=True
            ):
                check_product(actual, x0, operand)
    assert len(packings) == (2 if IN_WASM else 0)
