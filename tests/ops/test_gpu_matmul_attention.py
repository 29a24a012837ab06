"""Test matmul and attention GPU kernels over difficult shapes.

Tails on every side, sums cut in parts, batches that broadcast, and for attention every
mask, head sizes that take one lane or several, and rows whose softmax is no number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.gpu.wgpu_port import WgpuPort
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape
from tests.engines_under_test import Array, Engine, engine, single_op_graph
from tests.ops.test_gpu_kernel_shapes import (
    LAVAPIPE,
    SPLIT_CASES,
    engine_with_variant,
    kernel_mismatch,
    random_array,
)
from tests.suite_tiers import Sampler
from tests.unit.ops.single_op_runner import tensor_types

pytestmark = [pytest.mark.requires_wgpu, pytest.mark.slow]
HALVES = pytest.mark.feature("f16")

# Tails of rows, columns and terms, less than a block and one, loads by fours and one by
# one, a sum in parts with a short last one, batches of either side.
SMALL = [((97, 101), (101, 89)), ((33, 16), (16, 33)), ((64, 64), (64, 64))]
SMALL += [((96, 100), (100, 88)), ((34, 1000), (1000, 66)), ((34, 997), (997, 67))]
SMALL += [((3, 65, 72), (3, 72, 68)), ((2, 1, 70, 40), (5, 40, 60))]
LARGE = [((1025, 37), (37, 1031)), ((1028, 72), (72, 1032)), ((40, 129, 20), (20, 130))]


@pytest.mark.parametrize(
    ("side", "shapes", "dtype"),
    [
        (64, SMALL, "f32"),
        (64, SMALL, "i32"),
        pytest.param(64, SMALL, "f16", marks=HALVES),
        (128, LARGE, "f32"),
        pytest.param(128, LARGE, "i32", marks=pytest.mark.full),
        pytest.param(128, LARGE, "f16", marks=[HALVES, pytest.mark.full]),
    ],
)
def test_products_by_blocks(
    side: int,
    shapes: list[tuple[Shape, Shape]],
    dtype: str,
    adapter: AdapterRequest,
    sampled: Sampler,
) -> None:
    """Integers wrap, halves are summed in float32.

    Other tiers than the full one take the first shape of these.
    """
    row = f"matmul, blocks of {side}"
    runner, rng = engine_with_variant(adapter, row), np.random.default_rng(side)
    max_value = 1e9 if dtype == "i32" else 2
    max_count = 4 if dtype == "f32" else 1
    for shape_pair in sampled(shapes, max_count, quick=max_count):
        arrays = [Drawn(s, dtype, -max_value, max_value).draw(rng) for s in shape_pair]
        assert kernel_mismatch(runner, "matmul", arrays, row) == "", shape_pair


@hypothesis.settings(max_examples=12)
@hypothesis.given(st.integers(33, 200), st.integers(16, 700), st.integers(33, 200))
def test_products_of_any_size(m: int, k: int, n: int) -> None:
    """Products of any size, few of them of whole blocks, are right."""
    runner = engine_with_variant(LAVAPIPE, "matmul, blocks of 64")
    assert (
        kernel_mismatch(
            runner, "matmul", [random_array((m, k)), random_array((k, n), 1)], "blocks"
        )
        == ""
    )


def test_nonfinite_values_stay_in_their_row_and_column(adapter: AdapterRequest) -> None:
    """The zero padding of a block and the partial sums let no NaN out, and none in."""
    runner = engine_with_variant(adapter, "matmul, blocks of 64")
    for shapes in (((70, 600), (600, 68)), ((70, 601), (601, 67))):
        x, y = random_array(shapes[0], 1), random_array(shapes[1], 2)
        x[3, 599], x[69, 0], y[5, 66], y[7, 2] = np.nan, np.inf, np.nan, -np.inf
        assert kernel_mismatch(runner, "matmul", [x, y], "blocks") == ""


def attention_mismatch(
    runner: Engine, q: Shape, k: Shape, *mask: Array, dtype: str = "f32", **attrs: Any
) -> str:
    """Describe what is wrong with one attention; head count and size come from q."""
    rng = np.random.default_rng(7)
    arrays = [Drawn(s, dtype).draw(rng) for s in (q, k, attrs.pop("v", k))]
    return attention_mismatch_of_arrays(runner, [*arrays, *mask], **attrs)


def attention_mismatch_of_arrays(
    runner: Engine, arrays: list[Array], **attrs: Any
) -> str:
    shape = arrays[0].shape
    all_attrs = {"num_heads": shape[1], "head_dim": shape[-1], **attrs}
    return kernel_mismatch(runner, "attention", arrays, "one kernel", **all_attrs)


Q, K = (2, 6, 67, 16), (2, 3, 101, 16)
MASKS: dict[str, tuple[dict[str, Any], Any]] = {
    "none": ({}, None),
    "causal": ({"mask_kind": "causal"}, None),
    "window": ({"mask_kind": "sliding_window", "window": 7}, None),
    "bools": ({"mask_kind": "custom"}, lambda rng: rng.random((2, 101)) < 0.5),
    "all masked": ({"mask_kind": "custom"}, lambda rng: np.zeros((1, 101), np.int32)),
    "floats": ({"mask_kind": "custom"}, lambda rng: _random_floats(rng, (1, 101))),
    "bias": (
        {"mask_kind": "bias", "softcap": 1.5},
        lambda rng: _random_floats(rng, (67, 101)),
    ),
    "a bias a row": (
        {"mask_kind": "bias"},
        lambda rng: _random_floats(rng, (6, 67, 1)),
    ),
}


def _random_floats(rng: np.random.Generator, shape: Shape) -> Array:
    return rng.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("mask", MASKS)
def test_attention_with_every_mask(mask: str, adapter: AdapterRequest) -> None:
    """Attention is right with every mask, grouped heads and tails of both lengths."""
    runner = engine_with_variant(adapter, "attention, one kernel")
    attrs, make = MASKS[mask]
    mask_arrays = [make(np.random.default_rng(3))] if make else []
    assert attention_mismatch(runner, Q, K, *mask_arrays, **attrs) == ""


def test_attention_of_other_layouts_and_lengths(adapter: AdapterRequest) -> None:
    """Queries before the first key, [B, S, H, D], [B, S, H·D] and a scale."""
    runner = engine_with_variant(adapter, "attention, one kernel")
    causal, head_attrs = {"mask_kind": "causal"}, {"num_heads": 6, "head_dim": 16}
    assert attention_mismatch(runner, (1, 2, 67, 8), (1, 2, 30, 8), **causal) == ""
    assert (
        attention_mismatch(
            runner, (1, 67, 6, 16), (1, 70, 3, 16), score_scale=2.0, **head_attrs
        )
        == ""
    )
    value_shape = (2, 70, 24)
    assert (
        attention_mismatch(
            runner, (2, 67, 96), (2, 70, 48), v=value_shape, **head_attrs
        )
        == ""
    )


@pytest.mark.parametrize("size", [68, 132])
def test_attention_of_wide_heads(size: int, adapter: AdapterRequest) -> None:
    """Heads are right with two and four lanes per query, the last not full."""
    runner = engine_with_variant(adapter, "attention, one kernel")
    assert attention_mismatch(runner, (1, 2, 66, size), (1, 2, 41, size)) == ""


def test_float16_attention_is_computed_in_float32() -> None:
    """Scores up to a thousand would lose precision in float16."""
    runner = engine_with_variant(LAVAPIPE, "attention, one kernel")
    assert (
        attention_mismatch(
            runner, Q, K, dtype="f16", mask_kind="causal", score_scale=8.0
        )
        == ""
    )


def test_attention_with_nonfinite_values(adapter: AdapterRequest) -> None:
    """A nonfinite score spoils its row, a nonfinite value its column, masked or not.

    A row of -infinity alone has no softmax.
    """
    runner = engine_with_variant(adapter, "attention, one kernel")
    for case_index in range(4):
        rng = np.random.default_rng(5)
        q, k, v = (_random_floats(rng, (1, 2, n, 8)) for n in (66, 70, 70))
        bias = _random_floats(rng, (1, 2, 66, 70))
        if case_index == 0:
            q[0, 1, 65, 3], k[0, 0, 69, 2] = np.nan, np.nan
        elif case_index == 1:
            v[0, 0, 69, 1], v[0, 1, 0, 7] = np.nan, np.inf
        elif case_index == 2:
            bias[0, 0, 3], bias[0, 1, 4, :40] = -np.inf, -np.inf
        else:
            bias[0, 0, 5, 69], bias[0, 1, 6, 0] = np.inf, np.nan
        assert (
            attention_mismatch_of_arrays(runner, [q, k, v, bias], mask_kind="bias")
            == ""
        ), case_index
        if case_index < 2:
            assert (
                attention_mismatch_of_arrays(runner, [q, k, v], mask_kind="causal")
                == ""
            ), case_index


def test_convolution_accumulates_over_split_weights(adapter: AdapterRequest) -> None:
    """Weights exceed one binding, so partial sums accumulate over several launches."""
    x, w = (1, 30, 8, 8), (20, 30, 3, 3)
    limits = replace(
        adapter.limits,
        max_storage_buffer_binding_size=1 << 14,
        max_buffer_size=4 << 20,
        min_storage_buffer_offset_alignment=256,
    )
    runner = engine(replace(adapter, limits=limits))
    arrays = [random_array(x, 1), random_array(w, 2)]
    types = tensor_types(x, w)
    op = registry.get("conv")
    graph = single_op_graph(op, Sample((), {}), arrays)
    node = graph.node(graph.outputs[0])
    kernel = runner.backend.kernel_selector.select_kernel(
        op, types, node.type, node.attrs
    )
    assert kernel is not None
    assert len(kernel.launches) > 1
    assert kernel_mismatch(runner, "conv", arrays, "blocks of 64 windows") == ""


@pytest.mark.requires_dawn
def test_tint_compiles_the_kernels(is_full_tier: bool) -> None:
    """Tint is stricter than naga on barriers, names and types.

    SwiftShader compiles what Tint made for seconds: other tiers than the full one take
    a row of each op, and of attention the one of wide heads.
    """
    port = WgpuPort(library="wgpudawn")
    run_blocking(port.open(AdapterRequest()))
    backend = WebGpuEngine(port)
    runner = Engine("Dawn", backend)
    try:
        first_case_per_op = {
            case[0]: case for case in reversed(SPLIT_CASES) if case[0] != "attention"
        }
        for op, shapes, row, attrs in (
            SPLIT_CASES if is_full_tier else first_case_per_op.values()
        ):
            arrays = [
                random_array(shape, index) + 0.5 for index, shape in enumerate(shapes)
            ]
            variant_name = row.replace(", by subgroups", "")
            assert kernel_mismatch(runner, op, arrays, variant_name, **attrs) == "", op
        attrs_wide_heads = {"mask_kind": "causal", "softcap": 2.0}
        assert (
            attention_mismatch(
                runner, (1, 2, 70, 72), (1, 2, 70, 72), **attrs_wide_heads
            )
            == ""
        )
    finally:
        run_blocking(port.close())
