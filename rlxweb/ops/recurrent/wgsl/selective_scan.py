"""Kernel plan of the selective scan: one invocation for every channel of every row.

It keeps the channel's state in registers and goes through time alone. Where loops or
bindings end time is cut, and the state goes on through a temporary [B, N, D]. Results
lie as [B, L + N, D]: y of every step, then the last state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.codegen.wgsl_entry_point import MAIN_LINES
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
)
from rlxweb.ir.op import TensorType, Types

MAX_STATE_SIZE = 64
"""Largest state of a channel that fits in registers."""
_STATE_BUFFER = BufferRef("scratch", 0)


def plan_selective_scan(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan | None:
    """Return the plan of a selective scan, or None for a state that does not fit in
    registers.
    """
    (B, L, D), N = inputs[0].shape, inputs[2].shape[1]
    if N > MAX_STATE_SIZE:
        return None
    dispatches = (
        _copy_rows(
            BufferRef("in", 5) if len(inputs) > 5 else None, _STATE_BUFFER, (B, N * D)
        ),
        _scan_dispatch(B, L, D, N),
        _copy_rows(_STATE_BUFFER, BufferRef("out"), (B, N * D), ((L + N) * D, L * D)),
    )
    return KernelPlan(dispatches, (ScratchBuffer(B * N * D),))


def _copy_rows(
    source: BufferRef | None,
    target: BufferRef,
    size: tuple[int, int],
    destination: tuple[int, int] | None = None,
) -> KernelDispatch:
    """Return the dispatch that copies rows, or fills them with zeros; `destination` is
    the target's step and offset.
    """
    rows, row_size = size
    step, offset = destination or (row_size, 0)
    write = OperandAccess(target, (step, 1), "write", offset)
    reads = () if source is None else (OperandAccess(source, (row_size, 1)),)
    body = (
        "  let row = item / u.each;",
        "  let at = item % u.each;",
        "  st0(row * u.step + at, 0.0);"
        if source is None
        else "  st1(row * u.step + at, ld0(row * u.size + at));",
    )
    return KernelDispatch(
        "scan_state",
        axes=(IterationAxis("row", rows), IterationAxis("each", row_size)),
        accesses=(*reads, write),
        grid=(("row", 1), ("each", 1)),
        uniforms={"step": step, "size": row_size},
        source="\n".join((*MAIN_LINES, *body, "}")),
    )


def _scan_dispatch(B: int, L: int, D: int, N: int) -> KernelDispatch:
    """Return the dispatch that runs the recurrence over time."""
    channel_strides, state_strides = (L * D, D, 1, 0), (L * N, N, 0, 1)
    return KernelDispatch(
        "selective_scan",
        axes=(
            IterationAxis("row", B),
            IterationAxis("time", L, "serial"),
            IterationAxis("unit", D),
            IterationAxis("n", N, "whole"),
        ),
        accesses=(
            OperandAccess(BufferRef("in", 0), channel_strides),
            OperandAccess(BufferRef("in", 1), channel_strides),
            OperandAccess(BufferRef("in", 2), (0, 0, N, 1)),
            OperandAccess(BufferRef("in", 3), state_strides),
            OperandAccess(BufferRef("in", 4), state_strides),
            OperandAccess(_STATE_BUFFER, (N * D, 0, 1, D), "update"),
            OperandAccess(BufferRef("out"), ((L + N) * D, D, 1, 0), "write"),
        ),
        grid=(("row", 1), ("unit", 1)),
        uniforms={
            "size": D,
            "x_row": L * D,
            "b_row": L * N,
            "h_row": N * D,
            "y_row": (L + N) * D,
        },
        uses=("exponential", "nan"),
        source=_scan_wgsl(N),
        iterations=1.0 + 3.0 / N,
    )


def _scan_wgsl(N: int) -> str:
    """Return the WGSL of the recurrence for a state of N values."""
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
