"""Splitting of dispatches: every point once, serial axes in order, every limit kept."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlxweb.codegen.dispatch_splitting import (
    MAX_LOOP_ITERATIONS,
    DispatchSplitter,
    IterationChunk,
    fold_grid,
    reads_to_merge,
)
from rlxweb.core.errors import LimitExceeded
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.ir.lowering import BufferRef, IterationAxis, KernelDispatch, OperandAccess

AXIS_KINDS = ("parallel", "parallel", "serial", "whole")


@st.composite
def dispatches(draw: st.DrawFn) -> KernelDispatch:
    """Draw a dispatch over a box of up to three axes, with dense and broadcast
    accesses.
    """
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    axes = tuple(
        IterationAxis(f"d{n}", size, draw(st.sampled_from(AXIS_KINDS)))
        for n, size in enumerate(sizes)
    )
    accesses = [
        OperandAccess(
            BufferRef("in", k),
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
    accesses.append(OperandAccess(BufferRef("out"), tuple(dense), "write"))
    grid = tuple(
        (axis.name, draw(st.sampled_from([1, 1, 4, 3])))
        for axis in axes
        if axis.kind == "parallel" and draw(st.booleans())
    )
    per = draw(st.sampled_from(["invocation", "workgroup"]))
    return KernelDispatch("test", axes, tuple(accesses), grid, per)


SMALL_LIMITS = st.builds(
    lambda binding, side: replace(
        tiny_limits(),
        max_storage_buffer_binding_size=binding,
        max_compute_workgroups_per_dimension=side,
        max_storage_buffers_per_shader_stage=8,
    ),
    st.sampled_from([512, 1024, 4096]),
    st.integers(1, 7),
)


def make_splitter(dispatch: KernelDispatch, limits: Limits) -> DispatchSplitter:
    element_nbytes = (4,) * len(dispatch.accesses)
    return DispatchSplitter(
        dispatch, element_nbytes, reads_to_merge(dispatch, limits), limits
    )


def chunk_points(chunk: IterationChunk) -> set[tuple[int, ...]]:
    spans = zip(chunk.start, chunk.size, strict=True)
    return set(itertools.product(*(range(a, a + n) for a, n in spans)))


def split_chunks(dispatch: KernelDispatch, limits: Limits) -> list[IterationChunk]:
    """Return the chunks; a dispatch that cannot be split small enough is not tested."""
    assume(all(a.size <= 12 for a in dispatch.axes) or len(dispatch.axes) < 3)
    try:
        return list(make_splitter(dispatch, limits).chunks())
    except LimitExceeded:
        assume(False)
        raise


@given(dispatches(), SMALL_LIMITS)
def test_chunks_tile_the_box_once(dispatch: KernelDispatch, limits: Limits) -> None:
    """No point of the box is left out and none is computed twice."""
    chunks = split_chunks(dispatch, limits)
    all_points = [p for chunk in chunks for p in chunk_points(chunk)]
    assert len(all_points) == len(set(all_points))
    assert set(all_points) == set(
        itertools.product(*(range(a.size) for a in dispatch.axes))
    )


@given(dispatches(), SMALL_LIMITS)
def test_serial_chunks_come_in_order(dispatch: KernelDispatch, limits: Limits) -> None:
    """Chunks that share a cell of the other axes come in order of their serial part."""
    serial = [n for n, a in enumerate(dispatch.axes) if a.kind == "serial"]
    last_positions: dict[tuple[int, ...], tuple[int, ...]] = {}
    for chunk in split_chunks(dispatch, limits):
        chunk_positions: dict[tuple[int, ...], tuple[int, ...]] = {}
        for point in sorted(chunk_points(chunk)):
            cell = tuple(x for n, x in enumerate(point) if n not in serial)
            position = tuple(point[n] for n in serial)
            if len(serial) == 1:
                assert position > last_positions.get(cell, (-1,))
            chunk_positions[cell] = max(position, chunk_positions.get(cell, position))
        last_positions |= chunk_positions


@given(dispatches(), SMALL_LIMITS)
def test_whole_axes_are_never_split(dispatch: KernelDispatch, limits: Limits) -> None:
    """Every chunk covers all of a whole axis."""
    for chunk in split_chunks(dispatch, limits):
        for axis, size in zip(dispatch.axes, chunk.size, strict=True):
            assert axis.kind != "whole" or size == axis.size


@given(dispatches(), SMALL_LIMITS)
def test_chunks_start_on_tile_boundaries(
    dispatch: KernelDispatch, limits: Limits
) -> None:
    """A tile is split only where whole tiles break a limit."""
    tiles = dict(dispatch.grid)
    for chunk in split_chunks(dispatch, limits):
        for axis, start, size in zip(
            dispatch.axes, chunk.start, chunk.size, strict=True
        ):
            tile = tiles.get(axis.name, 1)
            assert start % tile == 0 or size < tile


@given(dispatches(), SMALL_LIMITS)
def test_every_chunk_keeps_the_limits(dispatch: KernelDispatch, limits: Limits) -> None:
    """Bindings, alignment slack and grid, recounted from the touched elements, stay
    within the limits.
    """
    splitter = make_splitter(dispatch, limits)
    align = limits.min_storage_buffer_offset_alignment
    for chunk in split_chunks(dispatch, limits):
        for access in dispatch.accesses:
            touched = [
                access.offset
                + sum(i * s for i, s in zip(p, access.strides, strict=True))
                for p in chunk_points(chunk)
            ]
            start = min(touched) * 4 // align * align
            end = (max(touched) + access.span) * 4
            assert end - start <= limits.max_storage_buffer_binding_size
        x, y, z = fold_grid(
            splitter.workgroup_count(chunk), limits.max_compute_workgroups_per_dimension
        )
        assert max(x, y, z) <= limits.max_compute_workgroups_per_dimension
        per_group = splitter.workgroup_size if dispatch.item_unit == "invocation" else 1
        assert x * y * z * per_group >= splitter.item_count(chunk)


@given(dispatches())
def test_a_box_that_fits_is_not_split(dispatch: KernelDispatch) -> None:
    """A dispatch within the limits is one chunk."""
    dispatch = replace(dispatch, iterations=0.0)
    chunks = list(make_splitter(dispatch, Limits()).chunks())
    assert chunks == [
        IterationChunk((0,) * len(dispatch.axes), tuple(a.size for a in dispatch.axes))
    ]


@given(st.integers(1, 400_000), st.sampled_from([1.0, 3.0, 16.0]))
def test_long_loops_are_split(size: int, iterations: float) -> None:
    """No chunk runs more loop iterations than drivers allow."""
    axes = (IterationAxis("rows", 3), IterationAxis("n", size, "serial"))
    dispatch = KernelDispatch(
        "sum",
        axes,
        (OperandAccess(BufferRef("in"), (size, 1)),),
        (("rows", 1),),
        iterations=iterations,
    )
    chunks = list(
        make_splitter(
            dispatch, Limits(max_storage_buffer_binding_size=1 << 30)
        ).chunks()
    )
    assert all(p.size[1] * iterations <= MAX_LOOP_ITERATIONS for p in chunks)
    assert sum(p.size[1] for p in chunks if p.start[0] == 0) == size


@given(st.integers(1, 2000), st.integers(1, 13))
def test_grid_covers_the_workgroups_within_the_limit(
    workgroups: int, limit: int
) -> None:
    """Enough workgroups, no dimension over the limit, fewer than twice too many."""
    assume(workgroups <= limit**3)
    x, y, z = fold_grid(workgroups, limit)
    assert max(x, y, z) <= limit
    assert workgroups <= x * y * z
    # Rounding up twice wastes at most one row and one layer.
    assert x * y * z < workgroups + y * z + limit * limit


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
def test_grid_at_the_real_limit(groups: int, grid: tuple[int, int, int]) -> None:
    """Workgroup counts around 65,535 and its square."""
    x, y, z = fold_grid(groups, 65_535)
    assert (y, z) == grid[1:]
    assert x * y * z >= groups
    assert x <= 65_535


@pytest.mark.parametrize(
    ("requested", "limit", "got"),
    [(64, 256, 64), (64, 32, 32), (256, 100, 64), (1, 9, 1)],
)
def test_the_workgroup_shrinks_to_a_power_of_two(
    requested: int, limit: int, got: int
) -> None:
    """The workgroup is no larger than the device allows, and a power of two."""
    dispatch = KernelDispatch("test", (), (), (), workgroup_size=requested)
    limits = replace(Limits(), max_compute_invocations_per_workgroup=limit)
    assert make_splitter(dispatch, limits).workgroup_size == got


def _multi_read_dispatch(read_count: int, width: int = 8) -> KernelDispatch:
    axes = (IterationAxis("n", width),)
    accesses = [OperandAccess(BufferRef("in", k), (1,)) for k in range(read_count)]
    return KernelDispatch(
        "add",
        axes,
        (*accesses, OperandAccess(BufferRef("out"), (1,), "write")),
        (("n", 1),),
    )


def test_reads_are_merged_only_when_there_are_too_many() -> None:
    """Two reads and a write fit three bindings; three reads do not."""
    limits = tiny_limits()
    assert reads_to_merge(_multi_read_dispatch(2), limits) == frozenset()
    assert reads_to_merge(_multi_read_dispatch(3), limits) == {1, 2}
    assert reads_to_merge(_multi_read_dispatch(9), limits) == set(range(1, 9))


def test_a_dispatch_with_too_many_writes_is_refused() -> None:
    """The message holds the count and the limit."""
    writes = tuple(OperandAccess(BufferRef("out"), (1,), "write") for _ in range(4))
    dispatch = KernelDispatch("w", (IterationAxis("n", 8),), writes, (("n", 1),))
    with pytest.raises(LimitExceeded, match=r"uses 4 storage buffers; .* at most 3"):
        reads_to_merge(dispatch, tiny_limits())


LONG_LOOP = KernelDispatch(
    "row",
    (IterationAxis("rows", 3), IterationAxis("n", 70_000, "whole")),
    (OperandAccess(BufferRef("in"), (0, 0)),),
    (("rows", 1),),
    iterations=1.0,
)
WIDE_ROW = KernelDispatch(
    "rows",
    (IterationAxis("n", 2000, "whole"),),
    (OperandAccess(BufferRef("out"), (1,), "write"),),
    (),
)
MANY_WORKGROUPS = KernelDispatch(
    "spin",
    (IterationAxis("n", 1000, "whole"),),
    (OperandAccess(BufferRef("out"), (0,), "write"),),
    (("n", 1),),
    item_unit="workgroup",
)


@pytest.mark.parametrize(
    ("dispatch", "limits", "words"),
    [
        (LONG_LOOP, Limits(), r"70,000 loop iterations; .* after 65,000"),
        (
            WIDE_ROW,
            tiny_limits(),
            r"8,000 bytes; this device allows 4,096 bytes per binding",
        ),
        (
            MANY_WORKGROUPS,
            tiny_limits(),
            r"1,000 workgroups.* 7 in each of 3 dimensions",
        ),
    ],
    ids=["loop iterations", "bytes", "workgroups"],
)
def test_a_whole_axis_over_a_limit_is_refused_with_both_numbers(
    dispatch: KernelDispatch, limits: Limits, words: str
) -> None:
    """A whole axis cannot be split, so the op's decomposition must be used."""
    with pytest.raises(LimitExceeded, match=words):
        list(make_splitter(dispatch, limits).chunks())
