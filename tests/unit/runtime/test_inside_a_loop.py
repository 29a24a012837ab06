"""Blocking calls where an event loop runs, as in every cell of a notebook."""

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


def _of_a_file() -> Any:
    file = BytesIO()
    _graph().save(file, {"w": W}, outputs=["y"])
    return rlx.load(file.getvalue()).run({"x": X}, device="cpu")["y"]


def _traced() -> Any:
    weights = W.copy()

    @rlx.function(device="cpu")
    def dense(x: Any) -> Any:
        return x @ weights

    first = np.asarray(dense(X))
    weights *= 2  # what is around the function has changed: it is set anew
    return np.asarray(dense(X)) - first


def _of_any_batch() -> Any:
    g = rlx.Graph("dense")
    g.set_outputs([g.input("x", (rlx.Dim("batch"), 2)) @ g.param("w", (2, 2))])
    compiled = rlx.Session("cpu").compile(g)
    compiled.set_param("w", W)
    return compiled.run({"x": X})[0]


@pytest.mark.parametrize("call", [_of_a_file, _traced, _of_any_batch])
def test_they_answer_as_without_one(call: Callable[[], Any]) -> None:
    """Weights are set on the way: that must not wait for the loop either."""

    async def cell() -> Any:
        return call()

    np.testing.assert_array_equal(asyncio.run(cell()), call())
