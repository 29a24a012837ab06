"""Gradients of attention where a query sees no key, against PyTorch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from tests.gradients.test_corners import Way, way
from tests.tiers import thinned

__all__ = ["way"]
pytestmark = pytest.mark.requires_torch

PLACES: dict[str, dict[str, Any]] = {
    "all": {},
    "causal": {"is_causal": True},
    "first rows closed": {"is_causal": True, "offset": -2},
    "window": {"is_causal": True, "offset": -1, "window": 1},
    "all in sight": {"is_causal": True, "offset": 5},
    "last rows closed": {"is_causal": True, "offset": 3, "window": 0},
}
MASKS = ("none", "bool", "float", "by batch", "all closed")
HEADS = {"shared heads": (2, 4, 2), "heads": (2, 4, 4), "none": ()}
L, S, E = 5, 6, 3


def mask_of(kind: str, rng: Any) -> np.ndarray | None:
    """A mask with rows 1 and 4 closed."""
    if kind == "none":
        return None
    lead = (2, 1) if kind == "by batch" else ()
    keep = rng.random((*lead, L, S)) > 0.3
    keep[..., 1, :] = keep[..., 4, :] = False
    if kind == "all closed":
        keep[:] = False
    if kind != "float":
        return keep
    return np.where(keep, rng.normal(size=keep.shape), -np.inf)


def theirs(q: Any, k: Any, v: Any, mask: Any, places: dict[str, Any]) -> Any:
    """Attention whose closed rows are 0, of parts that have no NaN."""
    offset, window = places.get("offset", 0), places.get("window")
    behind = torch.arange(L)[:, None] - torch.arange(S)
    open_keys = torch.ones(L, S, dtype=torch.bool)
    if places:
        open_keys = behind >= -offset
        if window is not None:
            open_keys &= behind <= window - offset
    if q.ndim > 2:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / E**0.5
    if mask is not None and mask.dtype is torch.bool:
        open_keys = open_keys & mask
    elif mask is not None:
        open_keys = open_keys & ~torch.isinf(mask)
        scores = scores + torch.where(torch.isinf(mask), 0.0, mask)
    open_keys = open_keys.expand(scores.shape)
    some = open_keys.any(-1, keepdim=True)
    scores = scores.masked_fill(~open_keys & some, -torch.inf)
    return torch.where(some, torch.softmax(scores, -1), 0.0) @ v


@pytest.mark.parametrize("heads", thinned(HEADS, 2))
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("places", thinned(PLACES, 3))
def test_closed_rows_leave_gradients_finite(
    places: str, kind: str, heads: str, way: Way
) -> None:
    """Gradients of closed rows are PyTorch's, and finite.

    They are by queries, keys, values and what a float mask adds.
    """
    if kind == "by batch" and heads == "none":
        kind = "bool"
    rng = np.random.default_rng(11)
    given = HEADS[heads]
    lead = [(given[0], n) if given else () for n in (given[1:] or (0, 0))]
    q, k = (rng.normal(size=(*own, n, E)) for own, n in zip(lead, (L, S), strict=True))
    v = rng.normal(size=(*lead[1], S, 2))
    mask = mask_of(kind, rng)
    args = [q, k, v] if mask is None else [q, k, v, mask]
    by = (0, 1, 2, 3) if kind == "float" else (0, 1, 2)

    def loss(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        made = rlx.nn.scaled_dot_product_attention(q, k, v, mask, **PLACES[places])
        return np.sum(made * made)

    cast = [a if a.dtype == bool else a.astype(way.dtype) for a in args]
    grad = rlx.function(
        rlx.grad(loss, argnums=by), device=way.device, adapter=way.adapter
    )
    grads = grad(*cast)
    tensors = [torch.tensor(a, requires_grad=a.dtype != bool) for a in args]
    made = theirs(*tensors, *([None] if mask is None else []), PLACES[places])
    wrt = [tensors[n] for n in by]
    wanted = torch.autograd.grad(
        (made * made).sum(), wrt, allow_unused=True, materialize_grads=True
    )
    for got, want in zip(grads, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=way.near, atol=way.near)
    # In compiled code once for each place: by the mask that adds and closes.
    if way.dtype is np.float64 and (kind == "float" or not way.is_compiled):
        check_second(loss, grad, cast)


def check_second(loss: Any, grad: Any, args: list[Any]) -> None:
    """The tangents of the gradients against differences of them."""
    rng = np.random.default_rng(5)
    v = tuple(rng.normal(size=a.shape) for a in args[:3])
    slopes = rlx.grad(loss, argnums=(0, 1, 2))

    def moved(*x: Any) -> Any:
        return rlx.jvp(lambda *y: slopes(*y, *args[3:]), x, v)[1]

    def at(step: float) -> Any:
        near = [a + step * d for a, d in zip(args[:3], v, strict=True)]
        return grad(*near, *args[3:])[:3]

    step = 1e-5
    for got, above, below in zip(moved(*args[:3]), at(step), at(-step), strict=True):
        slope = (above - below) / (2 * step)
        np.testing.assert_allclose(got, slope, rtol=1e-6, atol=1e-6)
