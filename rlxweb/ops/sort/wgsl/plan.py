"""Kernel plans of sorting by a bitonic network, and of binary search (`searchsorted`).

Every number goes by a whole one that is the larger the later it comes, so that one
kernel sorts every type both ways. A line is brought to a power of two and goes through
Batcher's bitonic network, a pass for each of its columns: what an element becomes
depends on two, so every axis may be cut. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlxweb.codegen.wgsl_entry_point import MAIN_LINES
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
    wrap_u32,
)
from rlxweb.ops.reduce.wgsl.plan import compute_scalar, element_type_include

_MAX_KEY = (1 << 32) - 1
_IN, _OUT = BufferRef("in"), BufferRef("out")
IndexKeyBuffers = tuple[BufferRef, BufferRef]
"""Buffers that hold the indices (i32) and the keys (u32) of lines."""


@dataclass(frozen=True, slots=True)
class SortLines:
    """Lines to sort along the middle axis of a dense [outer, n, inner]."""

    outer: int
    n: int
    inner: int
    dtype: DType
    descending: bool

    @property
    def outer_axes(self) -> tuple[IterationAxis, IterationAxis]:
        """Iteration axes that enumerate the lines."""
        return IterationAxis("outer", self.outer), IterationAxis("inner", self.inner)

    @property
    def count(self) -> int:
        """Number of lines."""
        return self.outer * self.inner

    @property
    def operand_strides(self) -> tuple[int, int, int]:
        """Strides of the operand over (outer, inner, n)."""
        return self.n * self.inner, 1, self.inner


def key_uniforms(lines: SortLines) -> dict[str, int]:
    """Return the uniforms that turn a rank into a key: (rank ^ flipped) + shifted.

    NaN has the lowest rank of all, 0: below it there is only the highest key.
    """
    nan_sorts_last = lines.dtype.is_float and not lines.descending
    return {
        "flipped": _MAX_KEY if lines.descending else 0,
        "shifted": _MAX_KEY if nan_sorts_last else 0,
    }


def plan_sort(lines: SortLines) -> KernelPlan:
    """Return the plan that sorts lines and yields the original indices, i32, in sorted
    order.
    """
    length = 1 << max(lines.n - 1, 0).bit_length()
    pairs = [
        (BufferRef("scratch", 2 * p), BufferRef("scratch", 2 * p + 1)) for p in (0, 1)
    ]
    dispatches = [_key_dispatch(lines, length, pairs[0])]
    if length > lines.n:
        dispatches.append(_padding_dispatch(lines, length, pairs[0]))
    stages = []
    width = 2
    while width <= length:
        # Of two sorted runs the second is met from its end: both halves of the pair
        # are then bitonic, and neighbours at half the distance follow.
        stages.append((width, True))
        stages += [(width >> s, False) for s in range(1, width.bit_length() - 1)]
        width *= 2
    for stage, (width, is_mirrored) in enumerate(stages):
        source, target = pairs[stage % 2], pairs[(stage + 1) % 2]
        blocks = lines.count * length // width
        dispatches.append(
            _compare_exchange_dispatch((blocks, width), is_mirrored, source, target)
        )
    dispatches.append(_output_dispatch(lines, length, pairs[len(stages) % 2][0]))
    element_count = lines.count * length
    scratch = (ScratchBuffer(element_count, "i32"), ScratchBuffer(element_count, "u32"))
    return KernelPlan(tuple(dispatches), scratch * 2)


def _padded_strides(lines: SortLines, length: int) -> tuple[int, int, int]:
    """Return the strides over (outer, inner, n) of dense lines of `length` elements."""
    return lines.inner * length, length, 1


def _key_dispatch(
    lines: SortLines, length: int, target: IndexKeyBuffers
) -> KernelDispatch:
    """Return the dispatch that writes the keys and indices of the elements."""
    padded_strides = _padded_strides(lines, length)
    source = [
        *MAIN_LINES,
        "  let j = item % u.n;",
        "  let inner = item / u.n % u.inner;",
        "  let outer = item / u.n / u.inner;",
        "  let v = ld0(outer * u.x_outer + inner + j * u.x_n);",
        "  let at = outer * u.z_outer + inner * u.z_inner + j;",
        "  st1(at, i32(u.at_n + j));",
        "  st2(at, (key_of(v) ^ u.flipped) + u.shifted);",
        "}",
    ]
    return KernelDispatch(
        shader="keys to sort by",
        axes=(*lines.outer_axes, IterationAxis("n", lines.n)),
        accesses=(
            OperandAccess(_IN, lines.operand_strides),
            *(OperandAccess(buffer, padded_strides, "write") for buffer in target),
        ),
        grid=(("outer", 1), ("inner", 1), ("n", 1)),
        uniforms={
            "x_outer": lines.operand_strides[0],
            "x_n": lines.operand_strides[2],
            "z_outer": padded_strides[0],
            "z_inner": padded_strides[1],
            **key_uniforms(lines),
        },
        # rank_f32, rank_i32 or rank_u32
        uses=(f"rank_{compute_scalar(lines.dtype)}",),
        source="\n".join(source),
    )


def _padding_dispatch(
    lines: SortLines, length: int, target: IndexKeyBuffers
) -> KernelDispatch:
    """Return the dispatch that pads lines to a power of two with keys that sort
    last.
    """
    source = [
        *MAIN_LINES,
        "  let at = item / u.n * u.length + item % u.n;",
        "  st0(at, i32(u.begin + u.at_n + item % u.n));",
        f"  st1(at, {_MAX_KEY}u);",
        "}",
    ]
    strides = (length, 1)
    return KernelDispatch(
        shader="ends of lines to sort",
        axes=(IterationAxis("line", lines.count), IterationAxis("n", length - lines.n)),
        accesses=tuple(
            OperandAccess(buffer, strides, "write", lines.n) for buffer in target
        ),
        grid=(("line", 1), ("n", 1)),
        uniforms={"length": length, "begin": lines.n},
        source="\n".join(source),
    )


def _compare_exchange_dispatch(
    sizes: tuple[int, int],
    is_mirrored: bool,
    source: IndexKeyBuffers,
    target: IndexKeyBuffers,
) -> KernelDispatch:
    """Return one stage of the network: elements half a block apart, or at mirrored
    positions, are compared.

    sizes   how many blocks, and elements of each

    Accesses 0 and 1 are an element's, 2 and 3 those of the one it is compared with.
    """
    blocks, width = sizes
    half = width // 2
    strides = (width, half, 1)
    if is_mirrored:
        partner_strides, partner_offset = (width, -half, -1), width - 1
    else:
        partner_strides, partner_offset = (width, -half, 1), half
    lines = [
        *MAIN_LINES,
        "  let o = item % u.o;",
        "  let side = item / u.o % u.half;",
        "  let block = item / u.o / u.half;",
        "  let at = block * u.width + side * u.middle + o;",
        "  let to = block * u.width - side * u.middle + o * u.turned;",
        "  let place = ld0(at);",
        "  let key = ld1(at);",
        "  let place2 = ld2(to);",
        "  let key2 = ld3(to);",
        "  let is_first = key < key2 || (key == key2 && place < place2);",
        "  let stays = is_first == (u.at_half + side == 0u);",
        "  st4(at, select(place2, place, stays));",
        "  st5(at, select(key2, key, stays));",
        "}",
    ]
    return KernelDispatch(
        shader="column of a sorting network",
        axes=(
            IterationAxis("block", blocks),
            IterationAxis("half", 2),
            IterationAxis("o", half),
        ),
        accesses=(
            *(OperandAccess(buffer, strides) for buffer in source),
            *(
                OperandAccess(buffer, partner_strides, "read", partner_offset)
                for buffer in source
            ),
            *(OperandAccess(buffer, strides, "write") for buffer in target),
        ),
        grid=(("block", 1), ("half", 1), ("o", 1)),
        uniforms={
            "width": width,
            "middle": half,
            "turned": wrap_u32(-1 if is_mirrored else 1),
        },
        source="\n".join(lines),
    )


def _output_dispatch(
    lines: SortLines, length: int, indices: BufferRef
) -> KernelDispatch:
    """Return the dispatch that copies the sorted indices to the output, without the
    padding.
    """
    padded_strides = _padded_strides(lines, length)
    source = [
        *MAIN_LINES,
        "  let j = item % u.n;",
        "  let inner = item / u.n % u.inner;",
        "  let outer = item / u.n / u.inner;",
        "  let place = ld0(outer * u.z_outer + inner * u.z_inner + j);",
        "  st1(outer * u.x_outer + inner + j * u.x_n, place);",
        "}",
    ]
    return KernelDispatch(
        shader="places in sorted order",
        axes=(*lines.outer_axes, IterationAxis("n", lines.n)),
        accesses=(
            OperandAccess(indices, padded_strides),
            OperandAccess(_OUT, lines.operand_strides, "write"),
        ),
        grid=(("outer", 1), ("inner", 1), ("n", 1)),
        uniforms={
            "x_outer": lines.operand_strides[0],
            "x_n": lines.operand_strides[2],
            "z_outer": padded_strides[0],
            "z_inner": padded_strides[1],
        },
        source="\n".join(source),
    )


def plan_searchsorted(
    rows: int, n: int, count: int, dtype: DType, is_right: bool
) -> KernelPlan:
    """Return the plan of a binary search of `count` values of each row in its `n`
    sorted ones.

    As many as stand before a value in the pieces of a row stand before it in the row.
    """
    advance_condition = "!overtakes(other, v)" if is_right else "overtakes(v, other)"
    lines = [
        *MAIN_LINES,
        "  let row = item / u.m;",
        "  let at = row * u.count + item % u.m;",
        "  let v = ld1(at);",
        "  var low = 0u;",
        "  var high = u.n;",
        "  while (low < high) {",
        "    let half = (low + high) / 2u;",
        "    let other = ld0(row * u.line + half);",
        f"    if ({advance_condition}) {{ low = half + 1u; }} else {{ high = half; }}",
        "  }",
        "  var before = 0;",
        "  if (u.at_n != 0u) { before = ld2(at); }",
        "  st2(at, before + i32(low));",
        "}",
    ]
    dispatch = KernelDispatch(
        shader="search of sorted rows",
        axes=(
            IterationAxis("row", rows),
            IterationAxis("m", count),
            IterationAxis("n", n, "serial"),
        ),
        accesses=(
            OperandAccess(_IN, (n, 0, 1)),
            OperandAccess(BufferRef("in", 1), (count, 1, 0)),
            OperandAccess(_OUT, (count, 1, 0), "update"),
        ),
        grid=(("row", 1), ("m", 1)),
        uniforms={"line": n, "count": count},
        uses=(element_type_include(dtype),),
        source="\n".join(lines),
        iterations=(n.bit_length() + 1) / max(n, 1),
    )
    return KernelPlan((dispatch,))
