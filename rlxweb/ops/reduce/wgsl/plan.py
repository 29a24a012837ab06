"""Kernel plans of reductions: which passes, over which strides.

A dense tensor is seen as groups of kept and of reduced axes;
`shaders/reduce/reduce.wgsl` walks any mix of them, so nothing is transposed. A long
reduction of few outputs runs in stages: many lanes sum interleaved elements, then the
lanes are reduced in turn, which is fast and, being pairwise in large, accurate. Pure
arithmetic; knows no op.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
)
from rlxweb.ir.shape_arithmetic import Shape

WgslScalar = Literal["f32", "i32", "u32"]
ReductionKind = Literal["sum", "prod", "max", "min"]

REDUCTION_KINDS: tuple[ReductionKind, ...] = ("sum", "prod", "max", "min")
"""Reduction kinds in the order of the codes of shaders/reduce/combine.wgsl."""
# Elements one invocation takes before another one is worth starting.
_ELEMENTS_PER_INVOCATION = 128
# Invocations beyond which more lanes bring nothing.
_MAX_USEFUL_INVOCATIONS = 1 << 16
_MAX_KEPT_GROUPS, _MAX_REDUCED_GROUPS = 5, 4


class KeptAxes(NamedTuple):
    """Group of kept axes: its size and its strides in the input and in the output."""

    size: int
    input_stride: int
    output_stride: int


class ReducedAxes(NamedTuple):
    """Group of reduced axes: its size and its stride in the input."""

    size: int
    input_stride: int


@dataclass(frozen=True, slots=True)
class ReductionPass:
    """One walk over an input that reduces elements into every kept position."""

    source: BufferRef
    target: BufferRef
    kept: tuple[KeptAxes, ...]
    reduced: tuple[ReducedAxes, ...]
    offset: int = 0
    accumulates: bool = False

    @property
    def output_count(self) -> int:
        """Number of results of the pass."""
        return math.prod(k.size for k in self.kept)


def compute_scalar(dtype: DType) -> WgslScalar:
    """Return the WGSL type in which an element is computed."""
    if dtype is DType.I32:
        return "i32"
    return "u32" if dtype is DType.U32 else "f32"


def element_type_include(dtype: DType) -> str:
    """Return the name of the include that defines the element type `E`."""
    return f"type_{compute_scalar(dtype)}"  # type_f32, type_i32 or type_u32


def group_axes(
    shape: Shape, axes: Sequence[int]
) -> tuple[tuple[KeptAxes, ...], tuple[ReducedAxes, ...]]:
    """Return the fewest groups of kept and of reduced axes of a dense tensor."""
    groups: list[tuple[int, bool]] = []
    for axis, size in enumerate(shape):
        is_reduced = axis in axes
        if size == 1:
            continue
        if groups and groups[-1][1] == is_reduced:
            groups[-1] = (groups[-1][0] * size, is_reduced)
        else:
            groups.append((size, is_reduced))
    kept: list[KeptAxes] = []
    reduced: list[ReducedAxes] = []
    input_stride = output_stride = 1
    for size, is_reduced in reversed(groups):
        if is_reduced:
            reduced.insert(0, ReducedAxes(size, input_stride))
        else:
            kept.insert(0, KeptAxes(size, input_stride, output_stride))
            output_stride *= size
        input_stride *= size
    return tuple(kept), tuple(reduced)


def pass_dispatch(
    kind: ReductionKind, reduction_pass: ReductionPass, include: str
) -> KernelDispatch:
    """Return the dispatch of a pass; kept groups are walked smallest stride fastest."""
    kept = [KeptAxes(1, 0, 0)] * (_MAX_KEPT_GROUPS - len(reduction_pass.kept))
    kept += sorted(reduction_pass.kept, key=lambda k: k.input_stride, reverse=True)
    reduced = [ReducedAxes(1, 0)] * (
        _MAX_REDUCED_GROUPS - len(reduction_pass.reduced)
    ) + list(reduction_pass.reduced)
    axes = [IterationAxis(f"p{a}", k.size) for a, k in enumerate(kept)]
    axes += [IterationAxis(f"r{a}", r.size, "serial") for a, r in enumerate(reduced)]
    input_strides = (
        *(k.input_stride for k in kept),
        *(r.input_stride for r in reduced),
    )
    output_strides = (*(k.output_stride for k in kept), *(0 for _ in reduced))
    uniforms = {f"x_p{a}": k.input_stride for a, k in enumerate(kept)}
    uniforms |= {f"y_p{a}": k.output_stride for a, k in enumerate(kept)}
    uniforms |= {f"x_r{a}": r.input_stride for a, r in enumerate(reduced)}
    return KernelDispatch(
        shader="reduce",
        axes=tuple(axes),
        accesses=(
            OperandAccess(
                reduction_pass.source, input_strides, "read", reduction_pass.offset
            ),
            OperandAccess(reduction_pass.target, output_strides, "update"),
        ),
        grid=tuple((f"p{a}", 1) for a in range(_MAX_KEPT_GROUPS)),
        uniforms={**uniforms, "carry": int(reduction_pass.accumulates)},
        overrides={"KIND": REDUCTION_KINDS.index(kind)},
        uses=(include, "combine"),
        epilogue_site="stores",
    )


def invocations_per_output(outputs: int, reduced: Sequence[ReducedAxes]) -> int:
    """Return how many invocations share the longest reduced group: a power of two, 1 if
    they do not share.
    """
    total = math.prod(r.size for r in reduced)
    longest = max((r.size for r in reduced), default=1)
    max_lanes = min(
        total // _ELEMENTS_PER_INVOCATION,
        _MAX_USEFUL_INVOCATIONS // max(1, outputs),
        longest,
    )
    return 1 << (max_lanes.bit_length() - 1) if max_lanes >= 2 else 1


def _interleaved_passes(
    reduction_pass: ReductionPass, lanes: int, partial: BufferRef
) -> list[ReductionPass]:
    """Return passes in which lane l takes elements l, l + lanes, …; a second pass adds
    the remainder.
    """
    longest = max(
        range(len(reduction_pass.reduced)), key=lambda i: reduction_pass.reduced[i].size
    )
    size, stride = reduction_pass.reduced[longest]
    steps, remainder = divmod(size, lanes)
    dense_kept = _dense_output_strides(reduction_pass.kept, lanes)

    def partial_pass(
        width: int, steps: int, offset: int, accumulates: bool
    ) -> ReductionPass:
        group = (ReducedAxes(steps, stride * lanes),) if steps > 1 else ()
        return replace(
            reduction_pass,
            target=partial,
            kept=(*dense_kept, KeptAxes(width, stride, 1)),
            reduced=(
                *reduction_pass.reduced[:longest],
                *group,
                *reduction_pass.reduced[longest + 1 :],
            ),
            offset=reduction_pass.offset + offset,
            accumulates=accumulates,
        )

    passes = [partial_pass(lanes, steps, 0, False)]
    if remainder:
        passes.append(partial_pass(remainder, 1, steps * lanes * stride, True))
    return passes


def _dense_output_strides(kept: Sequence[KeptAxes], step: int) -> tuple[KeptAxes, ...]:
    """Return the kept groups with row-major output strides, `step` elements apart."""
    groups: list[KeptAxes] = []
    for group in reversed(kept):
        groups.insert(0, group._replace(output_stride=step))
        step *= group.size
    return tuple(groups)


def plan_reduction(
    kind: ReductionKind, dtype: DType, shape: Shape, axes: Sequence[int]
) -> KernelPlan:
    """Return the kernel plan of a reduction of a dense tensor over `axes`."""
    kept, reduced = group_axes(shape, axes)
    if any(shape[a] == 0 for a in axes):
        return _plan_fill(dtype, math.prod(k.size for k in kept), int(kind == "prod"))
    final_pass = ReductionPass(BufferRef("in"), BufferRef("out"), kept, reduced)
    passes = list[ReductionPass]()
    scratch: list[ScratchBuffer] = []
    while (
        lanes := invocations_per_output(final_pass.output_count, final_pass.reduced)
    ) > 1:
        partial = BufferRef("scratch", len(scratch))
        scratch.append(
            ScratchBuffer(final_pass.output_count * lanes, compute_scalar(dtype))
        )
        passes += _interleaved_passes(final_pass, lanes, partial)
        remaining_axes = (
            (KeptAxes(final_pass.output_count, lanes, 1),),
            (ReducedAxes(lanes, 1),),
        )
        final_pass = ReductionPass(partial, final_pass.target, *remaining_axes)
    include = element_type_include(dtype)
    dispatches = tuple(
        pass_dispatch(kind, reduction_pass, include)
        for reduction_pass in [*passes, final_pass]
    )
    return KernelPlan(dispatches, tuple(scratch))


def _plan_fill(dtype: DType, count: int, value: int) -> KernelPlan:
    """Return the plan that writes `value` everywhere, the result of reducing no
    elements.
    """
    dispatch = KernelDispatch(
        shader="fill",
        axes=(IterationAxis("n", count),),
        accesses=(OperandAccess(BufferRef("out"), (1,), "write"),),
        grid=(("n", 1),),
        overrides={"VALUE": value},
        uses=(element_type_include(dtype),),
    )
    return KernelPlan((dispatch,))
