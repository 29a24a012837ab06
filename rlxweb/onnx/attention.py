"""Attention with its caches, masks and windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlxweb.ir.attention_builder import Attending, as_bias, rows_with_keys, seen
from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts


@converts("Attention", since=23)
def _attention(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_k: Tensor | None = None,
    past_v: Tensor | None = None,
    lengths: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> tuple[Tensor | None, ...]:
    if (past_k is None) != (past_v is None):
        call.contradict("one of past_key and past_value is given", "both, or none")
    flat = (q, k, v) if q.rank == 3 else None
    if flat:
        q = _in_heads(call, q, q_num_heads, "q_num_heads")
        k, v = (_in_heads(call, x, kv_num_heads, "kv_num_heads") for x in (k, v))
    if past_k is not None and past_v is not None:
        k = call.g.concat([past_k, k], axis=2)
        v = call.g.concat([past_v, v], axis=2)
    job = _Job(
        call,
        (q, k, v),
        bool(is_causal),
        0 if past_k is None else past_k.shape[2],
        (left_window_size, right_window_size),
        scale,
        softcap or None,
    )
    mask = job.mask(mask, lengths)
    if call.wants(3):
        out, products = job.in_the_open(mask, qk_matmul_output_mode)
    elif flat and past_k is None:
        return job.by_the_op(flat, mask), k, v, None
    else:
        out, products = job.by_the_op((q, k, v), mask), None
    if flat:
        out = call.g.transpose(out, (0, 2, 1, 3))
        out = call.g.reshape(out, (*out.shape[:2], out.shape[2] * out.shape[3]))
    return out, k, v, products


def _in_heads(call: Call, x: Tensor, heads: int, name: str) -> Tensor:
    """[B, S, H·D] as [B, H, S, D]."""
    if heads < 1 or x.shape[2] % heads:
        call.contradict(
            f"{name} {heads} beside {show(x.shape)}",
            "the last dimension is a multiple of the heads",
        )
    rows = call.g.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))
    return call.g.transpose(rows, (0, 2, 1, 3))


class _Job:
    """One attention of operands in heads, keys and values with what came before."""

    def __init__(
        self,
        call: Call,
        operands: tuple[Tensor, Tensor, Tensor],
        causal: bool,
        offset: int,
        window: tuple[int, int],
        scale: float | None,
        softcap: float | None,
    ) -> None:
        self.call, self.g = call, call.g
        self.operands = operands
        self.causal, self.offset = causal, offset
        left, right = window
        self.left = left if left >= 0 else None
        self.right = 0 if causal else right if right >= 0 else None
        self.scale, self.softcap = scale, softcap

    @property
    def _sizes(self) -> tuple[int, int]:
        """Queries and keys."""
        return self.operands[0].shape[2], self.operands[1].shape[2]

    def mask(self, mask: Tensor | None, lengths: Tensor | None) -> Tensor | None:
        """The mask as long as the keys, with all in it that the op cannot say."""
        g, keys = self.g, self._sizes[1]
        if mask is not None and mask.shape[-1] < keys:
            rest = (*mask.shape[:-1], keys - mask.shape[-1])
            no: Any = False if mask.dtype is DType.BOOL else -math.inf
            mask = g.concat([mask, g.expand(g.constant(no, mask.dtype), rest)], axis=-1)
        for keep in self._kept(lengths):
            if mask is None:
                mask = keep
            elif mask.dtype is DType.BOOL:
                mask = g.where(keep, mask, False)
            else:
                mask = g.where(keep, mask, g.constant(-math.inf, mask.dtype))
        return mask

    def _kept(self, lengths: Tensor | None) -> list[Tensor]:
        """What is open by place, where it is no plain causal window."""
        g, (queries, keys) = self.g, self._sizes
        if lengths is None:
            if self.causal or (self.left is None and self.right is None):
                return []
            ahead = np.arange(keys) - np.arange(queries)[:, None] - self.offset
            keep = ahead >= (-self.left if self.left is not None else -queries - keys)
            if self.right is not None:
                keep &= ahead <= self.right
            return [g.constant(keep)]
        if lengths.dtype is not DType.I32:
            lengths = g.cast(lengths, DType.I32)
        lengths = g.reshape(lengths, (lengths.shape[0], 1, 1, 1))
        at = g.constant(np.arange(keys, dtype=np.int32))
        kept = [g.lt(at, lengths)]
        # The last query stands at a row's last key.
        place = np.arange(queries, dtype=np.int32)[:, None] - queries
        own = g.add(lengths, g.constant(place.astype(np.int32)))
        if self.right is not None:
            kept.append(g.le(at, g.add(own, self.right)))
        if self.left is not None:
            kept.append(g.ge(at, g.sub(own, self.left)))
        self.causal = False
        return kept

    def by_the_op(
        self, operands: tuple[Tensor, Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        """The result, of operands in heads or flat, and as they are."""
        how = Attending(
            self.operands[0].shape[1],
            self.operands[0].shape[3],
            self.causal,
            self.scale,
            self.softcap,
            self.offset,
            self.left if self.causal else None,
        )
        return how.over(self.g, operands, mask)

    def in_the_open(self, mask: Tensor | None, mode: int) -> tuple[Tensor, Tensor]:
        """The result, and the products on one of the stages to it."""
        g, (q, k, v) = self.g, self.operands
        B, H, L, E = q.shape
        G, S = k.shape[1:3]
        if G < 1 or H % G:
            self.call.contradict(f"{G} heads of keys beside {H} of queries")
        root = math.sqrt(E**-0.5 if self.scale is None else self.scale)
        wide = DType.F32 if q.dtype is DType.F16 else q.dtype
        q, k, v = (x if x.dtype is wide else g.cast(x, wide) for x in (q, k, v))
        rows = g.reshape(q * root, (B, G, H // G, L, E))
        turned = g.reshape(g.transpose(k * root, (0, 1, 3, 2)), (B, G, 1, E, S))
        stages = [g.reshape(rows @ turned, (B, H, L, S))]
        scores = stages[0]
        if self.softcap is not None:
            scores = g.tanh(scores / self.softcap) * self.softcap
        stages.append(scores)
        bias = None if mask is None else g.cast(as_bias(g, mask, wide), wide)
        keep = seen(L, S, self.offset, self.left) if self.causal else None
        if bias is not None:
            scores = scores + bias
        if keep is not None:
            never = g.constant(-math.inf, wide)
            scores = g.where(g.constant(keep), scores, never)
        stages.append(scores)
        open_rows = rows_with_keys(g, scores)
        if open_rows is not None:
            scores = g.where(open_rows, scores, 0.0)
        weights = g.softmax(scores)
        if open_rows is not None:
            weights = g.where(open_rows, weights, 0.0)
        stages.append(weights)
        weights = g.reshape(weights, (B, G, H // G, L, S))
        values = g.reshape(v, (B, G, 1, S, v.shape[3]))
        out = g.reshape(weights @ values, (B, H, L, v.shape[3]))
        if not 0 <= mode < len(stages):
            self.call.contradict(f"qk_matmul_output_mode {mode}", "0 … 3")
        own = self.operands[0].dtype
        made = (out, stages[mode])
        back = [x if x.dtype is own else g.cast(x, own) for x in made]
        return back[0], back[1]
