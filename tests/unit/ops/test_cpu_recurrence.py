"""Compiled recurrent networks: cached weights, and sizes left to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.op import TensorType, registry
from rlxweb.ops.recurrent.cpu import native as cpu_native_recurrence
from rlxweb.ops.recurrent.cpu.native import KERNELS, RecurrenceCall

pytestmark = pytest.mark.requires_fast
ATTRS: dict[str, Any] = {
    "direction": "bidirectional",
    "activations": "sigmoid tanh",
    "clip": None,
    "linear_before_reset": False,
}


@pytest.fixture(autouse=True)
def _wait_for_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def random_floats(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(0, 0.5, shape).astype(np.float32)


def reference_gru(x: Any, w: Any, *rest: Any) -> Any:
    return registry.get("gru").reference(np, ATTRS, x, w, *rest)


def test_replaced_weights_are_used(rng: np.random.Generator) -> None:
    """Recurrent weights are packed once and cached from the second run on."""
    g, x = rlx.Graph("net"), random_floats(rng, 6, 1, 2 * 3 * 20)
    a, w = g.input("x", x.shape), g.param("w", (2, 20, 60))
    g.set_outputs([g.apply("gru", a, w, direction="bidirectional")])
    compiled = rlx.Session("cpu").compile(g)
    for _ in range(2):
        weights = random_floats(rng, 2, 20, 60)
        compiled.set_param("w", weights)
        for _ in range(3):
            (got,) = compiled.run({"x": x})
            np.testing.assert_allclose(got, reference_gru(x, weights), 2e-5, 1e-5)


@pytest.mark.parametrize("units", [1, 3, 8, 17, 33])
def test_rows_stop_at_their_own_length(units: int, rng: np.random.Generator) -> None:
    x, w = random_floats(rng, 5, 3, 6 * units), random_floats(rng, 2, units, 3 * units)
    state, lengths = random_floats(rng, 2, 3, units), np.array([0, 9, 2], np.int32)
    inputs = (x, w, state, lengths)
    types = [TensorType(item.shape, as_dtype(item.dtype)) for item in inputs]
    out = TensorType((6, 2, 3, units), DType.F32)
    (row,) = (item for item in KERNELS if item.op == "gru")
    assert row.can_run(tuple(types), out, ATTRS)
    call = row.build(tuple(types), out, ATTRS)
    assert isinstance(call, RecurrenceCall)
    np.testing.assert_allclose(call(ATTRS, *inputs), reference_gru(*inputs), 2e-5, 1e-5)
    assert all(
        item in cpu_native_recurrence.recurrence_kernels._kernels for item in call.specs
    )


def test_many_rows_of_many_units_are_left_to_numpy() -> None:
    (gru_variant,) = (variant for variant in KERNELS if variant.op == "gru")

    def can_run(rows: int, units: int) -> bool:
        x = TensorType((5, rows, 6 * units), DType.F32)
        w = TensorType((2, units, 3 * units), DType.F32)
        return gru_variant.can_run(
            (x, w), TensorType((6, 2, rows, units), DType.F32), ATTRS
        )

    assert can_run(64, 32)
    assert can_run(4, 256)
    assert not can_run(64, 256)
    assert not can_run(0, 32)
