"""The interpreter counts memory traffic correctly and finds the races of deliberately
racy kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.lanes.workgroup_access_tracking import DataRace, WorkgroupCounts
from tests.lanes.workgroup_interpreter import WorkgroupInterpreter

KERNEL_HEAD = """override WG: u32 = 64u;
struct Uniforms { items: u32, scale: f32 }
@group(1) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(0) var<storage, read> a0: array<f32>;
@group(0) @binding(1) var<storage, read_write> a1: array<f32>;
var<workgroup> room: array<f32, 1024>;
var<workgroup> wide: array<vec4<f32>, 64>;
var<workgroup> found: atomic<u32>;
fn twice(x: f32) -> f32 { return 2.0 * x; }
@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lid: u32) {
"""
LANES = 64


def run_body(body: str, expected: Sequence[float] | None = None) -> WorkgroupCounts:
    """Run a body as a workgroup of 64 lanes and return its counts; `out` is the
    expected start of a1.
    """
    x = np.arange(256, dtype=np.float32)
    y = np.zeros(256, np.float32)
    workgroup = WorkgroupInterpreter(
        KERNEL_HEAD + body + "}", LANES, {"items": 1, "scale": 0.5}, [x, y]
    )
    counts = workgroup.run()
    if expected is not None:
        assert y[: len(expected)].tolist() == list(expected)
    return counts


@pytest.mark.parametrize(
    ("index", "wavefronts"),
    [("lid", 2), ("lid * 2u", 4), ("lid * 16u", 32), ("lid * 8u ^ lid >> 2u", 2)],
)
def test_bank_conflicts_follow_the_stride(index: str, wavefronts: int) -> None:
    """A request of 32 lanes over 32 banks of 4 bytes takes the wavefronts of its
    fullest bank.
    """
    counts = run_body(f"room[{index}] = 1.0;")
    assert (counts.requests, counts.wavefronts) == (2, wavefronts)


def test_broadcast_load_is_one_wavefront() -> None:
    """A broadcast costs no more than a read of one lane."""
    counts = run_body(
        "if (lid == 0u) { room[7] = 1.0; } workgroupBarrier();a1[lid] = room[7];",
        [1.0] * LANES,
    )
    assert counts.wavefronts == counts.requests == 3


def test_vec4_access_is_served_by_quarter_warps() -> None:
    """Eight neighbours fill the 32 banks once."""
    counts = run_body("wide[lid] = vec4<f32>(1.0);")
    assert (counts.requests, counts.wavefronts) == (8, 8)


def test_sectors_count_strided_reads() -> None:
    """Every eighth word takes a sector of 32 bytes each; neighbours share them."""
    assert run_body("a1[lid] = a0[lid];").sectors == 2 * LANES // 8
    assert run_body("a1[lid] = a0[(lid * 8u) % 256u];").sectors == LANES // 8 + 2 * 32


def test_control_flow_and_arithmetic_follow_wgsl() -> None:
    """Loops, break, continue, early return, calls and wrapping u32 behave as in
    WGSL.
    """
    run_body(
        "var s = 0u; for (var i = 0u; i < 10u; i++) {"
        " if (i == 2u) { continue; } if (i > lid) { break; } s += i; }"
        " if (lid > 4u) { return; }"
        " a1[lid] = twice(f32(s)) + select(0.0, 0.5, lid == 1u) + f32(0u - 1u >> 31u);",
        [1.0, 3.5, 3.0, 9.0, 17.0, 0.0],
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("room[lid] = 1.0; a1[lid] = room[lid ^ 1u];", "reads after"),
        ("room[lid / 2u] = 1.0;", "two lanes write one cell"),
        (
            "room[lid] = 1.0; workgroupBarrier(); let x = room[(lid + 1u) % WG];"
            " room[lid] = x;",
            "writes what was read by",
        ),
        ("if (lid < 5u) { workgroupBarrier(); }", "some lanes do not reach"),
        ("a1[0] = 1.0;", "two lanes write one element"),
        ("room[lid * 17u] = 1.0;", "outside of its 1024 cells"),
    ],
)
def test_order_dependent_accesses_are_races(body: str, message: str) -> None:
    """Order-dependent accesses raise a race; a driver that runs lanes in step hides
    them.
    """
    with pytest.raises(DataRace, match=message):
        run_body(body)


def test_atomics_and_barriers_prevent_races() -> None:
    """Accesses separated by a barrier are no race, nor are atomics."""
    body = (
        "if (lid == 0u) { atomicStore(&found, 0u); } workgroupBarrier();"
        "let at = atomicAdd(&found, 1u); room[at] = f32(lid); workgroupBarrier();"
        "a1[lid] = room[lid] + 0.0 * f32(atomicLoad(&found));"
    )
    assert run_body(body, [float(n) for n in range(LANES)]).barriers == 2


def test_unwritten_memory_is_nan() -> None:
    """Unwritten workgroup memory is NaN, whereas drivers hand out zeros and hide the
    bug.
    """
    with pytest.raises(AssertionError):
        run_body("a1[lid] = room[lid];", [0.0] * LANES)
