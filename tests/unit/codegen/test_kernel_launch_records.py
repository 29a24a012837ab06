"""Kernel launches as plain data: uniform bytes, binding ranges, grids, merged reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlxweb.codegen.kernel_launch_records import (
    BoundOperand,
    KernelLaunch,
    MergedOperands,
    build_launches,
)
from rlxweb.core.errors import LimitExceeded
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import BufferRef, IterationAxis, KernelDispatch, OperandAccess

F32 = DType.F32


def row_dispatch(rows: int = 6, columns: int = 10, **changes: object) -> KernelDispatch:
    settings: dict[str, object] = {
        "shader": "rows",
        "axes": (IterationAxis("r", rows), IterationAxis("c", columns)),
        "accesses": (
            OperandAccess(BufferRef("in", 0), (columns, 1)),
            OperandAccess(BufferRef("out"), (columns, 1), "write"),
        ),
        "grid": (("r", 1), ("c", 4)),
        "uniforms": {"lead": columns, "eps": 0.1},
        "source": "fn main() {}",
    }
    return KernelDispatch(**(settings | changes))  # type: ignore[arg-type]


def multi_read_dispatch(read_count: int, **changes: object) -> KernelDispatch:
    """Return a row dispatch with several reads and a write."""
    read_accesses = tuple(
        OperandAccess(BufferRef("in", k), (10, 1)) for k in range(read_count)
    )
    return row_dispatch(
        accesses=(*read_accesses, OperandAccess(BufferRef("out"), (10, 1), "write")),
        **changes,
    )


def uniform_words(launch: KernelLaunch) -> list[int]:
    return np.frombuffer(launch.uniforms, np.uint32).tolist()


def test_uniform_bytes_of_an_unsplit_dispatch() -> None:
    """Items, bases, sizes, starts, values; floats as their bits; padded to 16 bytes."""
    (launch,) = build_launches(row_dispatch(), [F32, F32], Limits())
    bits = int(np.float32(0.1).view(np.uint32))
    assert uniform_words(launch) == [6 * 3, 0, 0, 6, 0, 10, 0, 10, bits, 0, 0, 0]
    assert launch.grid == (1, 1, 1)
    assert launch.bindings == (
        BoundOperand(BufferRef("in"), 0, 240),
        BoundOperand(BufferRef("out"), 0, 240),
    )
    assert launch.shader.layout == ("read", "write", "uniform")
    assert launch.shader.overrides == (("WG", 64),)


def test_chunks_move_the_origin_and_keep_the_strides() -> None:
    """Chunks bind their own bytes; `base` is the remainder of the alignment."""
    built_launches = build_launches(row_dispatch(300, 10), [F32, F32], tiny_limits())
    assert len(built_launches) > 1
    covered = 0
    for launch in built_launches:
        items, base0, _base1, rows, row_start, columns, column_start, lead, *_ = (
            uniform_words(launch)
        )
        bound = launch.bindings[0]
        assert isinstance(bound, BoundOperand)
        assert bound.offset % 256 == 0
        assert bound.nbytes <= 4096
        assert bound.offset + 4 * base0 == 4 * (10 * row_start + column_start)
        assert lead == 10
        assert items == rows * -(-columns // 4)
        covered += rows * columns
    assert covered == 3000
    assert len({launch.shader for launch in built_launches}) == 1


def test_an_offset_is_aligned_downwards() -> None:
    """Access from element 70 binds from byte 256 and starts at base 6."""
    access = OperandAccess(BufferRef("in", 0), (1,), offset=70)
    out = OperandAccess(BufferRef("out"), (1,), "write")
    dispatch = row_dispatch(
        axes=(IterationAxis("n", 5),), accesses=(access, out), grid=(("n", 1),)
    )
    (launch,) = build_launches(dispatch, [F32, F32], Limits())
    assert launch.bindings[0] == BoundOperand(BufferRef("in"), 256, 44)
    assert uniform_words(launch)[1] == 6


def test_float16_bindings_cover_whole_words() -> None:
    """Two-byte elements: the range is rounded up to four bytes."""
    dispatch = row_dispatch(1, 5, axes=(IterationAxis("r", 1), IterationAxis("c", 5)))
    (launch,) = build_launches(dispatch, [DType.F16, DType.F16], Limits())
    assert launch.bindings[0] == BoundOperand(BufferRef("in"), 0, 12)


def test_merged_reads_are_consecutive() -> None:
    """Three reads and a write on three bindings: two reads are merged."""
    (launch,) = build_launches(multi_read_dispatch(3), [F32] * 4, tiny_limits())
    first, *rest = launch.bindings
    assert isinstance(first, MergedOperands)
    assert first.nbytes == 480
    assert first.parts == (
        (BoundOperand(BufferRef("in", 1), 0, 240), 0),
        (BoundOperand(BufferRef("in", 2), 0, 240), 240),
    )
    assert len(rest) == 2
    assert uniform_words(launch)[1:5] == [0, 0, 60, 0]
    assert launch.shader.layout == ("read", "read", "write", "uniform")


def test_merged_reads_do_not_mix_with_vec4() -> None:
    """Merged reads of vec4 operands are refused; the scalar variant must be
    requested.
    """
    dispatch = multi_read_dispatch(3)
    vec4_accesses = tuple(replace(access, is_vec4=True) for access in dispatch.accesses)
    with pytest.raises(LimitExceeded, match="vec4"):
        build_launches(
            replace(dispatch, accesses=vec4_accesses), [F32] * 4, tiny_limits()
        )


def test_an_empty_box_is_no_launch() -> None:
    """Nothing to compute costs nothing."""
    assert build_launches(row_dispatch(0, 10), [F32, F32], Limits()) == []


def test_an_empty_serial_axis_still_launches() -> None:
    """A sum over nothing has a result that must be written."""
    axes = (IterationAxis("r", 6), IterationAxis("c", 0, "serial"))
    dispatch = row_dispatch(6, 0, axes=axes, grid=(("r", 1),))
    (launch,) = build_launches(dispatch, [F32, F32], Limits())
    assert uniform_words(launch)[0] == 6
    assert uniform_words(launch)[5] == 0


def test_large_grids_are_folded() -> None:
    """More workgroups than one dimension takes extend into a second one."""
    dispatch = row_dispatch(70_000, 4, item_unit="workgroup")
    (launch,) = build_launches(dispatch, [F32, F32], Limits())
    assert launch.grid == (35_000, 2, 1)


def test_too_much_workgroup_memory_is_refused_with_both_numbers() -> None:
    """Too much workgroup memory is refused before any shader is generated."""
    with pytest.raises(LimitExceeded, match=r"needs 1,024 bytes .* has 512"):
        build_launches(row_dispatch(shared_bytes=1024), [F32, F32], tiny_limits())


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_a_uniform_outside_u32_is_refused(value: int) -> None:
    """Indices of a shader are u32; nothing wraps silently."""
    with pytest.raises(LimitExceeded, match=f"uniform lead is {value}"):
        build_launches(row_dispatch(uniforms={"lead": value}), [F32, F32], Limits())


def test_a_dispatch_that_reports_faults_binds_its_flag() -> None:
    """The flag is part of the layout, after the operands."""
    (launch,) = build_launches(row_dispatch(reports_faults=True), [F32, F32], Limits())
    assert launch.reports_faults
    assert launch.shader.layout == ("read", "write", "write", "uniform")


def test_the_flag_counts_as_a_binding() -> None:
    """Two reads, a write and the flag do not fit three bindings unmerged."""
    (launch,) = build_launches(
        multi_read_dispatch(2, reports_faults=True), [F32] * 3, tiny_limits()
    )
    assert isinstance(launch.bindings[0], MergedOperands)
    assert len(launch.bindings) == 2


def test_workgroup_size_follows_the_limits() -> None:
    """The override that the shader sees is the size the grid was made for."""
    limits = replace(Limits(), max_compute_invocations_per_workgroup=16)
    (launch,) = build_launches(row_dispatch(64, 4), [F32, F32], limits)
    assert launch.shader.overrides == (("WG", 16),)
    assert launch.grid == (4, 1, 1)
