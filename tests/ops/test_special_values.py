"""Test NaN, infinity, zeros and the largest numbers: every engine gives what NumPy
gives.

Ops that bring values together are asked where the same shaders run anyway, in
test_agreement. Transforms are apart: a value that is not finite spreads over its row
there, and which bins become NaN and which infinite is the algorithm's own affair.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from tests.engines_under_test import Array, engine
from tests.ops.special_values import (
    FOLDABLE_EXPRESSIONS,
    INF,
    NAN,
    SPECIAL_VALUES,
    elementwise_graph,
    elementwise_op_names,
    foldable_graph,
    special_value_mismatch,
)
from tests.suite_tiers import thin_out_cases


@pytest.mark.parametrize("width", [0, 1], ids=["by fours", "one by one"])
@pytest.mark.parametrize("name", elementwise_op_names())
def test_elementwise_ops(name: str, width: int, adapter: AdapterRequest) -> None:
    """Every special value, and every pair of them, on the CPU and on the adapter."""
    graph, feeds = elementwise_graph(name, width)
    for runner in (engine(None), engine(adapter)):
        assert special_value_mismatch(graph, feeds, runner.run(graph, feeds)[0]) == ""


FLOAT16_EXPRESSIONS: dict[str, Any] = {
    "(x + y) - y": lambda g, x, y: (x + y) - y,
    "(x * y) / y": lambda g, x, y: (x * y) / y,
    "past its range": lambda g, x, y: g.cast(x * 2.0, "i32"),
    "chosen by it": lambda g, x, y: g.where(x + y > 65504.0, x, y),
    "to f16 and back": lambda g, x, y: g.cast(
        g.cast(g.cast(x, "f32") * 1.7, "f16"), "f32"
    ),
}


@pytest.mark.feature("f16")
@pytest.mark.parametrize("expression", FLOAT16_EXPRESSIONS)
def test_float16_is_rounded_within_fused_kernels(
    expression: str, adapter: AdapterRequest
) -> None:
    """Each intermediate value is a float16 as if stored, like NumPy's, subnormals
    included.
    """
    runner = engine(adapter)
    special_values = [
        0,
        1,
        -1,
        65504,
        -65504,
        3e4,
        6e-8,
        1e-5,
        2049,
        0.1,
        INF,
        -INF,
        NAN,
        -17,
    ]
    x, y = (a.ravel() for a in np.meshgrid(*[np.array(special_values, np.float16)] * 2))
    graph = Graph("halves")
    operands = [graph.input(name, x.size, "f16") for name in "xy"]
    graph.set_outputs([FLOAT16_EXPRESSIONS[expression](graph, *operands)])
    want, got = (e.run(graph, {"x": x, "y": y})[0] for e in (engine(None), runner))
    np.testing.assert_allclose(got, want, rtol=1e-3)


@pytest.mark.parametrize("to", ["i32", "u32", "bool", "f32"])
def test_casts(to: str, adapter: AdapterRequest) -> None:
    """Casts saturate; NaN becomes 0, and true."""
    graph = Graph("cast")
    graph.set_outputs([graph.cast(graph.input("x", SPECIAL_VALUES.size), to)])
    cpu, gpu = (engine(e).run(graph, {"x": SPECIAL_VALUES})[0] for e in (None, adapter))
    np.testing.assert_array_equal(gpu, cpu)


@pytest.mark.parametrize("y", [0.5, 2.0, -1.0, 0.0, INF, NAN])
def test_scalar_and_array_exponents_agree(y: float, adapter: AdapterRequest) -> None:
    """A power gives the same by one exponent and by an exponent for each element."""
    graph = Graph("pow")
    x = graph.input("x", SPECIAL_VALUES.size)
    exponents = graph.constant(np.full(SPECIAL_VALUES.size, y, np.float32))
    graph.set_outputs([graph.pow(x, y), graph.pow(x, exponents)])
    for runner in (engine(None), engine(adapter)):
        by_scalar, by_array = runner.run(graph, {"x": SPECIAL_VALUES})
        np.testing.assert_allclose(by_scalar, by_array, rtol=4e-6)


@pytest.mark.parametrize("kind", ["f4", "i4", "u4"])
def test_byte_swapped_constant(kind: str, adapter: AdapterRequest) -> None:
    """A byte-swapped constant is read by value, as a result, an operand and indices.

    It is a result, an operand, and indices.
    """
    values = np.array([1, 0, 2], np.dtype(kind).newbyteorder(">"))
    graph = Graph("swapped")
    x, constant = graph.input("x", 3), graph.constant(values)
    result = graph.gather(x, constant) if constant.dtype.is_integer else x * constant
    graph.set_outputs([constant, result])
    for runner in (engine(None), engine(adapter)):
        constant_output, got = runner.run(graph, {"x": np.array([5, 7, 0], np.float32)})
        np.testing.assert_array_equal(constant_output, [1, 0, 2])
        assert constant_output.dtype.isnative
        np.testing.assert_array_equal(got, [5, 0, 0] if kind == "f4" else [7, 5, 0])


@pytest.mark.parametrize("expression", FOLDABLE_EXPRESSIONS)
def test_drivers_do_not_simplify_expressions(
    expression: str, adapter: AdapterRequest
) -> None:
    """A shader compiler may take x - x for 0 and (x + a) - a for x; NumPy does not."""
    graph, feeds = foldable_graph(expression)
    assert (
        special_value_mismatch(graph, feeds, engine(adapter).run(graph, feeds)[0]) == ""
    )


@pytest.mark.parametrize("n", thin_out_cases([1, 2, 16, 15, 37, 64, 2048, 1009], 2))
@pytest.mark.parametrize("op", ["fft", "rfft", "irfft"])
def test_transforms_keep_nonfinite_values_in_their_rows(
    op: str, n: int, adapter: AdapterRequest
) -> None:
    """The other rows are what they would be; the row itself does not look finite."""
    width = {"fft": 2 * n, "rfft": n, "irfft": 2 * (n // 2 + 1)}[op]
    x = np.random.default_rng(n).normal(size=(6, width)).astype(np.float32)
    with_nonfinite = x.copy()
    with_nonfinite[1, 0], with_nonfinite[4, width // 4] = NAN, INF
    graph = Graph(op)
    attrs: dict[str, Any] = {"n": n} if op == "irfft" else {}
    graph.set_outputs([graph.apply(op, graph.input("x", x.shape), **attrs)])
    clean, got = (engine(adapter).run(graph, {"x": a})[0] for a in (x, with_nonfinite))
    rows = [0, 2, 3, 5]
    np.testing.assert_allclose(got[rows], clean[rows], atol=1e-4)
    assert not np.isfinite(got[[1, 4]]).all(axis=1).any()


def peaks_graph(x: Array, window: Array, k: int) -> Graph:
    graph = Graph("peaks")
    x_in, w_in = graph.input("x", x.shape), graph.input("w", window.shape)
    graph.set_outputs([graph.apply("welch_row_peaks", x_in, w_in, hop=32, k=k)])
    return graph


@pytest.mark.parametrize("k", [1, 4, 33])
def test_peaks_of_a_row_with_nan(k: int, adapter: AdapterRequest) -> None:
    """Such a row gives bins 0 … k - 1 with NaN power, as on the CPU; other rows are
    unaffected.
    """
    window = np.hanning(64).astype(np.float32)
    x = np.random.default_rng(k).normal(size=(3, 320)).astype(np.float32)
    with_nonfinite = x.copy()
    with_nonfinite[1, 100:160] = NAN
    graph = peaks_graph(x, window, k)
    cpu, runner = engine(None), engine(adapter)
    want, got = (
        e.run(graph, {"x": with_nonfinite, "w": window})[0] for e in (cpu, runner)
    )
    np.testing.assert_array_equal(got[1, ::2], np.arange(k))
    assert np.isnan(got[1, 1::2]).all()
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["gelu", "gelu_approx", "silu"])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_gated_activations_at_infinity(name: str, dtype: str) -> None:
    """A gate of -infinity is 0 and of infinity is infinity, never NaN."""
    graph = Graph(name)
    graph.set_outputs([graph.apply(name, graph.input("x", 4, dtype))])
    max_value = float(np.finfo(DType(dtype).numpy).max)
    x = np.array([-INF, -max_value, max_value, INF], DType(dtype).numpy)
    assert engine(None).run(graph, {"x": x})[0].tolist() == [0, 0, max_value, INF]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exclusive_cumsum_keeps_small_values(
    dtype: Any, adapter: AdapterRequest
) -> None:
    """Small values before a large one keep their digits; infinity affects only later
    sums.
    """
    x = np.array([0.1, 1e8, 0.1, 1e30, INF, 1.0], dtype)
    graph = Graph("sum")
    out = graph.cumsum(graph.input("x", x.shape, x.dtype), exclusive=True)
    graph.set_outputs([out])
    want = np.concatenate([[0], np.cumsum(x)[:-1]])
    np.testing.assert_array_equal(engine(None).run(graph, {"x": x})[0], want)
    if dtype is np.float32:
        np.testing.assert_array_equal(engine(adapter).run(graph, {"x": x})[0], want)


@pytest.mark.parametrize("shape", [(5,), (3, 40), (2, 5003)])
def test_nan_is_ranked_last(shape: tuple[int, ...], adapter: AdapterRequest) -> None:
    """NaN is ranked last by topk, on every engine and by each CPU implementation."""
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    x[..., 1] = NAN
    x[..., 3] = -INF
    n = shape[-1]
    graph = Graph("ranks")
    operand = graph.input("x", shape)
    graph.set_outputs([graph.topk(operand, min(n, 40))])
    want = np.argsort(-x, axis=-1, kind="stable")[..., : min(n, 40)]
    for runner in (engine(None), engine(None, variants=False), engine(adapter)):
        np.testing.assert_array_equal(runner.run(graph, {"x": x})[0], want)
    if n <= 40:
        assert (want[..., -1] == 1).all()
        assert (want[..., -2] == 3).all()


def test_angles_of_any_size(adapter: AdapterRequest) -> None:
    """Sine, cosine and tangent of angles of any size are right, near multiples of pi /
    2 as well.

    Few digits of the angle are left there.
    """
    rng = np.random.default_rng(3)
    any_size = rng.uniform(-1, 1, 4000) * 10.0 ** rng.uniform(3, 38, 4000)
    quarter_turns = np.arange(6_000, 9_000) * (np.pi / 2)
    x = np.concatenate([any_size, quarter_turns]).astype(np.float32)
    graph = Graph("angles")
    operand = graph.input("x", x.size)
    graph.set_outputs([graph.sin(operand), graph.cos(operand), graph.tan(operand)])
    sin, cos, tan = engine(adapter).run(graph, {"x": x})
    wide = x.astype(np.float64)
    np.testing.assert_allclose(sin, np.sin(wide), atol=2e-7)
    np.testing.assert_allclose(cos, np.cos(wide), atol=2e-7)
    np.testing.assert_allclose(tan, np.tan(wide), rtol=1e-4)
