"""Scaled dot-product attention, composed of products, softmax and elementwise ops.

Order of the scores: q · k, scale, softcap, bias, then the mask (a masked score is -1e9,
so a row with every key masked averages all values). Query positions are absolute: the
last query stands at the last key, unless an offset says at which key the first one
stands. Fewer key heads than query heads share keys in equal groups. Owns no shader; the
reference is written apart from the decomposition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.core.errors import GraphError, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.shape_arithmetic import (
    bad_attribute,
    bad_dtype,
    bad_shape,
    broadcast,
    format_shape,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.attention.fusion import match_attention
from rlxweb.ops.attention.operand_shapes import (
    AttentionSizes,
    infer_attention_sizes,
    mask_positions,
)
from rlxweb.ops.attention.samples import SAMPLES
from rlxweb.ops.elementwise.op import common_dtype
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors

MASKED_SCORE = -1e9
MASK_KINDS = ("none", "causal", "sliding_window", "custom", "bias")
POSITIONAL_MASKS = ("causal", "sliding_window")
"""Mask kinds that depend on the positions of queries and keys."""
_MASK_OPERAND_COUNTS = {"none": (0, 0), "custom": (1, 1), "bias": (1, 1)} | {
    kind: (0, 1) for kind in POSITIONAL_MASKS
}
"""Fewest and most mask operands of each mask kind."""


def _infer(types: Types, attrs: Attrs) -> TensorType:
    q, k, v = types[:3]
    dtype = common_dtype((q, k, v))
    if not dtype.is_float:
        raise bad_dtype(
            f"the operands are {dtype}",
            "operands must be bf16, f16, f32 or f64",
            "cast the operands",
        )
    _check_attrs(attrs)
    s = infer_attention_sizes(q.shape, k.shape, v.shape, attrs)
    _check_mask(types[3:], dtype, s, attrs["mask_kind"])
    return TensorType(s.output_shape, dtype)


def _check_attrs(attrs: Attrs) -> None:
    kind, window = attrs["mask_kind"], attrs["window"]
    if window and kind != "sliding_window":
        raise bad_attribute(
            f"window={window} with mask_kind={kind!r}",
            "window requires mask_kind='sliding_window'",
        )
    if attrs["offset"] is not None and kind not in POSITIONAL_MASKS:
        raise bad_attribute(
            f"offset={attrs['offset']} with mask_kind={kind!r}",
            "offset requires mask_kind='causal' or 'sliding_window'",
        )
    scale = attrs["score_scale"]
    if scale is not None and not np.isfinite(scale):
        raise bad_attribute(f"score_scale={scale}", "score_scale must be finite")


def _check_mask(masks: Types, dtype: DType, s: AttentionSizes, kind: str) -> None:
    min_count, max_count = _MASK_OPERAND_COUNTS[kind]
    if not min_count <= len(masks) <= max_count:
        raise GraphError(
            "",
            f"mask_kind={kind!r} with {len(masks)} mask operands",
            f"expected {min_count}"
            + (f" or {max_count}" if max_count > min_count else ""),
            "pass a mask with mask_kind='custom', or a bias with 'bias'; a bias is "
            "optional with 'causal' and 'sliding_window'",
        )
    if not masks:
        return
    mask = masks[0]
    full = (s.B, s.SK) if kind == "custom" else (s.B, s.H, s.SQ, s.SK)
    letters = "[B, Sk]" if kind == "custom" else "[B, H, Sq, Sk]"
    try:
        fits = broadcast(mask.shape, full) == full
    except ShapeError:
        fits = False
    if not fits or (kind == "custom" and mask.rank != 2):
        raise bad_shape(
            f"got a mask {format_shape(mask.shape)}",
            f"expected {letters}, or a shape that broadcasts to it, with {letters} = "
            f"{format_shape(full)}",
        )
    if kind != "custom" and mask.dtype is not dtype:
        raise bad_dtype(
            f"the bias is {mask.dtype}",
            f"the bias must have the dtype of q, {dtype}",
            "cast the bias",
        )


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    s = infer_attention_sizes(inputs[0].shape, inputs[1].shape, inputs[2].shape, attrs)
    return 2.0 * s.B * s.H * s.SQ * s.SK * (s.D + s.DV)


def _reference(xp: Any, attrs: Attrs, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    s = infer_attention_sizes(q.shape, k.shape, v.shape, attrs)
    qh, kh, vh = (
        split_heads(s, widen_float16(xp, x), n, head_size)
        for x, n, head_size in ((q, s.H, s.D), (k, s.HK, s.D), (v, s.HK, s.DV))
    )
    kh, vh = (xp.repeat(x, s.H // s.HK, axis=1) for x in (kh, vh))
    scale = attrs["score_scale"]
    scores = (qh @ xp.swapaxes(kh, 2, 3)) * (s.D**-0.5 if scale is None else scale)
    if attrs["softcap"] is not None:
        scores = attrs["softcap"] * xp.tanh(scores / attrs["softcap"])
    scores = apply_mask(xp, attrs, s, scores, mask)
    if s.SK:
        exps = (
            xp.exp(scores - xp.max(scores, axis=-1, keepdims=True)) if s.SQ else scores
        )
        scores = exps / xp.sum(exps, axis=-1, keepdims=True)
    out = scores @ vh
    if s.layout != "heads":
        out = xp.swapaxes(out, 1, 2)
    return xp.asarray(out.reshape(s.output_shape), dtype=q.dtype)


def split_heads(s: AttentionSizes, x: Any, heads: int, head_size: int) -> Any:
    """Return an operand as [B, H, S, D]."""
    if s.layout == "heads":
        return x
    return x.reshape((x.shape[0], x.shape[1], heads, head_size)).swapaxes(1, 2)


def apply_mask(xp: Any, attrs: Attrs, s: AttentionSizes, scores: Any, mask: Any) -> Any:
    """Apply the mask or bias of the attributes to scores [B, H, SQ, SK]."""
    kind = attrs["mask_kind"]
    if mask is not None and kind != "custom":
        scores = scores + widen_float16(xp, mask)
    if kind in ("none", "bias"):
        return scores
    if kind == "custom":
        keep = mask if mask.dtype == xp.bool_ else mask >= 0.5
        keep = keep[:, None, None, :]
    else:
        first_key, window = mask_positions(s, attrs)
        distance = (xp.arange(s.SQ) + first_key)[:, None] - xp.arange(s.SK)[None, :]
        keep = distance >= 0
        if kind == "sliding_window":
            keep = keep & (distance <= window)
    return xp.where(keep, scores, xp.full_like(scores, MASKED_SCORE))


def _build(
    g: Graph, attrs: Attrs, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
) -> Tensor:
    s = infer_attention_sizes(q.shape, k.shape, v.shape, attrs)
    wq, wk, wv = widen_float16_tensors(g, q, k, v)
    scale = s.D**-0.5 if attrs["score_scale"] is None else attrs["score_scale"]
    # Query heads that share keys become an axis of their own, beside which the keys
    # broadcast: nothing is repeated in memory.
    queries_per_key = s.H // s.HK
    rows = _split_heads_tensor(g, s, wq, s.H, s.D) * scale
    keys = _split_heads_tensor(g, s, wk, s.HK, s.D, is_transposed=True)
    values = _split_heads_tensor(g, s, wv, s.HK, s.DV)
    rows = g.reshape(rows, (s.B, s.HK, queries_per_key, s.SQ, s.D))
    keys = g.reshape(keys, (s.B, s.HK, 1, s.D, s.SK))
    values = g.reshape(values, (s.B, s.HK, 1, s.SK, s.DV))
    scores = rows @ keys
    if attrs["softcap"] is not None:
        scores = g.tanh(scores / attrs["softcap"]) * attrs["softcap"]
    scores = _apply_mask_tensor(g, attrs, s, scores, mask)
    out = g.softmax(scores) @ values
    out = g.reshape(out, (s.B, s.H, s.SQ, s.DV))
    if s.layout != "heads":
        out = g.reshape(g.transpose(out, (0, 2, 1, 3)), s.output_shape)
    return out if out.dtype is q.dtype else g.cast(out, q.dtype)


def _split_heads_tensor(
    g: Graph,
    s: AttentionSizes,
    x: Tensor,
    heads: int,
    head_size: int,
    is_transposed: bool = False,
) -> Tensor:
    """Return an operand as [B, H, S, D], or as [B, H, D, S] when transposed."""
    if s.layout == "flat":
        x = g.reshape(x, (*x.shape[:2], heads, head_size))
    perm = (0, 1, 2, 3) if s.layout == "heads" else (0, 2, 1, 3)
    if is_transposed:
        perm = (perm[0], perm[1], perm[3], perm[2])
    return x if perm == (0, 1, 2, 3) else g.transpose(x, perm)


def _apply_mask_tensor(
    g: Graph, attrs: Attrs, s: AttentionSizes, scores: Tensor, mask: Tensor | None
) -> Tensor:
    """Apply the mask or bias of the attributes to a tensor of scores."""
    kind = attrs["mask_kind"]
    if mask is not None and kind != "custom":
        (wide,) = widen_float16_tensors(g, mask)
        shape = (1,) * (4 - mask.rank) + mask.shape
        heads = (1, 1) if shape[1] == 1 else (s.HK, s.H // s.HK)
        scores = scores + g.reshape(wide, (shape[0], *heads, *shape[2:]))
    if kind in POSITIONAL_MASKS:
        return g.where(_visible_keys(g, attrs, s), scores, MASKED_SCORE)
    if mask is None or kind == "bias":
        return scores
    keep = mask
    if mask.dtype is not DType.BOOL:
        keep = g.ge(mask, 0.5 if mask.dtype.is_float else 1)
    keep = g.reshape(keep, (mask.shape[0], 1, 1, 1, mask.shape[1]))
    return g.where(keep, scores, MASKED_SCORE)


def _visible_keys(g: Graph, attrs: Attrs, s: AttentionSizes) -> Tensor:
    """Return which keys a query sees, from two position vectors: no [Sq, Sk]
    constant.
    """
    first_key, window = mask_positions(s, attrs)
    query = g.constant(np.arange(first_key, first_key + s.SQ, dtype=np.int32)[:, None])
    key = g.constant(np.arange(s.SK, dtype=np.int32)[None, :])
    keep = g.le(key, query)
    if attrs["mask_kind"] == "causal":
        return keep
    recent = g.ge(key, query - window)
    return g.where(keep, recent, False)


# Two products of up to 101 terms around an exp of scores below about 30.
ATTENTION_TOLERANCE = Tolerance(rtol=2e-5, atol=4e-6, relative_to_peak=True)

registry.register_all(
    Op(
        name="attention",
        arity=(3, 4),
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=(
            Attr("num_heads", "int", at_least=1),
            Attr("head_dim", "int", at_least=1),
            Attr("mask_kind", "str", "none", allowed=MASK_KINDS),
            Attr("window", "int", 0, at_least=0),
            Attr("offset", "int", None, is_nullable=True),
            Attr("score_scale", "float", None, is_nullable=True),
            Attr("softcap", "float", None, above=0, at_most=3.4e38, is_nullable=True),
        ),
        flops=_flops,
        tolerance=ATTENTION_TOLERANCE,
        samples=SAMPLES,
        fusion_pattern=match_attention,
        doc="softmax(mask(cap(scale · q · kᵀ))) · v. The attributes `score_scale` "
        "and `softcap` set scale and cap. q, k and v are [B, H, S, D] if dimension 1 "
        "equals num_heads, otherwise [B, S, H, D] or [B, S, H·D]. The attribute "
        "`mask_kind` selects the mask: 'none'; 'causal'; 'sliding_window' (a query "
        "sees the keys at its own position and at the `window` positions before it); "
        "'custom' (the operand mask [B, Sk] masks a key where its value is false or "
        "below 0.5); or 'bias' (the operand mask is added to the scores; 'causal' "
        "and 'sliding_window' accept such a bias, too). By default the last query is "
        "aligned with the last key; with `offset`, the first query is aligned with "
        "key `offset`.",
    )
)
