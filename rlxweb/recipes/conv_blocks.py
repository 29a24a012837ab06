"""Convolutions by large blocks, for GPUs: the kernel of products, fed by windows.

The weights of a group are the left operand. The right one, whose columns are windows,
is nowhere: its elements are fetched from the array, where a table says each tap lies.
All else (slices through workgroup memory, 8 by 8 sums a lane, the sum in parts where
blocks are few) is as in `matmul_blocks.py`. The windows of all images are columns of
one product where they fit one binding: a network's last layers have few on each. Else
every image is a product of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape import numel
from rlxweb.limits import Limits
from rlxweb.recipes.conv_calls import Convolution, convolution, walks_of
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.matmul_blocks import (
    DEPTH,
    ENOUGH,
    WARP,
    Blocks,
    is_long,
    parts_of,
    suits,
    turns_of,
)
from rlxweb.recipes.reduce_calls import (
    Kept,
    Pass,
    Reduced,
    pass_call,
    scalar_of,
    type_include,
)
from rlxweb.recipes.windows import Padded, Windows, padded

_FEW = 4
"""Below that part of what fills a large GPU blocks are few. On paper."""


def conv_blocks(side: int) -> RecipeFor:
    """The recipe of a convolution by blocks of `side` channels by `side` windows.

    None where blocks would be few or mostly empty for a short sum.
    """

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        x, w = inputs
        one = convolution(x.shape, w.shape, attrs)
        (c, m), places = one.channels, numel(one.windows.out)
        k = c * numel(one.windows.kernel)
        blocks = Blocks(side, False, "windows_at")
        images = max(1, one.batch) if _together(one, x, out, limits) else 1
        n = images * places
        lines = one.batch // images * one.groups * -(-m // side) * -(-n // side)
        warps = lines * (blocks.lanes // WARP)
        if not warps:
            return None
        sizes = (m, n, k)
        # Lanes of tiles fill a GPU before blocks do that are mostly empty.
        few = _FEW * warps < ENOUGH and is_long(blocks, sizes, warps)
        if not (suits(blocks, sizes, warps, limits) or few):
            return None
        source = padded(one.windows, one.batch * x.shape[1], x.dtype, first=1)
        length = -(-k // (parts_of(warps, k) * DEPTH)) * DEPTH
        parts = -(-k // length)
        first = len(source.scratch)
        target = Ref("out") if parts == 1 else Ref("scratch", first)
        call = _call(one, images, blocks, source, (parts, length, out), target)
        tables = (_taps(one, source), *source.tables)
        if parts == 1:
            return Recipe((*source.calls, call), source.scratch, tables)
        total = out.numel
        walk = Pass(target, Ref("out"), (Kept(total, 1, 1),), (Reduced(parts, total),))
        summed = pass_call("sum", walk, type_include(out.dtype))
        scratch = (*source.scratch, Scratch(parts * total, scalar_of(out.dtype)))
        return Recipe((*source.calls, call, summed), scratch, tables)

    return recipe


def _together(one: Convolution, x: TensorType, out: TensorType, limits: Limits) -> bool:
    """Whether the images, in their padding, fit one binding, and so their results."""
    windows = one.windows
    extents = windows.size if windows.is_inside else windows.reach
    read = one.batch * x.shape[1] * numel(extents) * x.dtype.nbytes
    return max(read, out.nbytes) <= limits.max_storage_buffer_binding_size


def _taps(one: Convolution, source: Padded) -> np.ndarray[Any, Any]:
    """Where each term of the sum lies from its window's first element on."""
    steps = walks_of(one, source.extents)[0][6:]
    made = np.zeros((), np.int64)
    for size, step in zip((one.channels[0], *one.windows.kernel), steps, strict=True):
        made = made[..., None] + np.arange(size) * step
    return made.reshape(-1).astype(np.int32)


def _call(
    one: Convolution,
    images: int,
    blocks: Blocks,
    source: Padded,
    split: tuple[int, int, TensorType],
    target: Ref,
) -> Call:
    """`images`: of one product. `split`: parts of the sum, terms of one, the result."""
    parts, length, out = split
    (c, m), w = one.channels, one.windows
    places, k = numel(w.out), c * numel(w.kernel)
    x, _, z = walks_of(one, source.extents)
    others = images - 1
    read = others * x[0] + c * numel(source.extents)
    still = (0, 0, 0)
    walks = (
        (0, 0, 0, m * k, k, 0, 1),
        (0, 0, x[0], x[1], *still),
        (out.numel, 0, z[0], z[1], z[2], 0, 0),
        (0,) * 7,
    )
    values = {
        f"{letter}_b{i}": walk[1 + i]
        for letter, walk in zip("xyz", walks, strict=False)
        for i in range(3)
    }
    values |= {"length": length, "z_part": out.numel, **_steps(w, k, x, z)}
    return Call(
        "conv_blocks",
        axes=(
            Axis("part", parts, "whole"),
            Axis("b0", 1),
            Axis("b1", one.batch // images),
            Axis("b2", one.groups),
            Axis("m", m),
            Axis("n", images * places, "whole"),
            Axis("k", k, "whole"),
        ),
        accesses=(
            Access(Ref("in", 1), walks[0]),
            Access(source.ref, walks[1], span=read),
            Access(target, walks[2], "write", span=others * z[0] + places),
            Access(Ref("table"), walks[3], span=k),
        ),
        grid=(
            ("part", 1),
            *((name, 1) for name in ("b0", "b1", "b2")),
            ("m", blocks.side),
            ("n", blocks.side),
        ),
        per="workgroup",
        workgroup=blocks.lanes,
        values=values,
        uses=(f"matmul_{scalar_of(out.dtype)}", "block", "conv_blocks"),
        source=blocks.text(),
        shared_bytes=blocks.shared_bytes,
        turns=turns_of(length) / max(1, k),
        finishes="stores" if parts == 1 else "",
    )


def _steps(
    w: Windows, k: int, x: tuple[int, ...], z: tuple[int, ...]
) -> dict[str, int]:
    """From row to row of the weights and the result, from image to image, from window
    to window.
    """
    places = numel(w.out)
    rows = {"x_row": k, "x_k": 1, "z_row": places, "places": places}
    images = {"y_image": x[0], "z_image": z[0], "o1": w.out[1], "o2": w.out[2]}
    return rows | images | {f"s{i}": step for i, step in enumerate(x[3:6])}
