"""Teams of lanes: right, free of races and bank conflicts, whatever n, rows and k."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Recipe
from rlxweb.ir.op import TensorType
from rlxweb.limits import Limits
from rlxweb.recipes.fft_calls import complex_recipe
from rlxweb.recipes.fft_team import SHIFTS, Team, team_of, team_radices
from rlxweb.recipes.fft_team_rows import team_rows
from rlxweb.recipes.welch_team import team_recipe
from tests.lanes.kernel import run
from tests.lanes.swizzles import counted

Array = Any
LENGTHS = (8, 12, 16, 27, 32, 48, 64, 96, 100, 128, 243, 256, 384, 512)
LONG = (768, 1000, 1024, 2048, 4096, 6144, 8192)


def device(kib: float, lanes: int = 1024) -> Limits:
    """Limits with so much workgroup memory and so many lanes."""
    return Limits(
        max_compute_workgroup_storage_size=int(kib * 1024),
        max_compute_invocations_per_workgroup=lanes,
        max_compute_workgroup_size_x=lanes,
    )


def team(n: int, kib: float = 32, extra: int = 0) -> Team:
    found = team_of(n, device(kib), extra)
    assert found is not None, f"no team for {n} in {kib} KiB"
    return found


def transformed(one: Team, x: Array) -> Array:
    """What the lanes make of complex rows."""
    rows, n = x.shape
    block = np.concatenate([x.real, x.imag], axis=1).astype(np.float32)
    recipe = complex_recipe(rows, n, False, "backward", team_rows(lambda n: one))
    got = run(recipe, [block], block.size, device(1024))[0].reshape(rows, 2 * n)
    return got[:, :n] + 1j * got[:, n:]


def drawn(rows: int, n: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, rows, n)).astype(np.float32).astype(float)
    return parts[0] + 1j * parts[1]


@pytest.mark.parametrize(
    "n", [*LENGTHS, *(pytest.param(n, marks=pytest.mark.slow) for n in LONG)]
)
def test_a_transform_is_numpys_without_a_race(n: int) -> None:
    """A transform is NumPy's in full workgroups and others, by its barriers alone."""
    one = team(n)
    x = drawn(one.rows + 1, n)
    want = np.fft.fft(x)
    error = np.abs(transformed(one, x) - want).max() / np.abs(want).max()
    assert error < 4e-7


@settings(max_examples=30)
@given(
    st.sampled_from(LENGTHS),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.integers(1, 5),
)
def test_a_team_of_any_make_is_right(
    n: int, rows: int, split: bool, swizzled: bool, seed: int
) -> None:
    """A team may do parts in turn, more rows or no swizzle, and stays right."""
    one = replace(team(n), rows=1 + seed % 3, split=split)
    one = one if swizzled else replace(one, shifts=())
    x = drawn(rows, n, seed)
    want = np.fft.fft(x)
    assert np.abs(transformed(one, x) - want).max() < 4e-7 * np.abs(want).max()


# --- bank conflicts -----------------------------------------------------------------


@pytest.mark.parametrize("radices", SHIFTS, ids=str)
def test_a_swizzle_is_one_to_one(radices: tuple[int, ...]) -> None:
    """No two cells of the workgroup's rows meet, and none leaves its array."""
    n = int(np.prod(radices))
    one = Team(n, radices, 3, False, SHIFTS[radices])
    spots = {one.swizzled(cell) for cell in range(one.cells)}
    assert spots == set(range(one.cells))


@pytest.mark.parametrize("n", [16, 32, 64, 128, 256, 512, 1024, 4096])
def test_no_bank_is_hit_twice(n: int) -> None:
    """No bank is hit twice for a power of two; without the swizzle, 4 times or more."""
    counts = counted(team(n))
    assert counts.wavefronts == counts.requests
    plain = counted(replace(team(n), shifts=()))
    assert plain.wavefronts >= 4 * plain.requests
    assert (plain.requests, plain.barriers) == (counts.requests, counts.barriers)


@pytest.mark.parametrize("n", [2048, 8192, 48, 96, 192, 384, 640, 768])
def test_few_banks_are_hit_twice(n: int) -> None:
    """Few banks are hit twice for other lengths; without the swizzle, many more."""
    counts, plain = counted(team(n)), counted(replace(team(n), shifts=()))
    assert counts.wavefronts <= 1.6 * counts.requests
    assert plain.wavefronts >= 2.5 * counts.wavefronts


@pytest.mark.parametrize("n", [64, 256, 1024, 4096])
def test_storage_is_moved_in_whole_sectors(n: int) -> None:
    """Samples, roots and results are moved in whole sectors: nothing is wasted."""
    counts = counted(team(n))
    assert counts.sectors == counts.ideal


# --- what fits ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kib", "n", "extra", "how"),
    [
        (16, 2048, 0, "both"),
        (16, 4096, 0, "in turn"),
        (16, 4096, 4, None),
        (32, 4096, 0, "both"),
        (32, 4096, 4, "in turn"),
        (32, 8192, 0, "in turn"),
        (32, 8192, 4, None),
        (48, 8192, 4, "in turn"),
        (64, 8192, 0, "both"),
    ],
)
def test_where_a_length_falls(kib: int, n: int, extra: int, how: str | None) -> None:
    """The table of the manual: both parts of a row at once, in turn, or not at all."""
    found = team_of(n, device(kib), extra)
    assert (found and ("in turn" if found.split else "both")) == how
    if found:
        assert found.shared_bytes + extra <= kib * 1024


def test_a_team_needs_lanes_and_small_factors() -> None:
    """A device of 256 lanes has no 512 of them; 67 is no product of small ones."""
    assert team_of(8192, device(64, 256)) is None
    assert team_of(4096, device(64, 256)) is not None
    assert team_of(67, device(64)) is None
    assert team_of(2 * 67, device(64)) is None
    assert team_radices(4096) == (16, 16, 16)
    assert team_radices(1024, 8) == (8, 8, 4, 4)


# --- Welch --------------------------------------------------------------------------


def recipe_of(
    rows: int, n: int, segments: int, k: int, more: dict[str, Any], kib: float = 32
) -> tuple[Recipe | None, Array, Array]:
    """The recipe with samples and a window."""
    hop = more.pop("hop", n // 2)
    rng = np.random.default_rng(n + segments + k)
    x = rng.standard_normal((rows, hop * (segments - 1) + n + 3)).astype(np.float32)
    x += np.linspace(2, 9, x.shape[1], dtype=np.float32)
    attrs: dict[str, Any] = {
        "hop": hop,
        "segments": segments,
        "nfft": 0,
        "detrend": "none",
        "doubling": True,
        "scale": 0.5,
        **more,
    }
    if k:
        attrs["k"] = k
    types = (TensorType(x.shape, DType.F32), TensorType((n,), DType.F32))
    window = np.hanning(n + 2)[1:-1].astype(np.float32)
    made = team_recipe()(types, types[0], attrs, device(kib))
    return made, x, window


def powers(
    x: Array, window: Array, segments: int, hop: int, nfft: int, detrend: str
) -> Array:
    """Welch's estimate in float64."""
    n = len(window)
    cut = np.stack([x[:, i * hop : i * hop + n] for i in range(segments)], 1)
    cut = cut.astype(float)
    if detrend != "none":
        cut = scipy.signal.detrend(cut, type=detrend)
    p = (np.abs(np.fft.rfft(cut * window, n=nfft)) ** 2).mean(1) * 0.5
    p[:, 1 : (nfft + 1) // 2] *= 2
    return p


@pytest.mark.timeout(360)  # it computes for ten seconds and more, on a core of its own
@settings(max_examples=30)
@given(
    n=st.sampled_from((8, 12, 32, 48, 64, 100, 128, 256)),
    rows=st.integers(1, 20),
    segments=st.integers(1, 5),
    k=st.integers(0, 40),
    hop=st.integers(1, 70),
    pad=st.sampled_from((1, 1, 2)),
    detrend=st.sampled_from(("none", "constant", "linear")),
    kib=st.sampled_from((0.25, 1, 4, 32)),
)
def test_welch_is_numpys_without_a_race(
    n: int,
    rows: int,
    segments: int,
    k: int,
    hop: int,
    pad: int,
    detrend: str,
    kib: float,
) -> None:
    """Powers and peaks of any request are NumPy's, in whatever memory there is."""
    bins = n * pad // 2 + 1
    k = min(k, bins)
    more = {"hop": hop, "nfft": n * pad, "detrend": detrend}
    made, x, window = recipe_of(rows, n, segments, k, more, kib)
    if made is None:
        assert team_of(n * pad, device(kib)) is None
        return
    want = powers(x, window, segments, hop, n * pad, detrend)
    got = run(made, [x, window], rows * (2 * k or bins), device(kib))[0]
    if not k:
        assert np.abs(got.reshape(rows, bins) - want).max() < 2e-6 * want.max()
        return
    got = got.reshape(rows, k, 2)
    at = got[..., 0].astype(int)
    assert all(len(set(row)) == k for row in at.tolist())
    found = np.take_along_axis(want, at, 1)
    best = -np.sort(-want, axis=1)[:, :k]
    # Neighbours nearer to each other than rounding may stand either way.
    near = 1e-5 * want.max()
    assert np.abs(found - best).max() < near
    assert np.abs(got[..., 1] - found).max() < near


@pytest.mark.parametrize(
    ("kib", "n", "k", "calls"),
    [(16, 2048, 16, 1), (16, 4096, 16, 3), (32, 4096, 16, 1), (16, 2048, 300, 9)],
)
def test_peaks_are_ranked_where_they_fit(kib: int, n: int, k: int, calls: int) -> None:
    """Peaks that do not fit are written, ranked or sorted by merges, and paired."""
    made, _, _ = recipe_of(2, n, 2, k, {}, kib)
    assert made is not None
    assert len(made.calls) == calls
    assert all(call.shared_bytes <= kib * 1024 for call in made.calls)


@pytest.mark.parametrize("n", [64, 256, 1024])
def test_equal_powers_go_to_the_smaller_bin_and_nan_to_none(n: int) -> None:
    """A silent row ranks bins in order; one without a number has none."""
    made, x, window = recipe_of(3, n, 2, 5, {})
    x[0], x[1, 3] = 0, np.nan
    assert made is not None
    got = run(made, [x, window], 30, device(32))[0].reshape(3, 5, 2)
    assert got[0, :, 0].tolist() == [0, 1, 2, 3, 4]
    assert not got[0, :, 1].any()
    assert np.isnan(got[1, :, 1]).all()
    assert np.isfinite(got[2]).all()


def test_a_missing_barrier_is_found() -> None:
    """The check above can fail: every barrier of the kernel is there for a reason."""
    made, x, window = recipe_of(4, 256, 4, 5, {"detrend": "linear"})
    assert made is not None
    source = made.calls[0].source
    assert source is not None
    parts = source.split("workgroupBarrier();")
    caught = 0
    for at in range(1, len(parts)):
        text = "workgroupBarrier();".join(parts[:at]) + "".join(parts[at : at + 1])
        text = "workgroupBarrier();".join([text, *parts[at + 1 :]])
        broken = replace(made, calls=(replace(made.calls[0], source=text),))
        with pytest.raises(AssertionError):
            run(broken, [x, window], 40, device(32))
        caught += 1
    assert caught == len(parts) - 1 >= 8
