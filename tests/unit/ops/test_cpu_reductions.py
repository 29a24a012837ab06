"""Compiled reductions give NumPy's numbers along any axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object, host_cpu
from rlxweb.ir.op import registry
from rlxweb.ops.reduce.cpu import native as cpu_native_reductions
from rlxweb.ops.reduce.cpu.llvm import REDUCTION_OPS, axis_reduction_llvm_ir
from rlxweb.ops.reduce.cpu.native import (
    KERNELS,
    ReductionAxes,
    reduction_axes,
    reduction_kernels,
)
from tests.kernel_tables import direct_function

pytestmark = pytest.mark.requires_fast
OPS = ("sum", "mean", "max", "min", "prod")


@pytest.fixture(autouse=True)
def _wait_for_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_FAST", "wait")


def compiled_function(op: str) -> Any:
    return next(direct_function(row) for row in KERNELS if row.op == op)


def check_reduction(
    op: str, attrs: dict[str, Any], x: np.ndarray, got: np.ndarray
) -> None:
    op_record = registry.get(op)
    with np.errstate(all="ignore"):
        want = op_record.reference(np, attrs, x.astype(np.float64))
    assert got.dtype == np.float32
    assert got.shape == want.shape
    peak = np.abs(want[np.isfinite(want)]).max(initial=1.0)
    with np.errstate(all="ignore"):
        want = want.astype(np.float32)
    np.testing.assert_allclose(got, want, 1e-5, 3e-6 * peak)


@pytest.mark.parametrize(
    ("shape", "reduced", "axes"),
    [
        ((4, 7), (1,), ReductionAxes(4, 7, 1)),
        ((4, 7), (0,), ReductionAxes(1, 4, 7)),
        ((4, 1, 7), (0, 1), ReductionAxes(1, 4, 7)),
        ((2, 3, 4, 5), (1, 2), ReductionAxes(2, 12, 5)),
        ((2, 3, 4, 5), (2, 3), ReductionAxes(6, 20, 1)),
        ((2, 3), (0, 1), ReductionAxes(1, 6, 1)),
        ((2, 3, 4), (0, 2), None),
        ((1, 1), (0,), None),
    ],
)
def test_axes_merge_into_three(shape: Any, reduced: Any, axes: Any) -> None:
    assert reduction_axes(shape, reduced) == axes


@given(
    op=st.sampled_from(OPS),
    case=st.sampled_from(
        [
            ((300, 16), (1,)),
            ((40, 203), (1,)),
            ((2, 5000), (1,)),
            ((8, 16), (0,)),
            ((203, 45), (0,)),
            ((3, 33, 70), (1,)),
            ((3, 33, 70), (1, 2)),
            ((9, 5001), (0,)),
            ((4097,), (0,)),
        ]
    ),
    keep=st.booleans(),
    odd=st.sampled_from([None, np.nan, np.inf, -np.inf]),
    seed=st.integers(0, 5),
)
@settings(max_examples=80)
def test_reductions_match_numpy(
    op: str, case: Any, keep: bool, odd: float | None, seed: int
) -> None:
    """Reductions match NumPy for any length, and with non-finite values anywhere."""
    shape, axes = case
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.9, 1.1, shape).astype(np.float32)
    if op in ("max", "min"):
        x = -x
    if odd is not None:
        x.reshape(-1)[rng.integers(x.size)] = odd
    attrs = {"axes": axes, "keep_dim": keep}
    check_reduction(op, attrs, x, compiled_function(op)(attrs, x))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("shape", "axes"), [((1 << 18,), (0,)), ((3, 1 << 16), (1,)), ((70, 4096), (0,))]
)
def test_threads_share_rows_and_columns(
    op: str, shape: Any, axes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_native_reductions, "_MIN_THREADED_ELEMENTS", 1 << 14)
    monkeypatch.setattr(cpu_native_reductions, "_SPLIT_ELEMENTS", 1 << 16)
    rng = np.random.default_rng(1)
    x = (1 + 1e-4 * rng.standard_normal(shape)).astype(np.float32)
    attrs = {"axes": axes, "keep_dim": False}
    check_reduction(op, attrs, x, compiled_function(op)(attrs, x))


@pytest.mark.parametrize("fold", REDUCTION_OPS)
@pytest.mark.parametrize("along_rows", [True, False])
@pytest.mark.parametrize("nbytes", [16, 32, 64])
def test_every_vector_width(
    fold: str, along_rows: bool, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if nbytes > host_cpu().vector_nbytes:
        pytest.skip(f"this processor has no vectors of {nbytes} bytes")
    code = LoadedCode(compile_object(axis_reduction_llvm_ir(fold, along_rows, nbytes)))
    kernel = cpu_native_reductions.exported_kernel(code)
    monkeypatch.setattr(reduction_kernels, "get_kernel", lambda about: kernel)
    x = np.random.default_rng(2).uniform(0.9, 1.1, (61, 83)).astype(np.float32)
    for has_nan in (False, True):
        x[40, 50] = np.nan if has_nan else 1.0
        attrs = {"axes": (1,) if along_rows else (0,), "keep_dim": False}
        check_reduction(fold, attrs, x, compiled_function(fold)(attrs, x))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(128, 128), (4, 5000), (5000, 4), (3, 5)])
def test_reductions_in_a_graph(axis: int, shape: tuple[int, int]) -> None:
    """A reduction in a graph is right for small, short and transposed arrays."""
    x = np.asfortranarray(np.random.default_rng(3).standard_normal(shape), np.float32)
    graph = rlx.Graph("sums")
    x_input = graph.input("x", shape)
    names = ("sum", "mean", "max", "min")
    graph.set_outputs([getattr(graph, name)(x_input, (axis,)) for name in names])
    outputs = rlx.Session("cpu").compile(graph).run({"x": x})
    for name, got in zip(names, outputs, strict=True):
        check_reduction(name, {"axes": (axis,), "keep_dim": False}, x, got)


@pytest.mark.parametrize("op", OPS)
def test_numpy_runs_until_code_is_compiled(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_FAST", "background")
    reduction_kernels._kernels.clear()
    x = np.random.default_rng(4).uniform(0.99, 1.01, (600, 600)).astype(np.float32)
    attrs = {"axes": (1,), "keep_dim": False}
    check_reduction(op, attrs, x, compiled_function(op)(attrs, x))
