"""Sums in short float32 runs: as accurate as the references, and in range where they
are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType, registry
from rlxweb.ops.reduce.cpu import numpy as numpy_fast_float32_sums

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
def test_sums_agree_with_the_references(
    op: str, keep: bool, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) + 1
    attrs = {"axes": axes, "keep_dim": keep}
    types = (TensorType(shape, DType.F32),)
    op_record = registry.get(op)
    assert numpy_fast_float32_sums.is_supported(
        types, op_record.output_type(types, attrs), attrs
    )
    actual = numpy_fast_float32_sums.sum_in_runs(op)(attrs, x)
    want = op_record.reference(np, attrs, x.astype(np.float64))
    assert actual.shape == want.shape
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, want, 1e-6, 1e-6 * np.abs(want).max())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_overflowing_runs_are_summed_in_float64() -> None:
    x: Any = np.full((200, 600), 1e37, np.float32)
    attrs = {"axes": (1,), "keep_dim": False}
    np.testing.assert_allclose(
        numpy_fast_float32_sums.sum_in_runs("mean")(attrs, x), 1e37, 1e-6
    )
    x[::2] = -x[::2]
    np.testing.assert_allclose(
        numpy_fast_float32_sums.sum_in_runs("sum")({**attrs, "axes": (0,)}, x), 0.0
    )
    x[0, 0] = np.inf
    assert np.isinf(numpy_fast_float32_sums.sum_in_runs("sum")(attrs, x)[0])


def test_few_or_short_sums_are_left_to_numpy() -> None:
    few, short = ((100, 600), (1,)), ((90_000, 300), (1,))
    for shape, axes in (few, short):
        types = (TensorType(shape, DType.F32),)
        attrs = {"axes": axes, "keep_dim": False}
        assert not numpy_fast_float32_sums.is_supported(types, types[0], attrs)
