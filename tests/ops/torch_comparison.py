"""Graphs that are run on the CPU and compared with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlxweb as rlx
from rlxweb.ir.tensor import Tensor
from tests.engines_under_test import Array


def random_array(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def run_on_cpu(build: Callable[..., Tensor], *arrays: Array) -> Array:
    """Return the output of a graph with the arrays as inputs, on the CPU."""
    g = rlx.Graph("one")
    operands = [g.input(f"x{i}", a.shape, str(a.dtype)) for i, a in enumerate(arrays)]
    g.set_outputs([build(g, *operands)])
    compiled = rlx.Session("cpu").compile(g)
    return compiled.run({f"x{i}": a for i, a in enumerate(arrays)})[0]


def assert_close_to_torch(got: Array, want: Any) -> None:
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)
