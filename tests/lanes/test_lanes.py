"""The counter counts what it should, and finds the races of kernels made to race."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.lanes.memory import Counts, Race
from tests.lanes.run import Workgroup

HEAD = """override WG: u32 = 64u;
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


def run(body: str, out: Sequence[float] | None = None) -> Counts:
    """What a workgroup of 64 lanes does; `out` is what must stand in a1."""
    x = np.arange(256, dtype=np.float32)
    y = np.zeros(256, np.float32)
    made = Workgroup(HEAD + body + "}", LANES, {"items": 1, "scale": 0.5}, [x, y])
    counts = made.run()
    if out is not None:
        assert y[: len(out)].tolist() == list(out)
    return counts


@pytest.mark.parametrize(
    ("index", "wavefronts"),
    [("lid", 2), ("lid * 2u", 4), ("lid * 16u", 32), ("lid * 8u ^ lid >> 2u", 2)],
)
def test_a_bank_is_hit_as_often_as_the_stride_says(index: str, wavefronts: int) -> None:
    """32 banks of 4 bytes, 32 lanes a request."""
    counts = run(f"room[{index}] = 1.0;")
    assert (counts.requests, counts.wavefronts) == (2, wavefronts)


def test_one_word_for_all_is_one_wavefront() -> None:
    """A broadcast costs no more than a read of one lane."""
    counts = run(
        "if (lid == 0u) { room[7] = 1.0; } workgroupBarrier();a1[lid] = room[7];",
        [1.0] * LANES,
    )
    assert counts.wavefronts == counts.requests == 3


def test_a_vec4_is_served_a_quarter_of_a_warp_at_a_time() -> None:
    """Eight neighbours fill the 32 banks once."""
    counts = run("wide[lid] = vec4<f32>(1.0);")
    assert (counts.requests, counts.wavefronts) == (8, 8)


def test_sectors_tell_what_is_read_for_nothing() -> None:
    """Every eighth word takes a sector of 32 bytes each; neighbours share them."""
    assert run("a1[lid] = a0[lid];").sectors == 2 * LANES // 8
    assert run("a1[lid] = a0[(lid * 8u) % 256u];").sectors == LANES // 8 + 2 * 32


def test_control_flow_and_arithmetic_are_wgsls() -> None:
    """Loops, break, continue, early return, calls, u32 that wrap."""
    run(
        "var s = 0u; for (var i = 0u; i < 10u; i++) {"
        " if (i == 2u) { continue; } if (i > lid) { break; } s += i; }"
        " if (lid > 4u) { return; }"
        " a1[lid] = twice(f32(s)) + select(0.0, 0.5, lid == 1u) + f32(0u - 1u >> 31u);",
        [1.0, 3.5, 3.0, 9.0, 17.0, 0.0],
    )


@pytest.mark.parametrize(
    ("body", "said"),
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
def test_what_depends_on_an_order_is_a_race(body: str, said: str) -> None:
    """A driver that runs lanes in step hides all of these."""
    with pytest.raises(Race, match=said):
        run(body)


def test_atomics_and_barriers_are_an_order() -> None:
    """What a barrier separates is no race, nor is an atomic."""
    body = (
        "if (lid == 0u) { atomicStore(&found, 0u); } workgroupBarrier();"
        "let at = atomicAdd(&found, 1u); room[at] = f32(lid); workgroupBarrier();"
        "a1[lid] = room[lid] + 0.0 * f32(atomicLoad(&found));"
    )
    assert run(body, [float(n) for n in range(LANES)]).barriers == 2


def test_what_nobody_wrote_is_nan() -> None:
    """Drivers hand out zeros, and hide it."""
    with pytest.raises(AssertionError):
        run("a1[lid] = room[lid];", [0.0] * LANES)
