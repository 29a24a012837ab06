"""Sums in short runs: as near as the references, in range where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.host import short_sums
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry

CASES = [
    ((300, 700), (1,)),
    ((700, 300), (0,)),
    ((700, 300), (0, 1)),
    ((5, 600, 64), (1,)),
    ((3, 1, 70_001), (2,)),
    ((90_000,), (0,)),
]


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("shape", "axes"), CASES)
def test_they_are_the_references(
    op: str, keep: bool, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) + 1
    attrs = {"axes": axes, "keep_dim": keep}
    types = (TensorType(shape, DType.F32),)
    own = registry.get(op)
    assert short_sums.is_open(types, own.output_type(types, attrs), attrs)
    found = short_sums.in_runs(op)(attrs, x)
    want = own.reference(np, attrs, x.astype(np.float64))
    assert found.shape == want.shape
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, want, 1e-6, 1e-6 * np.abs(want).max())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_no_run_can_hold_is_added_up_in_double() -> None:
    x: Any = np.full((200, 600), 1e37, np.float32)
    attrs = {"axes": (1,), "keep_dim": False}
    np.testing.assert_allclose(short_sums.in_runs("mean")(attrs, x), 1e37, 1e-6)
    x[::2] = -x[::2]
    np.testing.assert_allclose(
        short_sums.in_runs("sum")({**attrs, "axes": (0,)}, x), 0.0
    )
    x[0, 0] = np.inf
    assert np.isinf(short_sums.in_runs("sum")(attrs, x)[0])


def test_few_and_short_ones_are_numpys() -> None:
    few, short = ((100, 600), (1,)), ((90_000, 300), (1,))
    for shape, axes in (few, short):
        types = (TensorType(shape, DType.F32),)
        attrs = {"axes": axes, "keep_dim": False}
        assert not short_sums.is_open(types, types[0], attrs)
