"""Extremes' places, log-softmax and logarithms of sums: their edges on all engines."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.gpu.port import Want
from rlxweb.ir.graph import Graph
from tests.agreement import ARRAYS, Engine, engine

INF, NAN = np.inf, np.nan
EDGES = np.array(
    [
        *([INF, 0, 1, INF], [-INF] * 4, [INF, -INF, 0, 0], [NAN, 1, INF, NAN]),
        *(
            [-INF, 5, -INF, 5],
            [3e38, 3e38, 0, -1e37],
            [88, 89, 90, 90],
            [-0.0, 0, 0, 0],
        ),
    ],
    np.float32,
)


def check(one: Engine) -> None:
    graph = Graph("edges")
    x = graph.input("x", EDGES.shape)
    odd = graph.isnan(x)
    outs = [
        graph.argmax(x, 1),
        graph.argmin(x, 1),
        graph.argmax(x, 1, select_last_index=True),
        graph.argmin(x, 0, keepdims=True),
        graph.hardmax(x),
        graph.any(odd, 1),
        graph.all(x, 0),
        graph.logsumexp(x, 1),
        graph.log_softmax(x),
        graph.einsum("ij,ij->i", graph.where(odd, 0, x.sign()), graph.ones_like(x)),
    ]
    graph.set_outputs(outs)
    got = one.run(graph, {"x": EDGES})
    wide = EDGES.astype(np.float64)
    with np.errstate(all="ignore"):
        far = wide - wide.max(1, keepdims=True)
        soft = far - np.log(np.exp(far).sum(1, keepdims=True))
        held = np.where(np.isfinite(top := wide.max(1)), top, 0)
        sums = np.log(np.exp(wide - held[:, None]).sum(1)) + held
    want = [
        EDGES.argmax(1),
        EDGES.argmin(1),
        3 - EDGES[:, ::-1].argmax(1),
        EDGES.argmin(0)[None],
        np.eye(4)[EDGES.argmax(1)],
        np.isnan(EDGES).any(1),
        EDGES.all(0),
        sums,
        soft,
        np.nansum(np.sign(EDGES), 1),
    ]
    for each, other in zip(got, want, strict=True):
        np.testing.assert_allclose(each, other, rtol=2e-6, atol=1e-6)


def test_numpy_holds_at_the_edges() -> None:
    check(engine(None))


@pytest.mark.requires_wgpu
def test_adapters_hold_at_the_edges(adapter: Want) -> None:
    check(engine(adapter))


@pytest.mark.parametrize("library", ARRAYS)
def test_libraries_hold_at_the_edges(library: str) -> None:
    check(engine(library))
