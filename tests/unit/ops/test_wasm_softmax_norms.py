"""Softmax and norms by WebAssembly; without it the variants are disabled.

The tests run in Pyodide under node as well (`./dev test wasm`).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ops.norm.cpu.wasm import KERNELS
from tests.kernel_tables import direct_function

IN_WASM = sys.platform == "emscripten"
VARIANT_BY_OP = {row.op: row for row in KERNELS}
Shape = tuple[int, ...]


@pytest.fixture(autouse=True)
def enable_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable the compilation that other tests switch off."""
    monkeypatch.setenv("RLX_FAST", "background")


def can_run(name: str, shape: Shape, axis: int = -1, dtype: DType = DType.F32) -> bool:
    op, variant = registry.get(name), VARIANT_BY_OP[name]
    types = [TensorType(shape, dtype)]
    types += [TensorType(shape[-1:], dtype)] * (int(str(op.arity)) - 1)
    attrs = op.check_attrs({"axis": axis})
    return variant.can_run(tuple(types), types[0], attrs)


def run_and_reference(name: str, x: Any, *rest: Any) -> tuple[Any, Any]:
    """Return the variant's result (outside WebAssembly the reference's), and the
    reference in float64.
    """
    op = registry.get(name)
    attrs = op.check_attrs({"axis": -1})
    run = (
        direct_function(VARIANT_BY_OP[name])
        if IN_WASM
        else lambda *arguments: op.reference(np, *arguments)
    )
    with np.errstate(all="ignore"):
        wide = [array.astype(np.float64) for array in (x, *rest)]
        return run(attrs, x, *rest), op.reference(np, attrs, *wide)


def random_operands(name: str, shape: Shape, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    x = (3 * rng.standard_normal(shape) + 1).astype(np.float32)
    if name == "softmax":
        return [x]
    return [x, *rng.standard_normal((2, shape[-1])).astype(np.float32)]


def test_wasm_row_gates() -> None:
    for name in VARIANT_BY_OP:
        assert can_run(name, (40, 64)) == IN_WASM
        assert not can_run(name, (400, 3))
        assert not can_run(name, (40, 64), axis=0)
        assert not can_run(name, (4, 8))
        assert not can_run(name, (40, 64), dtype=DType.F64)


@pytest.mark.parametrize("name", VARIANT_BY_OP)
@settings(max_examples=40)
@given(rows=st.integers(0, 9), n=st.integers(4, 700))
def test_rows_of_any_length(name: str, rows: int, n: int) -> None:
    got, want = run_and_reference(name, *random_operands(name, (rows, n), seed=n))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, 2e-5, 2e-6)


@pytest.mark.parametrize("name", VARIANT_BY_OP)
def test_long_and_strided_rows(name: str) -> None:
    x, *rest = random_operands(name, (3, 300_001))
    for view in (x, x[::-1], x[:, ::2]):
        got, want = run_and_reference(
            name, view, *(parameter[: view.shape[1]] for parameter in rest)
        )
        np.testing.assert_allclose(got, want, 3e-5, 3e-6)


@pytest.mark.parametrize("name", VARIANT_BY_OP)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 5, 18])
def test_non_finite_value_stays_in_its_row(name: str, odd: float, at: int) -> None:
    x, *rest = random_operands(name, (4, 19))
    x[2, at] = odd
    got, want = run_and_reference(name, x, *rest)
    np.testing.assert_allclose(got, want, 2e-5, 2e-6, equal_nan=True)


def test_row_of_minus_infinity_is_nan() -> None:
    x = np.full((2, 8), -np.inf, np.float32)
    got, want = run_and_reference("softmax", x)
    assert np.isnan(want).all()
    assert np.isnan(got).all()


def test_large_values_neither_overflow_nor_vanish() -> None:
    x = np.linspace(-200, 300, 4 * 31, dtype=np.float32).reshape(4, 31)
    got, want = run_and_reference("softmax", x)
    np.testing.assert_allclose(got, want, 2e-5, 1e-37)
