"""The four ways an op becomes device work, as plain declarations.

Expr: a scalar WGSL expression, fusable. View: arithmetic on a Layout, free. Compose:
built from other ops. Kernel: a shader file run over an iteration box. The records here
are data; `rlxweb.kernels` turns them into shader text and `rlxweb.compile` decides when
to use which. No device and no op is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy.typing as npt

from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.shape import Shape


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
    """The output is a Layout over the input's buffer; None means it needs a copy."""

    layout: Callable[[Layout, Shape, Mapping[str, Any]], Layout | None]


@dataclass(frozen=True, slots=True)
class Compose:
    """`build(graph, attrs, *tensors)` adds other ops and returns the result tensor.

    apart   nobody is faster with the op as one: what it is built of is taken together
            with what stands around it
    """

    build: Callable[..., Any]
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Leaf:
    """Input, param, constant: the value is given, not computed."""


@dataclass(frozen=True, slots=True)
class HostOnly:
    """Only the NumPy reference exists; a GPU refuses the op with this reason."""

    reason: str = "the op was registered without WGSL"


@dataclass(frozen=True, slots=True)
class Join:
    """The inputs laid side by side in the output: one strided copy each (concat).

    `place(output layout, input shapes, attrs)` gives the layout of each part.
    """

    place: Callable[[Layout, Sequence[Shape], Mapping[str, Any]], tuple[Layout, ...]]


@dataclass(frozen=True, slots=True)
class Ref:
    """Which buffer an access goes to: inputs and output of the op, or the recipe's own.

    kind   "in" | "out" | "scratch" (written then read inside the recipe) | "table"
    """

    kind: Literal["in", "out", "scratch", "table"]
    index: int = 0


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of an iteration box.

    parallel  may be cut anywhere; the pieces are independent
    serial    may be cut; the pieces run in order and the shader carries on from what
              the piece before left (it gets the piece's start as `at_<name>`)
    whole     never cut: one piece must see all of it
    """

    name: str
    size: int
    kind: Literal["parallel", "serial", "whole"] = "parallel"

    def uncut(self) -> Axis:
        """A serial axis as a whole one; with nothing on it there is nothing to cut,
        and its kernel still runs.
        """
        is_cut = self.kind == "serial" and self.size > 0
        return replace(self, kind="whole") if is_cut else self


@dataclass(frozen=True, slots=True)
class Access:
    """How one operand is walked: element = offset + sum(index[axis] * stride[axis]).

    `strides` are in box-axis order, in elements; an axis the operand does not depend on
    has 0, and one that is walked backwards a negative stride. `span` is how many
    elements beyond the walked ones a piece touches (≥ 1: the element itself), for
    operands read in runs the axes do not describe. A `wide` access moves four
    neighbours at once, as a vec4.
    """

    ref: Ref
    strides: tuple[int, ...]
    mode: Literal["read", "write", "update"] = "read"
    offset: int = 0
    span: int = 1
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """An operand of a Finish: which of its elements goes with one of the output.

    kind   "same": the one at its place · "row": one for each position on the last axis
           · "column": one for each row · "channel": one for each place on some axis
           · "one": the same for all
    numel  how many it has
    inner  elements from one place on a channel's axis to the next
    """

    kind: Literal["same", "row", "column", "channel", "one"]
    dtype: DType
    numel: int
    inner: int = 1


@dataclass(frozen=True, slots=True)
class Finish:
    """Elementwise work on what a call stores, done before it leaves the kernel.

    lines    statements over `r0` (what the call stores) and `r1`, `r2`, … (the sides)
    result   the name of what is stored instead; of the same type as r0
    uses     functions of `shaders/include/` that the lines call
    values   uniforms that they read
    line     length of the output's last axis
    """

    lines: tuple[str, ...]
    result: str
    uses: tuple[str, ...]
    values: tuple[tuple[str, int | float], ...]
    sides: tuple[Side, ...]
    line: int


ALL = 1 << 30


@dataclass(frozen=True, slots=True)
class Call:
    """One shader over one iteration box; the splitter may cut it into many dispatches.

    shader     file name in `shaders/` without suffix, or `source` holds the text
    grid       (axis, tile): one item per tile; items are numbered last axis fastest.
               A tile of ALL: one item goes through all of the axis
    per        an item is one invocation or one workgroup
    workgroup  invocations per workgroup
    values     extra uniforms (u32 or f32), constant over all pieces
    constants  `override` values of the shader
    faults     the shader reports bad data by `fault()` (gather)
    shared_bytes  workgroup memory the shader needs
    turns      loop turns of one invocation, all its loops together, per step along the
               axes outside `grid` (their sizes multiplied; 1 when there is none). Some
               drivers silently end loops at a total; see `kernels/geometry.py`
    whole_tiles  pieces are of whole tiles: the shader counts them, not elements
    finishes   where a Finish can be put, if anywhere: every element of the output is
               stored once, at its dense number ("stores"), or the shader calls
               `finish_tile` when it has stored its own ("tile")
    finish     what is put there
    in_bounds  its loops end and every index, of workgroup memory too, stays inside,
               whatever the data is: GPUs may compile it without checks
    """

    shader: str
    axes: tuple[Axis, ...]
    accesses: tuple[Access, ...]
    grid: tuple[tuple[str, int], ...]
    per: Literal["invocation", "workgroup"] = "invocation"
    workgroup: int = 64
    values: Mapping[str, int | float] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    uses: tuple[str, ...] = ()
    source: str | None = None
    faults: bool = False
    shared_bytes: int = 0
    turns: float = 4.0
    whole_tiles: bool = False
    finishes: Literal["", "stores", "tile"] = ""
    finish: Finish | None = None
    in_bounds: bool = False


def redirected(call: Call, refs: Mapping[Ref, Ref]) -> Call:
    """Return the call with other buffers for those that `refs` names."""
    accesses = (replace(a, ref=refs.get(a.ref, a.ref)) for a in call.accesses)
    return replace(call, accesses=tuple(accesses))


def wrapped(number: int) -> int:
    """An integer as the u32 uniform that it is: u32 arithmetic wraps, so that a sum
    with a negative one is right.
    """
    return number % (1 << 32)


def as_uniform(value: Any, dtype: DType, name: str) -> tuple[int | float, str]:
    """A finite number of a type as what goes into `values` under a name, and the WGSL
    that has it back from there.
    """
    if dtype is DType.BOOL:
        return int(bool(value)), f"u.{name} != 0u"
    if dtype.is_integer:
        text = f"u.{name}" if dtype is DType.U32 else f"bitcast<i32>(u.{name})"
        return wrapped(int(value)), text
    return float(value), f"u.{name}"


class Scratch(NamedTuple):
    """A temporary of a recipe: `numel` elements of a WGSL scalar type."""

    numel: int
    scalar: Literal["f32", "i32", "u32"] = "f32"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything one op costs on a device: calls in order, temporaries, host tables.

    Tables lie contiguous, in the element type that the shader reads.
    """

    calls: tuple[Call, ...]
    scratch: tuple[Scratch, ...] = ()
    tables: tuple[npt.NDArray[Any], ...] = ()


TURNED = "turned"
RecipeRule = Callable[[Any, Any, Mapping[str, Any]], Recipe | None]
"""(input types, output type, attrs) → Recipe, or None: not by this shader"""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A hand-written shader. Inputs arrive dense (row-major, offset 0).

    otherwise  what to do on a device whose limits the recipe's whole axes break
    turns      inputs that may lie with their last two axes exchanged, by position; the
               recipe is told by attrs[TURNED], a flag for each operand
    folds      it reduces its operand over attrs["axes"], so: several of them and what
               is elementwise around them may be one step
    """

    recipe: RecipeRule
    otherwise: Compose | None = None
    turns: tuple[int, ...] = ()
    folds: Literal["", "sum", "prod", "max", "min"] = ""


Lowering = Expr | View | Compose | Kernel | Leaf | Join | HostOnly


def parts_of(lower: Lowering) -> Compose | None:
    """How an op that is lowered so is built of others, if it can be."""
    if isinstance(lower, Compose):
        return lower
    return lower.otherwise if isinstance(lower, Kernel) else None
