"""A residual sum and its norm in one kernel, a workgroup for every line.

Results lie as [2, …]: the norms, then the sums. Two lines are read, and two written,
where two kernels would write the sums and read them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import Limits

MOST = 256
"""Invocations that shaders/include/group_reduce.wgsl has room for, 4 bytes each."""


def add_norm_recipe(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """None for lines of nothing."""
    *lead, n = inputs[0].shape
    lines = prod(lead)
    if not n:
        return None
    walk = (n, 1, 0)
    call = Call(
        "add_norm",
        axes=(Axis("line", lines), Axis("n", n, "whole"), Axis("part", 2, "whole")),
        accesses=(
            Access(Ref("in", 0), walk),
            Access(Ref("in", 1), walk),
            Access(Ref("in", 2), (0, 1, 0)),
            Access(Ref("in", 3), (0, 1, 0)),
            Access(Ref("out"), (n, 1, lines * n), "write"),
        ),
        grid=(("line", 1),),
        per="workgroup",
        workgroup=min(MOST, max(32, 1 << (n // 4).bit_length())),
        values={
            "part_step": lines * n,
            "centred": int(attrs["centred"]),
            "eps": attrs["eps"],
        },
        uses=("group_reduce",),
        shared_bytes=4 * MOST,
        # Three passes by at least 32 invocations, over lines that count twice.
        turns=0.05,
    )
    return Recipe((call,))
