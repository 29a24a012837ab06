"""Small element types by way of wider ones: the same numbers as in their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.agreement import feeds_of, one_op
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.evaluate import evaluate
from rlxweb.bfloat16 import BFLOAT16, from_float32, native, to_float32
from rlxweb.compile.narrow_types import in_wider_types
from rlxweb.errors import DTypeError, RlxError
from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import NARROW, DType, cast_to
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from tests.agreement import engine

WHOLE = sorted(NARROW - {DType.BF16}, key=lambda dtype: dtype.label)
# Of an op this many samples are enough: the pass knows ops by their records.
FEW = 2


def small_samples(op: Op, dtype: DType) -> Iterator[tuple[Sample, list[Any]]]:
    """The op's samples of i32, or f32, drawn over all of a small type."""
    source = DType.F32 if dtype.is_float else DType.I32
    for at, sample in enumerate(op.samples):
        inputs = sample.inputs
        if not inputs or inputs[0].dtype is not source:
            continue
        if sum(np.prod(x.shape) for x in inputs) > 4000:
            continue
        low, high = (dtype.least, dtype.most) if dtype.is_integer else (-2.0, 2.0)
        drawn = tuple(
            replace(
                x, dtype=dtype, low=max(low, min(x.low * 64, 90)), high=min(high, 90)
            )
            if x.dtype is source and dtype.is_integer
            else replace(x, dtype=dtype if x.dtype is source else x.dtype)
            for x in inputs
        )
        yield Sample(drawn, sample.attrs), Sample(drawn, sample.attrs).draw(at)


@cache
def cases(label: str) -> tuple[tuple[Any, dict[str, Any], Any], ...]:
    """Graphs of one op, what they are fed, and NumPy's own results in that type."""
    dtype, found = DType(label), []
    for op in registry:
        count = 0
        for sample, arrays in small_samples(op, dtype) if not op.has("leaf") else ():
            try:
                graph = one_op(op, sample, arrays)
                want = evaluate(graph, feeds_of(arrays))[0]
            except RlxError:  # the op does not take the type, or these values
                continue
            found.append((graph, feeds_of(arrays), want))
            count += 1
            if count == FEW:
                break
    return tuple(found)


@pytest.mark.parametrize("dtype", WHOLE)
def test_every_op_wraps_as_numpy_does(dtype: DType) -> None:
    """Small integers wrap as NumPy's: computed in i32 and put right."""
    every = cases(dtype.label)
    assert len(every) > 60
    session = rlx.Session("cpu")
    for graph, feeds, want in every:
        (got,) = session.compile(graph).run(feeds)
        said = str(graph.node(graph.outputs[0]))
        np.testing.assert_array_equal(got, want, said, strict=True)


ON_ADAPTERS = """add abs sum max concat transpose reshape narrow conv max_pool cumsum
scatter_elements pad matmul div shift_right tile topk""".split()


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("dtype", [DType.I8, DType.U16])
def test_shaders_wrap_as_numpy_does(dtype: DType, adapter: Want) -> None:
    """Shaders wrap four or two to a word as NumPy does, whatever op stands between."""
    one = engine(adapter)
    told = set()
    for graph, feeds, want in cases(dtype.label):
        node = graph.node(graph.outputs[0])
        if node.op in ON_ADAPTERS and DType.I64 not in {
            n.type.dtype for n in graph.nodes()
        }:
            got = one.run(graph, feeds)[0]
            np.testing.assert_array_equal(got, want, str(node), strict=True)
            told.add(node.op)
    assert len(told) >= len(ON_ADAPTERS) - 2


def rounded_by_others(of: Callable[..., Any], *given: Any) -> Any:
    """The result of ml_dtypes, which computes in float32 and rounds once."""
    with np.errstate(all="ignore"):
        return of(*(x.view(ml_dtypes.bfloat16) for x in given)).view(BFLOAT16)


@pytest.mark.parametrize("device", ["cpu", "torch-cpu", "mlx"])
def test_bfloat16_is_rounded_as_others_round_it(device: str) -> None:
    rng = np.random.default_rng(4)
    spread = 10.0 ** rng.integers(-30, 30, 999)
    x, y = (from_float32(rng.standard_normal(999) * spread) for _ in "xy")
    x[:6] = from_float32([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40])
    g = rlx.Graph("arithmetic")
    a, b = g.input("x", (999,), "bf16"), g.input("y", (999,), "bf16")
    g.set_outputs([a + b, a - b, a * b, a / b, g.sqrt(g.abs(a)), g.cast(a, "f32")])
    got = rlx.Session(device).compile(g).run({"x": x, "y": y})
    for made, of in zip(
        got,
        (np.add, np.subtract, np.multiply, np.divide, lambda x, y: np.sqrt(np.abs(x))),
        strict=False,
    ):
        want = to_float32(rounded_by_others(of, x, y))
        np.testing.assert_array_equal(to_float32(made), want, strict=True)
    np.testing.assert_array_equal(got[-1], to_float32(x), strict=True)


@pytest.mark.requires_wgpu
def test_shaders_round_it_alike(adapter: Want) -> None:
    """Shaders round sums and products to the bit; tiny floats are not looked at."""
    rng = np.random.default_rng(5)
    x, y = (from_float32(rng.standard_normal((9, 7))) for _ in "xy")
    g = rlx.Graph("arithmetic")
    a, b = g.input("x", (9, 7), "bf16"), g.input("y", (9, 7), "bf16")
    g.set_outputs([a + b, a * b * a, g.transpose(a, (1, 0)), g.concat([a, b * b], 1)])
    for got, want in zip(
        engine(adapter).run(g, {"x": x, "y": y}),
        evaluate(g, {"x": x, "y": y}),
        strict=True,
    ):
        np.testing.assert_array_equal(got, want, strict=True)


@pytest.mark.requires_torch
def test_bfloat16_of_other_libraries_is_taken() -> None:
    """Inputs, params, constants and `put` take bfloat16; elsewhere a way is told."""
    import torch

    values = np.array([[1.0, -2.5], [3.5, 0.0]], np.float32)
    tensor = torch.tensor(values, dtype=torch.bfloat16)
    for given in (values.astype(ml_dtypes.bfloat16), tensor.T.contiguous().T):
        g = rlx.Graph("taken")
        x, w = g.input("x", (2, 2), "bf16"), g.param("w", (2, 2), "bf16")
        g.set_outputs([x + w, x * g.constant(given), x * 2.0])
        compiled = rlx.Session("cpu").compile(g)
        compiled.set_param("w", given)
        for one in (given, rlx.put(given, "cpu")):
            made = compiled.run({"x": one})
            want = (2 * values, values * values, 2 * values)
            for out, right in zip(made, want, strict=True):
                assert out.dtype == BFLOAT16
                np.testing.assert_array_equal(to_float32(out), right, strict=True)
                assert native(out.view(ml_dtypes.bfloat16)).dtype == BFLOAT16
        with pytest.raises(DTypeError, match=r"bfloat16.*to_float32"):
            rlx.welch_peaks(given, fs=1.0, k=1)
        with pytest.raises(DTypeError, match=r"the array is bfloat16.*declares f32"):
            rlx.Session("cpu").compile(_identity("f32")).run({"x": given})


def _identity(dtype: str) -> rlx.Graph:
    g = rlx.Graph("identity")
    g.set_outputs([g.relu(g.input("x", (2, 2), dtype))])
    return g


def test_what_is_not_small_is_left_alone() -> None:
    """A graph without small types stays; else only leaves and casts have them."""
    graph = _identity("f32")
    assert in_wider_types(graph, CpuBackend.target) is graph
    made = in_wider_types(_identity("u8"), CpuBackend.target)
    assert [n.op for n in made.nodes() if n.type.dtype is DType.U8] == ["input", "cast"]


def test_an_op_of_a_caller_says_where_it_is_refused() -> None:
    """Nothing is known of it in a wider type, so nothing is guessed."""
    rlx.register_custom(
        "narrow_probe",
        arity=1,
        reference=lambda xp, attrs, x: x + x,
        wgsl="x + x",
        replace=True,
    )
    g = rlx.Graph("probe")
    g.set_outputs([g.custom_op("narrow_probe", g.input("x", (3,), "u8"))])
    with pytest.raises(DTypeError, match=r"narrow_probe.*of u8, which the device"):
        rlx.Session("cpu").compile(g)
    registry.unregister("narrow_probe")


def test_values_out_of_range_are_refused_where_they_stand() -> None:
    g = rlx.Graph("range")
    x = g.input("x", (2,), "u8")
    with pytest.raises(DTypeError, match="not a u8 number"):
        x + 256
    with pytest.raises(DTypeError, match="not a i8 number; it is out of range, -128"):
        g.constant([128], "i8")
    with pytest.raises(DTypeError, match="from 0 to 255"):
        g.pad(x, [(1, 1)], value=-1.0)
    g.set_outputs([g.topk(x, 2, largest=False), x - 1])
    found, less = rlx.Session("cpu").compile(g).run({"x": np.array([9, 0], np.uint8)})
    assert (found.tolist(), less.tolist()) == ([1, 0], [8, 255])
    assert cast_to(np.array([300]), DType.U8).tolist() == [44]


def test_what_stays_in_range_is_not_put_right() -> None:
    """A quantised number is of the small type already, by its attributes."""
    g = rlx.Graph("bytes")
    q = g.quantize_linear(g.input("x", (3,)), 0.1, 128)
    g.set_outputs([g.dequantize_linear(q, 0.1, 128)])
    nodes = in_wider_types(g, CpuBackend.target).nodes()
    assert not [n for n in nodes if n.op == "cast"]
    h = g.maximum(q, q) + g.constant(np.uint8(1))  # which may be 256
    g.set_outputs([g.cast(h, "f32")])
    nodes = in_wider_types(g, CpuBackend.target).nodes()
    assert len([n for n in nodes if n.op == "cast" and n.type.dtype is DType.U8]) == 1
