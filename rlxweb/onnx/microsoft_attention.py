"""Converters of com.microsoft attention: with fused projection, multi-head, and
grouped-query.

Masks come as 0 and 1, as lengths or as ends and starts; what they close gets a large
negative number added, as in ONNX Runtime. Lengths of a cache must be known: they say
how long the results are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converter_registry import ConversionContext, converts
from rlxweb.onnx.microsoft_fused import MICROSOFT_DOMAIN, require_zero

QKV_NAMES = ("query", "key", "value")


def split_heads(
    ctx: ConversionContext, x: Tensor, num_heads: int, description: str
) -> Tensor:
    """Reshape [B, S, N·D] to [B, N, S, D]."""
    if x.rank != 3 or num_heads < 1 or x.shape[2] % num_heads:
        ctx.raise_invalid_model(
            f"the {description} has shape {format_shape(x.shape)} for {num_heads} "
            "heads",
            "expected [batch, sequence length, features], where features is a "
            "multiple of the number of heads",
        )
    heads_last = ctx.graph.reshape(
        x, (*x.shape[:2], num_heads, x.shape[2] // num_heads)
    )
    return ctx.graph.transpose(heads_last, (0, 2, 1, 3))


def _merge_heads(ctx: ConversionContext, x: Tensor) -> Tensor:
    """Reshape [B, N, S, D] to [B, S, N·D]."""
    B, N, S, D = x.shape
    return ctx.graph.reshape(ctx.graph.transpose(x, (0, 2, 1, 3)), (B, S, N * D))


@dataclass(frozen=True, slots=True)
class MicrosoftAttentionSpec:
    """Options of attention over operands split into heads; the first query is at key
    `offset`.
    """

    ctx: ConversionContext
    is_causal: bool
    scale: float | None
    offset: int = 0
    softcap: float | None = None
    window: int | None = None

    def apply_to(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """Return the attention result as [B, S, N·D]."""
        mask_kind = "none" if bias is None else "bias"
        if self.is_causal:
            mask_kind = "causal" if self.window is None else "sliding_window"
        result = self.ctx.graph.attention(
            q,
            k,
            v,
            bias,
            num_heads=q.shape[1],
            head_dim=q.shape[3],
            mask_kind=mask_kind,
            window=self.window or 0,
            offset=self.offset if self.is_causal else None,
            score_scale=self.scale or None,
            softcap=self.softcap or None,
        )
        return _merge_heads(self.ctx, result)


def score_bias(
    ctx: ConversionContext,
    mask: Tensor | None,
    attention_bias: Tensor | None,
    sizes: tuple[int, int, int],
    masked_value: float,
    dtype: DType,
) -> Tensor | None:
    """Return the term added to the scores [B, N, S, T] for a mask and a bias."""
    if mask is None:
        return attention_bias
    g, (B, S, T) = ctx.graph, sizes
    key_index = g.constant(np.arange(T, dtype=np.int32))
    if mask.shape == (B,):
        visible = g.lt(key_index, g.reshape(g.cast(mask, DType.I32), (B, 1)))
    elif mask.shape == (2 * B,):
        ends, starts = (
            g.reshape(g.cast(g.narrow(mask, 0, start, B), DType.I32), (B, 1))
            for start in (0, B)
        )
        visible = g.where(g.lt(key_index, ends), g.ge(key_index, starts), False)
    elif mask.shape in ((B, T), (B, S, T)):
        visible = g.gt(mask, 0)
    else:
        ctx.raise_unsupported(
            f"the mask has shape {format_shape(mask.shape)}",
            f"must be [{B}], [{2 * B}], [{B}, {T}] or [{B}, {S}, {T}] for batch size "
            f"{B}, {S} queries and {T} keys",
        )
    visible = g.reshape(visible, (B, 1, 1 if visible.rank == 2 else S, T))
    mask_bias = g.where(
        visible, g.constant(0.0, dtype), g.constant(masked_value, dtype)
    )
    return mask_bias if attention_bias is None else mask_bias + attention_bias


def _append_to_past(ctx: ConversionContext, past: Tensor | None, new: Tensor) -> Tensor:
    return new if past is None else ctx.graph.concat([past, new], axis=2)


@converts("Attention", domain=MICROSOFT_DOMAIN)
def _attention(
    ctx: ConversionContext,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: tuple[int, ...] = (),
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[Tensor | None, ...]:
    require_zero(
        ctx, do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer
    )
    qkv = x @ weights
    qkv = qkv if bias is None else qkv + bias
    return attend_packed_qkv(
        ctx,
        qkv,
        qkv_hidden_sizes or (weights.shape[1] // 3,) * 3,
        (mask, past, attention_bias),
        num_heads=num_heads,
        scale=scale,
        causal=bool(unidirectional),
        closed=mask_filter_value,
    )


def attend_packed_qkv(
    ctx: ConversionContext,
    qkv: Tensor,
    sizes: tuple[int, ...],
    optional_inputs: tuple[Tensor | None, Tensor | None, Tensor | None],
    *,
    num_heads: int,
    scale: float | None,
    causal: bool,
    closed: float,
) -> tuple[Tensor | None, ...]:
    """Return attention over packed queries, keys and values [B, S, sum of sizes], and
    the present keys and values.

    optional_inputs  a mask, the past, what is added to the scores
    """
    g, (mask, past, attention_bias) = ctx.graph, optional_inputs
    if len(sizes) != 3 or sum(sizes) != qkv.shape[2]:
        ctx.raise_invalid_model(
            f"the hidden sizes of query, key and value are {sizes}",
            f"must be 3 sizes that add up to {qkv.shape[2]}, the number of columns "
            "of the weight",
        )
    starts = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (
        split_heads(ctx, g.narrow(qkv, 2, start, size), num_heads, name)
        for start, size, name in zip(starts, sizes, QKV_NAMES, strict=True)
    )
    past_length = 0
    if past is not None:
        past_kv = [g.reshape(g.narrow(past, 0, i, 1), past.shape[1:]) for i in (0, 1)]
        k, v = (
            _append_to_past(ctx, o, n) for o, n in zip(past_kv, (k, v), strict=True)
        )
        past_length = past.shape[3]
    spec = MicrosoftAttentionSpec(ctx, causal, scale, past_length)
    score_sizes = (q.shape[0], q.shape[2], k.shape[2])
    bias = score_bias(ctx, mask, attention_bias, score_sizes, closed, q.dtype)
    present = g.stack([k, v]) if ctx.needs_output(1) else None
    return spec.apply_to(q, k, v, bias), present


@converts("MultiHeadAttention", domain=MICROSOFT_DOMAIN)
def _multi_head_attention(
    ctx: ConversionContext,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[Tensor | None, ...]:
    if past_sequence_length is not None or cache_indirection is not None:
        extra = (
            "cache_indirection"
            if past_sequence_length is None
            else "past_sequence_length"
        )
        ctx.raise_unsupported(
            f"input {extra} is not supported",
            "only caches that grow with each call are supported",
        )
    if ctx.needs_output(3):
        ctx.raise_unsupported("output 3 is used", "only outputs 0 to 2 are supported")
    q, k, v = _unpack_qkv(ctx, query, key, value)
    if bias is not None:
        if k.rank == 4:
            ctx.raise_unsupported(
                "a bias is given and the keys are already split into heads",
                "with a bias, the keys must be [batch, sequence length, features]",
            )
        q, k, v = _add_qkv_biases(ctx, (q, k, v), bias)
    q = split_heads(ctx, q, num_heads, "query")
    k, v = (
        x if x.rank == 4 else split_heads(ctx, x, num_heads, name)
        for x, name in zip((k, v), QKV_NAMES[1:], strict=True)
    )
    past_length = 0 if past_key is None else past_key.shape[2]
    k, v = _append_to_past(ctx, past_key, k), _append_to_past(ctx, past_value, v)
    spec = MicrosoftAttentionSpec(ctx, bool(unidirectional), scale, past_length)
    score_sizes = (q.shape[0], q.shape[2], k.shape[2])
    total_bias = score_bias(
        ctx, mask, attention_bias, score_sizes, mask_filter_value, q.dtype
    )
    return spec.apply_to(q, k, v, total_bias), k, v, None


def _unpack_qkv(
    ctx: ConversionContext, query: Tensor, key: Tensor | None, value: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries [B, S, N·D], keys and values, unpacked from one operand where they
    share it.
    """
    if key is not None and value is not None:
        return query, key, value
    packed = query if key is None else key
    part_count = 3 if key is None else 2
    if packed.rank != 5 or packed.shape[3] != part_count:
        parts = "queries, keys and values" if key is None else "keys and values"
        ctx.raise_unsupported(
            f"the packed {parts} have shape {format_shape(packed.shape)}",
            f"must be [batch, sequence length, heads, {part_count}, head size]",
        )
    B, S, N, _, D = packed.shape
    unpacked = [
        ctx.graph.reshape(ctx.graph.narrow(packed, 3, i, 1), (B, S, N * D))
        for i in range(part_count)
    ]
    q, k, v = unpacked if key is None else (query, *unpacked)
    return q, k, v


def _add_qkv_biases(
    ctx: ConversionContext, operands: tuple[Tensor, ...], bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Add to each operand its part of the joint bias."""
    g, biased, start = ctx.graph, [], 0
    for x in operands:
        biased.append(x + g.narrow(bias, 0, start, x.shape[2]))
        start += x.shape[2]
    q, k, v = biased
    return q, k, v


# --- key heads that are shared, a cache of a given length ---------------------------


class _KvCacheLayout:
    """Positions of a batch's rows in the key and value cache.

    totals   keys of each row with the new ones
    past_lengths  and without them
    present_length  of what is kept afterwards
    """

    def __init__(
        self, ctx: ConversionContext, past: Tensor | None, S: int, lengths: Any
    ) -> None:
        totals, self.total_length = lengths
        self.ctx, self.new_length = ctx, S
        self.past_capacity = 0 if past is None else past.shape[2]
        self.past_lengths = [max(0, t - S) for t in totals]
        self.present_length = max(self.past_capacity, self.total_length)
        for t, b in zip(totals, self.past_lengths, strict=True):
            if (
                not 0 < t <= self.total_length
                or b > self.past_capacity
                or b + S > self.present_length
            ):
                ctx.raise_invalid_model(
                    f"a sequence has {t} keys, {S} of them new, and the past cache has "
                    f"length {self.past_capacity}",
                    "a sequence must have at least 1 key and at most "
                    f"total_sequence_length = {self.total_length}, and the keys before "
                    "the new ones must fit into the past cache",
                )

    @property
    def has_uniform_past(self) -> bool:
        """True if all rows have the same past length."""
        return len(set(self.past_lengths)) == 1

    def append_rows(self, past: Tensor | None, new: Tensor) -> Tensor:
        """Return [B, G, present length, D]: the past, the new rows, and zeros after
        them.
        """
        if self.has_uniform_past:
            return self._append_at(past, new, self.past_lengths[0])
        g, rows = self.ctx.graph, []
        for index, past_length in enumerate(self.past_lengths):
            past_row = None if past is None else g.narrow(past, 0, index, 1)
            rows.append(
                self._append_at(past_row, g.narrow(new, 0, index, 1), past_length)
            )
        return g.concat(rows, axis=0)

    def _append_at(self, past: Tensor | None, new: Tensor, past_length: int) -> Tensor:
        g, parts, end = self.ctx.graph, [new], past_length + self.new_length
        if past is not None and past_length:
            parts.insert(0, g.narrow(past, 2, 0, past_length))
        if end < self.present_length:
            shape = (*new.shape[:2], self.present_length - end, new.shape[3])
            parts.append(g.expand(g.constant(0.0, new.dtype), shape))
        return g.concat(parts, axis=2) if len(parts) > 1 else new

    @property
    def new_positions(self) -> Any:
        """Positions of the new rows, [B, S]."""
        offsets = np.arange(self.new_length, dtype=np.int32)
        return np.asarray(self.past_lengths, np.int32)[:, None] + offsets

    def visible_keys(self, window: int | None) -> Any:
        """Return which keys each query sees, as bools [B, 1, S, total]."""
        distance = self.new_positions[:, None, :, None] - np.arange(self.total_length)
        return (distance >= 0) & (
            distance <= (self.total_length if window is None else window)
        )


@converts("GroupQueryAttention", domain=MICROSOFT_DOMAIN)
def _group_query_attention(
    ctx: ConversionContext,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    seqlens_k: Tensor | None = None,
    total_sequence_length: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None,
    *extra_inputs: Tensor | None,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    local_window_size: int = -1,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    **other_attrs: Any,
) -> tuple[Tensor | None, ...]:
    _refuse_gpu_options(ctx, extra_inputs, other_attrs)
    g = ctx.graph
    if seqlens_k is None or total_sequence_length is None:
        missing = "seqlens_k" if seqlens_k is None else "total_sequence_length"
        ctx.raise_invalid_model(
            f"input {missing} is missing",
            "seqlens_k and total_sequence_length are required",
        )
    q, k, v = _split_qkv(ctx, query, key, value, num_heads, kv_num_heads)
    row_lengths = [n + 1 for n in ctx.require_ints(seqlens_k, "seqlens_k")]
    total_length = int(
        ctx.require_number(total_sequence_length, "total_sequence_length")
    )
    cache = _KvCacheLayout(ctx, past_key, q.shape[2], (row_lengths, total_length))
    if do_rotary:
        if cos is None or sin is None:
            missing = "cos_cache" if cos is None else "sin_cache"
            ctx.raise_invalid_model(
                f"do_rotary is set, but input {missing} is missing",
                "cos_cache and sin_cache are required",
            )
        positions = (
            g.constant(cache.new_positions) if position_ids is None else position_ids
        )
        is_interleaved = bool(rotary_interleaved)
        q, k = (
            g.rope(x, cos, sin, positions, interleaved=is_interleaved) for x in (q, k)
        )
    k, v = cache.append_rows(past_key, k), cache.append_rows(past_value, v)
    present_kv = (k, v)
    if cache.present_length > total_length:
        k, v = (g.narrow(x, 2, 0, total_length) for x in present_kv)
    window = local_window_size - 1 if local_window_size > 0 else None
    if cache.has_uniform_past:
        spec = MicrosoftAttentionSpec(
            ctx, True, scale, cache.past_lengths[0], softcap, window
        )
        return spec.apply_to(q, k, v, attention_bias), *present_kv
    mask_values = np.where(cache.visible_keys(window), 0.0, -np.inf)
    bias = g.constant(mask_values, q.dtype)
    bias = bias if attention_bias is None else bias + attention_bias
    return MicrosoftAttentionSpec(ctx, False, scale, 0, softcap).apply_to(
        q, k, v, bias
    ), *present_kv


def _refuse_gpu_options(
    ctx: ConversionContext, extra_inputs: tuple[Any, ...], attrs: dict[str, Any]
) -> None:
    """Raise Unsupported for inputs and attributes that only ONNX Runtime's GPU kernels
    implement.
    """
    defaults: dict[str, Any] = {
        "causal": 1,
        "smooth_softmax": 0,
        "qk_output": 0,
        "sliding_window_cache": 0,
        "kv_cache_bit_width": 0,
        "k_quant_type": "NONE",
        "v_quant_type": "NONE",
    }
    for name, attr_value in attrs.items():
        if not name.endswith("norm_epsilon") and defaults.get(name, None) != attr_value:
            ctx.raise_unsupported(
                f"attribute {name}={attr_value!r} is not supported",
                f"must be {defaults[name]!r}"
                if name in defaults
                else "must be omitted",
            )
    names = "head_sink k_scale v_scale q_norm_weight k_norm_weight query_seqlens"
    for name, extra_input in zip(names.split(), extra_inputs, strict=False):
        if extra_input is not None:
            ctx.raise_unsupported(f"input {name} is not supported", "must be omitted")
    if ctx.needs_output(3):
        ctx.raise_unsupported("output 3 is used", "only outputs 0 to 2 are supported")


def _split_qkv(
    ctx: ConversionContext,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    num_heads: int,
    kv_num_heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values split into heads, from one packed operand or from
    three.
    """
    if key is None or value is None:
        total_heads = num_heads + 2 * kv_num_heads
        if query.rank != 3 or query.shape[2] % max(1, total_heads):
            ctx.raise_invalid_model(
                "the packed queries, keys and values have shape "
                f"{format_shape(query.shape)} for {total_heads} heads (query, key and "
                "value heads together)",
                "expected [batch, sequence length, features], where features is a "
                "multiple of this number of heads",
            )
        g, size = ctx.graph, query.shape[2] // total_heads
        head_ranges = (
            (0, num_heads),
            (num_heads, kv_num_heads),
            (num_heads + kv_num_heads, kv_num_heads),
        )
        query, key, value = (
            g.narrow(query, 2, start * size, count * size)
            for start, count in head_ranges
        )
    return (
        split_heads(ctx, query, num_heads, "query"),
        split_heads(ctx, key, kv_num_heads, "key"),
        split_heads(ctx, value, kv_num_heads, "value"),
    )
