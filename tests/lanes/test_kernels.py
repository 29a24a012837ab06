"""Kernels for GPUs run lane by lane: right, and no order but that of the barriers.

A driver that runs lanes in step hides a missing barrier; here two lanes that meet in a
cell are a race, a barrier that some do not reach is an error, what nobody wrote is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.layout import Layout
from rlxweb.ir.lowering import Recipe
from rlxweb.ir.op import TensorType, registry
from rlxweb.ir.shape import Shape
from rlxweb.limits import Limits
from rlxweb.recipes.movement_variants import tiled_copy
from rlxweb.recipes.variants import VARIANTS
from tests.lanes.kernel import run
from tests.lanes.memory import Counts, Race
from tests.lanes.subgroups import Subgroups

Array = Any
DEVICE = Limits(max_compute_workgroup_storage_size=32 << 10)
ROWS = {row.name: row for row in VARIANTS}
IN_ORDER = Subgroups()


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).uniform(-2, 2, shape).astype("f4")


def recipe_of(row: str, arrays: Sequence[Array], **attrs: Any) -> tuple[Any, Recipe]:
    """The type of the output and the recipe of a row for these operands."""
    op = registry.get(ROWS[row].op)
    types = tuple(TensorType(a.shape, as_dtype(a.dtype)) for a in arrays)
    known = op.check_attrs(attrs)
    out = op.output_type(types, known)
    made = ROWS[row].recipe(types, out, known, DEVICE)
    assert made is not None, row
    return out, made


def agrees(
    row: str, *arrays: Array, subgroups: Subgroups = IN_ORDER, **attrs: Any
) -> list[Counts]:
    """What each workgroup does; the result is the reference's."""
    op = registry.get(ROWS[row].op)
    out, made = recipe_of(row, arrays, **attrs)
    got, counts = run(made, arrays, out.numel, DEVICE, subgroups, out.dtype)
    with np.errstate(all="ignore"):
        want = op.reference(np, op.check_attrs(attrs), *arrays)
    error = {"rtol": 1e-5, "atol": 2e-5} if out.dtype.is_float else {"rtol": 0}
    np.testing.assert_allclose(got.reshape(out.shape), want, **error)
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
def test_products(
    side: int, x: Shape, y: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tails on all sides, loads by fours and one by one, a sum in two parts.

    No bank is hit twice.
    """
    if side == 128:  # it leaves such few blocks to the smaller ones
        monkeypatch.setattr("rlxweb.recipes.matmul_blocks.ENOUGH", 1)
    for one in agrees(f"matmul, blocks of {side}", drawn(*x), drawn(*y, seed=1)):
        assert one.worst <= 1


def test_a_store_to_one_component_is_one_to_all() -> None:
    """Lanes that store components of one vec4 race, as WGSL says.

    Direct3D and Metal do it.
    """
    row = "matmul, blocks of 64"
    arrays = [drawn(64, 16), drawn(16, 64)]
    _, made = recipe_of(row, arrays)
    (call,) = made.calls
    whole = "left[(0u * 8u + (lid + 0u) % 8u) * 17u + (lid + 0u) / 8u] = x0;"
    assert call.source is not None
    assert whole in call.source
    parts = "left[lid / 4u][lid % 4u] = x0.x;"
    broken = replace(call, source=call.source.replace(whole, parts))
    with pytest.raises(Race, match="two lanes write one cell"):
        run(replace(made, calls=(broken,)), arrays, 64 * 64, DEVICE)


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
    """Queries before the first key and after the last tile; heads of two lanes."""
    q, k, v = (
        drawn(1, 1, n, size, seed=s) for s, n in enumerate((queries, keys, keys))
    )
    named = {"num_heads": 1, "head_dim": size, **mask}
    agrees("attention, one kernel", q, k, v, **named)


def test_attention_takes_no_tile_that_nobody_sees() -> None:
    """Attention takes fewer tiles under a causal mask, and fewer still in a window."""
    operands = [drawn(1, 1, 128, 4, seed=s) for s in range(3)]
    done = {}
    for mask in MASKS:
        named = {"num_heads": 1, "head_dim": 4, **mask}
        counts = agrees("attention, one kernel", *operands, **named)
        done[mask.get("mask_kind", "none")] = [one.requests for one in counts]
    first, last = done["causal"]
    assert first < 0.65 * done["none"][0]
    assert last < 1.2 * done["none"][1]
    assert done["sliding_window"][1] < 0.9 * last


def test_what_nobody_sees_may_yet_count() -> None:
    """A value that is no number; scores below that of a masked key, -1e9."""
    q, k, v = (drawn(1, 1, 70, 8, seed=s) for s in range(3))
    named = {"num_heads": 1, "head_dim": 8, "mask_kind": "causal"}
    bad = v.copy()
    bad[0, 0, 69, 3], bad[0, 0, 40, 6] = np.nan, np.inf
    agrees("attention, one kernel", q, k, bad, **named)
    q[0, 0, 3], k[0, 0, :4] = 1e5, -1e5
    agrees("attention, one kernel", q, k, v, **named, score_scale=1.0)


@pytest.mark.parametrize("ties", [False, True], ids=["", "ties"])
@pytest.mark.parametrize(("rows", "n", "k"), [(3, 33, 33), (2, 129, 5), (1, 5000, 16)])
def test_topk(rows: int, n: int, k: int, ties: bool) -> None:
    """Short rows, and lists of the lists of chunks."""
    x = drawn(rows, n)
    agrees("topk, workgroup a row", np.round(x) if ties else x, k=k)


LAID_OUT = [
    Subgroups(size, seed=seed) for size in (4, 8, 16, 32, 64, 128) for seed in (None, 1)
]
LAID_OUT += [Subgroups(32, 16), Subgroups(32, 8, seed=2), Subgroups(64, 32, seed=3)]


@pytest.mark.parametrize("laid", LAID_OUT, ids=str)
def test_lines_by_subgroups_of_any_layout(laid: Subgroups) -> None:
    """Subgroups of any size and order of lanes, some never started, are right."""
    for n in (64, 132, 1024):
        row = ", in registers, by subgroups"
        agrees(f"softmax{row}", drawn(5, n), subgroups=laid, axis=-1)
    operands = drawn(5, 132), drawn(132), drawn(132, seed=1)
    for op in ("layer_norm", "rms_norm"):
        agrees(f"{op}{row}", *operands, subgroups=laid, axis=-1)


def test_lines_by_a_tree() -> None:
    """Lines are right by a tree where there are no subgroups."""
    agrees("softmax, in registers", drawn(35, 132), axis=-1)
    agrees("layer_norm, in registers", drawn(3, 68), drawn(68), drawn(68), axis=-1)
    agrees("softmax, workgroup a row", drawn(3, 200), axis=-1)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_reductions(op: str) -> None:
    """Several lines a workgroup, loads of one and of four, a line in parts."""
    for shape in ((9, 37), (5, 132), (1, 20_000))[: 3 if op == "sum" else 2]:
        agrees(f"{op}, many lanes a line", drawn(*shape), axes=(1,), keep_dim=False)


def test_moved_elements() -> None:
    """A gather by fours; a transpose by tiles, whose banks are never hit twice."""
    at = np.array([5, 0, 3], np.int32)
    agrees("gather, rows by fours", drawn(6, 8), at, axis=0)
    x = drawn(70, 45)
    lies = Layout.dense(x.shape).transpose((1, 0))
    call = tiled_copy(lies, Layout.dense(lies.shape), as_dtype("f32"), DEVICE)
    assert call is not None
    got, counts = run(Recipe((call,)), [x], x.size, DEVICE)
    np.testing.assert_array_equal(got.reshape(45, 70), x.T)
    assert all(one.worst == 1 for one in counts)
