"""What takes axes together, against NumPy, SciPy and PyTorch, at the edges too."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.errors import AttributeRefused, DTypeError, ShapeError
from tests.unit.ir.made_run import made

X = np.random.default_rng(4).normal(size=(3, 4, 5))
INF, NAN = np.inf, np.nan
AXES = (None, 0, (2, 1), -1, ())
EDGES = np.array(
    [
        *([INF, 0, 1], [-INF, -INF, -INF], [INF, -INF, 0], [NAN, 1, 2]),
        *([-INF, 5, -INF], [1e300, 1e300, 0], [708, 709, 710], [-0.0, 0, 0]),
    ]
)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("keep", [False, True])
def test_reductions_are_numpys(axes: int | tuple[int, ...] | None, keep: bool) -> None:
    how = {"axis": axes, "keepdims": keep}
    got = made(
        lambda g, x: [
            g.var(x, axes, keep_dim=keep),
            g.std(x, axes, 0.5, keep),
            g.logsumexp(x, axes, keep),
            g.any(x > 1.5, axes, keep),
            g.all(x, axes, keep),
            g.count_nonzero(x > 0, axes, keep),
            g.norm(x, 2, axes, keep),
        ],
        X,
    )
    want = [
        X.var(**how),
        X.std(ddof=0.5, **how),
        np.log(np.exp(X).sum(**how)),
        (X > 1.5).any(**how),
        X.all(**how),
        np.count_nonzero(X > 0, **how) if axes != () else (X > 0).astype(np.int32),
        np.sqrt((X * X).sum(**how)),
    ]
    for one, other in zip(got, want, strict=True):
        assert one.shape == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.requires_torch
def test_edges_are_pytorchs() -> None:
    """Reductions at infinities, NaN and overflow, and of nothing, are PyTorch's."""
    import torch

    given = torch.tensor(EDGES)
    got = made(lambda g, x: [g.logsumexp(x, 1), g.log_softmax(x, 1)], EDGES)
    np.testing.assert_allclose(got[0], torch.logsumexp(given, 1).numpy())
    np.testing.assert_allclose(got[1], torch.log_softmax(given, 1).numpy())
    for p in (0, 1, 2, 3, 0.5, INF, -INF, -2):
        norm = made(lambda g, x, p=p: g.norm(x, p, (0, 2)), X)
        want = torch.linalg.vector_norm(torch.tensor(X), p, dim=(0, 2)).numpy()
        np.testing.assert_allclose(norm, want, rtol=1e-12)
    none = made(
        lambda g, x: [g.logsumexp(x, 1), g.any(x, 1), g.all(x, 1)], np.zeros((2, 0))
    )
    assert [one.tolist() for one in none] == [[-INF] * 2, [False] * 2, [True] * 2]
    spread = made(lambda g, x: [g.var(x, 0, c) for c in (1, 2, 3)], X[:2, 0, 0])
    assert [float(s) for s in spread] == [X[:2, 0, 0].var(ddof=1), INF, INF]
    assert np.isnan(made(lambda g, x: g.var(x, 0, 1), X[:1, 0, 0]))


def test_halves_are_computed_wide() -> None:
    """Squares and exponentials of them are beyond what they hold."""
    x = np.array([200.0, 300.0, 300.0], np.float16)
    got = made(lambda g, t: [g.norm(t), g.std(t), g.var(t), g.logsumexp(t)], x)
    wide = x.astype(np.float64)
    want = [np.linalg.norm(wide), wide.std(), wide.var(), 300 + np.log(2)]
    assert all(one.dtype == np.float16 for one in got)
    np.testing.assert_allclose(got, want, rtol=1e-3)


def test_where_extremes_are() -> None:
    """The first or last of equal extremes is found, and a NaN before all."""
    got = made(
        lambda g, x: [
            g.argmax(x, 1),
            g.argmin(x, 0, keepdims=True),
            g.argmax(x, 1, select_last_index=True),
            g.argmax(x),
            g.argmin(x, keepdims=True),
            g.hardmax(x),
        ],
        EDGES,
    )
    np.testing.assert_array_equal(got[0], EDGES.argmax(1))
    np.testing.assert_array_equal(got[1], EDGES.argmin(0)[None])
    np.testing.assert_array_equal(got[2], 2 - EDGES[:, ::-1].argmax(1))
    assert got[3] == EDGES.argmax()
    assert got[4] == EDGES.argmin(keepdims=True)
    np.testing.assert_array_equal(got[5], np.eye(3)[EDGES.argmax(1)])


def test_what_has_no_answer_is_refused() -> None:
    with pytest.raises(ShapeError, match="has 0 elements"):
        made(lambda g, x: g.argmax(x, 1), np.zeros((2, 0)))
    with pytest.raises(ShapeError, match="a number has no axis"):
        made(lambda g, x: g.argmin(x, 0), np.float32(1))
    with pytest.raises(AttributeRefused, match="p is a number"):
        made(lambda g, x: g.norm(x, NAN), X)
    for name in ("var", "logsumexp", "norm"):
        with pytest.raises(DTypeError, match="floats only"):
            made(lambda g, x, n=name: getattr(g, n)(x), np.ones(3, np.int32))
