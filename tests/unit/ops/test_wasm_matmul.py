"""Matrix products by WebAssembly, used only by Python in a browser.

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
from rlxweb.ops.matmul.cpu import wasm as wasm_matmul
from rlxweb.ops.matmul.cpu.wasm import (
    MIN_MULTIPLICATIONS,
    matmul,
    try_matmul_into,
    wasm_functions,
)

IN_WASM = sys.platform == "emscripten"


@pytest.fixture(autouse=True)
def enable_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable compilation, which is off in other tests."""
    monkeypatch.setenv("RLX_FAST", "background")


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


def test_nonfinite_values_stay_in_their_row() -> None:
    x, y = random_array(20, 40), random_array(40, 60)
    x[3, 5], x[4, 6] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        actual = matmul(x, y)
    assert np.isnan(actual[3]).all()
    assert np.isinf(actual[4]).all()
    assert np.isfinite(np.delete(actual, [3, 4], axis=0)).all()


def test_graphs_use_wasm_products() -> None:
    """A dense layer and a convolution are right."""
    g = rlx.Graph("net")
    x, w, b = g.input("x", (2, 32, 24)), g.param("w", (24, 40)), g.param("b", (40,))
    k = g.param("k", (8, 2, 3, 3))
    image = g.reshape(x, (1, 2, 32, 24))
    g.set_outputs([g.relu(x @ w + b), g.conv(image, k)])
    compiled = rlx.Session("cpu").compile(g)
    params = {
        "w": random_array(24, 40),
        "b": random_array(40, seed=2),
        "k": random_array(8, 2, 3, 3),
    }
    for name, array in params.items():
        compiled.set_param(name, array)
    x0 = random_array(2, 32, 24, seed=3)
    layer, planes = compiled.run({"x": x0})
    expected = np.maximum(x0.astype(np.float64) @ params["w"] + params["b"], 0)
    np.testing.assert_allclose(layer, expected, 1e-4, 1e-4)
    image0 = x0.reshape(2, 32, 24).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(image0, (3, 3), axis=(1, 2))
    wanted = np.einsum("cyxij,mcij->myx", windows, params["k"].astype(np.float64))
    np.testing.assert_allclose(planes[0], wanted, 1e-4, 1e-4)
    assert 2 * 32 * 24 * 40 >= MIN_MULTIPLICATIONS


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
