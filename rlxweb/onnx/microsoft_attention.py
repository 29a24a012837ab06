"""Attention of com.microsoft: with its projection, of many heads, of shared key heads.

Masks come as 0 and 1, as lengths or as ends and starts; what they close gets a large
negative number added, as in ONNX Runtime. Lengths of a cache must be known: they say
how long the results are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
from rlxweb.onnx.microsoft import DOMAIN


def in_heads(call: Call, x: Tensor, heads: int) -> Tensor:
    """[B, S, N·D] as [B, N, S, D]."""
    if x.rank != 3 or heads < 1 or x.shape[2] % heads:
        call.contradict(
            f"{show(x.shape)} for {heads} heads",
            "[B, S, heads · size]",
        )
    apart = call.g.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))
    return call.g.transpose(apart, (0, 2, 1, 3))


def _flat(call: Call, x: Tensor) -> Tensor:
    """[B, N, S, D] as [B, S, N·D]."""
    B, N, S, D = x.shape
    return call.g.reshape(call.g.transpose(x, (0, 2, 1, 3)), (B, S, N * D))


@dataclass(frozen=True, slots=True)
class Attending:
    """Queries over keys, all in heads, the first query standing at key `offset`."""

    call: Call
    causal: bool
    scale: float | None
    offset: int = 0
    softcap: float | None = None
    window: int | None = None

    def over(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        kind = "none" if bias is None else "bias"
        if self.causal:
            kind = "causal" if self.window is None else "sliding_window"
        made = self.call.g.attention(
            q,
            k,
            v,
            bias,
            num_heads=q.shape[1],
            head_dim=q.shape[3],
            mask_kind=kind,
            window=self.window or 0,
            offset=self.offset if self.causal else None,
            score_scale=self.scale or None,
            softcap=self.softcap or None,
        )
        return _flat(self.call, made)


def masking(
    call: Call,
    mask: Tensor | None,
    more: Tensor | None,
    sizes: tuple[int, int, int],
    closed: float,
    dtype: DType,
) -> Tensor | None:
    """What is added to the scores [B, N, S, T] for a mask and a bias."""
    if mask is None:
        return more
    g, (B, S, T) = call.g, sizes
    at = g.constant(np.arange(T, dtype=np.int32))
    if mask.shape == (B,):
        keep = g.lt(at, g.reshape(g.cast(mask, DType.I32), (B, 1)))
    elif mask.shape == (2 * B,):
        ends, starts = (
            g.reshape(g.cast(g.narrow(mask, 0, first, B), DType.I32), (B, 1))
            for first in (0, B)
        )
        keep = g.where(g.lt(at, ends), g.ge(at, starts), False)
    elif mask.shape in ((B, T), (B, S, T)):
        keep = g.gt(mask, 0)
    else:
        call.refuse(
            f"a mask {show(mask.shape)}",
            f"[{B}], [{2 * B}], [{B}, {T}] or [{B}, {S}, {T}] here",
        )
    keep = g.reshape(keep, (B, 1, 1 if keep.rank == 2 else S, T))
    made = g.where(keep, g.constant(0.0, dtype), g.constant(closed, dtype))
    return made if more is None else made + more


def _past_of(call: Call, past: Tensor | None, new: Tensor) -> Tensor:
    return new if past is None else call.g.concat([past, new], axis=2)


@converts("Attention", domain=DOMAIN)
def _attention(
    call: Call,
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
    if do_rotary or past_present_share_buffer:
        call.refuse("rotary embedding or a shared buffer within it", "both are 0")
    made = x @ weights
    made = made if bias is None else made + bias
    return attended(
        call,
        made,
        qkv_hidden_sizes or (weights.shape[1] // 3,) * 3,
        (mask, past, attention_bias),
        num_heads=num_heads,
        scale=scale,
        causal=bool(unidirectional),
        closed=mask_filter_value,
    )


def attended(
    call: Call,
    made: Tensor,
    sizes: tuple[int, ...],
    beside: tuple[Tensor | None, Tensor | None, Tensor | None],
    *,
    num_heads: int,
    scale: float | None,
    causal: bool,
    closed: float,
) -> tuple[Tensor | None, ...]:
    """Attention over queries, keys and values [B, S, their sizes], and the present.

    beside  a mask, the past, what is added to the scores
    """
    g, (mask, past, attention_bias) = call.g, beside
    if len(sizes) != 3 or sum(sizes) != made.shape[2]:
        call.contradict(f"sizes {sizes} of {made.shape[2]}", "their sum")
    starts = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (
        in_heads(call, g.narrow(made, 2, at, size), num_heads)
        for at, size in zip(starts, sizes, strict=True)
    )
    before = 0
    if past is not None:
        old = [g.reshape(g.narrow(past, 0, i, 1), past.shape[1:]) for i in (0, 1)]
        k, v = (_past_of(call, o, n) for o, n in zip(old, (k, v), strict=True))
        before = past.shape[3]
    how = Attending(call, causal, scale, before)
    lengths = (q.shape[0], q.shape[2], k.shape[2])
    added = masking(call, mask, attention_bias, lengths, closed, q.dtype)
    present = g.stack([k, v]) if call.wants(1) else None
    return how.over(q, k, v, added), present


@converts("MultiHeadAttention", domain=DOMAIN)
def _multi_head(
    call: Call,
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
        call.refuse("a shared buffer or beams", "caches that grow by each call")
    if call.wants(3):
        call.refuse("its products are wanted", "the first three outputs")
    q, k, v = _packed(call, query, key, value)
    if bias is not None:
        if k.rank == 4:
            call.refuse("a bias beside keys in heads", "[B, S, hidden]")
        q, k, v = _with_biases(call, (q, k, v), bias)
    q = in_heads(call, q, num_heads)
    k, v = (x if x.rank == 4 else in_heads(call, x, num_heads) for x in (k, v))
    before = 0 if past_key is None else past_key.shape[2]
    k, v = _past_of(call, past_key, k), _past_of(call, past_value, v)
    how = Attending(call, bool(unidirectional), scale, before)
    lengths = (q.shape[0], q.shape[2], k.shape[2])
    added = masking(call, mask, attention_bias, lengths, mask_filter_value, q.dtype)
    return how.over(q, k, v, added), k, v, None


def _packed(
    call: Call, query: Tensor, key: Tensor | None, value: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [B, S, N·D] and what there is of keys and values."""
    if key is not None and value is not None:
        return query, key, value
    whole = query if key is None else key
    parts = 3 if key is None else 2
    if whole.rank != 5 or whole.shape[3] != parts:
        call.refuse(f"keys within {show(whole.shape)}", f"[B, S, heads, {parts}, size]")
    B, S, N, _, D = whole.shape
    cut = [
        call.g.reshape(call.g.narrow(whole, 3, i, 1), (B, S, N * D))
        for i in range(parts)
    ]
    q, k, v = cut if key is None else (query, *cut)
    return q, k, v


def _with_biases(
    call: Call, operands: tuple[Tensor, ...], bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Each with its part of the bias of all three."""
    g, made, at = call.g, [], 0
    for x in operands:
        made.append(x + g.narrow(bias, 0, at, x.shape[2]))
        at += x.shape[2]
    q, k, v = made
    return q, k, v


# --- key heads that are shared, a cache of a given length ---------------------------


class _Cache:
    """Where the rows of a batch stand in keys and values that are kept.

    totals   keys of each row with the new ones
    before   and without them
    length   of what is kept afterwards
    """

    def __init__(self, call: Call, past: Tensor | None, S: int, lengths: Any) -> None:
        totals, self.total = lengths
        self.call, self.S = call, S
        self.room = 0 if past is None else past.shape[2]
        self.before = [max(0, t - S) for t in totals]
        self.length = max(self.room, self.total)
        for t, b in zip(totals, self.before, strict=True):
            if not 0 < t <= self.total or b > self.room or b + S > self.length:
                call.contradict(
                    f"{t} keys of a row, {self.room} of them kept before, {S} new",
                    f"1 … {self.total} keys, those before the new ones kept",
                )

    @property
    def is_even(self) -> bool:
        """Do all rows stand at the same place?"""
        return len(set(self.before)) == 1

    def grown(self, past: Tensor | None, new: Tensor) -> Tensor:
        """[B, G, length, D]: those before, the new ones, and zeros behind them."""
        if self.is_even:
            return self._row(past, new, self.before[0])
        g, rows = self.call.g, []
        for at, before in enumerate(self.before):
            old = None if past is None else g.narrow(past, 0, at, 1)
            rows.append(self._row(old, g.narrow(new, 0, at, 1), before))
        return g.concat(rows, axis=0)

    def _row(self, past: Tensor | None, new: Tensor, before: int) -> Tensor:
        g, parts, end = self.call.g, [new], before + self.S
        if past is not None and before:
            parts.insert(0, g.narrow(past, 2, 0, before))
        if end < self.length:
            shape = (*new.shape[:2], self.length - end, new.shape[3])
            parts.append(g.expand(g.constant(0.0, new.dtype), shape))
        return g.concat(parts, axis=2) if len(parts) > 1 else new

    @property
    def positions(self) -> Any:
        """Of the new ones, [B, S]."""
        places = np.arange(self.S, dtype=np.int32)
        return np.asarray(self.before, np.int32)[:, None] + places

    def open(self, window: int | None) -> Any:
        """The keys that each query sees, [B, 1, S, total]."""
        behind = self.positions[:, None, :, None] - np.arange(self.total)
        return (behind >= 0) & (behind <= (self.total if window is None else window))


@converts("GroupQueryAttention", domain=DOMAIN)
def _group_query(
    call: Call,
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
    *more: Tensor | None,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    local_window_size: int = -1,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    **rest: Any,
) -> tuple[Tensor | None, ...]:
    _plain(call, more, rest)
    g = call.g
    if seqlens_k is None or total_sequence_length is None:
        call.contradict("a length is left out", "seqlens_k and total_sequence_length")
    q, k, v = _three(call, query, key, value, num_heads, kv_num_heads)
    totals = [n + 1 for n in call.ints(seqlens_k, "seqlens_k")]
    total = int(call.number(total_sequence_length, "total_sequence_length"))
    cache = _Cache(call, past_key, q.shape[2], (totals, total))
    if do_rotary:
        if cos is None or sin is None:
            call.contradict("do_rotary without its tables", "cos_cache and sin_cache")
        at = g.constant(cache.positions) if position_ids is None else position_ids
        turns = bool(rotary_interleaved)
        q, k = (g.rope(x, cos, sin, at, interleaved=turns) for x in (q, k))
    k, v = cache.grown(past_key, k), cache.grown(past_value, v)
    kept = (k, v)
    if cache.length > total:
        k, v = (g.narrow(x, 2, 0, total) for x in kept)
    window = local_window_size - 1 if local_window_size > 0 else None
    if cache.is_even:
        how = Attending(call, True, scale, cache.before[0], softcap, window)
        return how.over(q, k, v, attention_bias), *kept
    closed = np.where(cache.open(window), 0.0, -np.inf)
    bias = g.constant(closed, q.dtype)
    bias = bias if attention_bias is None else bias + attention_bias
    return Attending(call, False, scale, 0, softcap).over(q, k, v, bias), *kept


def _plain(call: Call, more: tuple[Any, ...], rest: dict[str, Any]) -> None:
    """Refuse what of it only GPUs' kernels have."""
    usual: dict[str, Any] = {
        "causal": 1,
        "smooth_softmax": 0,
        "qk_output": 0,
        "sliding_window_cache": 0,
        "kv_cache_bit_width": 0,
        "k_quant_type": "NONE",
        "v_quant_type": "NONE",
    }
    for name, given in rest.items():
        if not name.endswith("norm_epsilon") and usual.get(name, None) != given:
            call.refuse(f"attribute {name}={given!r}", f"{usual.get(name)!r}")
    names = "head_sink k_scale v_scale q_norm_weight k_norm_weight query_seqlens"
    for name, one in zip(names.split(), more, strict=False):
        if one is not None:
            call.refuse(f"the input {name}", "it is left out")
    if call.wants(3):
        call.refuse("its products are wanted", "the first three outputs")


def _three(
    call: Call,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    heads: int,
    shared: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values in heads, of one operand or of three."""
    if key is None or value is None:
        every = heads + 2 * shared
        if query.rank != 3 or query.shape[2] % max(1, every):
            call.contradict(f"{show(query.shape)} for {every} heads in all")
        g, size = call.g, query.shape[2] // every
        ends = ((0, heads), (heads, shared), (heads + shared, shared))
        query, key, value = (
            g.narrow(query, 2, at * size, count * size) for at, count in ends
        )
    q = in_heads(call, query, heads)
    return q, in_heads(call, key, shared), in_heads(call, value, shared)
