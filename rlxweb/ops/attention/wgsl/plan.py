"""Kernel plan of attention in one kernel, for GPUs: scores never leave the workgroup.

A workgroup takes QUERIES queries of one head, a query a lane (two or four lanes for
wide heads, each with a part of it). Keys and values pass through workgroup memory. The
softmax is kept running: the highest score so far, the sum of the weights below it and
the weighted values, scaled down whenever a higher score comes (Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018). Masked keys score -1e9 as in the
decomposition, so a row with nothing but them averages all values. Computed in f32.

Of a causal or sliding mask a workgroup takes the tiles first that one of its queries
sees. What is left weighs nothing, unless a row sees no key, or none that scores more
than -1e9: then they follow. Else their values are looked through for what is no
number, which spoils its column even times 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.core.limits import MAX_LOOP_ITERATIONS, Limits
from rlxweb.ir.layout import row_major_strides
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
)
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.ops.attention.operand_shapes import (
    AttentionSizes,
    infer_attention_sizes,
    mask_positions,
)
from rlxweb.ops.attention.wgsl.text import (
    QUERIES_PER_WORKGROUP,
    AttentionKernelSpec,
    AttentionStrides,
    attention_source,
)
from rlxweb.ops.kernel_variant import KernelVariant

MIN_QUERIES = 16
"""Number of queries below which most of a workgroup would idle."""
MAX_LANES_PER_QUERY = 4


def plan_fused_attention(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Plan an attention as one dispatch.

    None for few queries and head sizes that are no multiple of four or above 256. It is
    cut by batches, heads and queries; keys and values of a head must fit a binding.
    """
    spec = _kernel_spec(inputs, attrs)
    max_lanes = limits.max_linear_workgroup_size
    is_supported = (
        spec.queries >= MIN_QUERIES
        and spec.keys > 0
        and spec.lanes_per_query <= MAX_LANES_PER_QUERY
    )
    if not is_supported or any(n % 4 or n == 0 for n in spec.head_sizes):
        return None
    iterations = (
        spec.keys
        / spec.tile_keys
        * (
            4
            + spec.tile_keys / 2
            + 2 * sum(spec.vec4s_per_lane) / QUERIES_PER_WORKGROUP
        )
    )
    iterations += spec.keys / spec.checked_keys * spec.has_positional_mask
    fits = (
        max_lanes >= QUERIES_PER_WORKGROUP * spec.lanes_per_query
        and iterations <= MAX_LOOP_ITERATIONS
    )
    return KernelPlan((_attention_dispatch(spec, iterations),)) if fits else None


def _kernel_spec(inputs: Types, attrs: Mapping[str, Any]) -> AttentionKernelSpec:
    """Describe the kernel for these operands and attributes."""
    q, k, v = (operand.shape for operand in inputs[:3])
    s = infer_attention_sizes(q, k, v, attrs)
    scale = s.D**-0.5 if attrs["score_scale"] is None else attrs["score_scale"]
    mask = inputs[3] if len(inputs) > 3 else None
    first_key, window = mask_positions(s, attrs)
    return AttentionKernelSpec(
        batch=s.B,
        key_heads=s.HK,
        group_size=s.H // s.HK,
        queries=s.SQ,
        keys=s.SK,
        first_key=first_key,
        head_sizes=(s.D, s.DV),
        operand_strides=(
            _operand_strides(s, s.H, s.SQ, s.D),
            _operand_strides(s, s.HK, s.SK, s.D),
            _operand_strides(s, s.HK, s.SK, s.DV),
            _operand_strides(s, s.H, s.SQ, s.DV),
        ),
        scale=float(scale),
        softcap=attrs["softcap"],
        mask_kind=attrs["mask_kind"],
        mask_dtype=mask.dtype if mask else None,
        mask_strides=_mask_strides(attrs["mask_kind"], mask.shape)
        if mask
        else (0, 0, 0, 0),
        window=window,
    )


def _operand_strides(
    s: AttentionSizes, heads: int, length: int, size: int
) -> AttentionStrides:
    """Return the strides of an operand in the layout of this attention."""
    if s.layout == "heads":
        return AttentionStrides(heads * length * size, length * size, size)
    return AttentionStrides(heads * length * size, size, heads * size)


def _mask_strides(kind: str, mask: Shape) -> tuple[int, int, int, int]:
    """Return the strides of a mask over batch, head, query and key: of [B, Sk], or of a
    broadcast [B, H, Sq, Sk].
    """
    axes = zip(mask, row_major_strides(mask), strict=True)
    strides = [0 if n == 1 else stride for n, stride in axes]
    if kind == "custom":
        return strides[0], 0, 0, strides[1]
    b, h, q, k = [0] * (4 - len(mask)) + strides
    return b, h, q, k


def _attention_dispatch(spec: AttentionKernelSpec, iterations: float) -> KernelDispatch:
    q, k, v, out = spec.operand_strides
    group_size = spec.group_size
    axes = (
        IterationAxis("batch", spec.batch),
        IterationAxis("head", spec.key_heads),
        IterationAxis("share", group_size, "whole"),
        IterationAxis("query", spec.queries),
        IterationAxis("key", spec.keys, "whole"),
        IterationAxis("size", max(spec.head_sizes), "whole"),
    )
    accesses = [
        OperandAccess(
            BufferRef("in", 0),
            (q.batch, q.head * group_size, q.head, q.position, 0, 1),
            is_vec4=True,
        ),
        OperandAccess(
            BufferRef("in", 1), (k.batch, k.head, 0, 0, k.position, 1), is_vec4=True
        ),
        OperandAccess(
            BufferRef("in", 2), (v.batch, v.head, 0, 0, v.position, 1), is_vec4=True
        ),
        OperandAccess(
            BufferRef("out"),
            (out.batch, out.head * group_size, out.head, out.position, 0, 1),
            "write",
            is_vec4=True,
        ),
    ]
    # How far the first query stands before the end of the keys.
    distance_to_end = spec.keys - spec.first_key
    uniforms: dict[str, int | float] = {"scale": spec.scale, "behind": distance_to_end}
    for letter, strides in zip("qkvo", spec.operand_strides, strict=True):
        uniforms |= {
            f"{letter}_b": strides.batch // 4,
            f"{letter}_h": strides.head // 4,
            f"{letter}_s": strides.position // 4,
        }
    if spec.softcap is not None:
        uniforms["cap"] = spec.softcap
    if spec.mask_kind == "sliding_window":
        uniforms["window"] = spec.window
    if spec.mask_dtype is not None:
        b, h, s, n = spec.mask_strides
        accesses.append(
            OperandAccess(BufferRef("in", 3), (b, h * group_size, h, s, n, 0))
        )
        uniforms |= {"m_b": b, "m_h": h, "m_s": s, "m_n": n}
    return KernelDispatch(
        "attention_blocks",
        axes=axes,
        accesses=tuple(accesses),
        grid=(
            ("batch", 1),
            ("head", 1),
            ("share", 1),
            ("query", QUERIES_PER_WORKGROUP),
        ),
        item_unit="workgroup",
        workgroup_size=QUERIES_PER_WORKGROUP * spec.lanes_per_query,
        uniforms=uniforms,
        uses=("nan", *(("tanh",) if spec.softcap is not None else ())),
        source=attention_source(spec),
        shared_bytes=spec.shared_bytes,
        iterations=iterations / (spec.keys * max(spec.head_sizes)),
    )


KERNELS = (KernelVariant("attention, one kernel", "attention", plan_fused_attention),)
