"""Check compiled graphs applied to Dask arrays: rows are proved independent, or the
graph is refused.

What is proved is held to by computing: whatever rows come into one chunk, each gives
what it gives alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
import rlxweb.dask as rd
from rlxweb.batch.cluster import graph_tasks
from rlxweb.core.errors import (
    DTypeError,
    GraphError,
    InputError,
    ShapeError,
    UnknownName,
    UsageError,
)
from rlxweb.ir.op import registry

ROWS = 4
X = np.random.default_rng(5).standard_normal((10, 6)).astype(np.float32)
W = np.random.default_rng(6).standard_normal((6, 3)).astype(np.float32)
LAZY = da.from_array(X, chunks=(4, -1))

BuildOutputs = Callable[[rlx.Graph, rlx.Tensor], Any]


def build_row_graph(
    build: BuildOutputs, rows: int = ROWS, *row_shape: int
) -> rlx.Graph:
    g = rlx.Graph("rows")
    x = g.input("x", (rows, *(row_shape or (6,))))
    g.set_outputs([build(g, x)])
    return g


def weighted_graph(rows: int) -> rlx.Graph:
    g = rlx.Graph("weighted")
    x, w = g.input("x", (rows, 6)), g.param("w", (6, 3))
    g.set_outputs([g.relu(x @ w), g.sum(x, [1])])
    return g


ROW_INDEPENDENT: dict[str, BuildOutputs] = {
    "elementwise": lambda g, x: g.exp(x) * 2.0 + g.abs(x),
    "a row for all": lambda g, x: x + g.constant(np.arange(6, dtype=np.float32)),
    "softmax of a row": lambda g, x: g.softmax(x, axis=-1),
    "where its largest is": lambda g, x: g.argmax(x, 1) + g.argmin(x.T, 0),
    "its logarithms": lambda g, x: g.log_softmax(x, 1),
    "sums and means": lambda g, x: x - g.mean(x, [1], keep_dim=True),
    "running sum": lambda g, x: g.cumsum(x, axis=1),
    "layer norm": lambda g, x: g.layer_norm(
        x, g.constant(np.ones(6, np.float32)), g.constant(np.zeros(6, np.float32))
    ),
    "there and back": lambda g, x: g.transpose(
        g.relu(g.transpose(g.reshape(x, (-1, 2, 3)), (2, 0, 1))), (1, 2, 0)
    ),
    "a matrix from the left": lambda g, x: g.transpose(
        g.constant(W.T.copy()) @ g.transpose(x, (1, 0)), (1, 0)
    ),
    "a product each": lambda g, x: g.reshape(x, (-1, 2, 3)) @ g.reshape(x, (-1, 3, 2)),
    "part of a row": lambda g, x: g.concat(
        [g.narrow(x, 1, 2, 3), g.narrow(x, 1, 0, 1)], axis=1
    ),
    "transform": lambda g, x: g.rfft(x)[0],
    "largest": lambda g, x: g.topk(x, 2),
    "sorted": lambda g, x: g.sort(x, descending=True),
    "every second, backwards": lambda g, x: g.pad(x[:, ::-2], ((0, 0), (1, 2))),
    "what says how to differentiate": lambda g, x: (
        g.apply("again", g.segment_out(g.exp(g.segment_in(g.identity(x), 0)), 0))
        * g.stop_gradient(x)
    ),
    "again and again": lambda g, x: g.repeat(g.tile(x, (1, 2)), 2, axis=1),
    "windows of a row": lambda g, x: g.sum(g.windows(g.roll(x, 1, 1), 3), [2]),
    "a convolution": lambda g, x: g.max_pool(
        g.conv(
            g.reshape(x, (-1, 1, 6)), g.constant(W[None, None, :, 0].copy()), padding=3
        ),
        2,
    ),
    "in whole numbers": lambda g, x: g.matmul_integer(
        g.quantize_linear(x, np.full(6, 0.02, np.float32), np.full(6, 9, np.uint8)),
        g.constant((W * 50).astype(np.int8)),
        9,
    ),
}
ROW_MIXING: dict[str, tuple[BuildOutputs, str]] = {
    "sum of rows": (lambda g, x: g.sum(x, [0], keep_dim=True) + x, "op 'sum'"),
    "mean of all": (lambda g, x: x - g.mean(x, [0, 1], keep_dim=True), "it reduces"),
    "softmax of rows": (lambda g, x: g.softmax(x, axis=0), "op 'softmax'"),
    "the largest row": (lambda g, x: g.argmax(x, 0), "operates along the row axis"),
    "running sum of rows": (
        lambda g, x: g.cumsum(x, axis=0),
        "operates along the row axis",
    ),
    "products of rows": (lambda g, x: x @ g.transpose(x, (1, 0)), "op 'matmul'"),
    "rows summed up by a product": (
        lambda g, x: g.transpose(x, (1, 0)) @ x,
        "it sums over the row axis",
    ),
    "weights of rows": (
        lambda g, x: g.constant(np.ones((6, ROWS), np.float32)) @ x,
        "it sums over the row axis",
    ),
    "laid out anew": (lambda g, x: g.reshape(x, (6, ROWS)), "reshapes the row axis"),
    "two rows in one": (lambda g, x: g.reshape(x, (2, 12)), "reshapes the row axis"),
    "moved": (lambda g, x: g.roll(x, 1, 0), "it moves elements along the row axis"),
    "repeated": (lambda g, x: g.tile(x, (2, 1)), "it repeats rows"),
    "as channels": (
        lambda g, x: g.max_pool(g.reshape(x, (1, ROWS, 6)), 2),
        "the rows must be the images of a batch",
    ),
    "cut": (lambda g, x: g.narrow(x, 0, 0, 2), "it slices the row axis"),
    "joined": (
        lambda g, x: g.concat([x, x], axis=0),
        "it concatenates along the row axis",
    ),
    "a value for each row": (
        lambda g, x: x * g.constant(np.ones((ROWS, 1), np.float32)),
        "has different values for each row",
    ),
    "a scale for each row": (
        lambda g, x: g.quantize_linear(x, np.ones(ROWS, np.float32), axis=0),
        "has a different value for each row",
    ),
    "crossed": (
        lambda g, x: g.expand(g.reshape(x, (ROWS, 1, 6)), (ROWS, ROWS, 6)) + x,
        "its operands have rows on axes [0, 1]",
    ),
    "gathered": (
        lambda g, x: g.gather(x, g.constant(np.zeros(ROWS, np.int32))),
        "row independence is not known for this op",
    ),
    "turned over": (lambda g, x: g.transpose(x, (1, 0)), "has rows on axis 1"),
    "no rows": (
        lambda g, x: g.relu(g.constant(np.ones((ROWS, 2), np.float32))),
        "has no rows",
    ),
}


@pytest.mark.parametrize("name", ROW_MIXING)
def test_graphs_that_mix_rows_are_refused(name: str) -> None:
    build, message = ROW_MIXING[name]
    with pytest.raises(GraphError) as error_info:
        rd.run(build_row_graph(build), {"x": LAZY})
    assert message in str(error_info.value)


def test_an_op_without_a_rule_is_refused() -> None:
    """Ops without a rule are refused; this is their present list."""
    from rlxweb.batch.cluster.row_independence import _RULES

    unknown = {
        op.name
        for op in registry
        if op.name not in _RULES
        and not op.has_trait("elementwise")
        and not op.has_trait("leaf")
    }
    assert unknown == {
        *("attention", "log_mel", "log_mel_backward", "welch_peaks"),
        *("gather", "gather_elements", "gather_nd", "grid_sample"),
        *("scatter_elements", "scatter_nd"),
        *("lstm", "gru", "rnn", "linear_scan", "linear_recurrence"),
        *("rope", "glu", "lora_matmul", "grouped_matmul", "selective_scan"),
        "quantized_matmul",
        *("solve", "det", "slogdet", "solve_triangular", "cholesky", "add_norm"),
        *("nonzero", "non_max_suppression", "searchsorted", "roi_align"),
        "deform_conv",
    }


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(ROW_INDEPENDENT)),
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.booleans(),
)
def test_rows_are_independent_of_their_chunk(
    name: str, sizes: list[int], by_function: bool
) -> None:
    """Every row gives the same result alone and in any chunk.

    Groups may be filled up or graphs made for them.
    """
    n = sum(sizes)
    x = np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32)
    lazy = da.from_array(x, chunks=(tuple(sizes), -1))
    build = ROW_INDEPENDENT[name]
    single_row_graph = rlx.Session("cpu").compile(build_row_graph(build, 1))
    graph: Any = build_row_graph(build)
    if by_function:
        graph = partial(build_row_graph, build)
    (out,) = rd.run(graph, {"x": lazy}, device="cpu")
    result = out.compute(scheduler="synchronous")
    assert (out.shape, out.dtype) == (result.shape, result.dtype)
    for row in range(n):
        (want,) = single_row_graph.run({"x": x[row : row + 1]})
        np.testing.assert_allclose(result[row], want[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "graph", [weighted_graph(4), weighted_graph(3), weighted_graph]
)
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_outputs_match_the_compiled_graph(
    graph: Any, scheduler: str, request: pytest.FixtureRequest
) -> None:
    """Outputs match the compiled graph, to the bit for chunks of its number of rows."""
    compute_options = {"scheduler": scheduler}
    if scheduler == "processes":
        compute_options = request.getfixturevalue("by_process")
    outs = rd.run(graph, {"x": LAZY}, params={"w": W}, device="cpu")
    (product, sums), decisions = dask.compute(
        outs, rd.decisions(outs), **compute_options
    )
    compiled = rlx.Session("cpu").compile(weighted_graph(4))
    compiled.set_param("w", W)
    first, second = compiled.run({"x": X[:4]})
    is_exact = callable(graph) or graph.named("input")["x"].type.shape[0] == 4
    np.testing.assert_allclose(product[:4], first, rtol=0 if is_exact else 1e-5)
    np.testing.assert_allclose(sums[:4], second, rtol=0 if is_exact else 1e-5)
    np.testing.assert_allclose(product, np.maximum(X @ W, 0), rtol=1e-4, atol=1e-6)
    assert (decisions[0].rows, decisions[0].tasks) == (10, 3)


def test_a_process_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process compiles a graph once, however many chunks and calls there are.

    Params are sent as one node of the graph.
    """
    compiled: list[str] = []
    session = graph_tasks.Session

    class CountingSession(session):  # type: ignore[misc,valid-type]
        def compile(self, graph: rlx.Graph, inputs: Any = None) -> Any:
            compiled.append(graph.name)
            return super().compile(graph, inputs)

    monkeypatch.setattr(graph_tasks, "Session", CountingSession)
    graph_tasks._compiled_graphs.clear()
    for _ in range(2):
        outs = rd.run(weighted_graph(2), {"x": LAZY}, params={"w": W}, device="cpu")
        dask.compute(outs, scheduler="threads")
    assert compiled == ["weighted"]
    (changed, _) = rd.run(
        weighted_graph(2), {"x": LAZY}, params={"w": W + 1}, device="cpu"
    )
    np.testing.assert_allclose(
        changed.compute(scheduler="threads"), np.maximum(X @ (W + 1), 0), rtol=1e-4
    )
    assert len(compiled) == 2
    assert len({str(k) for k in changed.dask if str(k).startswith("rlxweb-call")}) == 1


def test_shared_inputs_and_several_inputs_with_rows() -> None:
    g = rlx.Graph("two")
    x, y, z = g.input("x", (2, 6)), g.input("y", (2,)), g.input("z", (6,))
    g.set_outputs([x * z + g.reshape(y, (2, 1))])
    y_rows, shared_z = np.arange(10, dtype=np.float32), X[0]
    inputs = {"x": LAZY, "y": da.from_array(y_rows, chunks=4), "z": shared_z}
    (out,) = rd.run(g, inputs, device="cpu")
    np.testing.assert_allclose(out, X * shared_z + y_rows[:, None], rtol=1e-6)


def _two_input_graph(rows: int) -> rlx.Graph:
    g = rlx.Graph("two")
    g.set_outputs([g.input("x", (rows, 6)) + g.input("y", (rows, 6))])
    return g


def _run_arguments(**changes: Any) -> dict[str, Any]:
    return {
        "graph": weighted_graph(4),
        "inputs": {"x": LAZY},
        "params": {"w": W},
    } | changes


REFUSED_ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "rows that are cut": (
        _run_arguments(inputs={"x": LAZY.rechunk((4, 3))}),
        UsageError,
        "x.rechunk({1: -1})",
    ),
    "another dtype": (
        _run_arguments(inputs={"x": LAZY.astype("f8")}),
        DTypeError,
        "x.astype('float32')",
    ),
    "longer rows": (
        _run_arguments(inputs={"x": da.zeros((4, 7), dtype="f4")}),
        ShapeError,
        "has shape [7]; the graph declares [6]",
    ),
    "no such input": (_run_arguments(inputs={"y": LAZY}), UnknownName, "no input 'y'"),
    "an input too few": (
        _run_arguments(graph=_two_input_graph),
        InputError,
        "input 'y' was not given; 1 of 2 inputs given",
    ),
    "an input too many": (
        _run_arguments(inputs={"x": LAZY, "y": W}),
        UnknownName,
        "no input 'y'",
    ),
    "no dask.array": (
        _run_arguments(inputs={"x": X}),
        InputError,
        "no input is a dask.array",
    ),
    "no param": (_run_arguments(params=None), InputError, "param 'w' has no value"),
    "no such param": (
        _run_arguments(params={"w": W, "v": W}),
        UnknownName,
        "no param 'v'",
    ),
    "a param of another shape": (
        _run_arguments(params={"w": W.T}),
        ShapeError,
        "param 'w'",
    ),
    "no graph": (_run_arguments(graph=3), GraphError, "a Graph, or a function"),
    "a function of something else": (
        _run_arguments(graph=lambda rows: rows),
        GraphError,
        "the function returned 2 for 2 rows",
    ),
    "a function that gives other rows": (
        _run_arguments(graph=lambda rows: weighted_graph(7)),
        GraphError,
        "'weighted', whose inputs have 7 rows; the function was called for 2 rows",
    ),
}


@pytest.mark.parametrize("name", REFUSED_ARGUMENTS)
def test_invalid_arguments_are_refused_at_once(name: str) -> None:
    arguments, error_type, message = REFUSED_ARGUMENTS[name]
    with pytest.raises(error_type) as error_info:
        rd.run(**arguments)
    assert message in str(error_info.value)


def test_differently_chunked_inputs_get_rechunk_advice() -> None:
    with pytest.raises(UsageError, match=r"y\.rechunk\(\{0: x\.chunks\[0\]\}\)"):
        rd.run(_two_input_graph(2), {"x": LAZY, "y": LAZY.rechunk((5, -1))})
