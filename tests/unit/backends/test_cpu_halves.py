"""Float16 on the CPU by the ways of float32: rounded once, at the end."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends import cpu_halves
from rlxweb.backends.cpu import ROWS
from rlxweb.ir.op import registry
from rlxweb.smoke.case import plain

HALVES = [row for row in ROWS if row.name.endswith("of halves in float32")]


def test_what_has_ways_of_float32() -> None:
    assert {row.op for row in HALVES} >= {"conv", "lstm", "gru", "rnn"}


@pytest.mark.parametrize("row", HALVES, ids=lambda row: row.op)
def test_it_is_the_reference(row: Any) -> None:
    """The nearest halves of sums that were added up in another order."""
    op, rng, tried = registry.get(row.op), np.random.default_rng(4), 0
    for case in plain(op):
        graph = case.make().graph
        node = graph.node(graph.outputs[0])
        inputs = tuple(graph.node(i).type for i in node.inputs)
        if node.op != op.name or not row.takes(inputs, node.type, node.attrs):
            continue
        tried += 1
        arrays = [
            rng.uniform(-1, 1, one.shape).astype(one.dtype.numpy)
            if one.dtype.is_float
            else rng.integers(0, 3, one.shape).astype(one.dtype.numpy)
            for one in inputs
        ]
        found = row.of(inputs, node.type, node.attrs)(node.attrs, *arrays)
        want = op.reference(np, node.attrs, *arrays)
        assert (found.dtype, found.shape) == (np.float16, want.shape)
        np.testing.assert_allclose(
            found.astype(np.float32), want.astype(np.float32), 2e-3, 1e-3
        )
    assert tried or op.name == "matmul"  # whose samples are BLAS's


def test_a_product() -> None:
    rng, half = np.random.default_rng(4), np.float16
    x, y = rng.normal(size=(96, 200)).astype(half), rng.normal(size=(200, 80))
    g, y = rlx.Graph("product"), y.astype(half)
    a, b = g.input("a", x.shape, "f16"), g.input("b", y.shape, "f16")
    g.set_outputs([a @ b])
    (found,) = rlx.Session("cpu").compile(g).run({"a": x, "b": y})
    want = (x.astype(np.float64) @ y.astype(np.float64)).astype(half)
    assert found.dtype == half
    np.testing.assert_allclose(found, want, 2e-3, 1e-2)


@pytest.mark.requires_fast
@pytest.mark.parametrize("threaded", [False, True])
def test_conversions_are_numpys(
    threaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conversions of halves are NumPy's: of all there are and of floats around them."""
    monkeypatch.setenv("RLX_FAST", "wait")
    if threaded:
        monkeypatch.setattr(cpu_halves, "_THREADED", 0)
        monkeypatch.setattr(cpu_halves, "_SHARE", 100)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = cpu_halves.converted(every, np.float32)
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    between = np.nextafter(wide[:-1], wide[1:])[np.isfinite(wide[:-1])]
    middle = (wide[:0x7BFF] + wide[1:0x7C00]) / 2
    rng = np.random.default_rng(5)
    drawn = rng.integers(0, 1 << 32, 100_003, dtype=np.uint32).view(np.float32)
    for given in (between, middle, -middle, drawn, wide[::3], wide[:1], wide[:0]):
        with np.errstate(all="ignore"):
            want = given.astype(np.float16)
        np.testing.assert_array_equal(cpu_halves.converted(given, np.float16), want)


@pytest.mark.requires_fast
def test_weights_are_widened_once_until_they_are_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")
    rng, half = np.random.default_rng(4), np.float16
    x = rng.normal(size=(40, 96)).astype(half)
    g = rlx.Graph("product")
    g.set_outputs([g.input("x", x.shape, "f16") @ g.param("w", (96, 128), "f16")])
    model, before = rlx.Session("cpu").compile(g), len(cpu_halves.WIDE)
    for _ in range(2):
        w = rng.normal(size=(96, 128)).astype(half)
        model.set_param("w", w)
        for _ in range(4):
            (found,) = model.run({"x": x})
            want = x.astype(np.float64) @ w.astype(np.float64)
            np.testing.assert_allclose(found, want, 2e-3, 1e-2)
        assert len(cpu_halves.WIDE) == before + 1
        gc.collect()
