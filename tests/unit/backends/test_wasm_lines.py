"""Softmax and norms by WebAssembly; where there is none the rows stay shut.

The tests run in Pyodide under node as well (`./dev test wasm`).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.backends.wasm_lines import LINES
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry

IN_WASM = sys.platform == "emscripten"
ROWS = {row.op: row for row in LINES}
Shape = tuple[int, ...]


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests compile nothing."""
    monkeypatch.setenv("RLX_FAST", "background")


def is_open(name: str, shape: Shape, axis: int = -1, dtype: DType = DType.F32) -> bool:
    op, row = registry.get(name), ROWS[name]
    kinds = [TensorType(shape, dtype)]
    kinds += [TensorType(shape[-1:], dtype)] * (int(str(op.arity)) - 1)
    attrs = op.check_attrs({"axis": axis})
    return row.takes(tuple(kinds), kinds[0], attrs)


def made(name: str, x: Any, *rest: Any) -> tuple[Any, Any]:
    """What the row makes, by the reference elsewhere; and that in float64."""
    op = registry.get(name)
    attrs = op.check_attrs({"axis": -1})
    run = ROWS[name].run if IN_WASM else lambda *given: op.reference(np, *given)
    with np.errstate(all="ignore"):
        wide = [one.astype(np.float64) for one in (x, *rest)]
        return run(attrs, x, *rest), op.reference(np, attrs, *wide)


def operands(name: str, shape: Shape, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    x = (3 * rng.standard_normal(shape) + 1).astype(np.float32)
    if name == "softmax":
        return [x]
    return [x, *rng.standard_normal((2, shape[-1])).astype(np.float32)]


def test_gates() -> None:
    for name in ROWS:
        assert is_open(name, (40, 64)) == IN_WASM
        assert not is_open(name, (400, 3))
        assert not is_open(name, (40, 64), axis=0)
        assert not is_open(name, (4, 8))
        assert not is_open(name, (40, 64), dtype=DType.F64)


@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=40)
@given(rows=st.integers(0, 9), n=st.integers(4, 700))
def test_lines_of_any_length(name: str, rows: int, n: int) -> None:
    found, right = made(name, *operands(name, (rows, n), seed=n))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, right, 2e-5, 2e-6)


@pytest.mark.parametrize("name", ROWS)
def test_long_lines_and_lines_that_lie_elsewhere(name: str) -> None:
    x, *rest = operands(name, (3, 300_001))
    for one in (x, x[::-1], x[:, ::2]):
        found, right = made(name, one, *(r[: one.shape[1]] for r in rest))
        np.testing.assert_allclose(found, right, 3e-5, 3e-6)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 5, 18])
def test_what_is_not_finite_stays_in_its_line(name: str, odd: float, at: int) -> None:
    x, *rest = operands(name, (4, 19))
    x[2, at] = odd
    found, right = made(name, x, *rest)
    np.testing.assert_allclose(found, right, 2e-5, 2e-6, equal_nan=True)


def test_a_line_of_nothing_but_minus_infinity_is_nan() -> None:
    x = np.full((2, 8), -np.inf, np.float32)
    found, right = made("softmax", x)
    assert np.isnan(right).all()
    assert np.isnan(found).all()


def test_far_lines_neither_overflow_nor_vanish() -> None:
    x = np.linspace(-200, 300, 4 * 31, dtype=np.float32).reshape(4, 31)
    found, right = made("softmax", x)
    np.testing.assert_allclose(found, right, 2e-5, 1e-37)
