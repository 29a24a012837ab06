"""How a selective scan runs on a device: an invocation for every channel of every row.

It keeps the channel's state in registers and goes through time alone. Where loops or
bindings end time is cut, and the state goes on through a temporary [B, N, D]. Results
lie as [B, L + N, D]: y of every step, then the last state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.op import TensorType, Types
from rlxweb.recipes.entry import MAIN_LINES

MOST_STATE = 64
"""Numbers of a channel's state that registers may hold."""
_KEPT = Ref("scratch", 0)


def scan_recipe(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Recipe | None:
    """None for a state that is larger than registers."""
    (B, L, D), N = inputs[0].shape, inputs[2].shape[1]
    if N > MOST_STATE:
        return None
    calls = (
        _moved(Ref("in", 5) if len(inputs) > 5 else None, _KEPT, (B, N * D)),
        _scan(B, L, D, N),
        _moved(_KEPT, Ref("out"), (B, N * D), ((L + N) * D, L * D)),
    )
    return Recipe(calls, (Scratch(B * N * D),))


def _moved(
    source: Ref | None,
    target: Ref,
    size: tuple[int, int],
    lies: tuple[int, int] | None = None,
) -> Call:
    """Rows copied, or filled with zeros; `lies` is the target's step and offset."""
    rows, each = size
    step, offset = lies or (each, 0)
    write = Access(target, (step, 1), "write", offset)
    reads = () if source is None else (Access(source, (each, 1)),)
    body = (
        "  let row = item / u.each;",
        "  let at = item % u.each;",
        "  st0(row * u.step + at, 0.0);"
        if source is None
        else "  st1(row * u.step + at, ld0(row * u.size + at));",
    )
    return Call(
        "scan_state",
        axes=(Axis("row", rows), Axis("each", each)),
        accesses=(*reads, write),
        grid=(("row", 1), ("each", 1)),
        values={"step": step, "size": each},
        source="\n".join((*MAIN_LINES, *body, "}")),
    )


def _scan(B: int, L: int, D: int, N: int) -> Call:
    walk, shared = (L * D, D, 1, 0), (L * N, N, 0, 1)
    return Call(
        "selective_scan",
        axes=(
            Axis("row", B),
            Axis("time", L, "serial"),
            Axis("unit", D),
            Axis("n", N, "whole"),
        ),
        accesses=(
            Access(Ref("in", 0), walk),
            Access(Ref("in", 1), walk),
            Access(Ref("in", 2), (0, 0, N, 1)),
            Access(Ref("in", 3), shared),
            Access(Ref("in", 4), shared),
            Access(_KEPT, (N * D, 0, 1, D), "update"),
            Access(Ref("out"), ((L + N) * D, D, 1, 0), "write"),
        ),
        grid=(("row", 1), ("unit", 1)),
        values={
            "size": D,
            "x_row": L * D,
            "b_row": L * N,
            "h_row": N * D,
            "y_row": (L + N) * D,
        },
        uses=("exponential", "nan"),
        source=_text(N),
        turns=1.0 + 3.0 / N,
    )


def _text(N: int) -> str:
    body = (
        "  let unit = item % u.unit;",
        "  let row = item / u.unit;",
        "  let kept = row * u.h_row + unit;",
        f"  var h: array<f32, {N}>;",
        f"  var rate: array<f32, {N}>;",
        f"  for (var n = 0u; n < {N}u; n++) {{",
        "    h[n] = ld5(kept + n * u.size);",
        f"    rate[n] = ld2(unit * {N}u + n);",
        "  }",
        "  for (var t = 0u; t < u.time; t++) {",
        "    let at = t * u.size + unit;",
        "    let delta = ld1(row * u.x_row + at);",
        "    let v = delta * ld0(row * u.x_row + at);",
        f"    let line = row * u.b_row + t * {N}u;",
        "    var y = 0.0;",
        f"    for (var n = 0u; n < {N}u; n++) {{",
        "      let turn = delta * rate[n];",
        "      h[n] = keeps_nan(turn, precise_exp(turn)) * h[n] + v * ld3(line + n);",
        "      y += h[n] * ld4(line + n);",
        "    }",
        "    st6(row * u.y_row + at, y);",
        "  }",
        f"  for (var n = 0u; n < {N}u; n++) {{ st5(kept + n * u.size, h[n]); }}",
    )
    return "\n".join((*MAIN_LINES, *body, "}"))
