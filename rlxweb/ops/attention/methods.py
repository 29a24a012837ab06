"""Scaled dot-product attention with PyTorch's name and rules, over the op `attention`.

The op averages all values where a row sees no key; here such a row is 0, as in PyTorch
and ONNX. Nothing is computed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.core.errors import AttributeRefused, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op_methods import graph_method
from rlxweb.ir.shape_arithmetic import Shape, format_shape, numel
from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


@graph_method
def scaled_dot_product_attention(
    g: Graph,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    offset: int = 0,
    window: int | None = None,
) -> Tensor:
    """Return softmax(cap(scale · q · kᵀ) + mask) · v; a row with no visible key is 0.

    attn_mask  bool (true is seen) or added to the scores; it broadcasts to [..., L,
               S]. Beside is_causal both hold
    is_causal  query i sees keys up to i + offset, where the first query stands
    window     and of those only the last `window` before its own; with is_causal
    scale      1 / sqrt(E) where it is left out
    Shapes     query [..., H, L, E], key [..., G, S, E], value [..., G, S, V] →
               [..., H, L, V]; H is a multiple of G, whose heads are shared in
               order. Without heads: [N, L, E], or [L, E]
    Errors     ShapeError, DTypeError, AttributeRefused
    Source     torch.nn.functional.scaled_dot_product_attention, with ONNX's window
    """
    context = "scaled_dot_product_attention"
    if window is not None and not (is_causal and window >= 0):
        raise AttributeRefused(
            context,
            f"window={window} with is_causal={is_causal}",
            "window must be >= 0 and requires is_causal=True",
        )
    if offset and not is_causal:
        raise AttributeRefused(
            context,
            f"offset={offset} with is_causal=False",
            "offset requires is_causal=True",
        )
    q, k, v = _split_heads(g, context, query, key, value)
    if attn_mask is not None:
        attn_mask = _mask_to_rank_4(g, context, attn_mask, query.shape)
    spec = AttentionSpec(
        q.shape[1], q.shape[3], is_causal, scale, softcap, offset, window
    )
    out = spec.add_to_graph(g, (q, k, v), attn_mask)
    return g.reshape(out, (*query.shape[:-1], value.shape[-1]))


@graph_method
def attention(
    g: Graph,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    num_heads: int,
    head_dim: int,
    mask_kind: str = "none",
    window: int = 0,
    offset: int | None = None,
    score_scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Apply scaled dot-product attention; `mask` belongs to mask_kind "custom" and
    "bias".

    window   keys before its own that a query sees under "sliding_window"; with 0,
             its own key alone
    offset   the key at which the first query stands, for masks by position; left
             out, the last query stands at the last key
    """
    operands = (q, k, v) if mask is None else (q, k, v, mask)
    return g.apply(
        "attention",
        *operands,
        num_heads=num_heads,
        head_dim=head_dim,
        mask_kind=mask_kind,
        window=window,
        offset=offset,
        score_scale=score_scale,
        softcap=softcap,
    )


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Options of attention over [B, H, S, D] or [B, S, H·D]; see `attention`."""

    num_heads: int
    head_dim: int
    is_causal: bool = False
    scale: float | None = None
    softcap: float | None = None
    offset: int = 0
    window: int | None = None

    def add_to_graph(
        self, g: Graph, operands: tuple[Tensor, Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        """Add the attention nodes and return the result, laid out like the operands;
        `mask` broadcasts to [B, H, L, S].
        """
        q, k, _ = operands
        length_axis = q.rank - 2
        visible = None
        if self.is_causal:
            sizes = (q.shape[length_axis], k.shape[length_axis])
            visible = position_mask(*sizes, self.offset, self.window)
        bias = None if mask is None else mask_as_bias(g, mask, q.dtype)
        open_rows = rows_with_keys(g, bias, visible) if k.shape[length_axis] else None
        if bias is not None and open_rows is not None:
            # The softmax of a closed row would be NaN, and so would the gradients of
            # all keys: selecting 0 instead of its result does not undo that.
            bias = g.where(open_rows, bias, 0.0)
        kind = "none" if bias is None else "bias"
        if self.is_causal:
            kind = "causal" if self.window is None else "sliding_window"
        out = g.attention(
            *operands,
            bias,
            num_heads=self.num_heads,
            head_dim=self.head_dim,
            mask_kind=kind,
            window=self.window or 0,
            offset=self.offset if self.is_causal else None,
            score_scale=self.scale,
            softcap=self.softcap,
        )
        if open_rows is None:
            return out
        if q.rank == 4:
            return g.where(open_rows, out, 0.0)
        B, L, width = out.shape
        rows = g.reshape(out, (B, L, self.num_heads, width // self.num_heads))
        shape = (1,) * (4 - open_rows.rank) + open_rows.shape
        open_rows = g.transpose(g.reshape(open_rows, shape), (0, 2, 1, 3))
        return g.reshape(g.where(open_rows, rows, 0.0), out.shape)


def _split_heads(
    g: Graph, context: str, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return all three operands as [B, H, S, D]; operands without heads get one."""
    ranks = {t.rank for t in (query, key, value)}
    if len(ranks) > 1 or query.rank < 2:
        raise ShapeError(
            context,
            f"query has shape {format_shape(query.shape)}, key "
            f"{format_shape(key.shape)}, value {format_shape(value.shape)}",
            "query, key and value must have the same rank, and the form [..., heads, "
            "length, size], [batch, length, size] or [length, size]",
        )

    def to_rank_4(x: Tensor) -> Tensor:
        heads = x.shape[-3] if x.rank > 3 else 1
        batch = numel(x.shape[:-3] if x.rank > 3 else x.shape[:-2])
        return g.reshape(x, (batch, heads, *x.shape[-2:]))

    return to_rank_4(query), to_rank_4(key), to_rank_4(value)


def _mask_to_rank_4(g: Graph, context: str, mask: Tensor, queries: Shape) -> Tensor:
    """Reshape a mask that broadcasts to [..., L, S] so that it broadcasts to [B, H, L,
    S].
    """
    rank = len(queries)
    if mask.rank > rank:
        raise ShapeError(
            context,
            f"the mask has shape {format_shape(mask.shape)}, the query "
            f"{format_shape(queries)}",
            f"the mask must have a rank of at most {rank} and broadcast to [..., query "
            "length, key length]",
        )
    if rank == 4 and mask.rank:
        return mask
    batches = queries[: -3 if rank > 3 else -2]
    full = (1,) * (rank - mask.rank) + mask.shape
    mask_batches, rest = full[: len(batches)], full[len(batches) :]
    if numel(mask_batches) != 1 and mask_batches != batches:
        # Batches of several axes are one axis of the op's.
        mask, mask_batches = g.expand(g.reshape(mask, full), (*batches, *rest)), batches
    heads = rest if rank > 3 else (1, *rest)
    return g.reshape(mask, (numel(mask_batches), *heads))


def mask_as_bias(g: Graph, mask: Tensor, dtype: DType) -> Tensor:
    """Return a mask to add to scores: a bool mask becomes 0 where true and -infinity
    elsewhere.
    """
    if mask.dtype is not DType.BOOL:
        return mask
    zero, minus_infinity = (g.constant(x, dtype) for x in (0.0, -math.inf))
    return g.where(mask, zero, minus_infinity)


def position_mask(queries: int, keys: int, offset: int, window: int | None) -> Any:
    """Return the keys that each query sees by position, as bools [queries, keys]."""
    distance = np.arange(queries)[:, None] - np.arange(keys)
    visible = distance >= -offset
    return visible if window is None else visible & (distance <= window - offset)


def rows_with_keys(g: Graph, bias: Tensor | None, visible: Any = None) -> Tensor | None:
    """Return the mask [..., L, 1] of rows with a visible key, or None if all rows have
    one.

    bias  of the scores, in which -infinity closes a key
    visible  what is open by place, [L, S] of bools; None: all
    """
    if bias is None:
        if visible is None or visible.any(axis=1).all():
            return None
        return g.constant(visible.any(axis=1)[:, None])
    if 0 in bias.shape:
        return None
    minus_infinity = g.constant(-math.inf, bias.dtype)
    if visible is not None and not visible.all():
        bias = g.where(g.constant(visible), bias, minus_infinity)
    return g.ne(g.max(bias, -1, keep_dim=True), minus_infinity)
