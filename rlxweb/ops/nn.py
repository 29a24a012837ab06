"""Scaled dot-product attention, built from products, softmax and elementwise ops.

Order of the scores: q · k, scale, softcap, bias, then the mask (a masked score is -1e9,
so a row with every key masked averages all values). Query positions are absolute: the
last query stands at the last key, unless an offset says at which key the first one
stands. Fewer key heads than query heads share keys in equal groups. Owns no shader; the
reference is written apart from the composition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.errors import GraphError, ShapeError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Tolerance, Types, registry
from rlxweb.ir.shape import bad_attribute, bad_dtype, bad_shape, broadcast, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.attention_spelled import spelled
from rlxweb.ops.elementwise import same_dtype
from rlxweb.ops.linalg import widened
from rlxweb.ops.nn_samples import SAMPLES
from rlxweb.ops.norm import in_f32
from rlxweb.recipes.attention_sizes import Sizes, sizes_of, standing

MASKED = -1e9
MASK_KINDS = ("none", "causal", "sliding_window", "custom", "bias")
POSITIONED = ("causal", "sliding_window")
"""Masks by where queries and keys stand."""
_MASKS = {"none": (0, 0), "custom": (1, 1), "bias": (1, 1)} | {
    kind: (0, 1) for kind in POSITIONED
}
"""Mask operands of each kind: the fewest and the most."""


def _infer(types: Types, attrs: Attrs) -> TensorType:
    q, k, v = types[:3]
    dtype = same_dtype((q, k, v))
    if not dtype.is_float:
        raise bad_dtype(f"operands are {dtype}", "bf16, f16, f32 or f64", "cast them")
    _check_attrs(attrs)
    s = sizes_of(q.shape, k.shape, v.shape, attrs)
    _check_mask(types[3:], dtype, s, attrs["mask_kind"])
    return TensorType(s.output, dtype)


def _check_attrs(attrs: Attrs) -> None:
    kind, window = attrs["mask_kind"], attrs["window"]
    for name in ("num_heads", "head_dim"):
        if attrs[name] < 1:
            raise bad_attribute(f"{name}={attrs[name]}", f"{name} is at least 1")
    if window < 0 or (window and kind != "sliding_window"):
        raise bad_attribute(
            f"window={window} with mask_kind={kind!r}",
            "window is >= 0, and belongs to mask_kind='sliding_window'",
        )
    if attrs["offset"] is not None and kind not in POSITIONED:
        raise bad_attribute(
            f"offset={attrs['offset']} with mask_kind={kind!r}",
            "offset belongs to mask_kind='causal' and 'sliding_window'",
        )
    scale, cap = attrs["score_scale"], attrs["softcap"]
    if scale is not None and not np.isfinite(scale):
        raise bad_attribute(f"score_scale={scale}", "the scale is finite")
    if cap is not None and not (cap > 0 and np.isfinite(cap)):
        raise bad_attribute(f"softcap={cap}", "the cap is finite and > 0")


def _check_mask(masks: Types, dtype: DType, s: Sizes, kind: str) -> None:
    least, most = _MASKS[kind]
    if not least <= len(masks) <= most:
        raise GraphError(
            "",
            f"mask_kind={kind!r} beside {len(masks)} mask operands",
            f"it takes {least}" + (f" or {most}" if most > least else ""),
            "'custom' and 'bias' take a mask, 'causal' and 'sliding_window' may have "
            "a bias",
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
        raise bad_shape(f"mask {show(mask.shape)}", f"{letters} is {show(full)} here")
    if kind != "custom" and mask.dtype is not dtype:
        raise bad_dtype(f"bias is {mask.dtype}", f"q is {dtype}", "cast the bias")


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    s = sizes_of(inputs[0].shape, inputs[1].shape, inputs[2].shape, attrs)
    return 2.0 * s.B * s.H * s.SQ * s.SK * (s.D + s.DV)


def _reference(xp: Any, attrs: Attrs, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    s = sizes_of(q.shape, k.shape, v.shape, attrs)
    qh, kh, vh = (
        in_heads(s, widened(xp, x), n, size)
        for x, n, size in ((q, s.H, s.D), (k, s.HK, s.D), (v, s.HK, s.DV))
    )
    kh, vh = (xp.repeat(x, s.H // s.HK, axis=1) for x in (kh, vh))
    scale = attrs["score_scale"]
    scores = (qh @ xp.swapaxes(kh, 2, 3)) * (s.D**-0.5 if scale is None else scale)
    if attrs["softcap"] is not None:
        scores = attrs["softcap"] * xp.tanh(scores / attrs["softcap"])
    scores = masked(xp, attrs, s, scores, mask)
    if s.SK:
        e = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True)) if s.SQ else scores
        scores = e / xp.sum(e, axis=-1, keepdims=True)
    out = scores @ vh
    if s.layout != "heads":
        out = xp.swapaxes(out, 1, 2)
    return xp.asarray(out.reshape(s.output), dtype=q.dtype)


def in_heads(s: Sizes, x: Any, heads: int, size: int) -> Any:
    """An operand as [B, H, S, D]."""
    if s.layout == "heads":
        return x
    return x.reshape((x.shape[0], x.shape[1], heads, size)).swapaxes(1, 2)


def masked(xp: Any, attrs: Attrs, s: Sizes, scores: Any, mask: Any) -> Any:
    """Scores [B, H, SQ, SK] with the mask or bias of the op's attributes."""
    kind = attrs["mask_kind"]
    if mask is not None and kind != "custom":
        scores = scores + widened(xp, mask)
    if kind in ("none", "bias"):
        return scores
    if kind == "custom":
        keep = mask if mask.dtype == xp.bool_ else mask >= 0.5
        keep = keep[:, None, None, :]
    else:
        first, window = standing(s, attrs)
        behind = (xp.arange(s.SQ) + first)[:, None] - xp.arange(s.SK)[None, :]
        keep = behind >= 0
        if kind == "sliding_window":
            keep = keep & (behind <= window)
    return xp.where(keep, scores, xp.full_like(scores, MASKED))


def _build(
    g: Graph, attrs: Attrs, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
) -> Tensor:
    s = sizes_of(q.shape, k.shape, v.shape, attrs)
    wq, wk, wv = in_f32(g, q, k, v)
    scale = s.D**-0.5 if attrs["score_scale"] is None else attrs["score_scale"]
    # Query heads that share keys become an axis of their own, beside which the keys
    # broadcast: nothing is repeated in memory.
    share = s.H // s.HK
    rows = _rows(g, s, wq, s.H, s.D) * scale
    keys = _rows(g, s, wk, s.HK, s.D, turned=True)
    values = _rows(g, s, wv, s.HK, s.DV)
    rows = g.reshape(rows, (s.B, s.HK, share, s.SQ, s.D))
    keys = g.reshape(keys, (s.B, s.HK, 1, s.D, s.SK))
    values = g.reshape(values, (s.B, s.HK, 1, s.SK, s.DV))
    scores = rows @ keys
    if attrs["softcap"] is not None:
        scores = g.tanh(scores / attrs["softcap"]) * attrs["softcap"]
    scores = _with_mask(g, attrs, s, scores, mask)
    out = g.softmax(scores) @ values
    out = g.reshape(out, (s.B, s.H, s.SQ, s.DV))
    if s.layout != "heads":
        out = g.reshape(g.transpose(out, (0, 2, 1, 3)), s.output)
    return out if out.dtype is q.dtype else g.cast(out, q.dtype)


def _rows(
    g: Graph, s: Sizes, x: Tensor, heads: int, size: int, turned: bool = False
) -> Tensor:
    """An operand as [B, H, S, D], or [B, H, D, S] when turned."""
    if s.layout == "flat":
        x = g.reshape(x, (*x.shape[:2], heads, size))
    perm = (0, 1, 2, 3) if s.layout == "heads" else (0, 2, 1, 3)
    if turned:
        perm = (perm[0], perm[1], perm[3], perm[2])
    return x if perm == (0, 1, 2, 3) else g.transpose(x, perm)


def _with_mask(
    g: Graph, attrs: Attrs, s: Sizes, scores: Tensor, mask: Tensor | None
) -> Tensor:
    kind = attrs["mask_kind"]
    if mask is not None and kind != "custom":
        (wide,) = in_f32(g, mask)
        shape = (1,) * (4 - mask.rank) + mask.shape
        heads = (1, 1) if shape[1] == 1 else (s.HK, s.H // s.HK)
        scores = scores + g.reshape(wide, (shape[0], *heads, *shape[2:]))
    if kind in POSITIONED:
        return g.where(_positions(g, attrs, s), scores, MASKED)
    if mask is None or kind == "bias":
        return scores
    keep = mask
    if mask.dtype is not DType.BOOL:
        keep = g.ge(mask, 0.5 if mask.dtype.is_float else 1)
    keep = g.reshape(keep, (mask.shape[0], 1, 1, 1, mask.shape[1]))
    return g.where(keep, scores, MASKED)


def _positions(g: Graph, attrs: Attrs, s: Sizes) -> Tensor:
    """Which keys a query sees, from two position vectors: no [Sq, Sk] constant."""
    first, window = standing(s, attrs)
    query = g.constant(np.arange(first, first + s.SQ, dtype=np.int32)[:, None])
    key = g.constant(np.arange(s.SK, dtype=np.int32)[None, :])
    keep = g.le(key, query)
    if attrs["mask_kind"] == "causal":
        return keep
    recent = g.ge(key, query - window)
    return g.where(keep, recent, False)


# Two products of up to 101 terms around an exp of scores below about 30.
ATTENDED = Tolerance(rtol=2e-5, atol=4e-6, relative_to_peak=True)

registry.register_all(
    Op(
        name="attention",
        arity=(3, 4),
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        attrs=(
            Attr("num_heads", "int"),
            Attr("head_dim", "int"),
            Attr("mask_kind", "str", "none", allowed=MASK_KINDS),
            Attr("window", "int", 0),
            Attr("offset", "int", None, optional=True),
            Attr("score_scale", "float", None, optional=True),
            Attr("softcap", "float", None, optional=True),
        ),
        flops=_flops,
        tolerance=ATTENDED,
        samples=SAMPLES,
        spelled=spelled,
        doc="softmax(mask(cap(scale · q · kᵀ))) · v. Layout [B, H, S, D] when "
        "dimension 1 is num_heads, else [B, S, H, D], or [B, S, H·D]. mask_kind: "
        "none; causal; sliding_window (keys from `window` before the query to the "
        "query); custom ([B, Sk], below 0.5 or false is masked); bias (added to "
        "the scores, as one beside causal and sliding_window is). The last query "
        "stands at the last key, or the first one at key `offset`.",
    )
)
