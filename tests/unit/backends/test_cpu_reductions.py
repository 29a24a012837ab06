"""Reductions as machine code: NumPy's numbers along any axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.backends import cpu_reductions
from rlxweb.backends.cpu_reductions import COMPILED, Axes, axes_of, reduction_kernels
from rlxweb.ir.op import registry
from rlxweb.machine.library import Code, object_code, processor
from rlxweb.machine.reductions import FOLDS, reduction_text

pytestmark = pytest.mark.requires_fast
OPS = ("sum", "mean", "max", "min", "prod")


@pytest.fixture(autouse=True)
def _wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def run_of(op: str) -> Any:
    return next(row.run for row in COMPILED if row.op == op)


def check(op: str, attrs: dict[str, Any], x: np.ndarray, found: np.ndarray) -> None:
    own = registry.get(op)
    with np.errstate(all="ignore"):
        want = own.reference(np, attrs, x.astype(np.float64))
    assert found.dtype == np.float32
    assert found.shape == want.shape
    peak = np.abs(want[np.isfinite(want)]).max(initial=1.0)
    with np.errstate(all="ignore"):
        want = want.astype(np.float32)
    np.testing.assert_allclose(found, want, 1e-5, 3e-6 * peak)


@pytest.mark.parametrize(
    ("shape", "reduced", "axes"),
    [
        ((4, 7), (1,), Axes(4, 7, 1)),
        ((4, 7), (0,), Axes(1, 4, 7)),
        ((4, 1, 7), (0, 1), Axes(1, 4, 7)),
        ((2, 3, 4, 5), (1, 2), Axes(2, 12, 5)),
        ((2, 3, 4, 5), (2, 3), Axes(6, 20, 1)),
        ((2, 3), (0, 1), Axes(1, 6, 1)),
        ((2, 3, 4), (0, 2), None),
        ((1, 1), (0,), None),
    ],
)
def test_axes_become_three(shape: Any, reduced: Any, axes: Any) -> None:
    assert axes_of(shape, reduced) == axes


@given(
    op=st.sampled_from(OPS),
    case=st.sampled_from(
        [
            ((300, 16), (1,)),
            ((40, 203), (1,)),
            ((2, 5000), (1,)),
            ((8, 16), (0,)),
            ((203, 45), (0,)),
            ((3, 33, 70), (1,)),
            ((3, 33, 70), (1, 2)),
            ((9, 5001), (0,)),
            ((4097,), (0,)),
        ]
    ),
    keep=st.booleans(),
    odd=st.sampled_from([None, np.nan, np.inf, -np.inf]),
    seed=st.integers(0, 5),
)
@settings(max_examples=80)
def test_they_are_numpys(
    op: str, case: Any, keep: bool, odd: float | None, seed: int
) -> None:
    """Reductions are NumPy's: any length, and with what is not finite anywhere."""
    shape, axes = case
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.9, 1.1, shape).astype(np.float32)
    if op in ("max", "min"):
        x = -x
    if odd is not None:
        x.reshape(-1)[rng.integers(x.size)] = odd
    attrs = {"axes": axes, "keep_dim": keep}
    check(op, attrs, x, run_of(op)(attrs, x))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("shape", "axes"), [((1 << 18,), (0,)), ((3, 1 << 16), (1,)), ((70, 4096), (0,))]
)
def test_threads_share_lines_and_columns(
    op: str, shape: Any, axes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_reductions, "_THREADED", 1 << 14)
    monkeypatch.setattr(cpu_reductions, "_LONG", 1 << 16)
    rng = np.random.default_rng(1)
    x = (1 + 1e-4 * rng.standard_normal(shape)).astype(np.float32)
    attrs = {"axes": axes, "keep_dim": False}
    check(op, attrs, x, run_of(op)(attrs, x))


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_every_width(
    fold: str, lines: bool, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if nbytes > processor().nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
    code = Code(object_code(reduction_text(fold, lines, nbytes)))
    kernel = cpu_reductions.function_of(code)
    monkeypatch.setattr(reduction_kernels, "ready", lambda about: kernel)
    x = np.random.default_rng(2).uniform(0.9, 1.1, (61, 83)).astype(np.float32)
    for spoiled in (False, True):
        x[40, 50] = np.nan if spoiled else 1.0
        attrs = {"axes": (1,) if lines else (0,), "keep_dim": False}
        check(fold, attrs, x, run_of(fold)(attrs, x))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(128, 128), (4, 5000), (5000, 4), (3, 5)])
def test_in_a_graph(axis: int, shape: tuple[int, int]) -> None:
    """A reduction in a graph is right when small, short or turned."""
    x = np.asfortranarray(np.random.default_rng(3).standard_normal(shape), np.float32)
    graph = rlx.Graph("sums")
    given_ = graph.input("x", shape)
    names = ("sum", "mean", "max", "min")
    graph.set_outputs([getattr(graph, name)(given_, (axis,)) for name in names])
    found = rlx.Session("cpu").compile(graph).run({"x": x})
    for name, one in zip(names, found, strict=True):
        check(name, {"axes": (axis,), "keep_dim": False}, x, one)


@pytest.mark.parametrize("op", OPS)
def test_numpy_serves_until_the_code_is_there(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    reduction_kernels._made.clear()
    x = np.random.default_rng(4).uniform(0.99, 1.01, (600, 600)).astype(np.float32)
    attrs = {"axes": (1,), "keep_dim": False}
    check(op, attrs, x, run_of(op)(attrs, x))
