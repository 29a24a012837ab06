"""Check GPU kernels interpreted lane by lane: results are correct and depend on no
order but that of the barriers.

A driver that runs lanes in step hides a missing barrier; here two lanes that meet in a
cell are a race, a barrier that some do not reach is an error, what nobody wrote is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.core.limits import Limits
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import KernelPlan
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ops.layout.wgsl.transpose import tiled_transpose
from tests.kernel_tables import WGSL_VARIANTS
from tests.lanes.kernel_plan_interpreter import run_plan
from tests.lanes.subgroup_layout import SubgroupLayout
from tests.lanes.workgroup_access_tracking import DataRace, WorkgroupCounts

Array = Any
DEVICE = Limits(max_compute_workgroup_storage_size=32 << 10)
VARIANTS_BY_NAME = {row.name: row for row in WGSL_VARIANTS}
LINEAR_LAYOUT = SubgroupLayout()


def random_array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).uniform(-2, 2, shape).astype("f4")


def plan_variant(
    variant: str, arrays: Sequence[Array], **attrs: Any
) -> tuple[Any, KernelPlan]:
    """Return the output type and the kernel plan of a variant for these operands."""
    op = registry.get(VARIANTS_BY_NAME[variant].op)
    types = tuple(TensorType(a.shape, as_dtype(a.dtype)) for a in arrays)
    checked_attrs = op.check_attrs(attrs)
    out = op.output_type(types, checked_attrs)
    plan = VARIANTS_BY_NAME[variant].build(types, out, checked_attrs, DEVICE)
    assert plan is not None, variant
    return out, plan


def check_variant(
    variant: str,
    *arrays: Array,
    subgroups: SubgroupLayout = LINEAR_LAYOUT,
    **attrs: Any,
) -> list[WorkgroupCounts]:
    """Check a variant's result against the reference and return the counts of each
    workgroup.
    """
    op = registry.get(VARIANTS_BY_NAME[variant].op)
    out, plan = plan_variant(variant, arrays, **attrs)
    got, counts = run_plan(plan, arrays, out.numel, DEVICE, subgroups, out.dtype)
    with np.errstate(all="ignore"):
        want = op.reference(np, op.check_attrs(attrs), *arrays)
    tolerance = {"rtol": 1e-5, "atol": 2e-5} if out.dtype.is_float else {"rtol": 0}
    np.testing.assert_allclose(got.reshape(out.shape), want, **tolerance)
    return counts


@pytest.mark.parametrize(
    ("side", "x", "y"),
    [
        (64, (70, 20), (20, 68)),
        (64, (34, 19), (19, 37)),
        (64, (33, 130), (130, 36)),
        (128, (70, 18), (18, 132)),
    ],
    ids=str,
)
def test_matmul_tiles(
    side: int, x: Shape, y: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrix products are right with tails on all sides, vec4 and scalar loads and a
    sum in two parts.

    No bank is hit twice.
    """
    if side == 128:  # it leaves such few blocks to the smaller ones
        monkeypatch.setattr("rlxweb.ops.matmul.wgsl.blocked.FILLING_WARPS", 1)
    for counts in check_variant(
        f"matmul, blocks of {side}", random_array(*x), random_array(*y, seed=1)
    ):
        assert counts.worst <= 1


def test_storing_one_vec4_component_races_with_the_others() -> None:
    """Lanes that store different components of one vec4 race, as WGSL says.

    Direct3D and Metal do it.
    """
    variant = "matmul, blocks of 64"
    arrays = [random_array(64, 16), random_array(16, 64)]
    _, plan = plan_variant(variant, arrays)
    (dispatch,) = plan.dispatches
    full_store = "left[(0u * 8u + (lid + 0u) % 8u) * 17u + (lid + 0u) / 8u] = x0;"
    assert dispatch.source is not None
    assert full_store in dispatch.source
    component_store = "left[lid / 4u][lid % 4u] = x0.x;"
    broken = replace(
        dispatch, source=dispatch.source.replace(full_store, component_store)
    )
    with pytest.raises(DataRace, match="two lanes write one cell"):
        run_plan(replace(plan, dispatches=(broken,)), arrays, 64 * 64, DEVICE)


MASKS: tuple[dict[str, Any], ...] = (
    {},
    {"mask_kind": "causal"},
    {"mask_kind": "sliding_window", "window": 5},
)


@pytest.mark.parametrize("mask", MASKS, ids=lambda m: m.get("mask_kind", "none"))
@pytest.mark.parametrize(
    ("queries", "keys", "size"), [(66, 70, 8), (20, 100, 4), (100, 20, 4), (18, 40, 68)]
)
def test_attention(queries: int, keys: int, size: int, mask: dict[str, Any]) -> None:
    """Attention is right for queries before the first key and after the last tile, and
    for heads of two lanes.
    """
    q, k, v = (
        random_array(1, 1, n, size, seed=s) for s, n in enumerate((queries, keys, keys))
    )
    attrs = {"num_heads": 1, "head_dim": size, **mask}
    check_variant("attention, one kernel", q, k, v, **attrs)


def test_attention_skips_fully_masked_tiles() -> None:
    """Attention loads fewer tiles under a causal mask, and fewer still in a window."""
    operands = [random_array(1, 1, 128, 4, seed=s) for s in range(3)]
    requests = {}
    for mask in MASKS:
        attrs = {"num_heads": 1, "head_dim": 4, **mask}
        counts = check_variant("attention, one kernel", *operands, **attrs)
        requests[mask.get("mask_kind", "none")] = [group.requests for group in counts]
    first, last = requests["causal"]
    assert first < 0.65 * requests["none"][0]
    assert last < 1.2 * requests["none"][1]
    assert requests["sliding_window"][1] < 0.9 * last


def test_masked_values_may_affect_attention() -> None:
    """Masked NaN and infinite values, and scores below that of a masked key (-1e9),
    match the reference.
    """
    q, k, v = (random_array(1, 1, 70, 8, seed=s) for s in range(3))
    attrs = {"num_heads": 1, "head_dim": 8, "mask_kind": "causal"}
    bad = v.copy()
    bad[0, 0, 69, 3], bad[0, 0, 40, 6] = np.nan, np.inf
    check_variant("attention, one kernel", q, k, bad, **attrs)
    q[0, 0, 3], k[0, 0, :4] = 1e5, -1e5
    check_variant("attention, one kernel", q, k, v, **attrs, score_scale=1.0)


@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
@pytest.mark.parametrize(("rows", "n", "k"), [(3, 33, 33), (2, 129, 5), (1, 5000, 16)])
def test_topk(rows: int, n: int, k: int, ties: bool) -> None:
    """Top-k is right for short rows and for lists merged from those of chunks."""
    x = random_array(rows, n)
    check_variant("topk, workgroup a row", np.round(x) if ties else x, k=k)


LAYOUTS = [
    SubgroupLayout(size, seed=seed)
    for size in (4, 8, 16, 32, 64, 128)
    for seed in (None, 1)
]
LAYOUTS += [
    SubgroupLayout(32, 16),
    SubgroupLayout(32, 8, seed=2),
    SubgroupLayout(64, 32, seed=3),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_row_reductions_by_subgroups_of_any_layout(layout: SubgroupLayout) -> None:
    """Row reductions are right for subgroups of any size and lane order, some never
    started.
    """
    for n in (64, 132, 1024):
        row = ", in registers, by subgroups"
        check_variant(f"softmax{row}", random_array(5, n), subgroups=layout, axis=-1)
    operands = random_array(5, 132), random_array(132), random_array(132, seed=1)
    for op in ("layer_norm", "rms_norm"):
        check_variant(f"{op}{row}", *operands, subgroups=layout, axis=-1)


def test_row_reductions_by_tree() -> None:
    """Row reductions are right by a tree where there are no subgroups."""
    check_variant("softmax, in registers", random_array(35, 132), axis=-1)
    check_variant(
        "layer_norm, in registers",
        random_array(3, 68),
        random_array(68),
        random_array(68),
        axis=-1,
    )
    check_variant("softmax, workgroup a row", random_array(3, 200), axis=-1)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_reductions(op: str) -> None:
    """Reductions are right with several rows per workgroup, scalar and vec4 loads, and
    a row in parts.
    """
    for shape in ((9, 37), (5, 132), (1, 20_000))[: 3 if op == "sum" else 2]:
        check_variant(
            f"{op}, many lanes a line", random_array(*shape), axes=(1,), keep_dim=False
        )


def test_gather_and_transpose() -> None:
    """A vec4 gather is right; so is a tiled transpose, which has no bank conflicts."""
    indices = np.array([5, 0, 3], np.int32)
    check_variant("gather, rows by fours", random_array(6, 8), indices, axis=0)
    x = random_array(70, 45)
    layout = Layout.dense(x.shape).transpose((1, 0))
    dispatch = tiled_transpose(
        layout, Layout.dense(layout.shape), as_dtype("f32"), DEVICE
    )
    assert dispatch is not None
    got, counts = run_plan(KernelPlan((dispatch,)), [x], x.size, DEVICE)
    np.testing.assert_array_equal(got.reshape(45, 70), x.T)
    assert all(group.worst == 1 for group in counts)
