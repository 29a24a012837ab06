"""Products by WebAssembly: in a browser's Python by calls, elsewhere nothing changes.

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
from rlxweb.host import wasm_products
from rlxweb.host.wasm_products import LEAST, functions, into, matmul

IN_WASM = sys.platform == "emscripten"


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests compile nothing."""
    monkeypatch.setenv("RLX_FAST", "background")


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def near(found: Any, x: Any, y: Any) -> None:
    right = x.astype(np.float64) @ y.astype(np.float64)
    assert found.shape == right.shape
    assert found.dtype == np.result_type(x, y)
    np.testing.assert_allclose(found, right, 1e-4, 2e-5 * max(1, x.shape[-1]) ** 0.5)


def test_it_is_there_where_it_belongs() -> None:
    assert (functions() is not None) == IN_WASM
    assert set(wasm_products.ROWS) == (
        {"matmul", "fused_matmul_bias_act"} if IN_WASM else set()
    )
    x = drawn(64, 64)
    assert into(x, x, np.empty_like(x)) == IN_WASM


def test_nothing_is_compiled_where_nobody_wants_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RLX_FAST", "off")
    assert functions() is None


@settings(max_examples=80)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 150))
def test_products_of_any_size(rows: int, terms: int, columns: int) -> None:
    """Products of any size are right, and nothing is written beyond the result."""
    x, y = drawn(rows, terms), drawn(terms, columns, seed=1)
    whole = np.full((rows + 2, columns), np.float32(7))
    if not into(x, y, whole[1:-1]):
        np.matmul(x, y, out=whole[1:-1])
    near(whole[1:-1], x, y)
    assert (whole[[0, -1]] == 7).all()


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (drawn(3, 40, 30), drawn(30, 50)),
        (drawn(3, 40, 30), drawn(3, 30, 50)),
        (drawn(2, 1, 40, 30), drawn(3, 30, 50)),
        (drawn(30, 40).T, drawn(50, 30).T),
        (drawn(80, 30)[::2], drawn(30, 100)[:, ::2]),
        (drawn(40, 30)[::-1], drawn(30, 50)[:, ::-1]),
        (np.broadcast_to(drawn(30), (40, 30)), drawn(30, 50)),
        (drawn(40, 60)[:, :30], drawn(30, 80)[:, 7:57]),
        (drawn(200, 3000), drawn(3000, 70)),
        (drawn(4, 0), drawn(0, 9)),
        (drawn(40, 30).astype(np.float64), drawn(30, 50)),
    ],
)
def test_operands_may_lie_anyhow(x: Any, y: Any) -> None:
    near(matmul(x, y), x, y)


def test_what_is_not_finite_stays_in_its_row() -> None:
    x, y = drawn(20, 40), drawn(40, 60)
    x[3, 5], x[4, 6] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        found = matmul(x, y)
    assert np.isnan(found[3]).all()
    assert np.isinf(found[4]).all()
    assert np.isfinite(np.delete(found, [3, 4], axis=0)).all()


def test_graphs_are_computed_by_it() -> None:
    """A dense layer and a convolution; the engine says nothing else than before."""
    g = rlx.Graph("net")
    x, w, b = g.input("x", (2, 32, 24)), g.param("w", (24, 40)), g.param("b", (40,))
    k = g.param("k", (8, 2, 3, 3))
    image = g.reshape(x, (1, 2, 32, 24))
    g.set_outputs([g.relu(x @ w + b), g.conv(image, k)])
    made = rlx.Session("cpu").compile(g)
    given = {"w": drawn(24, 40), "b": drawn(40, seed=2), "k": drawn(8, 2, 3, 3)}
    for name, array in given.items():
        made.set_param(name, array)
    x0 = drawn(2, 32, 24, seed=3)
    layer, planes = made.run({"x": x0})
    right = np.maximum(x0.astype(np.float64) @ given["w"] + given["b"], 0)
    np.testing.assert_allclose(layer, right, 1e-4, 1e-4)
    image0 = x0.reshape(2, 32, 24).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(image0, (3, 3), axis=(1, 2))
    wanted = np.einsum("cyxij,mcij->myx", windows, given["k"].astype(np.float64))
    np.testing.assert_allclose(planes[0], wanted, 1e-4, 1e-4)
    assert 2 * 32 * 24 * 40 >= LEAST


def test_weights_are_laid_in_panels_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are laid once, from their second run on, until set; feeds never are."""
    laid: list[Any] = []
    real = wasm_products.Laid
    monkeypatch.setattr(
        wasm_products, "Laid", lambda *given: laid.append(1) or real(*given)
    )
    g = rlx.Graph("layers")
    x, y, w = g.input("x", (2, 20, 70)), g.input("y", (70, 31)), g.param("w", (70, 31))
    g.set_outputs([x @ w, x @ y])
    made = rlx.Session("cpu").compile(g)
    x0, y0 = drawn(2, 20, 70), drawn(70, 31, seed=1)
    for seed in (2, 3):
        w0 = drawn(70, 31, seed=seed)
        made.set_param("w", w0)
        for _ in range(3):
            for found, right in zip(
                made.run({"x": x0, "y": y0}), (w0, y0), strict=True
            ):
                near(found, x0, right)
    assert len(laid) == (2 if IN_WASM else 0)
