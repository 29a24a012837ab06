"""Blocking calls inside a running event loop, as in notebook cells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx

W = np.float32([[1, 2], [3, 4]])
X = np.float32([[5, 6]])


def _graph() -> rlx.Graph:
    g = rlx.Graph("dense")
    g.set_outputs([g.input("x", (1, 2)) @ g.param("w", (2, 2))])
    return g


def _run_loaded_graph() -> Any:
    file = BytesIO()
    _graph().save(file, {"w": W}, outputs=["y"])
    return rlx.load(file.getvalue()).run({"x": X}, device="cpu")["y"]


def _run_traced_function() -> Any:
    weights = W.copy()

    @rlx.function(device="cpu")
    def dense(x: Any) -> Any:
        return x @ weights

    first_output = np.asarray(dense(X))
    weights *= 2  # what is around the function has changed: it is set anew
    return np.asarray(dense(X)) - first_output


def _run_dynamic_graph() -> Any:
    g = rlx.Graph("dense")
    g.set_outputs([g.input("x", (rlx.Dim("batch"), 2)) @ g.param("w", (2, 2))])
    compiled = rlx.Session("cpu").compile(g)
    compiled.set_param("w", W)
    return compiled.run({"x": X})[0]


@pytest.mark.parametrize(
    "call", [_run_loaded_graph, _run_traced_function, _run_dynamic_graph]
)
def test_blocking_calls_work_inside_event_loop(call: Callable[[], Any]) -> None:
    """Blocking calls, which also set weights, must not wait for the running loop."""

    async def notebook_cell() -> Any:
        return call()

    np.testing.assert_array_equal(asyncio.run(notebook_cell()), call())
