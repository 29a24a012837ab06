"""Compiled softmax and norms give NumPy's numbers for rows of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object, host_cpu
from rlxweb.engines.cpu import CpuEngine
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ops.norm.cpu import native as cpu_native_softmax_norms
from rlxweb.ops.norm.cpu.llvm import row_normalization_llvm_ir
from rlxweb.ops.norm.cpu.native import (
    KERNELS,
    OPS,
    softmax_norm_kernels,
)
from tests.kernel_tables import direct_function

pytestmark = pytest.mark.requires_fast


@pytest.fixture(autouse=True)
def _wait_for_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def op_inputs(op: str, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the op's inputs for x: a norm also takes a scale and a bias."""
    rng = np.random.default_rng(x.shape[-1])
    if op == "softmax":
        return (x,)
    return x, *rng.standard_normal((2, x.shape[-1]), np.float32)


def check_rows(op: str, x: np.ndarray, got: np.ndarray, attrs: dict[str, Any]) -> None:
    """Compare with the reference in float64, within the op's tolerance."""
    op_record = registry.get(op)
    wide = [array.astype(np.float64) for array in op_inputs(op, x)]
    with np.errstate(all="ignore"):
        want = op_record.reference(np, {"eps": 1e-5, **attrs}, *wide)
    finite = np.abs(want[np.isfinite(want)])
    peak = max(1.0, float(finite.max(initial=0.0)))
    tolerance = op_record.tolerance
    atol = tolerance.atol * (peak if tolerance.relative_to_peak else 1.0)
    np.testing.assert_allclose(got, want, tolerance.rtol, atol)


@given(
    op=st.sampled_from(OPS),
    shape=st.sampled_from(
        [(3000, 1), (400, 7), (130, 16), (70, 31), (2, 1023), (5, 3, 200), (40_000,)]
    ),
    around=st.sampled_from([0.0, 200.0, -1e4]),
    size=st.sampled_from([1e-3, 1.0, 80.0]),
    odd=st.sampled_from([None, np.nan, np.inf, -np.inf]),
)
@settings(max_examples=60)
def test_rows_match_numpy(
    op: str, shape: tuple[int, ...], around: float, size: float, odd: float | None
) -> None:
    """Short rows, long rows, rows far from zero and rows with non-finite values match
    NumPy.
    """
    x = np.random.default_rng(0).standard_normal(shape) * size + around
    x = x.astype(np.float32)
    if odd is not None:
        x.reshape(-1)[shape[-1] // 2] = odd
    run = next(direct_function(row) for row in KERNELS if row.op == op)
    check_rows(op, x, run({"axis": -1, "eps": 1e-5}, *op_inputs(op, x)), {"axis": -1})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_every_vector_width(
    op: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if nbytes > host_cpu().vector_nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
    kernel = cpu_native_softmax_norms.exported_kernel(
        LoadedCode(compile_object(row_normalization_llvm_ir(op, nbytes)))
    )
    monkeypatch.setattr(softmax_norm_kernels, "get_kernel", lambda about: kernel)
    x = np.random.default_rng(1).standard_normal((37, 203)).astype(np.float32)
    run = next(direct_function(row) for row in KERNELS if row.op == op)
    check_rows(op, x, run({"axis": -1, "eps": 1e-5}, *op_inputs(op, x)), {"axis": -1})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("shape", "axis"), [((64, 64), -1), ((64, 64), 0), ((3, 5), 1)]
)
def test_softmax_and_norms_in_a_graph(
    op: str, shape: tuple[int, ...], axis: int
) -> None:
    """Other axes and short rows use the reference, transposed arrays either variant."""
    x = np.asfortranarray(np.random.default_rng(2).standard_normal(shape), np.float32)
    graph = Graph("lines")
    feeds = dict(zip("xyz", op_inputs(op, x), strict=False))
    inputs = [graph.input(name, array.shape) for name, array in feeds.items()]
    graph.set_outputs([graph.apply(op, *inputs, axis=axis)])
    got = rlx.Session("cpu").compile(graph).run(feeds)[0]
    check_rows(op, x, got, {"axis": axis})


def test_reference_runs_where_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reference runs with RLX_FAST=off, and until background code is compiled."""
    x = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
    op_record, types = registry.get("softmax"), None
    graph = Graph("one")
    output = graph.softmax(graph.input("x", x.shape))
    types = (graph.node(output.id).type,)
    arguments = op_record, types, types[0], {"axis": -1}
    assert "softmax, compiled" in CpuEngine().variants_for(*arguments)
    monkeypatch.setenv("RLX_FAST", "off")
    assert "softmax, compiled" not in CpuEngine().variants_for(*arguments)
    monkeypatch.setenv("RLX_FAST", "background")
    softmax_norm_kernels._kernels.clear()
    got = direct_function(KERNELS[0])({"axis": -1}, x)
    assert softmax_norm_kernels.missing_reason("softmax")
    check_rows("softmax", x, got, {"axis": -1})
