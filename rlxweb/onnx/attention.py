"""Converter of ONNX `Attention`, with KV cache, masks and sliding windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts
from rlxweb.ops.attention.methods import (
    AttentionSpec,
    mask_as_bias,
    position_mask,
    rows_with_keys,
)


@converts("Attention", since=23)
def _attention(
    ctx: ConversionContext,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_k: Tensor | None = None,
    past_v: Tensor | None = None,
    kv_lengths: Tensor | None = None,
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
        names = ("past_key", "past_value")
        present, missing = names if past_v is None else names[::-1]
        ctx.raise_invalid_model(
            f"{present} is given, but {missing} is not",
            "past_key and past_value must be given together",
        )
    flat_operands = (q, k, v) if q.rank == 3 else None
    if flat_operands:
        q = _split_heads(ctx, q, q_num_heads, "q_num_heads")
        k, v = (_split_heads(ctx, x, kv_num_heads, "kv_num_heads") for x in (k, v))
    if past_k is not None and past_v is not None:
        k = ctx.graph.concat([past_k, k], axis=2)
        v = ctx.graph.concat([past_v, v], axis=2)
    attention = _OnnxAttention(
        ctx,
        (q, k, v),
        bool(is_causal),
        0 if past_k is None else past_k.shape[2],
        (left_window_size, right_window_size),
        scale,
        softcap or None,
    )
    mask = attention.build_mask(mask, kv_lengths)
    if ctx.needs_output(3):
        out, qk_scores = attention.expand_with_scores(mask, qk_matmul_output_mode)
    elif flat_operands and past_k is None:
        return attention.apply_op(flat_operands, mask), k, v, None
    else:
        out, qk_scores = attention.apply_op((q, k, v), mask), None
    if flat_operands:
        out = ctx.graph.transpose(out, (0, 2, 1, 3))
        out = ctx.graph.reshape(out, (*out.shape[:2], out.shape[2] * out.shape[3]))
    return out, k, v, qk_scores


def _split_heads(
    ctx: ConversionContext, x: Tensor, num_heads: int, name: str
) -> Tensor:
    """Reshape [B, S, H·D] to [B, H, S, D]."""
    if num_heads < 1 or x.shape[2] % num_heads:
        ctx.raise_invalid_model(
            f"{name} is {num_heads} for an input of shape {format_shape(x.shape)}",
            "the number of heads must be at least 1 and divide the last dimension of "
            "the input",
        )
    rows = ctx.graph.reshape(x, (*x.shape[:2], num_heads, x.shape[2] // num_heads))
    return ctx.graph.transpose(rows, (0, 2, 1, 3))


class _OnnxAttention:
    """One attention call whose operands are split into heads; keys and values include
    the past.
    """

    def __init__(
        self,
        ctx: ConversionContext,
        operands: tuple[Tensor, Tensor, Tensor],
        is_causal: bool,
        offset: int,
        window: tuple[int, int],
        scale: float | None,
        softcap: float | None,
    ) -> None:
        self.ctx, self.graph = ctx, ctx.graph
        self.operands = operands
        self.is_causal, self.offset = is_causal, offset
        left, right = window
        self.left_window = left if left >= 0 else None
        self.right_window = 0 if is_causal else right if right >= 0 else None
        self.scale, self.softcap = scale, softcap

    @property
    def _query_key_counts(self) -> tuple[int, int]:
        """Number of queries and number of keys."""
        return self.operands[0].shape[2], self.operands[1].shape[2]

    def build_mask(
        self, mask: Tensor | None, kv_lengths: Tensor | None
    ) -> Tensor | None:
        """Return a mask that covers all keys and includes every restriction the op
        cannot express.
        """
        g, key_count = self.graph, self._query_key_counts[1]
        if mask is not None and mask.shape[-1] < key_count:
            padding_shape = (*mask.shape[:-1], key_count - mask.shape[-1])
            masked_value: Any = False if mask.dtype is DType.BOOL else -math.inf
            mask = g.concat(
                [mask, g.expand(g.constant(masked_value, mask.dtype), padding_shape)],
                axis=-1,
            )
        for visible in self._position_masks(kv_lengths):
            if mask is None:
                mask = visible
            elif mask.dtype is DType.BOOL:
                mask = g.where(visible, mask, False)
            else:
                mask = g.where(visible, mask, g.constant(-math.inf, mask.dtype))
        return mask

    def _position_masks(self, kv_lengths: Tensor | None) -> list[Tensor]:
        """Return the masks by position that a plain causal window does not cover; true
        where a key is visible.
        """
        g, (query_count, key_count) = self.graph, self._query_key_counts
        if kv_lengths is None:
            if self.is_causal or (
                self.left_window is None and self.right_window is None
            ):
                return []
            relative_position = (
                np.arange(key_count) - np.arange(query_count)[:, None] - self.offset
            )
            visible = relative_position >= (
                -self.left_window
                if self.left_window is not None
                else -query_count - key_count
            )
            if self.right_window is not None:
                visible &= relative_position <= self.right_window
            return [g.constant(visible)]
        if kv_lengths.dtype is not DType.I32:
            kv_lengths = g.cast(kv_lengths, DType.I32)
        kv_lengths = g.reshape(kv_lengths, (kv_lengths.shape[0], 1, 1, 1))
        key_index = g.constant(np.arange(key_count, dtype=np.int32))
        masks = [g.lt(key_index, kv_lengths)]
        # The last query stands at a row's last key.
        offset_from_last = np.arange(query_count, dtype=np.int32)[:, None] - query_count
        query_position = g.add(
            kv_lengths, g.constant(offset_from_last.astype(np.int32))
        )
        if self.right_window is not None:
            masks.append(g.le(key_index, g.add(query_position, self.right_window)))
        if self.left_window is not None:
            masks.append(g.ge(key_index, g.sub(query_position, self.left_window)))
        self.is_causal = False
        return masks

    def apply_op(
        self, operands: tuple[Tensor, Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        """Return the result of the `attention` op; the operands are split into heads or
        flat, and the result is laid out likewise.
        """
        spec = AttentionSpec(
            self.operands[0].shape[1],
            self.operands[0].shape[3],
            self.is_causal,
            self.scale,
            self.softcap,
            self.offset,
            self.left_window if self.is_causal else None,
        )
        return spec.add_to_graph(self.graph, operands, mask)

    def expand_with_scores(
        self, mask: Tensor | None, mode: int
    ) -> tuple[Tensor, Tensor]:
        """Build attention from elementary ops; return the result and the scores at
        stage `mode`.
        """
        g, (q, k, v) = self.graph, self.operands
        B, H, L, E = q.shape
        G, S = k.shape[1:3]
        if G < 1 or H % G:
            self.ctx.raise_invalid_model(
                f"got {G} key heads and {H} query heads",
                "the number of key heads must divide the number of query heads",
            )
        sqrt_scale = math.sqrt(E**-0.5 if self.scale is None else self.scale)
        compute_dtype = DType.F32 if q.dtype is DType.F16 else q.dtype
        q, k, v = (
            x if x.dtype is compute_dtype else g.cast(x, compute_dtype)
            for x in (q, k, v)
        )
        rows = g.reshape(q * sqrt_scale, (B, G, H // G, L, E))
        k_transposed = g.reshape(
            g.transpose(k * sqrt_scale, (0, 1, 3, 2)), (B, G, 1, E, S)
        )
        stages = [g.reshape(rows @ k_transposed, (B, H, L, S))]
        scores = stages[0]
        if self.softcap is not None:
            scores = g.tanh(scores / self.softcap) * self.softcap
        stages.append(scores)
        bias = (
            None
            if mask is None
            else g.cast(mask_as_bias(g, mask, compute_dtype), compute_dtype)
        )
        visible = (
            position_mask(L, S, self.offset, self.left_window)
            if self.is_causal
            else None
        )
        if bias is not None:
            scores = scores + bias
        if visible is not None:
            minus_infinity = g.constant(-math.inf, compute_dtype)
            scores = g.where(g.constant(visible), scores, minus_infinity)
        stages.append(scores)
        nonempty_rows = rows_with_keys(g, scores)
        if nonempty_rows is not None:
            scores = g.where(nonempty_rows, scores, 0.0)
        weights = g.softmax(scores)
        if nonempty_rows is not None:
            weights = g.where(nonempty_rows, weights, 0.0)
        stages.append(weights)
        weights = g.reshape(weights, (B, G, H // G, L, S))
        values = g.reshape(v, (B, G, 1, S, v.shape[3]))
        out = g.reshape(weights @ values, (B, H, L, v.shape[3]))
        if not 0 <= mode < len(stages):
            self.ctx.raise_invalid_model(
                f"qk_matmul_output_mode is {mode}", "must be 0 to 3"
            )
        result_dtype = self.operands[0].dtype
        results = (out, stages[mode])
        outputs = [
            x if x.dtype is result_dtype else g.cast(x, result_dtype) for x in results
        ]
        return outputs[0], outputs[1]
