"""Attention of com.microsoft for one new token, with keys and values that are kept.

What is kept grows by each call, or is a buffer with room for more: then it is said how
many tokens are in it, which must be known. Of beams each reads the tokens of those that
it came from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, converts
from rlxweb.onnx.microsoft import DOMAIN
from rlxweb.onnx.microsoft_attention import Attending, in_heads, masking

Pair = tuple[Tensor, Tensor]


@converts("DecoderMaskedMultiHeadAttention", domain=DOMAIN)
def _decoder_heads(
    call: Call,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    beam_width: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """Without a past keys and values in heads are those of an encoder."""
    if (key is None) != (value is None):
        call.contradict("one of keys and values is left out", "both or neither")
    step = _Step(call, num_heads, scale, mask_filter_value, bool(output_qk))
    if key is not None and value is not None and key.rank == 4:
        if past_key is not None or past_value is not None:
            call.contradict("a past beside keys in heads", "those of an encoder")
        if bias is not None:
            query = query + call.g.narrow(bias, 0, 0, query.shape[-1])
        made, products = step.over(query, (key, value), mask, attention_bias)
        return made, None, None, products
    query, new = step.parts(query, key, value, bias)
    if past_key is None or past_value is None:
        call.contradict("no keys or values are kept", "past_key and past_value")
    is_shared = bool(past_present_share_buffer)
    cache = _cached(call, past_key, past_sequence_length, is_shared)
    kept = (cache.grown(past_key, new[0]), cache.grown(past_value, new[1]))
    seen = cache.seen(kept, beam_width, cache_indirection)
    made, products = step.over(query, seen, mask, attention_bias)
    return made, *kept, products


@converts("DecoderMaskedSelfAttention", domain=DOMAIN)
def _decoder_self(
    call: Call,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    beam_width: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    if do_rotary:
        call.refuse("rotary embedding within it", "do_rotary is 0")
    if past is None or past.rank != 5 or past.shape[0] != 2:
        call.contradict(
            "the past is no pair of keys and values", "[2, B, N, length, size]"
        )
    g = call.g
    step = _Step(call, num_heads, scale, mask_filter_value, False)
    query, new = step.parts(x @ weights, None, None, bias)
    old = [g.reshape(g.narrow(past, 0, at, 1), past.shape[1:]) for at in (0, 1)]
    is_shared = bool(past_present_share_buffer)
    cache = _cached(call, old[0], past_sequence_length, is_shared)
    kept = (cache.grown(old[0], new[0]), cache.grown(old[1], new[1]))
    seen = cache.seen(kept, beam_width, cache_indirection)
    made, _ = step.over(query, seen, mask, attention_bias)
    return made, g.stack(kept)


@dataclass(frozen=True, slots=True)
class _Step:
    """One token's attention. `shows`: the products before the softmax are asked for."""

    call: Call
    heads: int
    scale: float | None
    closed: float
    shows: bool

    def parts(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        bias: Tensor | None,
    ) -> tuple[Tensor, Pair]:
        """Queries [B, 1, N·D], and keys and values in heads, from one operand or three
        and with the bias of all.
        """
        g = self.call.g
        if key is None or value is None:
            query = query if bias is None else query + bias
            query, key, value = self._split(query)
        elif bias is not None:
            sizes = [one.shape[-1] for one in (query, key, value)]
            if bias.shape != (sum(sizes),):
                self.call.contradict(f"a bias {show(bias.shape)}", f"[{sum(sizes)}]")
            parts = g.split(bias, sizes)
            query, key, value = query + parts[0], key + parts[1], value + parts[2]
        return query, (
            in_heads(self.call, key, self.heads),
            in_heads(self.call, value, self.heads),
        )

    def _split(self, whole: Tensor) -> list[Tensor]:
        if whole.shape[-1] % 3:
            self.call.refuse(
                f"{whole.shape[-1]} columns of queries, keys and values",
                "as many of each",
            )
        return self.call.g.split(whole, 3, -1)

    def over(
        self,
        query: Tensor,
        seen: Pair,
        mask: Tensor | None,
        attention_bias: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention [B, 1, N·D] over keys and values in heads, and the products."""
        g, call, (k, v) = self.call.g, self.call, seen
        q = in_heads(call, query, self.heads)
        if q.shape[2] != 1:
            call.contradict(f"{q.shape[2]} new tokens", "one")
        if mask is not None and mask.rank != 2:
            call.refuse(f"a mask {show(mask.shape)}", "[B, keys]")
        sizes = (q.shape[0], 1, k.shape[2])
        bias = masking(call, mask, attention_bias, sizes, self.closed, q.dtype)
        made = Attending(call, False, self.scale).over(q, k, v, bias)
        if not (self.shows and call.wants(3)):
            return made, None
        scale = self.scale or q.shape[3] ** -0.5
        products = g.matmul(q, g.swapaxes(k, -1, -2)) * scale
        return made, products if bias is None else products + bias


@dataclass(frozen=True, slots=True)
class _Cache:
    """Where a token stands in what is kept. `is_shared`: in a buffer with more room."""

    call: Call
    place: int
    is_shared: bool

    def grown(self, past: Tensor, new: Tensor) -> Tensor:
        """[B, N, length, D] with the new token at its place."""
        g, behind = self.call.g, past.shape[2] - self.place - 1
        parts = [g.narrow(past, 2, 0, self.place)] if self.place else []
        parts.append(new)
        if self.is_shared and behind:
            parts.append(g.narrow(past, 2, self.place + 1, behind))
        return g.concat(parts, 2)

    def seen(
        self, kept: Pair, beam_width: Tensor | None, indirection: Tensor | None
    ) -> Pair:
        """The keys and values that are tokens; of beams those they came from."""
        call, g, total = self.call, self.call.g, self.place + 1
        k, v = (g.narrow(one, 2, 0, total) for one in kept)
        width = 1 if beam_width is None else int(call.number(beam_width, "the beams"))
        if width == 1 or not self.place:
            return k, v
        rows = k.shape[0]
        if indirection is None or width < 1 or rows % width:
            call.contradict(
                f"{width} beams of {rows} rows", "cache_indirection says whose they are"
            )
        whose = g.reshape(g.cast(indirection, DType.I32), (rows, 1, -1, 1))
        first = np.arange(rows, dtype=np.int32) // width * width
        whose = g.narrow(whose, 2, 0, self.place) + first.reshape(-1, 1, 1, 1)
        return self._gathered(k, whose), self._gathered(v, whose)

    def _gathered(self, x: Tensor, whose: Tensor) -> Tensor:
        g = self.call.g
        old, own = g.split(x, (self.place, 1), 2)
        return g.concat([g.gather_elements(old, g.expand(whose, old.shape)), own], 2)


def _cached(call: Call, past: Tensor, length: Tensor | None, is_shared: bool) -> _Cache:
    """The cache of keys [B, N, length, D], and where the new token stands."""
    if past.rank != 4:
        call.contradict(f"a past {show(past.shape)}", "[B, N, length, size]")
    if not is_shared:
        return _Cache(call, past.shape[2], False)
    if length is None:
        call.contradict("past_sequence_length is left out", "a shared buffer needs it")
    place = int(call.number(length, "past_sequence_length"))
    if not 0 <= place < past.shape[2]:
        call.contradict(f"{place} tokens before", f"a buffer of {past.shape[2]}")
    return _Cache(call, place, True)
