"""Reductions are compared with NumPy, SciPy and PyTorch, edge cases included."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.core.errors import AttributeRefused, DTypeError, ShapeError
from tests.unit.ir.reference_graph_runner import run_graph

X = np.random.default_rng(4).normal(size=(3, 4, 5))
INF, NAN = np.inf, np.nan
AXES = (None, 0, (2, 1), -1, ())
EDGE_CASES = np.array(
    [
        *([INF, 0, 1], [-INF, -INF, -INF], [INF, -INF, 0], [NAN, 1, 2]),
        *([-INF, 5, -INF], [1e300, 1e300, 0], [708, 709, 710], [-0.0, 0, 0]),
    ]
)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_equal_numpy(
    axes: int | tuple[int, ...] | None, keepdims: bool
) -> None:
    options = {"axis": axes, "keepdims": keepdims}
    got = run_graph(
        lambda g, x: [
            g.var(x, axes, keep_dim=keepdims),
            g.std(x, axes, 0.5, keepdims),
            g.logsumexp(x, axes, keepdims),
            g.any(x > 1.5, axes, keepdims),
            g.all(x, axes, keepdims),
            g.count_nonzero(x > 0, axes, keepdims),
            g.norm(x, 2, axes, keepdims),
        ],
        X,
    )
    want = [
        X.var(**options),
        X.std(ddof=0.5, **options),
        np.log(np.exp(X).sum(**options)),
        (X > 1.5).any(**options),
        X.all(**options),
        np.count_nonzero(X > 0, **options) if axes != () else (X > 0).astype(np.int32),
        np.sqrt((X * X).sum(**options)),
    ]
    for array, expected in zip(got, want, strict=True):
        assert array.shape == np.shape(expected)
        np.testing.assert_allclose(array, expected, rtol=1e-12)


@pytest.mark.requires_torch
def test_edge_cases_equal_pytorch() -> None:
    """Reductions at infinities, NaN and overflow, and of empty axes, equal
    PyTorch's.
    """
    import torch

    tensor = torch.tensor(EDGE_CASES)
    got = run_graph(lambda g, x: [g.logsumexp(x, 1), g.log_softmax(x, 1)], EDGE_CASES)
    np.testing.assert_allclose(got[0], torch.logsumexp(tensor, 1).numpy())
    np.testing.assert_allclose(got[1], torch.log_softmax(tensor, 1).numpy())
    for p in (0, 1, 2, 3, 0.5, INF, -INF, -2):
        norm = run_graph(lambda g, x, p=p: g.norm(x, p, (0, 2)), X)
        want = torch.linalg.vector_norm(torch.tensor(X), p, dim=(0, 2)).numpy()
        np.testing.assert_allclose(norm, want, rtol=1e-12)
    empty_results = run_graph(
        lambda g, x: [g.logsumexp(x, 1), g.any(x, 1), g.all(x, 1)], np.zeros((2, 0))
    )
    assert [array.tolist() for array in empty_results] == [
        [-INF] * 2,
        [False] * 2,
        [True] * 2,
    ]
    variances = run_graph(lambda g, x: [g.var(x, 0, c) for c in (1, 2, 3)], X[:2, 0, 0])
    assert [float(s) for s in variances] == [X[:2, 0, 0].var(ddof=1), INF, INF]
    assert np.isnan(run_graph(lambda g, x: g.var(x, 0, 1), X[:1, 0, 0]))


def test_half_precision_is_computed_in_wider_precision() -> None:
    """Squares and exponentials exceed the range of float16."""
    x = np.array([200.0, 300.0, 300.0], np.float16)
    got = run_graph(lambda g, t: [g.norm(t), g.std(t), g.var(t), g.logsumexp(t)], x)
    wide = x.astype(np.float64)
    want = [np.linalg.norm(wide), wide.std(), wide.var(), 300 + np.log(2)]
    assert all(array.dtype == np.float16 for array in got)
    np.testing.assert_allclose(got, want, rtol=1e-3)


def test_positions_of_extremes() -> None:
    """The first or last of equal extremes is found, and a NaN before all others."""
    got = run_graph(
        lambda g, x: [
            g.argmax(x, 1),
            g.argmin(x, 0, keepdims=True),
            g.argmax(x, 1, select_last_index=True),
            g.argmax(x),
            g.argmin(x, keepdims=True),
            g.hardmax(x),
        ],
        EDGE_CASES,
    )
    np.testing.assert_array_equal(got[0], EDGE_CASES.argmax(1))
    np.testing.assert_array_equal(got[1], EDGE_CASES.argmin(0)[None])
    np.testing.assert_array_equal(got[2], 2 - EDGE_CASES[:, ::-1].argmax(1))
    assert got[3] == EDGE_CASES.argmax()
    assert got[4] == EDGE_CASES.argmin(keepdims=True)
    np.testing.assert_array_equal(got[5], np.eye(3)[EDGE_CASES.argmax(1)])


def test_undefined_reductions_are_refused() -> None:
    with pytest.raises(ShapeError, match="has 0 elements"):
        run_graph(lambda g, x: g.argmax(x, 1), np.zeros((2, 0)))
    with pytest.raises(ShapeError, match="has no axis"):
        run_graph(lambda g, x: g.argmin(x, 0), np.float32(1))
    with pytest.raises(AttributeRefused, match="p must not be NaN"):
        run_graph(lambda g, x: g.norm(x, NAN), X)
    for name in ("var", "logsumexp", "norm"):
        with pytest.raises(DTypeError, match="only floats"):
            run_graph(lambda g, x, n=name: getattr(g, n)(x), np.ones(3, np.int32))
