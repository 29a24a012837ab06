"""Kernel plan of a linear scan: one invocation per channel of a row.

It goes through time alone with its state in a register. Where loops or bindings end
time is cut, and the state goes on through a temporary [B, D]. Pure arithmetic; knows no
op's meaning.
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
    wrap_u32,
)
from rlxweb.ir.op import TensorType, Types


def plan_linear_scan(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan:
    """Plan one dispatch, forwards or backwards through time."""
    B, L, D = out.shape
    time_stride, offset = (-D, max(L - 1, 0) * D) if attrs["reverse"] else (D, 0)
    strides = (L * D, time_stride, 1)
    dispatch = KernelDispatch(
        "linear_scan",
        axes=(
            IterationAxis("row", B),
            IterationAxis("time", L, "serial"),
            IterationAxis("unit", D),
        ),
        accesses=(
            OperandAccess(BufferRef("in", 0), strides, offset=offset),
            OperandAccess(BufferRef("in", 1), strides, offset=offset),
            OperandAccess(BufferRef("scratch", 0), (D, 0, 1), "update"),
            OperandAccess(BufferRef("out"), strides, "write", offset),
        ),
        grid=(("row", 1), ("unit", 1)),
        uniforms={"x_row": L * D, "x_time": wrap_u32(time_stride), "s_row": D},
        source="\n".join((*MAIN_LINES, *_BODY, "}")),
        iterations=1.0,
    )
    return KernelPlan((dispatch,), (ScratchBuffer(B * D),))


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
