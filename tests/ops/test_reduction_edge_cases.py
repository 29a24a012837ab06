"""Test edge cases of argmax, log-softmax and log-sum-exp on all engines."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.graph import Graph
from tests.engines_under_test import ARRAY_LIBRARIES, EngineUnderTest, engine

INF, NAN = np.inf, np.nan
EDGE_VALUES = np.array(
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


def check_edge_values(runner: EngineUnderTest) -> None:
    graph = Graph("edges")
    x = graph.input("x", EDGE_VALUES.shape)
    is_nan = graph.isnan(x)
    outs = [
        graph.argmax(x, 1),
        graph.argmin(x, 1),
        graph.argmax(x, 1, select_last_index=True),
        graph.argmin(x, 0, keepdims=True),
        graph.hardmax(x),
        graph.any(is_nan, 1),
        graph.all(x, 0),
        graph.logsumexp(x, 1),
        graph.log_softmax(x),
        graph.einsum("ij,ij->i", graph.where(is_nan, 0, x.sign()), graph.ones_like(x)),
    ]
    graph.set_outputs(outs)
    got = runner.run(graph, {"x": EDGE_VALUES})
    wide = EDGE_VALUES.astype(np.float64)
    with np.errstate(all="ignore"):
        shifted = wide - wide.max(1, keepdims=True)
        log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        finite_max = np.where(np.isfinite(row_max := wide.max(1)), row_max, 0)
        sums = np.log(np.exp(wide - finite_max[:, None]).sum(1)) + finite_max
    want = [
        EDGE_VALUES.argmax(1),
        EDGE_VALUES.argmin(1),
        3 - EDGE_VALUES[:, ::-1].argmax(1),
        EDGE_VALUES.argmin(0)[None],
        np.eye(4)[EDGE_VALUES.argmax(1)],
        np.isnan(EDGE_VALUES).any(1),
        EDGE_VALUES.all(0),
        sums,
        log_softmax,
        np.nansum(np.sign(EDGE_VALUES), 1),
    ]
    for output, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(output, expected, rtol=2e-6, atol=1e-6)


def test_numpy_edge_values() -> None:
    check_edge_values(engine(None))


@pytest.mark.requires_wgpu
def test_adapter_edge_values(adapter: AdapterRequest) -> None:
    check_edge_values(engine(adapter))


@pytest.mark.parametrize("library", ARRAY_LIBRARIES)
def test_library_edge_values(library: str) -> None:
    check_edge_values(engine(library))
