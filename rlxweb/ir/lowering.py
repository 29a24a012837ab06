"""Lowering records: the ways in which an op becomes device work, as plain declarations.

Expr: a scalar WGSL expression, fusable. View: arithmetic on a Layout, free. Compose:
built from other ops. Kernel: a shader file run over an iteration box. The records here
are data; `rlxweb.codegen` turns them into shader text and `rlxweb.compiler` decides
when to use which. No device and no op is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy.typing as npt

from rlxweb.core.errors import GraphError, did_you_mean
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.shape_arithmetic import Shape


@dataclass(frozen=True, slots=True)
class Expr:
    """A WGSL expression in `x`, `y`, `z` (the operands) and `{attr}` placeholders.

    Written once for scalars and vec4: `F I U B` stand for f32, i32, u32, bool or their
    vec4, `X` for the type of operand x, so a literal is `X(0)` or `F(0.5)`. `uses`
    names functions of `shaders/include/` the expression calls. `text` may be a function
    of (input types, output type, attrs) for ops such as cast.
    """

    text: str | Callable[[Any, Any, Mapping[str, Any]], str]
    uses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """View of the input: the output is a Layout over its buffer, or None if a copy is
    needed.
    """

    layout: Callable[[Layout, Shape, Mapping[str, Any]], Layout | None]


@dataclass(frozen=True, slots=True)
class Compose:
    """Decomposition: `build(graph, attrs, *tensors)` adds other ops and returns the
    result tensor.

    is_always_expanded  nobody is faster with the op as one: what it is built of is
                        taken together with what stands around it
    reduction  the kind of reduction that the op is, where it stays one; see `Kernel`
    """

    build: Callable[..., Any]
    is_always_expanded: bool = False
    reduction: str = ""


@dataclass(frozen=True, slots=True)
class Leaf:
    """Input, param or constant, whose value is given and not computed."""


@dataclass(frozen=True, slots=True)
class HostOnly:
    """Op with a NumPy reference only; a GPU refuses it with this reason."""

    reason: str = "the op is registered without WGSL code"


@dataclass(frozen=True, slots=True)
class ConcatLowering:
    """Concatenation: one strided copy of each input into the output.

    `part_layouts(output layout, input shapes, attrs)` gives the layout of each part.
    """

    part_layouts: Callable[
        [Layout, Sequence[Shape], Mapping[str, Any]], tuple[Layout, ...]
    ]


@dataclass(frozen=True, slots=True)
class BufferRef:
    """The buffer of an access: an input or the output of the op, or one of the plan's
    own.

    kind   "in" | "out" | "scratch" (written then read inside the plan) | "table"
    """

    kind: Literal["in", "out", "scratch", "table"]
    index: int = 0


@dataclass(frozen=True, slots=True)
class IterationAxis:
    """One axis of an iteration box.

    parallel  may be cut anywhere; the pieces are independent
    serial    may be cut; the pieces run in order and the shader carries on from what
              the piece before left (it gets the piece's start as `at_<name>`)
    whole     never cut: one piece must see all of it
    """

    name: str
    size: int
    kind: Literal["parallel", "serial", "whole"] = "parallel"

    def as_whole_axis(self) -> IterationAxis:
        """Return a serial axis as one that is never split; an empty axis stays serial,
        so that its kernel still runs.
        """
        is_divisible = self.kind == "serial" and self.size > 0
        return replace(self, kind="whole") if is_divisible else self


@dataclass(frozen=True, slots=True)
class OperandAccess:
    """Access pattern of one operand: element = offset + sum(index[axis] *
    stride[axis]).

    `strides` are in box-axis order, in elements; an axis the operand does not depend on
    has 0, and one that is walked backwards a negative stride. `span` is how many
    elements beyond the walked ones a piece touches (≥ 1: the element itself), for
    operands read in runs the axes do not describe. A `is_vec4` access moves four
    neighbours at once, as a vec4.
    """

    ref: BufferRef
    strides: tuple[int, ...]
    mode: Literal["read", "write", "update"] = "read"
    offset: int = 0
    span: int = 1
    is_vec4: bool = False


@dataclass(frozen=True, slots=True)
class EpilogueOperand:
    """An operand of an epilogue: which of its elements goes with an element of the
    output.

    kind   "same": the one at its place · "row": one for each position on the last axis
           · "column": one for each row · "channel": one for each place on some axis
           · "one": the same for all
    numel  how many it has
    inner_stride  elements from one place on a channel's axis to the next
    """

    kind: Literal["same", "row", "column", "channel", "one"]
    dtype: DType
    numel: int
    inner_stride: int = 1


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Elementwise work on the values that a dispatch stores, done before they leave the
    kernel.

    lines    statements over `r0` (what the call stores) and `r1`, `r2`, … (the sides)
    result   the name of what is stored instead; of the same type as r0
    uses     functions of `shaders/include/` that the lines call
    uniforms  uniforms that they read
    row_length  length of the output's last axis
    """

    lines: tuple[str, ...]
    result: str
    uses: tuple[str, ...]
    uniforms: tuple[tuple[str, int | float], ...]
    operands: tuple[EpilogueOperand, ...]
    row_length: int


WHOLE_AXIS = 1 << 30


@dataclass(frozen=True, slots=True)
class KernelDispatch:
    """One shader over one iteration box; it may be split into several GPU dispatches.

    shader     file name in `shaders/` without suffix, or `source` holds the text
    grid       (axis, tile): one item per tile; items are numbered last axis fastest.
               A tile of WHOLE_AXIS: one item goes through all of the axis
    item_unit  an item is one invocation or one workgroup
    workgroup_size  invocations per workgroup
    uniforms   extra uniforms (u32 or f32), constant over all pieces
    overrides  `override` values of the shader
    reports_faults  the shader reports bad data by `fault()` (gather)
    shared_bytes  workgroup memory the shader needs
    iterations  loop turns of one invocation, all its loops together, per step along the
               axes outside `grid` (their sizes multiplied; 1 when there is none). Some
               drivers silently end loops at a total; see
               `codegen/dispatch_splitting.py`
    needs_whole_tiles  pieces are of whole tiles: the shader counts them, not elements
    epilogue_site  where an Epilogue can be put, if anywhere: every element of the
                   output is stored once, at its dense number ("stores"), or the shader
                   calls `finish_tile` when it has stored its own ("tile")
    epilogue   what is put there
    is_in_bounds  its loops end and every index, of workgroup memory too, stays inside,
               whatever the data is: GPUs may compile it without checks
    """

    shader: str
    axes: tuple[IterationAxis, ...]
    accesses: tuple[OperandAccess, ...]
    grid: tuple[tuple[str, int], ...]
    item_unit: Literal["invocation", "workgroup"] = "invocation"
    workgroup_size: int = 64
    uniforms: Mapping[str, int | float] = field(default_factory=dict)
    overrides: Mapping[str, int] = field(default_factory=dict)
    uses: tuple[str, ...] = ()
    source: str | None = None
    reports_faults: bool = False
    shared_bytes: int = 0
    iterations: float = 4.0
    needs_whole_tiles: bool = False
    epilogue_site: Literal["", "stores", "tile"] = ""
    epilogue: Epilogue | None = None
    is_in_bounds: bool = False


def redirect_buffers(
    dispatch: KernelDispatch, refs: Mapping[BufferRef, BufferRef]
) -> KernelDispatch:
    """Return the dispatch with the buffers replaced that `refs` names."""
    accesses = (replace(a, ref=refs.get(a.ref, a.ref)) for a in dispatch.accesses)
    return replace(dispatch, accesses=tuple(accesses))


def wrap_u32(number: int) -> int:
    """Return an integer modulo 2³², as a u32 uniform; u32 arithmetic wraps, so sums
    with negative numbers stay right.
    """
    return number % (1 << 32)


def encode_uniform(value: Any, dtype: DType, name: str) -> tuple[int | float, str]:
    """Return a finite number as the value of a uniform and the WGSL expression that
    reads it back.
    """
    if dtype is DType.BOOL:
        return int(bool(value)), f"u.{name} != 0u"
    if dtype.is_integer:
        text = f"u.{name}" if dtype is DType.U32 else f"bitcast<i32>(u.{name})"
        return wrap_u32(int(value)), text
    return float(value), f"u.{name}"


class ScratchBuffer(NamedTuple):
    """A temporary buffer of a kernel plan: `numel` elements of a WGSL scalar type."""

    numel: int
    scalar: Literal["f32", "i32", "u32"] = "f32"


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """Kernel plan of one op: its dispatches in order, temporaries and host tables.

    Tables lie contiguous, in the element type that the shader reads.
    """

    dispatches: tuple[KernelDispatch, ...]
    scratch: tuple[ScratchBuffer, ...] = ()
    tables: tuple[npt.NDArray[Any], ...] = ()


def check_buffers(kernel_plan: KernelPlan, kernel: str, operands: int) -> None:
    """Require that every access of a kernel plan refers to a buffer that exists.

    kernel    name of the op or the kernel variant
    operands  how many the op has
    Errors    GraphError.
    """
    counts = {
        "in": operands,
        "out": 1,
        "scratch": len(kernel_plan.scratch),
        "table": len(kernel_plan.tables),
    }
    for dispatch in kernel_plan.dispatches:
        for access in dispatch.accesses:
            kind, index = access.ref.kind, access.ref.index
            if 0 <= index < counts.get(kind, 0):
                continue
            raise GraphError(
                f"kernel {kernel!r}",
                f"shader {dispatch.shader!r} refers to BufferRef({kind!r}, {index})",
                "known, from 0: "
                + ", ".join(f"{n} of {k!r}" for k, n in counts.items()),
                "" if kind in counts else did_you_mean(kind, counts),
            )


TRANSPOSED_ATTR = "turned"
KernelPlanRule = Callable[[Any, Any, Mapping[str, Any]], KernelPlan | None]
"""Kernel plan rule: (input types, output type, attrs) → KernelPlan, or None if this
shader does not support them.
"""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A hand-written shader. Inputs arrive dense (row-major, offset 0).

    fallback   what to do on a device whose limits the plan's whole axes break
    transposable_inputs  inputs that may lie with their last two axes exchanged, by
                         position; the plan is told by attrs[TRANSPOSED_ATTR], a flag
                         for each operand
    reduction  it reduces its operand over attrs["axes"], so: several of them and what
               is elementwise around them may be one step
    """

    plan: KernelPlanRule
    fallback: Compose | None = None
    transposable_inputs: tuple[int, ...] = ()
    reduction: Literal["", "sum", "prod", "max", "min"] = ""


Lowering = Expr | View | Compose | Kernel | Leaf | ConcatLowering | HostOnly
