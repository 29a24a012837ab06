"""Attention under PyTorch's name and rules, over the op of ours.

The op averages all values where a row sees no key; here such a row is 0, as in PyTorch
and ONNX. Nothing is computed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.errors import AttributeRefused, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import Shape, numel, show
from rlxweb.ir.tensor import Tensor


class AttentionBuilder(OpBuilder):
    """Builder methods over `apply`; mixed into Graph."""

    def scaled_dot_product_attention(
        self,
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
        """softmax(cap(scale · q · kᵀ) + mask) · v; a row that sees no key is 0.

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
        doing = "scaled_dot_product_attention"
        if window is not None and not (is_causal and window >= 0):
            raise AttributeRefused(
                doing, f"window={window}", "it is >= 0 and belongs to is_causal"
            )
        if offset and not is_causal:
            raise AttributeRefused(doing, f"offset={offset}", "it belongs to is_causal")
        g: Any = self
        q, k, v = _in_heads(g, doing, query, key, value)
        if attn_mask is not None:
            attn_mask = _four(g, doing, attn_mask, query.shape)
        how = Attending(
            q.shape[1], q.shape[3], is_causal, scale, softcap, offset, window
        )
        out = how.over(g, (q, k, v), attn_mask)
        return g.reshape(out, (*query.shape[:-1], value.shape[-1]))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Attending:
    """How queries attend over [B, H, S, D] or [B, S, H·D]; see the builder's method."""

    heads: int
    size: int
    causal: bool = False
    scale: float | None = None
    softcap: float | None = None
    offset: int = 0
    window: int | None = None

    def over(
        self, g: Any, operands: tuple[Tensor, Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        """The result, laid out as the operands are; the mask over [B, H, L, S]."""
        q, k, _ = operands
        length = q.rank - 2
        keep = None
        if self.causal:
            sizes = (q.shape[length], k.shape[length])
            keep = seen(*sizes, self.offset, self.window)
        bias = None if mask is None else as_bias(g, mask, q.dtype)
        open_rows = rows_with_keys(g, bias, keep) if k.shape[length] else None
        if bias is not None and open_rows is not None:
            # The softmax of a closed row would be NaN, and so would the gradients of
            # all keys: selecting 0 instead of its result does not undo that.
            bias = g.where(open_rows, bias, 0.0)
        kind = "none" if bias is None else "bias"
        if self.causal:
            kind = "causal" if self.window is None else "sliding_window"
        out: Tensor = g.attention(
            *operands,
            bias,
            num_heads=self.heads,
            head_dim=self.size,
            mask_kind=kind,
            window=self.window or 0,
            offset=self.offset if self.causal else None,
            score_scale=self.scale,
            softcap=self.softcap,
        )
        if open_rows is None:
            return out
        if q.rank == 4:
            return g.where(open_rows, out, 0.0)  # type: ignore[no-any-return]
        B, L, wide = out.shape
        rows = g.reshape(out, (B, L, self.heads, wide // self.heads))
        shape = (1,) * (4 - open_rows.rank) + open_rows.shape
        open_rows = g.transpose(g.reshape(open_rows, shape), (0, 2, 1, 3))
        return g.reshape(g.where(open_rows, rows, 0.0), out.shape)  # type: ignore[no-any-return]


def _in_heads(
    g: Any, doing: str, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """All three as [B, H, S, D]; without heads each batch has one."""
    ranks = {t.rank for t in (query, key, value)}
    if len(ranks) > 1 or query.rank < 2:
        raise ShapeError(
            doing,
            f"query {show(query.shape)}, key {show(key.shape)}, value "
            f"{show(value.shape)}",
            "all are [..., heads, length, size], or all without heads",
        )

    def four(x: Tensor) -> Tensor:
        heads = x.shape[-3] if x.rank > 3 else 1
        batch = numel(x.shape[:-3] if x.rank > 3 else x.shape[:-2])
        return g.reshape(x, (batch, heads, *x.shape[-2:]))  # type: ignore[no-any-return]

    return four(query), four(key), four(value)


def _four(g: Any, doing: str, mask: Tensor, queries: Shape) -> Tensor:
    """A mask that broadcasts to [..., L, S], to [B, H, L, S] of such queries."""
    rank = len(queries)
    if mask.rank > rank:
        raise ShapeError(
            doing,
            f"a mask {show(mask.shape)} beside queries {show(queries)}",
            f"it broadcasts to [..., L, S], of rank {rank}",
        )
    if rank == 4 and mask.rank:
        return mask
    batches = queries[: -3 if rank > 3 else -2]
    full = (1,) * (rank - mask.rank) + mask.shape
    own, rest = full[: len(batches)], full[len(batches) :]
    if numel(own) != 1 and own != batches:
        # Batches of several axes are one axis of the op's.
        mask, own = g.expand(g.reshape(mask, full), (*batches, *rest)), batches
    heads = rest if rank > 3 else (1, *rest)
    return g.reshape(mask, (numel(own), *heads))  # type: ignore[no-any-return]


def as_bias(g: Any, mask: Tensor, dtype: DType) -> Tensor:
    """A mask to add: 0 where a bool one is true, -infinity where it is not."""
    if mask.dtype is not DType.BOOL:
        return mask
    zero, never = (g.constant(x, dtype) for x in (0.0, -math.inf))
    return g.where(mask, zero, never)  # type: ignore[no-any-return]


def seen(queries: int, keys: int, offset: int, window: int | None) -> Any:
    """Which keys each query sees by its place, [queries, keys] of bools."""
    behind = np.arange(queries)[:, None] - np.arange(keys)
    keep = behind >= -offset
    return keep if window is None else keep & (behind <= window - offset)


def rows_with_keys(g: Any, bias: Tensor | None, keep: Any = None) -> Tensor | None:
    """Which rows have a key that is open to them, [..., L, 1]; None: all have.

    bias  of the scores, in which -infinity closes a key
    keep  what is open by place, [L, S] of bools; None: all
    """
    if bias is None:
        if keep is None or keep.any(axis=1).all():
            return None
        return g.constant(keep.any(axis=1)[:, None])  # type: ignore[no-any-return]
    if 0 in bias.shape:
        return None
    never = g.constant(-math.inf, bias.dtype)
    if keep is not None and not keep.all():
        bias = g.where(g.constant(keep), bias, never)
    return g.ne(g.max(bias, -1, keep_dim=True), never)  # type: ignore[no-any-return]
