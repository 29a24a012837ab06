"""How a linear recurrence runs on a device: an invocation for every channel of a row.

It goes through time alone with its state in a register. Where loops or bindings end
time is cut, and the state goes on through a temporary [B, D]. Pure arithmetic; knows no
op's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch, wrapped
from rlxweb.ir.op import TensorType, Types
from rlxweb.recipes.entry import MAIN_LINES


def linear_scan_recipe(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Recipe:
    """One call, forwards or backwards through time."""
    B, L, D = out.shape
    step, first = (-D, max(L - 1, 0) * D) if attrs["reverse"] else (D, 0)
    walk = (L * D, step, 1)
    call = Call(
        "linear_scan",
        axes=(Axis("row", B), Axis("time", L, "serial"), Axis("unit", D)),
        accesses=(
            Access(Ref("in", 0), walk, offset=first),
            Access(Ref("in", 1), walk, offset=first),
            Access(Ref("scratch", 0), (D, 0, 1), "update"),
            Access(Ref("out"), walk, "write", first),
        ),
        grid=(("row", 1), ("unit", 1)),
        values={"x_row": L * D, "x_time": wrapped(step), "s_row": D},
        source="\n".join((*MAIN_LINES, *_BODY, "}")),
        turns=1.0,
    )
    return Recipe((call,), (Scratch(B * D),))


_BODY = (
    "  let unit = item % u.unit;",
    "  let row = item / u.unit;",
    "  let kept = row * u.s_row + unit;",
    "  var s = 0.0;",
    "  if (u.at_time != 0u) { s = ld2(kept); }",
    "  for (var t = 0u; t < u.time; t++) {",
    "    let at = row * u.x_row + t * u.x_time + unit;",
    "    let own = ld0(at);",
    "    if (t + u.at_time == 0u) { s = own; } else { s = fma(ld1(at), s, own); }",
    "    st3(at, s);",
    "  }",
    "  st2(kept, s);",
)
