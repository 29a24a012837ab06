"""Small element types computed in wider ones give the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.compiler.storage_dtype_widening import widen_storage_dtypes
from rlxweb.core.bfloat16 import BFLOAT16, as_bfloat16, from_float32, to_float32
from rlxweb.core.errors import DTypeError, RlxError
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.evaluate import evaluate
from rlxweb.engines.reference_comparison import named_feeds, single_op_graph
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import PACKED_DTYPES, DType, cast_array
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from tests.engines_under_test import engine

SMALL_INTEGERS = sorted(PACKED_DTYPES - {DType.BF16}, key=lambda dtype: dtype.label)
# Of an op this many samples are enough: the pass knows ops by their records.
MAX_SAMPLES_PER_OP = 2


def small_samples(op: Op, dtype: DType) -> Iterator[tuple[Sample, list[Any]]]:
    """Yield the op's samples of i32 or f32, drawn over the whole range of a small
    type.
    """
    source = DType.F32 if dtype.is_float else DType.I32
    for index, sample in enumerate(op.samples):
        inputs = sample.inputs
        if not inputs or inputs[0].dtype is not source:
            continue
        if sum(np.prod(x.shape) for x in inputs) > 4000:
            continue
        low, high = (
            (dtype.min_value, dtype.max_value) if dtype.is_integer else (-2.0, 2.0)
        )
        small_inputs = tuple(
            replace(
                x, dtype=dtype, low=max(low, min(x.low * 64, 90)), high=min(high, 90)
            )
            if x.dtype is source and dtype.is_integer
            else replace(x, dtype=dtype if x.dtype is source else x.dtype)
            for x in inputs
        )
        yield (
            Sample(small_inputs, sample.attrs),
            Sample(small_inputs, sample.attrs).draw(index),
        )


@cache
def single_op_cases(label: str) -> tuple[tuple[Any, dict[str, Any], Any], ...]:
    """Return graphs of one op, their inputs, and NumPy's results in that type."""
    dtype, accepted_cases = DType(label), []
    for op in registry:
        count = 0
        for sample, arrays in (
            small_samples(op, dtype) if not op.has_trait("leaf") else ()
        ):
            try:
                graph = single_op_graph(op, sample, arrays)
                want = evaluate(graph, named_feeds(arrays))[0]
            except RlxError:  # the op does not take the type, or these values
                continue
            accepted_cases.append((graph, named_feeds(arrays), want))
            count += 1
            if count == MAX_SAMPLES_PER_OP:
                break
    return tuple(accepted_cases)


@pytest.mark.parametrize("dtype", SMALL_INTEGERS)
def test_every_op_wraps_like_numpy(dtype: DType) -> None:
    """Small integers wrap like NumPy's although they are computed in i32."""
    all_cases = single_op_cases(dtype.label)
    assert len(all_cases) > 60
    session = rlx.Session("cpu")
    for graph, feeds, want in all_cases:
        (got,) = session.compile(graph).run(feeds)
        node_text = str(graph.node(graph.outputs[0]))
        np.testing.assert_array_equal(got, want, node_text, strict=True)


SHADER_OPS = """add abs sum max concat transpose reshape narrow conv max_pool cumsum
scatter_elements pad matmul div shift_right tile topk""".split()


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("dtype", [DType.I8, DType.U16])
def test_shaders_wrap_like_numpy(dtype: DType, adapter: AdapterRequest) -> None:
    """Shaders that store two or four elements per word wrap like NumPy, for any op."""
    device_engine = engine(adapter)
    tested_ops = set()
    for graph, feeds, want in single_op_cases(dtype.label):
        node = graph.node(graph.outputs[0])
        if node.op in SHADER_OPS and DType.I64 not in {
            n.type.dtype for n in graph.nodes()
        }:
            got = device_engine.run(graph, feeds)[0]
            np.testing.assert_array_equal(got, want, str(node), strict=True)
            tested_ops.add(node.op)
    assert len(tested_ops) >= len(SHADER_OPS) - 2


def round_with_ml_dtypes(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of ml_dtypes, which computes in float32 and rounds once."""
    with np.errstate(all="ignore"):
        return function(*(x.view(ml_dtypes.bfloat16) for x in arguments)).view(BFLOAT16)


@pytest.mark.parametrize("device", ["cpu", "torch-cpu", "mlx"])
def test_bfloat16_rounds_like_ml_dtypes(device: str) -> None:
    rng = np.random.default_rng(4)
    scale = 10.0 ** rng.integers(-30, 30, 999)
    x, y = (from_float32(rng.standard_normal(999) * scale) for _ in "xy")
    x[:6] = from_float32([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40])
    g = rlx.Graph("arithmetic")
    a, b = g.input("x", (999,), "bf16"), g.input("y", (999,), "bf16")
    g.set_outputs([a + b, a - b, a * b, a / b, g.sqrt(g.abs(a)), g.cast(a, "f32")])
    got = rlx.Session(device).compile(g).run({"x": x, "y": y})
    for output, function in zip(
        got,
        (np.add, np.subtract, np.multiply, np.divide, lambda x, y: np.sqrt(np.abs(x))),
        strict=False,
    ):
        want = to_float32(round_with_ml_dtypes(function, x, y))
        np.testing.assert_array_equal(to_float32(output), want, strict=True)
    np.testing.assert_array_equal(got[-1], to_float32(x), strict=True)


@pytest.mark.requires_wgpu
def test_shaders_round_bfloat16_alike(adapter: AdapterRequest) -> None:
    """Shaders round sums and products to the bit; subnormal numbers are not tested."""
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
def test_bfloat16_of_other_libraries_is_accepted() -> None:
    """Inputs, params, constants and `put` accept bfloat16; elsewhere the error names a
    conversion.
    """
    import torch

    values = np.array([[1.0, -2.5], [3.5, 0.0]], np.float32)
    tensor = torch.tensor(values, dtype=torch.bfloat16)
    for array in (values.astype(ml_dtypes.bfloat16), tensor.T.contiguous().T):
        g = rlx.Graph("taken")
        x, w = g.input("x", (2, 2), "bf16"), g.param("w", (2, 2), "bf16")
        g.set_outputs([x + w, x * g.constant(array), x * 2.0])
        compiled = rlx.Session("cpu").compile(g)
        compiled.set_param("w", array)
        for feed in (array, rlx.put(array, "cpu")):
            outputs = compiled.run({"x": feed})
            want = (2 * values, values * values, 2 * values)
            for out, expected in zip(outputs, want, strict=True):
                assert out.dtype == BFLOAT16
                np.testing.assert_array_equal(to_float32(out), expected, strict=True)
                assert as_bfloat16(out.view(ml_dtypes.bfloat16)).dtype == BFLOAT16
        with pytest.raises(DTypeError, match=r"bfloat16.*to_float32"):
            rlx.welch_peaks(array, fs=1.0, k=1)
        with pytest.raises(
            DTypeError, match=r"the array has dtype bfloat16.*declares dtype f32"
        ):
            rlx.Session("cpu").compile(_identity_graph("f32")).run({"x": array})


def _identity_graph(dtype: str) -> rlx.Graph:
    g = rlx.Graph("identity")
    g.set_outputs([g.relu(g.input("x", (2, 2), dtype))])
    return g


def test_graph_without_small_types_is_unchanged() -> None:
    """A graph without small types is unchanged; otherwise only leaves and casts keep
    them.
    """
    graph = _identity_graph("f32")
    assert widen_storage_dtypes(graph, CpuEngine.target) is graph
    widened = widen_storage_dtypes(_identity_graph("u8"), CpuEngine.target)
    assert [n.op for n in widened.nodes() if n.type.dtype is DType.U8] == [
        "input",
        "cast",
    ]


def test_custom_op_of_a_small_type_is_rejected() -> None:
    """A custom op is not known to give the same result in a wider type, so it is
    rejected.
    """
    rlx.register_custom(
        "narrow_probe",
        arity=1,
        reference=lambda xp, attrs, x: x + x,
        wgsl="x + x",
        replace=True,
    )
    g = rlx.Graph("probe")
    g.set_outputs([g.custom_op("narrow_probe", g.input("x", (3,), "u8"))])
    with pytest.raises(DTypeError, match=r"narrow_probe.*uses u8, which the device"):
        rlx.Session("cpu").compile(g)
    registry.unregister("narrow_probe")


def test_out_of_range_values_are_rejected_at_once() -> None:
    g = rlx.Graph("range")
    x = g.input("x", (2,), "u8")
    with pytest.raises(DTypeError, match="cannot be represented as u8"):
        x + 256
    with pytest.raises(
        DTypeError, match=r"cannot be represented as i8; it is out of range \(-128"
    ):
        g.constant([128], "i8")
    with pytest.raises(DTypeError, match="from 0 to 255"):
        g.pad(x, [(1, 1)], value=-1.0)
    g.set_outputs([g.topk(x, 2, largest=False), x - 1])
    indices, decremented = (
        rlx.Session("cpu").compile(g).run({"x": np.array([9, 0], np.uint8)})
    )
    assert (indices.tolist(), decremented.tolist()) == ([1, 0], [8, 255])
    assert cast_array(np.array([300]), DType.U8).tolist() == [44]


def test_values_in_range_are_not_wrapped() -> None:
    """A quantised number is in the range of the small type by its attributes."""
    g = rlx.Graph("bytes")
    q = g.quantize_linear(g.input("x", (3,)), 0.1, 128)
    g.set_outputs([g.dequantize_linear(q, 0.1, 128)])
    nodes = widen_storage_dtypes(g, CpuEngine.target).nodes()
    assert not [n for n in nodes if n.op == "cast"]
    h = g.maximum(q, q) + g.constant(np.uint8(1))  # which may be 256
    g.set_outputs([g.cast(h, "f32")])
    nodes = widen_storage_dtypes(g, CpuEngine.target).nodes()
    assert len([n for n in nodes if n.op == "cast" and n.type.dtype is DType.U8]) == 1
