"""Launches as plain data: uniform bytes, binding ranges, grids, merged reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlxweb.errors import LimitExceeded
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Access, Axis, Call, Ref
from rlxweb.kernels.launch import Bound, Gathered, Launch, launches
from rlxweb.limits import Limits, shrunk

F32 = DType.F32


def row_call(rows: int = 6, columns: int = 10, **changes: object) -> Call:
    settings: dict[str, object] = {
        "shader": "rows",
        "axes": (Axis("r", rows), Axis("c", columns)),
        "accesses": (
            Access(Ref("in", 0), (columns, 1)),
            Access(Ref("out"), (columns, 1), "write"),
        ),
        "grid": (("r", 1), ("c", 4)),
        "values": {"lead": columns, "eps": 0.1},
        "source": "fn main() {}",
    }
    return Call(**(settings | changes))  # type: ignore[arg-type]


def joined(reads: int, **changes: object) -> Call:
    """A row call with more than one read, and a write."""
    read = tuple(Access(Ref("in", k), (10, 1)) for k in range(reads))
    return row_call(accesses=(*read, Access(Ref("out"), (10, 1), "write")), **changes)


def words(launch: Launch) -> list[int]:
    return np.frombuffer(launch.uniforms, np.uint32).tolist()


def test_uniform_bytes_of_a_whole_call() -> None:
    """Items, bases, sizes, starts, values; floats as their bits; padded to 16 bytes."""
    (one,) = launches(row_call(), [F32, F32], Limits())
    bits = int(np.float32(0.1).view(np.uint32))
    assert words(one) == [6 * 3, 0, 0, 6, 0, 10, 0, 10, bits, 0, 0, 0]
    assert one.grid == (1, 1, 1)
    assert one.bindings == (Bound(Ref("in"), 0, 240), Bound(Ref("out"), 0, 240))
    assert one.shader.layout == ("read", "write", "uniform")
    assert one.shader.constants == (("WG", 64),)


def test_pieces_move_the_origin_and_keep_the_strides() -> None:
    """Pieces bind their own bytes; `base` is what alignment left over."""
    made = launches(row_call(300, 10), [F32, F32], shrunk())
    assert len(made) > 1
    covered = 0
    for one in made:
        items, base0, _base1, rows, at_row, columns, at_column, lead, *_ = words(one)
        bound = one.bindings[0]
        assert isinstance(bound, Bound)
        assert bound.offset % 256 == 0
        assert bound.nbytes <= 4096
        assert bound.offset + 4 * base0 == 4 * (10 * at_row + at_column)
        assert lead == 10
        assert items == rows * -(-columns // 4)
        covered += rows * columns
    assert covered == 3000
    assert len({one.shader for one in made}) == 1


def test_an_offset_is_aligned_downwards() -> None:
    """A walk from element 70 binds from byte 256 and starts at base 6."""
    access = Access(Ref("in", 0), (1,), offset=70)
    out = Access(Ref("out"), (1,), "write")
    call = row_call(axes=(Axis("n", 5),), accesses=(access, out), grid=(("n", 1),))
    (one,) = launches(call, [F32, F32], Limits())
    assert one.bindings[0] == Bound(Ref("in"), 256, 44)
    assert words(one)[1] == 6


def test_halves_bind_whole_words() -> None:
    """Two-byte elements: the range is rounded up to four bytes."""
    call = row_call(1, 5, axes=(Axis("r", 1), Axis("c", 5)))
    (one,) = launches(call, [DType.F16, DType.F16], Limits())
    assert one.bindings[0] == Bound(Ref("in"), 0, 12)


def test_merged_reads_lie_one_after_the_other() -> None:
    """Three reads and a write on three bindings: two reads are gathered."""
    (one,) = launches(joined(3), [F32] * 4, shrunk())
    first, *rest = one.bindings
    assert isinstance(first, Gathered)
    assert first.nbytes == 480
    assert first.parts == (
        (Bound(Ref("in", 1), 0, 240), 0),
        (Bound(Ref("in", 2), 0, 240), 240),
    )
    assert len(rest) == 2
    assert words(one)[1:5] == [0, 0, 60, 0]
    assert one.shader.layout == ("read", "read", "write", "uniform")


def test_merged_reads_do_not_mix_with_vec4() -> None:
    """The scalar form of the text must be asked for instead."""
    call = joined(3)
    wide = tuple(replace(access, wide=True) for access in call.accesses)
    with pytest.raises(LimitExceeded, match="vec4"):
        launches(replace(call, accesses=wide), [F32] * 4, shrunk())


def test_an_empty_box_is_no_launch() -> None:
    """Nothing to compute costs nothing."""
    assert launches(row_call(0, 10), [F32, F32], Limits()) == []


def test_an_empty_serial_axis_still_launches() -> None:
    """A sum over nothing has a result, and somebody must write it."""
    axes = (Axis("r", 6), Axis("c", 0, "serial"))
    call = row_call(6, 0, axes=axes, grid=(("r", 1),))
    (one,) = launches(call, [F32, F32], Limits())
    assert words(one)[0] == 6
    assert words(one)[5] == 0


def test_large_grids_are_folded() -> None:
    """More workgroups than a dimension takes go into a second one."""
    call = row_call(70_000, 4, per="workgroup")
    (one,) = launches(call, [F32, F32], Limits())
    assert one.grid == (35_000, 2, 1)


def test_too_much_workgroup_memory_is_refused_with_both_numbers() -> None:
    """Too much workgroup memory is refused before any shader is written."""
    with pytest.raises(LimitExceeded, match=r"needs 1,024 bytes .* has 512"):
        launches(row_call(shared_bytes=1024), [F32, F32], shrunk())


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_a_uniform_outside_u32_is_refused(value: int) -> None:
    """Indices of a shader are u32; nothing wraps silently."""
    with pytest.raises(LimitExceeded, match=f"uniform lead = {value}"):
        launches(row_call(values={"lead": value}), [F32, F32], Limits())


def test_a_faulting_call_binds_its_flag() -> None:
    """The flag is part of the layout, after the operands."""
    (one,) = launches(row_call(faults=True), [F32, F32], Limits())
    assert one.faults
    assert one.shader.layout == ("read", "write", "write", "uniform")


def test_the_flag_counts_as_a_binding() -> None:
    """Two reads, a write and the flag do not fit three bindings unmerged."""
    (one,) = launches(joined(2, faults=True), [F32] * 3, shrunk())
    assert isinstance(one.bindings[0], Gathered)
    assert len(one.bindings) == 2


def test_workgroup_size_follows_the_limits() -> None:
    """The override that the shader sees is the size the grid was made for."""
    limits = replace(Limits(), max_compute_invocations_per_workgroup=16)
    (one,) = launches(row_call(64, 4), [F32, F32], limits)
    assert one.shader.constants == (("WG", 16),)
    assert one.grid == (4, 1, 1)
