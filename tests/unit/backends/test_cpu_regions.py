"""Elementwise regions as machine code: what the ops declare, at any width and shape."""

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
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.cpu_region_text import KINDS, region_text
from rlxweb.backends.cpu_regions import region_kernels, region_of, rows_of
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import Unsupported
from rlxweb.host.compiled import address
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from rlxweb.machine import workshop
from rlxweb.machine.library import Code, object_code, processor

EDGES = np.array(
    """0 -0 1 -1 inf -inf nan 1e-40 -1e-40 1.2e-38 3e38 -3e38 0.5 -0.5 2.5 -3.5
    88.7 -87.4 -103.9 100 1e4 1e6 7.5e8 -1e9 16777216""".split(),
    np.float32,
)
BY_NUMPY = {("div", "i32"), ("div", "u32"), ("pow", "f32")} | {
    (name, kind)
    for name in ("mod", "fmod", "floor_divide")
    for kind in ("f32", "f16", "i32", "u32")
}


def cases() -> list[Any]:
    """Every elementwise op, each of its kinds of operands once."""
    found: dict[tuple[str, ...], Any] = {}
    for op in registry:
        for sample in op.samples if isinstance(op.lower, Expr) else ():
            kinds = [drawn.dtype for drawn in sample.inputs]
            made = sample.attrs.get("to", DType.F32)
            if not {made, *kinds} <= set(KINDS):
                continue
            attrs = {n: v.label if n == "to" else v for n, v in sample.attrs.items()}
            name = (op.name, *(k.label for k in kinds), *map(str, attrs.values()))
            found.setdefault(name, pytest.param(op, sample, id="-".join(name)))
    return list(found.values())


def cases_with_vectors() -> list[Any]:
    """Return the cases, each with whether it is also computed in short vectors.

    An op is computed alike in all kinds of floats, and kinds are read and written alike
    for all ops: short vectors are for the first of each.
    """
    seen: set[Any] = set()
    found = []
    for case in cases():
        op, sample = case.values
        kinds = [drawn.dtype for drawn in sample.inputs]
        made = sample.attrs.get("to", DType.F32)
        parts = {op.name, (*kinds, made)}
        parts |= {(op.name, k) for k in kinds if k not in (DType.F32, DType.F16)}
        found.append(pytest.param(op, sample, not parts <= seen, id=case.id))
        seen |= parts
    return found


def one_op(op: Op, arrays: list[np.ndarray], sample: Sample) -> Graph:
    graph = Graph("one")
    given = [
        graph.input(f"x{at}", one.shape, drawn.dtype)
        for at, (one, drawn) in enumerate(zip(arrays, sample.inputs, strict=True))
    ]
    graph.set_outputs([graph.apply(op.name, *given, **sample.attrs)])
    return graph


def operands(sample: Sample) -> list[list[np.ndarray]]:
    """Ordinary numbers, and of floats every edge beside every other."""
    rng = np.random.default_rng(0)
    drawn = [replace(one, shape=(517,)).draw(rng) for one in sample.inputs]
    sets = [drawn]
    if all(one.dtype is DType.F32 for one in sample.inputs):
        sets.append([g.reshape(-1) for g in np.meshgrid(*[EDGES] * len(drawn))])
    return [[np.ascontiguousarray(one) for one in arrays] for arrays in sets]


@lru_cache(512)
def compiled(text: str) -> Any:
    """The function of a text: the same for every length of arrays, and op of a kind."""
    return Code(object_code(text)).function("region", None, c_void_p, c_int64, c_int64)


def computed(graph: Graph, arrays: list[np.ndarray], nbytes: int) -> np.ndarray:
    """The graph's one op by code for vectors of so many bytes."""
    node = graph.node(graph.outputs[0])
    dense = [False] * len(arrays)
    text = region_text(graph, [node.id], node.inputs, dense, nbytes)
    run = compiled(text)
    out = np.empty(arrays[0].shape, node.type.dtype.numpy)
    job = np.array([*map(address, [out, *arrays]), *[0] * (len(arrays) + 1)], np.int64)
    run(address(job), 1, out.size)
    return out


@pytest.mark.requires_fast
@pytest.mark.parametrize(("op", "sample", "is_short"), cases_with_vectors())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_op_is_what_it_declares(
    op: Op, sample: Sample, is_short: bool, is_full_tier: bool
) -> None:
    """Compiled ops are within their tolerance of NumPy in float64, on edges too."""
    nbytes = processor().nbytes
    for arrays in operands(sample):
        graph = one_op(op, arrays, sample)
        node = graph.node(graph.outputs[0])
        if (op.name, sample.inputs[0].dtype.label) in BY_NUMPY:
            with pytest.raises(Unsupported):
                computed(graph, arrays, nbytes)
            return
        found = computed(graph, arrays, nbytes)
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        exact = op.reference(np, node.attrs, *wide)
        if found.dtype == np.float32:
            want, off = exact.astype(np.float32), op.tolerance
            np.testing.assert_allclose(found, want, off.rtol, off.atol)
            zeros = (want == 0) & (found == 0)
            if op.name in ("neg", "abs", "mul", "maximum", "round"):
                same = np.signbit(found) == np.signbit(want)
                assert same[zeros].all() or op.name == "maximum"
        elif found.dtype == np.float16:
            np.testing.assert_allclose(found, exact.astype(np.float16), 2e-3, 1e-6)
        else:
            np.testing.assert_array_equal(found, op.reference(np, node.attrs, *arrays))
        if not (is_short or is_full_tier):
            continue
        narrow = computed(graph, arrays, 16)
        np.testing.assert_array_equal(np.isnan(narrow), np.isnan(found))
        near = 1e-6 if found.dtype != np.float16 else 1e-3  # a place of a half
        np.testing.assert_allclose(narrow, found, near, 1e-38)


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
def test_axes_become_rows(out: Any, reads: Any, rows: Any) -> None:
    """Reads that are spread in more ways, and short rows, are left to NumPy."""
    found = rows_of(out, reads)
    if rows is not None and len(rows) == 4:
        rows = (*rows, ())
    assert (None if found is None else tuple(found)) == rows


@pytest.mark.requires_fast
@given(
    axes=st.lists(st.sampled_from([1, 2, 3, 7]), min_size=1, max_size=3),
    inner=st.integers(360, 700),
    data=st.data(),
)
@settings(max_examples=25)
def test_what_is_spread_in_any_way_is_numpys(
    axes: list[int], inner: int, data: st.DataObject
) -> None:
    """Operands that are spread along any axes are NumPy's, biases of channels too."""
    shape = (*axes, 5, inner)
    masks = st.lists(st.booleans(), min_size=len(shape), max_size=len(shape))
    graph, arrays = Graph("spread"), {}
    x = graph.input("x", shape)
    arrays["x"] = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for name in "ab":
        kept = data.draw(masks)
        sizes = tuple(n if k else 1 for n, k in zip(shape, kept, strict=True))
        arrays[name] = arrays["x"][tuple(slice(n) for n in sizes)].copy() + 1
        x = x * graph.input(name, sizes) + 0.5
    graph.set_outputs([x])
    rows = rows_of(shape, [one.shape for one in arrays.values()])
    assert rows is not None
    want = (arrays["x"] * arrays["a"] + np.float32(0.5)) * arrays["b"] + np.float32(0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_FAST", "wait")
        (found,) = rlx.Session("cpu").compile(graph).run(arrays)
    np.testing.assert_allclose(found, want, 1e-5, 1e-5)


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
def test_any_chain_is_numpys(
    first: tuple[int, ...], steps: list[tuple[str, int, bool]], view: str
) -> None:
    """Any chain is NumPy's: operands spread, in any layout, and literals."""
    rng = np.random.default_rng(len(steps))
    feeds = {}
    graph = Graph("chain")
    last = graph.input("x", first)
    feeds["x"] = rng.standard_normal(first, np.float32)
    for at, (op, shape, literal) in enumerate(steps):
        if op not in ("add", "mul", "sub", "maximum"):
            last = graph.apply(op, last)
            continue
        wanted = SHAPES[shape] if first == (300, 67) else first
        if literal:
            last = graph.apply(op, last, graph.constant(np.float32(0.5 - at)))
        else:
            feeds[f"y{at}"] = rng.standard_normal(wanted).astype(np.float32)
            last = graph.apply(op, last, graph.input(f"y{at}", wanted))
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
    top = float(np.abs(outs[0]).max())
    np.testing.assert_allclose(outs[0], outs[1], 1e-5, 1e-6 * max(1.0, top))


@pytest.mark.requires_fast
def test_numpy_serves_until_the_code_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small regions, and such as are no expression of ours, are NumPy's for good."""
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(workshop, "WORTH_S", 0.0)
    region_kernels._made.clear()
    graph = Graph("two")
    x = graph.input("x", (1 << 18,))
    graph.set_outputs([graph.cos(graph.gelu(x)) * 3.0])
    feeds = {"x": np.linspace(-4, 4, 1 << 18, dtype=np.float32)}
    compiled = rlx.Session("cpu").compile(graph)
    first = compiled.run(feeds)[0]
    for _ in range(4):
        compiled.run(feeds)
    region_kernels.finish(60)
    assert len(region_kernels._made) == 1
    np.testing.assert_allclose(compiled.run(feeds)[0], first, 1e-5, 2e-6)


@pytest.mark.requires_fast
def test_a_region_that_cannot_be_said_goes_by_numpy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Powers, float64 and divided whole numbers are NumPy's, right and refused once."""
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
    power, whole, square = rlx.Session("cpu").compile(graph).run(feeds)
    np.testing.assert_allclose(power, feeds["x"] ** feeds["x"], 1e-6)
    assert whole[9] == 0
    np.testing.assert_array_equal(square, feeds["wide"] ** 2)


def test_regions_of_another_kind_are_others() -> None:
    """Regions differ by literals, attributes and structure; sizes make no other."""

    def about(size: int, build: Any) -> str:
        graph = Graph("one")
        x, y = graph.input("x", (size,)), graph.input("y", (size,))
        graph.set_outputs([build(graph, x, y)])
        plan = compile_graph(graph, CpuBackend.target)
        (step,) = plan.steps
        region = region_of(plan.graph, step.nodes, step.reads)
        assert region is not None
        return region.about

    one = about(1 << 14, lambda g, x, y: (x - y) * 2.0)
    assert about(1 << 15, lambda g, x, y: (x - y) * 2.0) == one
    assert about(1 << 14, lambda g, x, y: (x - y) * 2.5) != one
    assert about(1 << 14, lambda g, x, y: (x - x) * 2.0) != one
