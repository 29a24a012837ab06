"""Attention in one kernel, for GPUs: scores never leave the workgroup.

A workgroup takes QUERIES queries of one head, a query a lane (two or four lanes for
wide heads, each with a part of it). Keys and values pass through workgroup memory. The
softmax is kept running: the highest score so far, the sum of the weights below it and
the weighted values, scaled down whenever a higher score comes (Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018). Masked keys score -1e9 as in the
composition, so a row with nothing but them averages all values. Computed in f32.

Of a causal or sliding mask a workgroup takes the tiles first that one of its queries
sees. What is left weighs nothing, unless a row sees no key, or none that scores more
than -1e9: then they follow. Else their values are looked through for what is no
number, which spoils its column even times 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.ir.layout import row_major
from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape import Shape
from rlxweb.limits import MAX_TURNS, Limits
from rlxweb.recipes.attention_sizes import Sizes, sizes_of, standing
from rlxweb.recipes.attention_text import QUERIES, Job, Lines, text

LEAST = 16
"""Queries below which most of a workgroup would idle."""
MOST_SPLIT = 4


def attention_blocks(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """The one call of an attention.

    None for few queries and head sizes that are no multiple of four or above 256. It is
    cut by batches, heads and queries; keys and values of a head must fit a binding.
    """
    job = _job(inputs, attrs)
    room = limits.workgroup_lanes
    suits = job.queries >= LEAST and job.keys > 0 and job.split <= MOST_SPLIT
    if not suits or any(n % 4 or n == 0 for n in job.size):
        return None
    turns = job.keys / job.tile * (4 + job.tile / 2 + 2 * sum(job.held) / QUERIES)
    turns += job.keys / job.looked * job.seen
    fits = room >= QUERIES * job.split and turns <= MAX_TURNS
    return Recipe((_call(job, turns),)) if fits else None


def _job(inputs: Types, attrs: Mapping[str, Any]) -> Job:
    q, k, v = (t.shape for t in inputs[:3])
    s = sizes_of(q, k, v, attrs)
    scale = s.D**-0.5 if attrs["score_scale"] is None else attrs["score_scale"]
    mask = inputs[3] if len(inputs) > 3 else None
    first, window = standing(s, attrs)
    return Job(
        batch=s.B,
        heads=s.HK,
        share=s.H // s.HK,
        queries=s.SQ,
        keys=s.SK,
        first=first,
        size=(s.D, s.DV),
        lines=(
            _lines(s, s.H, s.SQ, s.D),
            _lines(s, s.HK, s.SK, s.D),
            _lines(s, s.HK, s.SK, s.DV),
            _lines(s, s.H, s.SQ, s.DV),
        ),
        scale=float(scale),
        softcap=attrs["softcap"],
        mask=attrs["mask_kind"],
        mask_dtype=mask.dtype if mask else None,
        steps=_steps(attrs["mask_kind"], mask.shape) if mask else (0, 0, 0, 0),
        window=window,
    )


def _lines(s: Sizes, heads: int, length: int, size: int) -> Lines:
    if s.layout == "heads":
        return Lines(heads * length * size, length * size, size)
    return Lines(heads * length * size, size, heads * size)


def _steps(kind: str, mask: Shape) -> tuple[int, int, int, int]:
    """Steps over batch, head, query and key: [B, Sk], or a broadcast [B, H, Sq, Sk]."""
    every = zip(mask, row_major(mask), strict=True)
    steps = [0 if n == 1 else step for n, step in every]
    if kind == "custom":
        return steps[0], 0, 0, steps[1]
    b, h, q, k = [0] * (4 - len(mask)) + steps
    return b, h, q, k


def _call(job: Job, turns: float) -> Call:
    q, k, v, out = job.lines
    share = job.share
    axes = (
        Axis("batch", job.batch),
        Axis("head", job.heads),
        Axis("share", share, "whole"),
        Axis("query", job.queries),
        Axis("key", job.keys, "whole"),
        Axis("size", max(job.size), "whole"),
    )
    accesses = [
        Access(
            Ref("in", 0), (q.batch, q.head * share, q.head, q.position, 0, 1), wide=True
        ),
        Access(Ref("in", 1), (k.batch, k.head, 0, 0, k.position, 1), wide=True),
        Access(Ref("in", 2), (v.batch, v.head, 0, 0, v.position, 1), wide=True),
        Access(
            Ref("out"),
            (out.batch, out.head * share, out.head, out.position, 0, 1),
            "write",
            wide=True,
        ),
    ]
    # How far the first query stands before the end of the keys.
    behind = job.keys - job.first
    values: dict[str, int | float] = {"scale": job.scale, "behind": behind}
    for letter, lines in zip("qkvo", job.lines, strict=True):
        values |= {
            f"{letter}_b": lines.batch // 4,
            f"{letter}_h": lines.head // 4,
            f"{letter}_s": lines.position // 4,
        }
    if job.softcap is not None:
        values["cap"] = job.softcap
    if job.mask == "sliding_window":
        values["window"] = job.window
    if job.mask_dtype is not None:
        b, h, s, n = job.steps
        accesses.append(Access(Ref("in", 3), (b, h * share, h, s, n, 0)))
        values |= {"m_b": b, "m_h": h, "m_s": s, "m_n": n}
    return Call(
        "attention_blocks",
        axes=axes,
        accesses=tuple(accesses),
        grid=(("batch", 1), ("head", 1), ("share", 1), ("query", QUERIES)),
        per="workgroup",
        workgroup=QUERIES * job.split,
        values=values,
        uses=("nan", *(("tanh",) if job.softcap is not None else ())),
        source=text(job),
        shared_bytes=job.shared_bytes,
        turns=turns / (job.keys * max(job.size)),
    )
