"""Compiled elementwise regions match the ops' references, at any vector width and
shape.
"""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.codegen import jit_cache
from rlxweb.codegen.elementwise_llvm import VALUE_KINDS, region_text
from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object, host_cpu
from rlxweb.codegen.native_calls import array_address
from rlxweb.codegen.native_elementwise import (
    compilable_region,
    region_kernels,
    region_row_layout,
)
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import Unsupported
from rlxweb.engines.cpu import CpuEngine
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample

EDGE_VALUES = np.array(
    """0 -0 1 -1 inf -inf nan 1e-40 -1e-40 1.2e-38 3e38 -3e38 0.5 -0.5 2.5 -3.5
    88.7 -87.4 -103.9 100 1e4 1e6 7.5e8 -1e9 16777216""".split(),
    np.float32,
)
LEFT_TO_NUMPY = {("div", "i32"), ("div", "u32"), ("pow", "f32")} | {
    (name, kind)
    for name in ("mod", "fmod", "floor_divide")
    for kind in ("f32", "f16", "i32", "u32")
}


def elementwise_samples() -> list[Any]:
    """Return every elementwise op with each of its combinations of operand dtypes
    once.
    """
    params: dict[tuple[str, ...], Any] = {}
    for op in registry:
        for sample in op.samples if isinstance(op.lower, Expr) else ():
            kinds = [operand.dtype for operand in sample.inputs]
            output_dtype = sample.attrs.get("to", DType.F32)
            if not {output_dtype, *kinds} <= set(VALUE_KINDS):
                continue
            attrs = {n: v.label if n == "to" else v for n, v in sample.attrs.items()}
            name = (op.name, *(k.label for k in kinds), *map(str, attrs.values()))
            params.setdefault(name, pytest.param(op, sample, id="-".join(name)))
    return list(params.values())


def samples_with_vector_widths() -> list[Any]:
    """Return the samples, each with a flag: is it also computed in short vectors?

    An op is computed alike in all kinds of floats, and kinds are read and written alike
    for all ops: short vectors are for the first of each.
    """
    seen_features: set[Any] = set()
    params = []
    for case in elementwise_samples():
        op, sample = case.values
        kinds = [operand.dtype for operand in sample.inputs]
        output_dtype = sample.attrs.get("to", DType.F32)
        features = {op.name, (*kinds, output_dtype)}
        features |= {(op.name, k) for k in kinds if k not in (DType.F32, DType.F16)}
        params.append(
            pytest.param(op, sample, not features <= seen_features, id=case.id)
        )
        seen_features |= features
    return params


def single_op_graph(op: Op, arrays: list[np.ndarray], sample: Sample) -> Graph:
    graph = Graph("one")
    inputs = [
        graph.input(f"x{index}", array.shape, operand.dtype)
        for index, (array, operand) in enumerate(
            zip(arrays, sample.inputs, strict=True)
        )
    ]
    graph.set_outputs([graph.apply(op.name, *inputs, **sample.attrs)])
    return graph


def operand_sets(sample: Sample) -> list[list[np.ndarray]]:
    """Return ordinary numbers and, for floats, every combination of edge values."""
    rng = np.random.default_rng(0)
    random_arrays = [replace(item, shape=(517,)).draw(rng) for item in sample.inputs]
    array_sets = [random_arrays]
    if all(item.dtype is DType.F32 for item in sample.inputs):
        array_sets.append(
            [
                grid.reshape(-1)
                for grid in np.meshgrid(*[EDGE_VALUES] * len(random_arrays))
            ]
        )
    return [[np.ascontiguousarray(item) for item in arrays] for arrays in array_sets]


@lru_cache(512)
def compiled_region(text: str) -> Any:
    """Return the compiled function of an LLVM text, cached: array lengths and equal ops
    share it.
    """
    return LoadedCode(compile_object(text)).get_function(
        "region", None, c_void_p, c_int64, c_int64
    )


def run_region(graph: Graph, arrays: list[np.ndarray], nbytes: int) -> np.ndarray:
    """Return the result of the graph's one op, compiled for vectors of `nbytes`
    bytes.
    """
    node = graph.node(graph.outputs[0])
    dense = [False] * len(arrays)
    text = region_text(graph, [node.id], node.inputs, dense, nbytes)
    run = compiled_region(text)
    out = np.empty(arrays[0].shape, node.type.dtype.numpy)
    job = np.array(
        [*map(array_address, [out, *arrays]), *[0] * (len(arrays) + 1)], np.int64
    )
    run(array_address(job), 1, out.size)
    return out


@pytest.mark.requires_fast
@pytest.mark.parametrize(("op", "sample", "is_short"), samples_with_vector_widths())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_op_matches_its_reference(
    op: Op, sample: Sample, is_short: bool, is_full_tier: bool
) -> None:
    """Compiled ops are within their tolerance of NumPy in float64, on edges too."""
    nbytes = host_cpu().vector_nbytes
    for arrays in operand_sets(sample):
        graph = single_op_graph(op, arrays, sample)
        node = graph.node(graph.outputs[0])
        if (op.name, sample.inputs[0].dtype.label) in LEFT_TO_NUMPY:
            with pytest.raises(Unsupported):
                run_region(graph, arrays, nbytes)
            return
        got = run_region(graph, arrays, nbytes)
        wide = [
            array.astype(np.float64) if array.dtype.kind == "f" else array
            for array in arrays
        ]
        exact = op.reference(np, node.attrs, *wide)
        if got.dtype == np.float32:
            want, tolerance = exact.astype(np.float32), op.tolerance
            np.testing.assert_allclose(got, want, tolerance.rtol, tolerance.atol)
            zeros = (want == 0) & (got == 0)
            if op.name in ("neg", "abs", "mul", "maximum", "round"):
                equal_signs = np.signbit(got) == np.signbit(want)
                assert equal_signs[zeros].all() or op.name == "maximum"
        elif got.dtype == np.float16:
            np.testing.assert_allclose(got, exact.astype(np.float16), 2e-3, 1e-6)
        else:
            np.testing.assert_array_equal(got, op.reference(np, node.attrs, *arrays))
        if not (is_short or is_full_tier):
            continue
        narrow = run_region(graph, arrays, 16)
        np.testing.assert_array_equal(np.isnan(narrow), np.isnan(got))
        rtol = 1e-6 if got.dtype != np.float16 else 1e-3  # a place of a half
        np.testing.assert_allclose(narrow, got, rtol, 1e-38)


@pytest.mark.parametrize(
    ("out", "reads", "rows"),
    [
        ((64,), [(64,)], (1, 64, (0,), (False,))),
        ((4, 64), [(4, 64), (64,)], (4, 64, (64, 0), (False, False))),
        ((4, 64), [(4, 1), (1, 64)], (4, 64, (1, 0), (True, False))),
        ((2, 3, 64), [(2, 3, 64)], (1, 384, (0,), (False,))),
        ((2, 3, 64), [(3, 64), (2, 3, 64)], (2, 192, (0, 192), (False, False))),
        ((2, 1, 64), [(), (2, 1, 64)], (1, 128, (0, 0), (True, False))),
        ((2, 3, 64), [(2, 1, 64), (1, 3, 1)], None),
        (
            (2, 3, 400),
            [(2, 3, 400), (3, 1)],
            (3, 400, (400, 1), (False, True), ((2, (1200, 0)),)),
        ),
        (
            (5, 2, 3, 400),
            [(2, 1, 400), (5, 1, 3, 1), ()],
            (
                *(3, 400, (0, 1, 0), (False, True, True)),
                ((5, (0, 3, 0)), (2, (400, 0, 0))),
            ),
        ),
        ((64, 4), [(64, 4), (4,)], None),
        ((), [()], None),
    ],
)
def test_axes_merge_into_rows(out: Any, reads: Any, rows: Any) -> None:
    """Operands that broadcast in more ways, and short rows, are left to NumPy."""
    got = region_row_layout(out, reads)
    if rows is not None and len(rows) == 4:
        rows = (*rows, ())
    assert (None if got is None else tuple(got)) == rows


@pytest.mark.requires_fast
@given(
    axes=st.lists(st.sampled_from([1, 2, 3, 7]), min_size=1, max_size=3),
    inner=st.integers(360, 700),
    data=st.data(),
)
@settings(max_examples=25)
def test_any_broadcast_matches_numpy(
    axes: list[int], inner: int, data: st.DataObject
) -> None:
    """Operands broadcast along any axes match NumPy, biases per channel too."""
    shape = (*axes, 5, inner)
    masks = st.lists(st.booleans(), min_size=len(shape), max_size=len(shape))
    graph, arrays = Graph("spread"), {}
    x = graph.input("x", shape)
    arrays["x"] = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for name in "ab":
        mask = data.draw(masks)
        sizes = tuple(n if k else 1 for n, k in zip(shape, mask, strict=True))
        arrays[name] = arrays["x"][tuple(slice(n) for n in sizes)].copy() + 1
        x = x * graph.input(name, sizes) + 0.5
    graph.set_outputs([x])
    rows = region_row_layout(shape, [array.shape for array in arrays.values()])
    assert rows is not None
    want = (arrays["x"] * arrays["a"] + np.float32(0.5)) * arrays["b"] + np.float32(0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_FAST", "wait")
        (got,) = rlx.Session("cpu").compile(graph).run(arrays)
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


SHAPES = [(300, 67), (67,), (300, 1), (1, 67), ()]
OPS = ("add", "mul", "sub", "maximum", "tanh", "atan", "gelu", "relu", "sigmoid", "abs")


@pytest.mark.requires_fast
@given(
    first=st.sampled_from([(300, 67), (20100,), (3, 100, 67)]),
    steps=st.lists(
        st.tuples(st.sampled_from(OPS), st.integers(0, 4), st.booleans()),
        min_size=2,
        max_size=7,
    ),
    view=st.sampled_from(["as it is", "turned", "a part", "read only"]),
)
@settings(max_examples=40)
def test_any_chain_matches_numpy(
    first: tuple[int, ...], steps: list[tuple[str, int, bool]], view: str
) -> None:
    """Any chain matches NumPy: broadcast operands in any layout, and literals."""
    rng = np.random.default_rng(len(steps))
    feeds = {}
    graph = Graph("chain")
    last = graph.input("x", first)
    feeds["x"] = rng.standard_normal(first, np.float32)
    for index, (op, shape, literal) in enumerate(steps):
        if op not in ("add", "mul", "sub", "maximum"):
            last = graph.apply(op, last)
            continue
        operand_shape = SHAPES[shape] if first == (300, 67) else first
        if literal:
            last = graph.apply(op, last, graph.constant(np.float32(0.5 - index)))
        else:
            feeds[f"y{index}"] = rng.standard_normal(operand_shape).astype(np.float32)
            last = graph.apply(op, last, graph.input(f"y{index}", operand_shape))
    graph.set_outputs([last])
    if view == "turned":
        feeds["x"] = np.asfortranarray(feeds["x"])
    elif view == "a part":
        feeds["x"] = np.concatenate([feeds["x"]] * 2)[: first[0]]
    elif view == "read only":
        feeds["x"].flags.writeable = False
    outs = []
    for mode in ("off", "wait"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RLX_FAST", mode)
            outs.append(rlx.Session("cpu").compile(graph).run(feeds)[0])
    peak = float(np.abs(outs[0]).max())
    np.testing.assert_allclose(outs[0], outs[1], 1e-5, 1e-6 * max(1.0, peak))


@pytest.mark.requires_fast
def test_numpy_runs_until_code_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large region runs in NumPy until its background compilation has finished."""
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(jit_cache, "COMPILE_AFTER_S", 0.0)
    region_kernels._kernels.clear()
    graph = Graph("two")
    x = graph.input("x", (1 << 18,))
    graph.set_outputs([graph.cos(graph.gelu(x)) * 3.0])
    feeds = {"x": np.linspace(-4, 4, 1 << 18, dtype=np.float32)}
    compiled = rlx.Session("cpu").compile(graph)
    first = compiled.run(feeds)[0]
    for _ in range(4):
        compiled.run(feeds)
    region_kernels.wait_until_idle(60)
    assert len(region_kernels._kernels) == 1
    np.testing.assert_allclose(compiled.run(feeds)[0], first, 1e-5, 2e-6)


@pytest.mark.requires_fast
def test_region_without_compiled_form_runs_in_numpy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Powers, float64 and integer division run in NumPy and are right."""
    monkeypatch.setenv("RLX_FAST", "wait")
    graph = Graph("by numpy")
    x = graph.input("x", (1 << 15,))
    n = graph.input("n", (1 << 15,), "i32")
    wide = graph.input("wide", (1 << 15,), "f64")
    graph.set_outputs([graph.pow(x, x), n / (n + n), wide * wide])
    feeds = {
        "x": np.linspace(0.1, 2, 1 << 15, dtype=np.float32),
        "n": np.arange(-9, (1 << 15) - 9, dtype=np.int32),
        "wide": np.linspace(0, 1, 1 << 15),
    }
    power, quotient, square = rlx.Session("cpu").compile(graph).run(feeds)
    np.testing.assert_allclose(power, feeds["x"] ** feeds["x"], 1e-6)
    assert quotient[9] == 0
    np.testing.assert_array_equal(square, feeds["wide"] ** 2)


def test_region_keys_differ_by_structure() -> None:
    """Region keys differ by literals, attributes and structure, but not by size."""

    def region_key(size: int, build: Any) -> str:
        graph = Graph("one")
        x, y = graph.input("x", (size,)), graph.input("y", (size,))
        graph.set_outputs([build(graph, x, y)])
        plan = compile_graph(graph, CpuEngine.target)
        (step,) = plan.steps
        region = compilable_region(plan.graph, step.nodes, step.reads)
        assert region is not None
        return region.key

    key = region_key(1 << 14, lambda g, x, y: (x - y) * 2.0)
    assert region_key(1 << 15, lambda g, x, y: (x - y) * 2.0) == key
    assert region_key(1 << 14, lambda g, x, y: (x - y) * 2.5) != key
    assert region_key(1 << 14, lambda g, x, y: (x - x) * 2.0) != key
