"""Check gradients of attention with fully masked queries, against PyTorch in
float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlxweb as rlx
from tests.gradients.test_zeros_and_ties import PreciseEngine, precise_engine
from tests.suite_tiers import thin_out_cases

__all__ = ["precise_engine"]
pytestmark = pytest.mark.requires_torch

CAUSAL_OPTIONS: dict[str, dict[str, Any]] = {
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


def build_mask(kind: str, rng: Any) -> np.ndarray | None:
    """Return a mask whose rows 1 and 4 are fully masked."""
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


def reference_attention(
    q: Any, k: Any, v: Any, mask: Any, places: dict[str, Any]
) -> Any:
    """Compute attention whose fully masked rows are 0, from steps that give no NaN."""
    offset, window = places.get("offset", 0), places.get("window")
    distance = torch.arange(L)[:, None] - torch.arange(S)
    open_keys = torch.ones(L, S, dtype=torch.bool)
    if places:
        open_keys = distance >= -offset
        if window is not None:
            open_keys &= distance <= window - offset
    if q.ndim > 2:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / E**0.5
    if mask is not None and mask.dtype is torch.bool:
        open_keys = open_keys & mask
    elif mask is not None:
        open_keys = open_keys & ~torch.isinf(mask)
        scores = scores + torch.where(torch.isinf(mask), 0.0, mask)
    open_keys = open_keys.expand(scores.shape)
    has_open_key = open_keys.any(-1, keepdim=True)
    scores = scores.masked_fill(~open_keys & has_open_key, -torch.inf)
    return torch.where(has_open_key, torch.softmax(scores, -1), 0.0) @ v


@pytest.mark.parametrize("heads", thin_out_cases(HEADS, 2))
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("places", thin_out_cases(CAUSAL_OPTIONS, 3))
def test_fully_masked_rows_leave_gradients_finite(
    places: str, kind: str, heads: str, precise_engine: PreciseEngine
) -> None:
    """Gradients of fully masked rows are PyTorch's, and finite.

    They are by queries, keys, values and what a float mask adds.
    """
    if kind == "by batch" and heads == "none":
        kind = "bool"
    rng = np.random.default_rng(11)
    head_counts = HEADS[heads]
    lead = [
        (head_counts[0], n) if head_counts else () for n in (head_counts[1:] or (0, 0))
    ]
    q, k = (
        rng.normal(size=(*batch_shape, n, E))
        for batch_shape, n in zip(lead, (L, S), strict=True)
    )
    v = rng.normal(size=(*lead[1], S, 2))
    mask = build_mask(kind, rng)
    args = [q, k, v] if mask is None else [q, k, v, mask]
    by = (0, 1, 2, 3) if kind == "float" else (0, 1, 2)

    def loss(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        output = rlx.nn.scaled_dot_product_attention(
            q, k, v, mask, **CAUSAL_OPTIONS[places]
        )
        return np.sum(output * output)

    cast = [a if a.dtype == bool else a.astype(precise_engine.dtype) for a in args]
    grad = rlx.function(
        rlx.grad(loss, argnums=by),
        device=precise_engine.device,
        adapter=precise_engine.adapter,
    )
    grads = grad(*cast)
    tensors = [torch.tensor(a, requires_grad=a.dtype != bool) for a in args]
    output = reference_attention(
        *tensors, *([None] if mask is None else []), CAUSAL_OPTIONS[places]
    )
    wrt = [tensors[n] for n in by]
    wanted = torch.autograd.grad(
        (output * output).sum(), wrt, allow_unused=True, materialize_grads=True
    )
    for got, want in zip(grads, wanted, strict=True):
        np.testing.assert_allclose(
            got, want, rtol=precise_engine.tolerance, atol=precise_engine.tolerance
        )
    # In compiled code once for each place: by the mask that adds and closes.
    if precise_engine.dtype is np.float64 and (
        kind == "float" or not precise_engine.is_compiled
    ):
        check_second_derivatives(loss, grad, cast)


def check_second_derivatives(loss: Any, grad: Any, args: list[Any]) -> None:
    """Compare the tangents of the gradients with finite differences."""
    rng = np.random.default_rng(5)
    v = tuple(rng.normal(size=a.shape) for a in args[:3])
    slopes = rlx.grad(loss, argnums=(0, 1, 2))

    def gradient_tangents(*x: Any) -> Any:
        return rlx.jvp(lambda *y: slopes(*y, *args[3:]), x, v)[1]

    def gradients_at(step: float) -> Any:
        shifted = [a + step * d for a, d in zip(args[:3], v, strict=True)]
        return grad(*shifted, *args[3:])[:3]

    step = 1e-5
    for got, above, below in zip(
        gradient_tangents(*args[:3]),
        gradients_at(step),
        gradients_at(-step),
        strict=True,
    ):
        slope = (above - below) / (2 * step)
        np.testing.assert_allclose(got, slope, rtol=1e-6, atol=1e-6)
