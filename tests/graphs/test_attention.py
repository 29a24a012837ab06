"""Attention under PyTorch's name, against PyTorch: masks, shared heads, causal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from rlxweb.errors import AttributeRefused, RlxError, ShapeError
from tests.agreement import Array, engine
from tests.conftest import ADAPTERS

RNG = np.random.default_rng(8)


def drawn(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=shape).astype(np.float32)


def bools(rng: np.random.Generator, *shape: int) -> Array:
    """Half of them true, and none in the first row."""
    made = rng.random(shape) < 0.5
    made[..., 0, :] = False
    return made


def open_to_some(rng: np.random.Generator, *shape: int) -> Array:
    """A mask to add, of which a half is -infinity, and all of the last row."""
    made = np.where(rng.random(shape) < 0.5, -np.inf, rng.normal(size=shape))
    made[..., -1, :] = -np.inf
    return made.astype(np.float32)


HEADS = ((2, 6, 19, 8), (2, 6, 23, 8), (2, 6, 23, 12))
SHARED = ((2, 6, 19, 8), (2, 2, 23, 8), (2, 2, 23, 12))
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain": (HEADS, None, {}),
    "scaled": (HEADS, None, {"scale": 0.2}),
    "top-left": (HEADS, None, {"is_causal": True}),
    "shared": (SHARED, None, {"is_causal": True}),
    "bools": (HEADS, bools(RNG, 19, 23), {}),
    "bools of batches": (SHARED, bools(RNG, 2, 1, 19, 23), {}),
    "bools of keys": (HEADS, RNG.random((2, 1, 1, 23)) < 0.5, {}),
    "added": (HEADS, open_to_some(RNG, 2, 6, 19, 23), {}),
    "added to heads": (SHARED, open_to_some(RNG, 6, 19, 23), {}),
    "without heads": (
        ((3, 7, 8), (3, 5, 8), (3, 5, 8)),
        open_to_some(RNG, 3, 7, 5),
        {},
    ),
    "batches of two axes": (
        ((2, 4, 3, 7, 8), (2, 4, 3, 5, 8), (2, 4, 3, 5, 8)),
        bools(RNG, 4, 1, 7, 5),
        {},
    ),
    "one for all": (((3, 7, 8), (3, 5, 8), (3, 5, 8)), np.array(True), {}),
    "a matrix": (((7, 8), (5, 8), (5, 4)), bools(RNG, 7, 5), {}),
}
CASES["top-left, more queries"] = (
    ((2, 6, 23, 8), (2, 6, 19, 8), (2, 6, 19, 8)),
    None,
    {"is_causal": True},
)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", CASES)
def test_pytorch_agrees(name: str, rng: np.random.Generator) -> None:
    """Attention is PyTorch's; rows without an open key are 0."""
    shapes, mask, how = CASES[name]
    arrays = [drawn(rng, *shape) for shape in shapes]
    g = rlx.Graph(name)
    tensors = [g.input(n, a.shape) for n, a in zip("qkv", arrays, strict=True)]
    feeds = dict(zip("qkv", arrays, strict=True))
    if mask is not None:
        tensors.append(g.input("m", mask.shape, mask.dtype))
        feeds["m"] = mask
    out = g.scaled_dot_product_attention(*tensors, **how)
    g.set_outputs([out])
    q, k, v = map(torch.tensor, arrays)
    given = None if mask is None else torch.tensor(mask)
    gqa = len(shapes[0]) > 3 and shapes[0][1] != shapes[1][1]
    want = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, given, enable_gqa=gqa, **how
    ).numpy()
    for one in (engine(None), engine(None, variants=False), *on_gpus()):
        got = one.run(g, feeds)[0]
        np.testing.assert_allclose(got, want, atol=3e-6, err_msg=one.name)


def on_gpus() -> list[Any]:
    """The kernel that GPUs take, and the composition."""
    from rlxweb.recipes.variants import VARIANTS

    one = engine(ADAPTERS["lavapipe"])
    row = next(row.name for row in VARIANTS if row.op == "attention")
    forced = type(one)("in one kernel", one.backend.forced(row))
    return [one, forced]


@pytest.mark.parametrize(("offset", "window"), [(3, 4), (15, 4), (2**70, 2**70 - 3)])
@pytest.mark.parametrize("mask", [None, "added", "bools"])
def test_causal_windows_and_masks_hold_together(
    mask: str | None, offset: int, window: int, rng: np.random.Generator
) -> None:
    """Causal windows, offsets and masks together are one mask of PyTorch's."""
    L, S = 9, 14
    arrays = [drawn(rng, 1, 2, L, 4), drawn(rng, 1, 2, S, 4), drawn(rng, 1, 2, S, 4)]
    behind = np.array([[i + offset - j for j in range(S)] for i in range(L)])
    keep = (behind >= 0) & (behind <= window)
    own = {"added": open_to_some(rng, L, S), "bools": bools(rng, L, S)}.get(mask or "")
    g = rlx.Graph("window")
    q, k, v = (g.input(n, a.shape) for n, a in zip("qkv", arrays, strict=True))
    given = None if own is None else g.constant(own)
    g.set_outputs(
        [
            g.scaled_dot_product_attention(
                *(q, k, v, given), is_causal=True, offset=offset, window=window
            )
        ]
    )
    got = engine(None).run(g, dict(zip("qkv", arrays, strict=True)))[0]
    bias = np.where(keep, 0.0, -np.inf)
    if own is not None:
        bias = bias + (np.where(own, 0, -np.inf) if own.dtype == bool else own)
    q2, k2, v2 = (torch.tensor(a, dtype=torch.float64) for a in arrays)
    want = torch.nn.functional.scaled_dot_product_attention(
        q2, k2, v2, torch.tensor(bias)
    )
    np.testing.assert_allclose(got, want, atol=3e-6)


def refused(*shapes: Any, **how: Any) -> None:
    g = rlx.Graph("refused")
    g.scaled_dot_product_attention(
        *(g.input(f"x{at}", shape) for at, shape in enumerate(shapes)), **how
    )


def test_what_does_not_fit_is_refused() -> None:
    """Operands of attention that do not fit are refused with what was wanted."""
    with pytest.raises(ShapeError, match=r"all are .*heads, length, size"):
        refused((2, 3, 4, 5), (3, 4, 5), (3, 4, 5))
    for own in ({"window": 3}, {"offset": 3}, {"window": -1, "is_causal": True}):
        with pytest.raises(AttributeRefused, match="belongs to is_causal"):
            refused((3, 4, 5), (3, 4, 5), (3, 4, 5), **own)
    with pytest.raises(ShapeError, match="divide the query heads"):
        refused((2, 3, 4, 5), (2, 2, 4, 5), (2, 2, 4, 5))
    with pytest.raises(ShapeError, match=r"mask \[1, 4, 4\] beside queries \[4, 5\]"):
        refused((4, 5), (4, 5), (4, 5), (1, 4, 4))
    with pytest.raises(RlxError, match=r"mask \[4, 9\]"):
        refused((2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 5), (4, 9))
