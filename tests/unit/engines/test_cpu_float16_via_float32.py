"""Float16 on the CPU, computed in float32 and rounded once, at the end."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.engines import cpu_float16_via_float32
from rlxweb.engines.cpu import CPU_VARIANTS
from rlxweb.ir.op import registry
from rlxweb.smoke.case import sample_cases

FLOAT16_VARIANTS = [
    row for row in CPU_VARIANTS if row.name.endswith("of halves in float32")
]


def test_ops_with_float32_variants() -> None:
    assert {row.op for row in FLOAT16_VARIANTS} >= {"conv", "lstm", "gru", "rnn"}


@pytest.mark.parametrize("row", FLOAT16_VARIANTS, ids=lambda row: row.op)
def test_float16_variants_match_the_reference(row: Any) -> None:
    """Results are the nearest float16 of sums that were added in another order."""
    op, rng, case_count = registry.get(row.op), np.random.default_rng(4), 0
    for case in sample_cases(op):
        graph = case.prepare().graph
        node = graph.node(graph.outputs[0])
        inputs = tuple(graph.node(i).type for i in node.inputs)
        if node.op != op.name or not row.can_run(inputs, node.type, node.attrs):
            continue
        case_count += 1
        arrays = [
            rng.uniform(-1, 1, tensor_type.shape).astype(tensor_type.dtype.numpy)
            if tensor_type.dtype.is_float
            else rng.integers(0, 3, tensor_type.shape).astype(tensor_type.dtype.numpy)
            for tensor_type in inputs
        ]
        got = row.build(inputs, node.type, node.attrs)(node.attrs, *arrays)
        want = op.reference(np, node.attrs, *arrays)
        assert (got.dtype, got.shape) == (np.float16, want.shape)
        np.testing.assert_allclose(
            got.astype(np.float32), want.astype(np.float32), 2e-3, 1e-3
        )
    assert case_count or op.name == "matmul"  # whose samples are BLAS's


def test_float16_matmul() -> None:
    rng, half = np.random.default_rng(4), np.float16
    x, y = rng.normal(size=(96, 200)).astype(half), rng.normal(size=(200, 80))
    g, y = rlx.Graph("product"), y.astype(half)
    a, b = g.input("a", x.shape, "f16"), g.input("b", y.shape, "f16")
    g.set_outputs([a @ b])
    (got,) = rlx.Session("cpu").compile(g).run({"a": x, "b": y})
    want = (x.astype(np.float64) @ y.astype(np.float64)).astype(half)
    assert got.dtype == half
    np.testing.assert_allclose(got, want, 2e-3, 1e-2)


@pytest.mark.requires_fast
@pytest.mark.parametrize("threaded", [False, True])
def test_float16_conversions_match_numpy(
    threaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conversions match NumPy's for every float16 and for the float32 around them."""
    monkeypatch.setenv("RLX_FAST", "wait")
    if threaded:
        monkeypatch.setattr(cpu_float16_via_float32, "_MIN_THREADED_ELEMENTS", 0)
        monkeypatch.setattr(cpu_float16_via_float32, "_MIN_TASK_ELEMENTS", 100)
    all_float16 = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = cpu_float16_via_float32.convert_floats(all_float16, np.float32)
    np.testing.assert_array_equal(wide, all_float16.astype(np.float32))
    between = np.nextafter(wide[:-1], wide[1:])[np.isfinite(wide[:-1])]
    middle = (wide[:0x7BFF] + wide[1:0x7C00]) / 2
    rng = np.random.default_rng(5)
    random_floats = rng.integers(0, 1 << 32, 100_003, dtype=np.uint32).view(np.float32)
    for values in (
        between,
        middle,
        -middle,
        random_floats,
        wide[::3],
        wide[:1],
        wide[:0],
    ):
        with np.errstate(all="ignore"):
            want = values.astype(np.float16)
        np.testing.assert_array_equal(
            cpu_float16_via_float32.convert_floats(values, np.float16), want
        )


@pytest.mark.requires_fast
def test_weights_are_widened_once_per_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")
    rng, half = np.random.default_rng(4), np.float16
    x = rng.normal(size=(40, 96)).astype(half)
    g = rlx.Graph("product")
    g.set_outputs([g.input("x", x.shape, "f16") @ g.param("w", (96, 128), "f16")])
    model = rlx.Session("cpu").compile(g)
    before = len(cpu_float16_via_float32.WIDENED_WEIGHTS)
    for _ in range(2):
        w = rng.normal(size=(96, 128)).astype(half)
        model.set_param("w", w)
        for _ in range(4):
            (got,) = model.run({"x": x})
            want = x.astype(np.float64) @ w.astype(np.float64)
            np.testing.assert_allclose(got, want, 2e-3, 1e-2)
        assert len(cpu_float16_via_float32.WIDENED_WEIGHTS) == before + 1
        gc.collect()
