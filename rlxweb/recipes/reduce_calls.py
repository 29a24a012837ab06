"""Geometry of reductions on a device: which passes, over which strides.

A dense tensor is seen as groups of kept and of reduced axes; `shaders/reduce.wgsl`
walks any mix of them, so nothing is transposed. A long reduction of few outputs runs
in stages: many lanes sum interleaved elements, then the lanes are reduced in turn,
which is fast and, being pairwise in large, accurate. Pure arithmetic; knows no op.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.shape import Shape

Scalar = Literal["f32", "i32", "u32"]
Kind = Literal["sum", "prod", "max", "min"]

KINDS: tuple[Kind, ...] = ("sum", "prod", "max", "min")
"""In the order of the codes of shaders/include/combine.wgsl."""
# Elements one invocation takes before another one is worth starting.
_EACH = 128
# Invocations beyond which more lanes bring nothing.
_ENOUGH = 1 << 16
_KEPT, _REDUCED = 5, 4


class Kept(NamedTuple):
    """A group of axes that stay: its size and both strides."""

    size: int
    x: int
    y: int


class Reduced(NamedTuple):
    """A group of axes that go: its size and stride in the input."""

    size: int
    x: int


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over an input: every kept position gets its reduced elements."""

    source: Ref
    target: Ref
    kept: tuple[Kept, ...]
    reduced: tuple[Reduced, ...]
    offset: int = 0
    carry: bool = False

    @property
    def outputs(self) -> int:
        return math.prod(k.size for k in self.kept)


def scalar_of(dtype: DType) -> Scalar:
    """The WGSL type an element is computed in."""
    if dtype is DType.I32:
        return "i32"
    return "u32" if dtype is DType.U32 else "f32"


def type_include(dtype: DType) -> str:
    """The include that names the element type `E`."""
    return f"type_{scalar_of(dtype)}"


def grouped(
    shape: Shape, axes: Sequence[int]
) -> tuple[tuple[Kept, ...], tuple[Reduced, ...]]:
    """The fewest groups of kept and reduced axes of a dense tensor."""
    groups: list[tuple[int, bool]] = []
    for axis, size in enumerate(shape):
        gone = axis in axes
        if size == 1:
            continue
        if groups and groups[-1][1] == gone:
            groups[-1] = (groups[-1][0] * size, gone)
        else:
            groups.append((size, gone))
    kept: list[Kept] = []
    reduced: list[Reduced] = []
    x = y = 1
    for size, gone in reversed(groups):
        if gone:
            reduced.insert(0, Reduced(size, x))
        else:
            kept.insert(0, Kept(size, x, y))
            y *= size
        x *= size
    return tuple(kept), tuple(reduced)


def pass_call(kind: Kind, one: Pass, include: str) -> Call:
    """The call of a pass; kept groups are walked smallest stride fastest."""
    kept = [Kept(1, 0, 0)] * (_KEPT - len(one.kept))
    kept += sorted(one.kept, key=lambda k: k.x, reverse=True)
    gone = [Reduced(1, 0)] * (_REDUCED - len(one.reduced)) + list(one.reduced)
    axes = [Axis(f"p{a}", k.size) for a, k in enumerate(kept)]
    axes += [Axis(f"r{a}", r.size, "serial") for a, r in enumerate(gone)]
    x = (*(k.x for k in kept), *(r.x for r in gone))
    y = (*(k.y for k in kept), *(0 for _ in gone))
    values = {f"x_p{a}": k.x for a, k in enumerate(kept)}
    values |= {f"y_p{a}": k.y for a, k in enumerate(kept)}
    values |= {f"x_r{a}": r.x for a, r in enumerate(gone)}
    return Call(
        shader="reduce",
        axes=tuple(axes),
        accesses=(
            Access(one.source, x, "read", one.offset),
            Access(one.target, y, "update"),
        ),
        grid=tuple((f"p{a}", 1) for a in range(_KEPT)),
        values={**values, "carry": int(one.carry)},
        constants={"KIND": KINDS.index(kind)},
        uses=(include, "combine"),
        finishes="stores",
    )


def lanes_for(outputs: int, reduced: Sequence[Reduced]) -> int:
    """How many lanes share the longest reduced group; a power of two, 1 for none."""
    total = math.prod(r.size for r in reduced)
    longest = max((r.size for r in reduced), default=1)
    room = min(total // _EACH, _ENOUGH // max(1, outputs), longest)
    return 1 << (room.bit_length() - 1) if room >= 2 else 1


def _interleaved(one: Pass, lanes: int, partial: Ref) -> list[Pass]:
    """Lane l takes elements l, l + lanes, …; a second pass adds what is left over."""
    at = max(range(len(one.reduced)), key=lambda i: one.reduced[i].size)
    size, x = one.reduced[at]
    steps, left = divmod(size, lanes)
    dense = _dense(one.kept, lanes)

    def part(width: int, steps: int, offset: int, carry: bool) -> Pass:
        group = (Reduced(steps, x * lanes),) if steps > 1 else ()
        return replace(
            one,
            target=partial,
            kept=(*dense, Kept(width, x, 1)),
            reduced=(*one.reduced[:at], *group, *one.reduced[at + 1 :]),
            offset=one.offset + offset,
            carry=carry,
        )

    out = [part(lanes, steps, 0, False)]
    if left:
        out.append(part(left, 1, steps * lanes * x, True))
    return out


def _dense(kept: Sequence[Kept], step: int) -> tuple[Kept, ...]:
    """The kept groups with row-major output strides, `step` elements apart."""
    out: list[Kept] = []
    for one in reversed(kept):
        out.insert(0, one._replace(y=step))
        step *= one.size
    return tuple(out)


def reduction(kind: Kind, dtype: DType, shape: Shape, axes: Sequence[int]) -> Recipe:
    """The recipe of a reduction of a dense tensor over `axes`."""
    kept, reduced = grouped(shape, axes)
    if any(shape[a] == 0 for a in axes):
        return _filled(dtype, math.prod(k.size for k in kept), int(kind == "prod"))
    one, passes = Pass(Ref("in"), Ref("out"), kept, reduced), list[Pass]()
    scratch: list[Scratch] = []
    while (lanes := lanes_for(one.outputs, one.reduced)) > 1:
        partial = Ref("scratch", len(scratch))
        scratch.append(Scratch(one.outputs * lanes, scalar_of(dtype)))
        passes += _interleaved(one, lanes, partial)
        rest = (Kept(one.outputs, lanes, 1),), (Reduced(lanes, 1),)
        one = Pass(partial, one.target, *rest)
    include = type_include(dtype)
    calls = tuple(pass_call(kind, each, include) for each in [*passes, one])
    return Recipe(calls, tuple(scratch))


def _filled(dtype: DType, count: int, value: int) -> Recipe:
    """`value` everywhere: what a reduction of nothing gives."""
    call = Call(
        shader="fill",
        axes=(Axis("n", count),),
        accesses=(Access(Ref("out"), (1,), "write"),),
        grid=(("n", 1),),
        constants={"VALUE": value},
        uses=(type_include(dtype),),
    )
    return Recipe((call,))
