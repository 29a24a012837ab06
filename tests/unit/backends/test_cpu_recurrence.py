"""Recurrent networks by machine code: what they keep, and which are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends import cpu_recurrence
from rlxweb.backends.cpu_recurrence import COMPILED, RecurrenceCall
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.op import TensorType, registry

pytestmark = pytest.mark.requires_fast
ATTRS: dict[str, Any] = {
    "direction": "bidirectional",
    "activations": "sigmoid tanh",
    "clip": None,
    "linear_before_reset": False,
}


@pytest.fixture(autouse=True)
def _waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def drawn(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(0, 0.5, shape).astype(np.float32)


def means(x: Any, w: Any, *rest: Any) -> Any:
    return registry.get("gru").reference(np, ATTRS, x, w, *rest)


def test_weights_that_are_set_anew_count(rng: np.random.Generator) -> None:
    """Recurrent weights are laid out once and kept from the second run on."""
    g, x = rlx.Graph("net"), drawn(rng, 6, 1, 2 * 3 * 20)
    a, w = g.input("x", x.shape), g.param("w", (2, 20, 60))
    g.set_outputs([g.apply("gru", a, w, direction="bidirectional")])
    compiled = rlx.Session("cpu").compile(g)
    for _ in range(2):
        now = drawn(rng, 2, 20, 60)
        compiled.set_param("w", now)
        for _ in range(3):
            (found,) = compiled.run({"x": x})
            np.testing.assert_allclose(found, means(x, now), 2e-5, 1e-5)


@pytest.mark.parametrize("units", [1, 3, 8, 17, 33])
def test_rows_end_where_they_end(units: int, rng: np.random.Generator) -> None:
    x, w = drawn(rng, 5, 3, 6 * units), drawn(rng, 2, units, 3 * units)
    state, lengths = drawn(rng, 2, 3, units), np.array([0, 9, 2], np.int32)
    every = (x, w, state, lengths)
    types = [TensorType(one.shape, as_dtype(one.dtype)) for one in every]
    out = TensorType((6, 2, 3, units), DType.F32)
    (row,) = (one for one in COMPILED if one.op == "gru")
    assert row.takes(tuple(types), out, ATTRS)
    call = row.of(tuple(types), out, ATTRS)
    assert isinstance(call, RecurrenceCall)
    np.testing.assert_allclose(call(ATTRS, *every), means(*every), 2e-5, 1e-5)
    assert all(one in cpu_recurrence.recurrence_kernels._made for one in call.cells)


def test_many_rows_of_many_units_are_numpys() -> None:
    (row,) = (one for one in COMPILED if one.op == "gru")

    def is_open(rows: int, units: int) -> bool:
        x = TensorType((5, rows, 6 * units), DType.F32)
        w = TensorType((2, units, 3 * units), DType.F32)
        return row.takes((x, w), TensorType((6, 2, rows, units), DType.F32), ATTRS)

    assert is_open(64, 32)
    assert is_open(4, 256)
    assert not is_open(64, 256)
    assert not is_open(0, 32)
