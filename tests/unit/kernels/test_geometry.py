"""Cutting boxes: every point once, serial axes in order, every limit kept."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlxweb.errors import LimitExceeded
from rlxweb.ir.lowering import Access, Axis, Call, Ref
from rlxweb.kernels.geometry import MAX_TURNS, Geometry, Piece, fold, merged_reads
from rlxweb.limits import Limits, shrunk

KINDS = ("parallel", "parallel", "serial", "whole")


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """A call over a box of up to three axes, with dense and broadcast accesses."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    axes = tuple(
        Axis(f"d{n}", size, draw(st.sampled_from(KINDS)))
        for n, size in enumerate(sizes)
    )
    accesses = [
        Access(
            Ref("in", k),
            tuple(draw(st.sampled_from([0, 1, 3, 17, 256])) for _ in sizes),
            offset=draw(st.integers(0, 200)),
            span=draw(st.sampled_from([1, 1, 8])),
        )
        for k in range(draw(st.integers(0, 3)))
    ]
    dense, step = [], 1
    for size in reversed(sizes):
        dense.insert(0, step)
        step *= size
    accesses.append(Access(Ref("out"), tuple(dense), "write"))
    grid = tuple(
        (axis.name, draw(st.sampled_from([1, 1, 4, 3])))
        for axis in axes
        if axis.kind == "parallel" and draw(st.booleans())
    )
    per = draw(st.sampled_from(["invocation", "workgroup"]))
    return Call("test", axes, tuple(accesses), grid, per)


TINY = st.builds(
    lambda binding, side: replace(
        shrunk(),
        max_storage_buffer_binding_size=binding,
        max_compute_workgroups_per_dimension=side,
        max_storage_buffers_per_shader_stage=8,
    ),
    st.sampled_from([512, 1024, 4096]),
    st.integers(1, 7),
)


def geometry(call: Call, limits: Limits) -> Geometry:
    widths = (4,) * len(call.accesses)
    return Geometry(call, widths, merged_reads(call, limits), limits)


def points(piece: Piece) -> set[tuple[int, ...]]:
    spans = zip(piece.start, piece.size, strict=True)
    return set(itertools.product(*(range(a, a + n) for a, n in spans)))


def pieces_of(call: Call, limits: Limits) -> list[Piece]:
    """The pieces; a call that cannot be cut small enough is not the test's subject."""
    assume(all(a.size <= 12 for a in call.axes) or len(call.axes) < 3)
    try:
        return list(geometry(call, limits).pieces())
    except LimitExceeded:
        assume(False)
        raise


@given(calls(), TINY)
def test_pieces_tile_the_box_once(call: Call, limits: Limits) -> None:
    """No point of the box is left out and none is computed twice."""
    pieces = pieces_of(call, limits)
    every = [p for piece in pieces for p in points(piece)]
    assert len(every) == len(set(every))
    assert set(every) == set(itertools.product(*(range(a.size) for a in call.axes)))


@given(calls(), TINY)
def test_serial_pieces_come_in_order(call: Call, limits: Limits) -> None:
    """Pieces that share a cell of the other axes come lowest serial part first."""
    serial = [n for n, a in enumerate(call.axes) if a.kind == "serial"]
    seen: dict[tuple[int, ...], tuple[int, ...]] = {}
    for piece in pieces_of(call, limits):
        here: dict[tuple[int, ...], tuple[int, ...]] = {}
        for point in sorted(points(piece)):
            cell = tuple(x for n, x in enumerate(point) if n not in serial)
            at = tuple(point[n] for n in serial)
            if len(serial) == 1:
                assert at > seen.get(cell, (-1,))
            here[cell] = max(at, here.get(cell, at))
        seen |= here


@given(calls(), TINY)
def test_whole_axes_are_never_cut(call: Call, limits: Limits) -> None:
    """A piece sees all of a whole axis."""
    for piece in pieces_of(call, limits):
        for axis, size in zip(call.axes, piece.size, strict=True):
            assert axis.kind != "whole" or size == axis.size


@given(calls(), TINY)
def test_pieces_start_on_whole_tiles(call: Call, limits: Limits) -> None:
    """A cut goes through a tile only where whole tiles break a limit."""
    tiles = dict(call.grid)
    for piece in pieces_of(call, limits):
        for axis, start, size in zip(call.axes, piece.start, piece.size, strict=True):
            tile = tiles.get(axis.name, 1)
            assert start % tile == 0 or size < tile


@given(calls(), TINY)
def test_every_piece_keeps_the_limits(call: Call, limits: Limits) -> None:
    """Counted anew from the touched elements: bindings, alignment slack and grid."""
    one = geometry(call, limits)
    align = limits.min_storage_buffer_offset_alignment
    for piece in pieces_of(call, limits):
        for access in call.accesses:
            touched = [
                access.offset
                + sum(i * s for i, s in zip(p, access.strides, strict=True))
                for p in points(piece)
            ]
            start = min(touched) * 4 // align * align
            end = (max(touched) + access.span) * 4
            assert end - start <= limits.max_storage_buffer_binding_size
        x, y, z = fold(one.groups(piece), limits.max_compute_workgroups_per_dimension)
        assert max(x, y, z) <= limits.max_compute_workgroups_per_dimension
        per_group = one.workgroup if call.per == "invocation" else 1
        assert x * y * z * per_group >= one.items(piece)


@given(calls())
def test_a_box_that_fits_is_left_whole(call: Call) -> None:
    """Nothing is cut that need not be."""
    call = replace(call, turns=0.0)
    pieces = list(geometry(call, Limits()).pieces())
    assert pieces == [Piece((0,) * len(call.axes), tuple(a.size for a in call.axes))]


@given(st.integers(1, 400_000), st.sampled_from([1.0, 3.0, 16.0]))
def test_long_loops_are_cut(size: int, turns: float) -> None:
    """No piece makes more loop turns than the driver that ends loops allows."""
    axes = (Axis("rows", 3), Axis("n", size, "serial"))
    call = Call(
        "sum", axes, (Access(Ref("in"), (size, 1)),), (("rows", 1),), turns=turns
    )
    pieces = list(
        geometry(call, Limits(max_storage_buffer_binding_size=1 << 30)).pieces()
    )
    assert all(p.size[1] * turns <= MAX_TURNS for p in pieces)
    assert sum(p.size[1] for p in pieces if p.start[0] == 0) == size


@given(st.integers(1, 2000), st.integers(1, 13))
def test_fold_covers_the_groups_within_the_side(groups: int, side: int) -> None:
    """Enough workgroups, no dimension over the limit, fewer than twice too many."""
    assume(groups <= side**3)
    x, y, z = fold(groups, side)
    assert max(x, y, z) <= side
    assert groups <= x * y * z
    # Rounding up twice wastes at most one row and one layer.
    assert x * y * z < groups + y * z + side * side


@pytest.mark.parametrize(
    ("groups", "grid"),
    [
        (1, (1, 1, 1)),
        (65_535, (65_535, 1, 1)),
        (65_536, (32_768, 2, 1)),
        (65_535**2, (65_535, 65_535, 1)),
        (65_535**2 + 1, (65_535, 32_768, 2)),
    ],
)
def test_fold_at_the_real_limit(groups: int, grid: tuple[int, int, int]) -> None:
    """The counts around 65,535 and its square."""
    x, y, z = fold(groups, 65_535)
    assert (y, z) == grid[1:]
    assert x * y * z >= groups
    assert x <= 65_535


@pytest.mark.parametrize(
    ("wanted", "limit", "got"), [(64, 256, 64), (64, 32, 32), (256, 100, 64), (1, 9, 1)]
)
def test_the_workgroup_shrinks_to_a_power_of_two(
    wanted: int, limit: int, got: int
) -> None:
    """No larger than the device allows, and a power of two."""
    call = Call("test", (), (), (), workgroup=wanted)
    limits = replace(Limits(), max_compute_invocations_per_workgroup=limit)
    assert geometry(call, limits).workgroup == got


def _wide_call(reads: int, width_of_box: int = 8) -> Call:
    axes = (Axis("n", width_of_box),)
    accesses = [Access(Ref("in", k), (1,)) for k in range(reads)]
    return Call(
        "add", axes, (*accesses, Access(Ref("out"), (1,), "write")), (("n", 1),)
    )


def test_reads_are_merged_only_when_there_are_too_many() -> None:
    """Two reads and a write fit three bindings; three reads do not."""
    limits = shrunk()
    assert merged_reads(_wide_call(2), limits) == frozenset()
    assert merged_reads(_wide_call(3), limits) == {1, 2}
    assert merged_reads(_wide_call(9), limits) == set(range(1, 9))


def test_a_call_with_too_many_writes_is_refused() -> None:
    """The message holds the count and the limit."""
    writes = tuple(Access(Ref("out"), (1,), "write") for _ in range(4))
    call = Call("w", (Axis("n", 8),), writes, (("n", 1),))
    with pytest.raises(LimitExceeded, match=r"touches 4 buffers; .* binds 3"):
        merged_reads(call, shrunk())


LONG = Call(
    "row",
    (Axis("rows", 3), Axis("n", 70_000, "whole")),
    (Access(Ref("in"), (0, 0)),),
    (("rows", 1),),
    turns=1.0,
)
WIDE = Call(
    "rows", (Axis("n", 2000, "whole"),), (Access(Ref("out"), (1,), "write"),), ()
)
MANY = Call(
    "spin",
    (Axis("n", 1000, "whole"),),
    (Access(Ref("out"), (0,), "write"),),
    (("n", 1),),
    per="workgroup",
)


@pytest.mark.parametrize(
    ("call", "limits", "words"),
    [
        (LONG, Limits(), r"70,000 loop turns; .* at 65,000"),
        (WIDE, shrunk(), r"8,000 bytes; this device allows 4,096"),
        (MANY, shrunk(), r"1,000 workgroups .* 7 per dimension"),
    ],
    ids=["loop turns", "bytes", "workgroups"],
)
def test_a_whole_axis_over_a_limit_is_refused_with_both_numbers(
    call: Call, limits: Limits, words: str
) -> None:
    """Nothing can be cut, so the op's composition has to be used."""
    with pytest.raises(LimitExceeded, match=words):
        list(geometry(call, limits).pieces())
