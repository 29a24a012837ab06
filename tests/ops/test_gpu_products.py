"""Products and attention by the kernels made for GPUs, over shapes that hurt them.

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

from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Want
from rlxweb.ir.op import registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape
from tests.agreement import Array, Engine, engine, one_op
from tests.ops.test_gpu_shapes import CUT, LAVAPIPE, drawn, missed, of_row
from tests.tiers import Sampler
from tests.unit.ops.alone import types_of

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
    adapter: Want,
    sampled: Sampler,
) -> None:
    """Integers wrap, halves are summed in float32.

    Other tiers than the full one take the first shape of these.
    """
    row = f"matmul, blocks of {side}"
    one, rng = of_row(adapter, row), np.random.default_rng(side)
    top = 1e9 if dtype == "i32" else 2
    most = 4 if dtype == "f32" else 1
    for pair in sampled(shapes, most, quick=most):
        arrays = [Drawn(s, dtype, -top, top).draw(rng) for s in pair]
        assert missed(one, "matmul", arrays, row) == "", pair


@hypothesis.settings(max_examples=12)
@hypothesis.given(st.integers(33, 200), st.integers(16, 700), st.integers(33, 200))
def test_products_of_any_size(m: int, k: int, n: int) -> None:
    """Products of any size, few of them of whole blocks, are right."""
    one = of_row(LAVAPIPE, "matmul, blocks of 64")
    assert missed(one, "matmul", [drawn((m, k)), drawn((k, n), 1)], "blocks") == ""


def test_what_is_no_number_stays_in_its_row_and_column(adapter: Want) -> None:
    """The zeros around a block and the parts of a sum let no NaN out, and none in."""
    one = of_row(adapter, "matmul, blocks of 64")
    for shapes in (((70, 600), (600, 68)), ((70, 601), (601, 67))):
        x, y = drawn(shapes[0], 1), drawn(shapes[1], 2)
        x[3, 599], x[69, 0], y[5, 66], y[7, 2] = np.nan, np.inf, np.nan, -np.inf
        assert missed(one, "matmul", [x, y], "blocks") == ""


def attended(
    one: Engine, q: Shape, k: Shape, *mask: Array, dtype: str = "f32", **attrs: Any
) -> str:
    """What is wrong with one attention; heads and head size are those of q."""
    rng = np.random.default_rng(7)
    arrays = [Drawn(s, dtype).draw(rng) for s in (q, k, attrs.pop("v", k))]
    return told(one, [*arrays, *mask], **attrs)


def told(one: Engine, arrays: list[Array], **attrs: Any) -> str:
    shape = arrays[0].shape
    named = {"num_heads": shape[1], "head_dim": shape[-1], **attrs}
    return missed(one, "attention", arrays, "one kernel", **named)


Q, K = (2, 6, 67, 16), (2, 3, 101, 16)
MASKS: dict[str, tuple[dict[str, Any], Any]] = {
    "none": ({}, None),
    "causal": ({"mask_kind": "causal"}, None),
    "window": ({"mask_kind": "sliding_window", "window": 7}, None),
    "bools": ({"mask_kind": "custom"}, lambda rng: rng.random((2, 101)) < 0.5),
    "all masked": ({"mask_kind": "custom"}, lambda rng: np.zeros((1, 101), np.int32)),
    "floats": ({"mask_kind": "custom"}, lambda rng: _floats(rng, (1, 101))),
    "bias": (
        {"mask_kind": "bias", "softcap": 1.5},
        lambda rng: _floats(rng, (67, 101)),
    ),
    "a bias a row": ({"mask_kind": "bias"}, lambda rng: _floats(rng, (6, 67, 1))),
}


def _floats(rng: np.random.Generator, shape: Shape) -> Array:
    return rng.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("mask", MASKS)
def test_attention_with_every_mask(mask: str, adapter: Want) -> None:
    """Attention is right with every mask, grouped heads and tails of both lengths."""
    one = of_row(adapter, "attention, one kernel")
    attrs, make = MASKS[mask]
    given = [make(np.random.default_rng(3))] if make else []
    assert attended(one, Q, K, *given, **attrs) == ""


def test_attention_of_other_layouts_and_lengths(adapter: Want) -> None:
    """Queries before the first key, [B, S, H, D], [B, S, H·D] and a scale."""
    one = of_row(adapter, "attention, one kernel")
    early, named = {"mask_kind": "causal"}, {"num_heads": 6, "head_dim": 16}
    assert attended(one, (1, 2, 67, 8), (1, 2, 30, 8), **early) == ""
    assert attended(one, (1, 67, 6, 16), (1, 70, 3, 16), score_scale=2.0, **named) == ""
    flat = (2, 70, 24)
    assert attended(one, (2, 67, 96), (2, 70, 48), v=flat, **named) == ""


@pytest.mark.parametrize("size", [68, 132])
def test_attention_of_wide_heads(size: int, adapter: Want) -> None:
    """Heads are attended right by two and four lanes a query, the last not full."""
    one = of_row(adapter, "attention, one kernel")
    assert attended(one, (1, 2, 66, size), (1, 2, 41, size)) == ""


def test_attention_in_halves_is_computed_in_singles() -> None:
    """Scores up to a thousand would not do in float16."""
    one = of_row(LAVAPIPE, "attention, one kernel")
    assert attended(one, Q, K, dtype="f16", mask_kind="causal", score_scale=8.0) == ""


def test_attention_to_what_is_no_number(adapter: Want) -> None:
    """A bad score spoils its row, a bad value its column, masked or not.

    A row of -infinity alone has no softmax.
    """
    one = of_row(adapter, "attention, one kernel")
    for spot in range(4):
        rng = np.random.default_rng(5)
        q, k, v = (_floats(rng, (1, 2, n, 8)) for n in (66, 70, 70))
        bias = _floats(rng, (1, 2, 66, 70))
        if spot == 0:
            q[0, 1, 65, 3], k[0, 0, 69, 2] = np.nan, np.nan
        elif spot == 1:
            v[0, 0, 69, 1], v[0, 1, 0, 7] = np.nan, np.inf
        elif spot == 2:
            bias[0, 0, 3], bias[0, 1, 4, :40] = -np.inf, -np.inf
        else:
            bias[0, 0, 5, 69], bias[0, 1, 6, 0] = np.inf, np.nan
        assert told(one, [q, k, v, bias], mask_kind="bias") == "", spot
        if spot < 2:
            assert told(one, [q, k, v], mask_kind="causal") == "", spot


def test_sums_of_a_convolution_that_carry_on(adapter: Want) -> None:
    """The weights are over one binding, so pieces of the sum follow each other."""
    x, w = (1, 30, 8, 8), (20, 30, 3, 3)
    few = replace(
        adapter.limits,
        max_storage_buffer_binding_size=1 << 14,
        max_buffer_size=4 << 20,
        min_storage_buffer_offset_alignment=256,
    )
    one = engine(replace(adapter, limits=few))
    arrays = [drawn(x, 1), drawn(w, 2)]
    types = types_of(x, w)
    op = registry.get("conv")
    graph = one_op(op, Sample((), {}), arrays)
    node = graph.node(graph.outputs[0])
    chosen = one.backend.recipes.choose(op, types, node.type, node.attrs)
    assert chosen is not None
    assert len(chosen.launches) > 1
    assert missed(one, "conv", arrays, "blocks of 64 windows") == ""


@pytest.mark.requires_dawn
def test_the_compiler_of_a_browser_takes_them(is_full_tier: bool) -> None:
    """Tint is stricter than naga on barriers, names and types.

    SwiftShader compiles what Tint made for seconds: other tiers than the full one take
    a row of each op, and of attention the one of wide heads.
    """
    port = NativePort(library="wgpudawn")
    drive(port.open(Want()))
    backend = WebGpuBackend(port)
    one = Engine("Dawn", backend)
    try:
        firsts = {case[0]: case for case in reversed(CUT) if case[0] != "attention"}
        for op, shapes, row, attrs in CUT if is_full_tier else firsts.values():
            arrays = [drawn(shape, at) + 0.5 for at, shape in enumerate(shapes)]
            way = row.replace(", by subgroups", "")
            assert missed(one, op, arrays, way, **attrs) == "", op
        wide = {"mask_kind": "causal", "softcap": 2.0}
        assert attended(one, (1, 2, 70, 72), (1, 2, 70, 72), **wide) == ""
    finally:
        drive(port.close())
