"""The kernels that are counted: FFT and Welch peaks, as they were and by teams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Recipe
from rlxweb.ir.op import TensorType
from rlxweb.kernels.launch import Launch, launches
from rlxweb.limits import Limits
from rlxweb.recipes import fft_variants, welch_variants
from rlxweb.recipes.fft_team_rows import team_recipe as fft_team
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.welch_team import team_recipe as welch_team

DEVICE = Limits(
    max_compute_workgroup_storage_size=48 << 10,
    max_compute_invocations_per_workgroup=1024,
    max_compute_workgroup_size_x=1024,
)
ROWS = 64
WAYS: dict[str, tuple[Callable[[str], RecipeFor], Callable[[], RecipeFor]]] = {
    "workgroup a row": (
        fft_variants.group_recipe,
        lambda: welch_variants.group_recipe,
    ),
    "team of lanes a row": (fft_team(), welch_team),
    "team, unswizzled": (fft_team(False), lambda: welch_team(False)),
}


def fft(way: str, n: int, rows: int = ROWS) -> Recipe:
    """A forward transform of block rows."""
    kind = TensorType((rows, 2 * n), DType.F32)
    attrs: dict[str, Any] = {"inverse": False, "norm": "backward"}
    found = WAYS[way][0]("fft")((kind,), kind, attrs, DEVICE)
    assert found is not None
    return found


def welch(way: str, n: int, segments: int = 2, k: int = 16, rows: int = ROWS) -> Recipe:
    """Peaks of half-overlapped segments, no detrending."""
    types = (
        TensorType((rows, n // 2 * (segments + 1)), DType.F32),
        TensorType((n,), DType.F32),
    )
    attrs: dict[str, Any] = {
        "hop": n // 2,
        "segments": segments,
        "nfft": 0,
        "detrend": "none",
        "doubling": True,
        "scale": 1.0,
        "k": k,
    }
    out = TensorType((rows, k, 2), DType.F32)
    found = WAYS[way][1]()(types, out, attrs, DEVICE)
    assert found is not None
    return found


def launch_of(recipe: Recipe) -> Launch:
    """The first dispatch."""
    call = recipe.calls[0]
    return launches(call, [DType.F32] * len(call.accesses), DEVICE)[0]


def kernels() -> Iterator[tuple[str, Launch]]:
    """(label, launch) of every kernel that is counted."""
    for n in (64, 256, 1024, 4096):
        for way in ("workgroup a row", "team of lanes a row"):
            yield f"fft {n}, {way}", launch_of(fft(way, n))
    for n in (256, 1024, 4096):
        for way in ("workgroup a row", "team of lanes a row"):
            for segments in (2, 8):
                yield (
                    f"welch {n} × {segments}, {way}",
                    launch_of(welch(way, n, segments)),
                )
