"""The strategy "band": decimated samples within the allowed error, or a matrix
product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import Inexact, UsageError
from rlxweb.cost.decision import Terms
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.signal import band_strategy
from rlxweb.signal.spectrum_accuracy import spectrum_error
from tests.unit.signal.device_comparison import adapter_arguments

FS = 1024.0
BAND_OPTIONS: dict[str, Any] = {
    "fs": FS,
    "nperseg": 256,
    "fmin": 16.0,
    "fmax": 60.0,
    "k": 4,
}
CPU_OPTIONS: dict[str, Any] = {**BAND_OPTIONS, "device": "cpu"}
MAX_ERROR = 1e-3


def noise(dtype: str = "float32", rows: int = 6) -> Any:
    x = np.random.default_rng(rows).standard_normal((rows, 6144))
    return np.round(3000 * x).astype(dtype) if dtype == "int16" else x.astype(dtype)


@pytest.fixture
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make decimation filters free, so that they are used wherever they may be."""
    monkeypatch.setattr(band_strategy, "_filter_terms", lambda *args: Terms(launches=0))
    monkeypatch.setattr(band_strategy, "_COST_PER_PRODUCT", 1e3)


def chosen_execution(result: Any) -> str:
    """Return the execution of "band" that was chosen."""
    first = result.decision.candidates[0]
    assert first.strategy == "band"
    return str(first.how)


def check_against_exact(result: Any, exact: Any) -> None:
    """Expect the same bins, each with its power up to the error."""
    matching = (result.bins == exact.bins) & (exact.bins >= 0)
    assert matching.sum() >= 0.9 * (exact.bins >= 0).sum()
    assert (
        spectrum_error(result.power[matching], exact.power[matching]) <= 2 * MAX_ERROR
    )
    assert result.power.dtype == exact.power.dtype


@pytest.mark.parametrize("preset", ["rlx", "scipy"])
@pytest.mark.parametrize("mode", ["bins", "peaks"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.usefixtures("fewer")
def test_decimated_power_is_within_the_error(
    dtype: str, mode: str, preset: str
) -> None:
    options = {**CPU_OPTIONS, "preset": preset, "mode": mode}
    x = noise(dtype)
    result = rlx.welch_peaks(x, **options, strategy="band", max_error=MAX_ERROR)
    assert chosen_execution(result).startswith("1 of ")
    check_against_exact(result, rlx.welch_peaks(x, **options, strategy="fast"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_bins_by_the_product_are_exact(dtype: str) -> None:
    """Bins by the matrix product are exact and need no allowed error."""
    x = noise(dtype)
    result = rlx.welch_peaks(x, **CPU_OPTIONS, strategy="band")
    exact = rlx.welch_peaks(x, **CPU_OPTIONS, strategy="fast")
    assert chosen_execution(result) == "bins"
    np.testing.assert_array_equal(result.bins, exact.bins)
    np.testing.assert_allclose(result.power, exact.power, rtol=1e-5)


@pytest.mark.parametrize("preset", ["rlx", "scipy"])
def test_devices_use_decimated_rows(adapter: AdapterRequest, preset: str) -> None:
    """Devices run their own strategies on rows that the CPU decimated."""
    options = {**BAND_OPTIONS, "preset": preset}
    placement = adapter_arguments(adapter)
    result = rlx.welch_peaks(
        noise(),
        **options,
        **placement,
        strategy="band",
        max_error=MAX_ERROR,
        strict=True,
    )
    assert chosen_execution(result).startswith("1 of ")
    assert "NumPy" not in result.decision.what
    check_against_exact(
        result, rlx.welch_peaks(noise(), **options, device="cpu", strategy="fast")
    )


def band_candidates(x: Any, **options: Any) -> list[Any]:
    """Return the candidates of "band" that a call had."""
    candidates = rlx.welch_peaks(x, **options).decision.candidates
    return [candidate for candidate in candidates if candidate.strategy == "band"]


def test_it_is_offered_only_with_a_band_and_an_error() -> None:
    """Candidates of "band" need a band and an allowed error."""
    assert band_candidates(noise(), **CPU_OPTIONS) == []
    assert band_candidates(noise(), fs=FS, k=3, device="cpu", max_error=MAX_ERROR) == []
    candidates = band_candidates(noise(), **CPU_OPTIONS, max_error=MAX_ERROR)
    assert {candidate.how for candidate in candidates} >= {
        "bins",
        "1 of 2, host",
        "1 of 4, host",
    }
    assert all(candidate.off <= MAX_ERROR for candidate in candidates)
    # By name, without an error: the product alone.
    candidates = band_candidates(noise(), **CPU_OPTIONS, strategy="band")
    assert [candidate.how for candidate in candidates] == ["bins"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fmax": None}, "a band that ends at bin 128 (highest bin: 128)"),
        ({"fmax": 500.0}, "decimation by 2 or more is not possible"),
        ({"window": "boxcar"}, "the smallest error of decimation on white noise is"),
        ({"noverlap": 127}, "hop of 129"),
        ({"max_error": 1e-9}, "decimation by 2 or more is not possible"),
        ({"max_error": None}, ""),
    ],
    ids=str,
)
def test_missing_filter_is_explained(change: dict[str, Any], words: str) -> None:
    """A filter that was not asked for is not mentioned."""
    candidates = band_candidates(
        noise(), **{**CPU_OPTIONS, "max_error": MAX_ERROR, **change}
    )
    blockers = [
        candidate.blocker for candidate in candidates if candidate.how == "decimated"
    ]
    assert len(blockers) == bool(words)
    assert all(words in blocker for blocker in blockers)


@pytest.mark.parametrize(
    ("x", "change", "words"),
    [
        (noise(), {"fmin": 0.0, "fmax": None}, "all bins are requested"),
        (noise("complex64"), {}, "two-sided"),
        (noise(), {"noverlap": 127}, "does not divide"),
        (noise(), {"detrend": "linear", "max_error": None}, "detrend='linear'"),
    ],
)
def test_unsupported_estimates_are_refused(
    x: Any, change: dict[str, Any], words: str
) -> None:
    options = {**CPU_OPTIONS, "strategy": "band", "max_error": MAX_ERROR, **change}
    with pytest.raises(UsageError, match=words):
        rlx.welch_peaks(x, **options)


@pytest.mark.parametrize("value", [0, -1e-3, 1.0, 2, float("nan"), "much", True])
def test_invalid_max_error_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="max_error"):
        rlx.welch_peaks(noise(), **CPU_OPTIONS, max_error=value)


def noise_with_loud_tone() -> Any:
    """Return noise with a tone beyond the band, a hundred thousand times as strong,
    where every 2nd, 4th or 8th sample shows it in the band.
    """
    tone = np.sin(2 * np.pi * (FS / 2 - 20.0) * np.arange(6144) / FS)
    return noise("float64") + 1e5 * tone


@pytest.mark.usefixtures("fewer")
def test_a_strong_tone_beyond_the_band_is_noticed() -> None:
    """The run falls back to an exact candidate, and the failed attempt is reported."""
    options = {**CPU_OPTIONS, "preset": "scipy", "max_error": MAX_ERROR}
    exact = rlx.welch_peaks(
        noise_with_loud_tone(), **CPU_OPTIONS, preset="scipy", strategy="fast"
    )
    for strategy, label in (("band", "band (bins)"), ("auto", "fast")):
        result = rlx.welch_peaks(noise_with_loud_tone(), **options, strategy=strategy)
        assert result.decision.what.startswith(label)
        failed, succeeded = result.decision.attempts
        assert isinstance(failed.cause, Inexact)
        assert "the relative error of the band's power would be" in failed.error
        assert succeeded.error == ""
        assert f"so {label}" in result.decision.why
        np.testing.assert_allclose(result.power, exact.power, rtol=1e-4)
    with pytest.raises(Inexact, match="compared with the exact result: 1"):
        rlx.welch_peaks(noise_with_loud_tone(), **options, strategy="band", strict=True)


def test_inexact_result_without_an_exact_fallback_is_an_error(
    adapter: AdapterRequest,
) -> None:
    """A device has no matrix product of a band: naming both leaves no exact
    candidate.
    """
    options = {
        **BAND_OPTIONS,
        **adapter_arguments(adapter),
        "strategy": "band",
        "max_error": MAX_ERROR,
    }
    with pytest.raises(Inexact):
        rlx.welch_peaks(noise_with_loud_tone().astype(np.float32), **options)


@pytest.mark.usefixtures("fewer")
def test_nan_rows_are_propagated() -> None:
    x = noise()
    x[2, 500] = np.nan
    options = {**CPU_OPTIONS, "strategy": "band", "max_error": MAX_ERROR}
    with pytest.raises(rlx.RlxError, match="finite"):
        rlx.welch_peaks(x, **options)
    result = rlx.welch_peaks(x, **options, nan="propagate")
    assert chosen_execution(result).startswith("1 of ")
    assert np.isnan(result.power[2]).all()
    finite_result = rlx.welch_peaks(np.delete(x, 2, axis=0), **options)
    finite_power = np.delete(result.power, 2, axis=0)
    np.testing.assert_allclose(finite_power, finite_result.power, rtol=1e-5)


@pytest.mark.requires_wgpu
def test_rows_on_a_device_are_not_decimated() -> None:
    device_rows = rlx.put(noise(), device="gpu")
    with pytest.raises(rlx.RlxError, match="but must be in host memory"):
        rlx.welch_peaks(
            device_rows, **BAND_OPTIONS, strategy="band", max_error=MAX_ERROR
        )
    options = {
        **BAND_OPTIONS,
        "strategy": "band",
        "device": "gpu",
        "max_error": MAX_ERROR,
    }
    with pytest.raises(rlx.RlxError, match="only the CPU can decimate integer samples"):
        rlx.welch_peaks(noise("int16"), **options)
