"""Exported Welch estimates match `welch_peaks` and `welch`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.errors import LimitExceeded, Unsupported, UsageError
from rlxweb.signal.welch_export import export_welch
from tests.exported_plan_replay import WelchPlanReplay
from tests.suite_tiers import thin_out_cases

pytestmark = pytest.mark.requires_wgpu


def _rows(count: int, samples: int) -> Any:
    rng = np.random.default_rng(5)
    cycles = rng.uniform(0.02, 0.4, (count, 1)) * np.arange(samples)
    noise = rng.normal(0, 0.2, (count, samples))
    return (np.sin(2 * np.pi * cycles) + noise).astype("f4")


# rows and samples, what is exported, the options
CASES: dict[str, tuple[tuple[int, int], str, dict[str, Any]]] = {
    "peaks": ((8, 1024), "peaks", {}),
    "power": ((8, 1024), "power", {}),
    "both": ((8, 1024), "both", {}),
    "scipy": ((5, 700), "peaks", {"preset": "scipy", "nperseg": 100, "k": 4}),
    "mne": ((3, 512), "power", {"preset": "mne", "nperseg": 64, "window": "blackman"}),
    "line": ((4, 600), "both", {"detrend": "linear", "nperseg": 128, "noverlap": 96}),
    "some": ((4, 600), "peaks", {"nperseg": 100, "nsegments": 3}),
    "padded": ((4, 600), "power", {"nperseg": 100, "nfft": 200}),
    "long": ((2, 9000), "peaks", {"nperseg": 4096, "k": 5}),
    "odd": ((3, 500), "both", {"nperseg": 75, "k": 3}),
    "one row": ((1, 256), "peaks", {"k": 1}),
    "all bins": ((2, 64), "peaks", {"nperseg": 16, "k": 9}),
}


@pytest.mark.parametrize("case", thin_out_cases(CASES, 3))
def test_exported_estimates_match_the_desktop(case: str, tmp_path: Path) -> None:
    """Exported estimates match the desktop's, by the GPU plan and by the software
    plan.
    """
    (rows, samples), output, options = CASES[case]
    x, fs = _rows(rows, samples), 250.0
    summary = export_welch(tmp_path / "w", rows, samples, fs, output=output, **options)
    plans = [entry.path for entry in summary.files if entry.path in PLAN_FILES]
    for file in plans:
        page = WelchPlanReplay(summary.folder, file)
        for index in range(3):
            page.check(index)
        got = page.welch(x)
        if output != "power":
            _compare_peaks(got, rlx.welch_peaks(x, fs, device="cpu", **options))
        if output != "peaks":
            welch_options = {"nperseg": 256, "preset": "rlx"} | options
            welch_options.pop("k", None)
            hz, power = rlx.welch(x, fs, device="cpu", **welch_options)
            names = ("hz", "power") if output == "power" else ("freqs", "spectrum")
            np.testing.assert_array_equal(got[names[0]], hz)
            tolerance = {"rtol": 1e-4, "atol": 1e-5 * power.max()}
            np.testing.assert_allclose(got[names[1]], power, **tolerance)


PLAN_FILES = ("plan.json", "software.json")


def _compare_peaks(got: Any, want: Any) -> None:
    for name in ("bins", "hz", "count"):
        np.testing.assert_array_equal(got[name], getattr(want, name))
    np.testing.assert_allclose(got["power"], want.power, rtol=3e-4)


@pytest.mark.slow
@hypothesis.settings(max_examples=5)
@hypothesis.given(st.data())
def test_any_estimate(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """An exported estimate meets its test vectors and matches the desktop."""
    draw = data.draw
    nperseg = draw(st.integers(3, 80), label="nperseg")
    samples = draw(st.integers(nperseg, 6 * nperseg), label="samples")
    options = {
        "k": draw(st.integers(1, nperseg // 2 + 1), label="k"),
        "preset": draw(st.sampled_from(["rlx", "scipy", "mne"]), label="preset"),
        "noverlap": draw(st.integers(0, nperseg - 1), label="noverlap"),
        "nperseg": nperseg,
    }
    rows, fs = draw(st.integers(1, 5), label="rows"), 77.7
    folder = tmp_path_factory.mktemp("any") / "out"
    export_welch(folder, rows, samples, fs, **options)
    page = WelchPlanReplay(folder)
    for index in range(len(page.plan["vectors"]["cases"])):
        page.check(index)
    x = _rows(rows, samples)
    got, want = page.welch(x), rlx.welch_peaks(x, fs, device="cpu", **options)
    np.testing.assert_array_equal(got["count"], want.count)
    tolerance = {"rtol": 1e-3, "atol": 1e-5 * np.nanmax(want.power, initial=0.0)}
    np.testing.assert_allclose(got["power"], want.power, **tolerance)


def test_rows_of_any_loudness(tmp_path: Path) -> None:
    """Scaling rows by powers of two changes no digit; rounding residue is no peak."""
    summary = export_welch(tmp_path / "w", 6, 1024, 256.0, preset="scipy")
    page, x = WelchPlanReplay(summary.folder), _rows(6, 1024)
    x[1] *= np.float32(2.0**-60)
    x[2] *= np.float32(2.0**61)
    x[3], x[4] = 0, 7.25
    want = rlx.welch_peaks(x, 256.0, preset="scipy", device="cpu")
    got = page.welch(x)
    _compare_peaks(got, want)
    assert got["count"][3] == got["count"][4] == 0
    x[5] *= np.float32(2.0**100)
    with pytest.raises(OverflowError):
        page.welch(x)
    with pytest.raises(UsageError):
        rlx.welch_peaks(x, 256.0, preset="scipy", device="cpu")


def test_a_window_of_any_gain(tmp_path: Path) -> None:
    window, x = np.hanning(64) * 1e-30, _rows(2, 512) * np.float32(2.0**80)
    summary = export_welch(tmp_path / "w", 2, 512, 10.0, 64, 3, window=window)
    page = WelchPlanReplay(summary.folder)
    assert page.plan["welch"]["shift"]
    page.check()
    want = rlx.welch_peaks(x, 10.0, 64, 3, window=window, device="cpu")
    _compare_peaks(page.welch(x), want)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mode": "peaks"}, Unsupported, "Python code finds the local maxima"),
        ({"k": 130}, UsageError, "k is 130; must be 1 to 129"),
        ({"rows": 0}, UsageError, "rows is 0"),
        (
            {"nperseg": 2000},
            UsageError,
            "nperseg is 2000; must be at most the length of the signal, 1024",
        ),
        ({"output": "phase"}, UsageError, "phase"),
        ({"rows": 100_000}, LimitExceeded, "409,600,000.*268,435,456"),
        ({"name": "a/b"}, UsageError, "valid module name"),
        ({"to": "pip"}, UsageError, "pip"),
    ],
)
def test_unsupported_exports_are_refused(
    options: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    """Unsupported exports are refused, and nothing is left behind."""
    arguments = {"rows": 4, "samples": 1024, "fs": 256.0} | options
    with pytest.raises(error, match=message):
        export_welch(tmp_path / "w", **arguments)
    assert list(tmp_path.iterdir()) == []
