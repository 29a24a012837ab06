"""Ops a few lines at a time: the numbers of their references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.backends.cpu import CpuBackend
from rlxweb.host.boxes import SHARE
from rlxweb.host.in_parts import LEAST, LINES, in_parts, is_large, parts_of
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.op import TensorType, registry

CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    *(("softmax", (90, 100, 33), {"axis": axis}) for axis in (0, 1, 2)),
    ("softmax", (LEAST,), {"axis": 0}),
    ("layer_norm", (90, 100, 33), {"axis": 2}),
    ("layer_norm", (33, 90, 100), {"axis": 0}),
    ("rms_norm", (4100, 70), {"axis": 1}),
    ("cumsum", (300, 1070), {"axis": 0}),
    ("cumsum", (1300, 270), {"axis": 1}),
    ("fft", (260, 1024), {}),
    ("rfft", (7, 100, 400), {}),
    ("irfft", (260, 1026), {"n": 1024}),
    ("stft", (3, 2, 50_000), {"length": 64, "hop": 16}),
    ("stft", (270_000,), {"length": 64, "hop": 16}),
]  # fmt: skip


def arrays_of(op: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> list[Any]:
    rng = np.random.default_rng(3)
    given = [rng.standard_normal(shape, np.float32)]
    if op in ("layer_norm", "rms_norm"):
        given += list(rng.standard_normal((2, shape[attrs["axis"]]), np.float32))
    return given


@pytest.mark.parametrize(("op", "shape", "attrs"), CASES)
def test_parts_give_the_same_numbers(
    op: str, shape: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    own = registry.get(op)
    full, given = own.check_attrs(attrs), arrays_of(op, shape, attrs)
    types = tuple(TensorType(one.shape, as_dtype(one.dtype)) for one in given)
    assert is_large(types, own.output_type(types, full), full)
    want = own.reference(np, full, *given)
    found = in_parts(op)(full, *given)
    assert found.dtype == want.dtype
    # Where lines are short, NumPy adds them up in another order.
    np.testing.assert_allclose(found, want, 1e-5, 1e-5)


def test_log_mel() -> None:
    rng = np.random.default_rng(4)
    given = rng.random((600, 512), np.float32), rng.random((40, 129), np.float32)
    own = registry.get("log_mel")
    attrs = own.check_attrs({})
    want = own.reference(np, attrs, *given)
    np.testing.assert_allclose(in_parts("log_mel")(attrs, *given), want, 1e-5, 1e-5)


def test_parts_are_no_larger_than_they_may_be() -> None:
    """Parts keep to their size, but for long lines; columns are taken side by side."""
    shape = (1000, 1000)
    parts = parts_of("rfft", {}, shape, (1000, 1002))
    assert [x[0] for x in parts.given] == [y[0] for y in parts.made]
    assert parts.given[0][0] == slice(0, SHARE // 1000)
    long = (3, 10 * SHARE)
    assert len(parts_of("softmax", {"axis": 1}, long, long).given) == 3
    high = (10 * SHARE, 130)
    columns = parts_of("softmax", {"axis": 0}, high, high)
    assert [one[1].start for one in columns.given] == [0, 64, 128]


def test_what_is_small_or_one_line_is_left_whole() -> None:
    attrs = {"axis": 0}
    types = (TensorType((LEAST - 1,), DType.F32),)
    assert not is_large(types, types[0], attrs)
    assert len(parts_of("softmax", attrs, (LEAST,), (LEAST,)).given) == 1


@pytest.mark.parametrize("op", LINES)
def test_the_engine_takes_them(op: str) -> None:
    names = [row.name for row in CpuBackend().variants if row.op == op]
    assert f"{op}, in parts" in names
