"""Strategy "learned" of welch_peaks: right for the kind of recordings it was trained
for, and refused for everything else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.device import Device
from rlxweb.core.errors import Inexact, UsageError
from rlxweb.cost.decision import Terms
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.signal.learned import learned_strategy
from rlxweb.signal.spectrum_accuracy import spectrum_error
from tests.unit.signal.device_comparison import adapter_arguments
from tests.unit.signal.learned.red_noise import (
    FS,
    LEARN_OPTIONS,
    N,
    learned_result,
    red_noise,
)

LEARNED_OPTIONS: dict[str, Any] = {
    "fs": FS,
    "nperseg": N,
    "preset": "scipy",
    "fmin": 32.0,
    "fmax": 190.0,
    "k": 3,
}
CPU_OPTIONS: dict[str, Any] = {**LEARNED_OPTIONS, "device": "cpu"}


def learned_model() -> rlx.LearnedTransform:
    return learned_result().transform


def steep_rows(dtype: str = "float32", count: int = 4) -> Any:
    """Return rows of the kind that the model was trained on, but other ones."""
    return red_noise(count, 24_000, seed=5).astype(dtype)


def white_noise(count: int = 4) -> Any:
    noise = np.random.default_rng(2).standard_normal((count, 12_000))
    return noise.astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_result_is_within_its_error(dtype: str, mode: str) -> None:
    """The result is within its error for every type, for bins and local maxima."""
    x = steep_rows()
    # Rounded to 24 bits, for what rounding adds is white.
    x = np.round(1e6 * x).astype("int32") if dtype == "int32" else x.astype(dtype)
    options = {**CPU_OPTIONS, "mode": mode}
    result = rlx.welch_peaks(x, **options, strategy="learned", model=learned_model())
    exact = rlx.welch_peaks(x, **options, strategy="fast")
    assert result.decision.what.startswith("learned on NumPy")
    if mode == "bins":
        np.testing.assert_array_equal(result.bins, exact.bins)
    matching = (result.bins == exact.bins) & (exact.bins >= 0)
    assert matching.sum() >= 0.6 * (exact.bins >= 0).sum()
    error = spectrum_error(result.power[matching], exact.power[matching])
    assert error <= LEARN_OPTIONS["max_error"]
    assert result.power.dtype == exact.power.dtype


def test_batch_equals_single_rows() -> None:
    """Chunks differ between many rows and one; results do not."""
    x = steep_rows(count=70)[:, :3000]
    options = {**CPU_OPTIONS, "strategy": "learned", "model": learned_model()}
    batch_power = rlx.welch_peaks(x, **options).power
    single_power = np.stack([rlx.welch_peaks(row, **options).power for row in x[::23]])
    np.testing.assert_allclose(batch_power[::23], single_power, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fs": 2000.0}, ("2000 Hz", "2048 Hz")),
        ({"nperseg": 256}, ("nperseg is 256; must be 128",)),
        ({"nperseg": N, "window": "blackman"}, ("window",)),
        ({"detrend": False}, ("detrend is None", "constant")),
        ({"detrend": "linear"}, ("detrend is linear", "constant")),
        ({"fmax": 300.0}, ("bins 2 to 18", "bins 0 to 13")),
        ({"fmax": None, "fmin": 0.0}, ("all bins", "0 to 208 Hz")),
        ({"model": b"no model"}, ("learned transform",)),
        ({"model": None}, ("trained model", "rlxweb learn")),
    ],
    ids=str,
)
def test_estimates_it_was_not_trained_for_are_refused(
    change: dict[str, Any], words: tuple[str, ...]
) -> None:
    """A refusal names what is asked for and what the transform is for."""
    options = {**CPU_OPTIONS, "strategy": "learned", "model": learned_model(), **change}
    with pytest.raises(rlx.RlxError) as error_info:
        rlx.welch_peaks(steep_rows(), **options)
    assert [word for word in words if word not in str(error_info.value)] == []


def test_complex_samples_are_refused() -> None:
    x = steep_rows().astype(np.complex64)
    with pytest.raises(UsageError, match="complex"):
        rlx.welch_peaks(x, **CPU_OPTIONS, strategy="learned", model=learned_model())


def test_auto_uses_it_only_within_the_allowed_error() -> None:
    """Auto needs an allowed error, however cheap the strategy is."""
    for max_error in (None, learned_model().error / 2):
        result = rlx.welch_peaks(
            steep_rows(), **CPU_OPTIONS, model=learned_model(), max_error=max_error
        )
        (candidate,) = [
            c for c in result.decision.candidates if c.strategy == "learned"
        ]
        reason = "above max_error" if max_error else "but without max_error no error"
        assert reason in candidate.blocker
        assert not result.decision.what.startswith("learned")
    result = rlx.welch_peaks(
        steep_rows(), **CPU_OPTIONS, model=learned_model(), max_error=0.1
    )
    (candidate,) = [c for c in result.decision.candidates if c.strategy == "learned"]
    assert candidate.blocker == ""
    assert candidate.off == learned_model().error


def test_recordings_of_another_kind_are_refused_by_name() -> None:
    with pytest.raises(Inexact, match="compared with the exact result: 1"):
        rlx.welch_peaks(
            white_noise(), **CPU_OPTIONS, strategy="learned", model=learned_model()
        )


def test_auto_falls_back_to_an_exact_strategy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer that is not exact enough is replaced and said so; strict refuses it."""
    monkeypatch.setattr(
        learned_strategy, "_predicted_terms", lambda *args: Terms(launches=1)
    )
    options = {**CPU_OPTIONS, "model": learned_model(), "max_error": 0.1}
    good = rlx.welch_peaks(steep_rows(), **options)
    assert good.decision.what.startswith("learned")
    assert good.decision.attempts == ()
    result = rlx.welch_peaks(white_noise(), **options)
    exact = rlx.welch_peaks(
        white_noise(), **CPU_OPTIONS, strategy=result.decision.what.split()[0]
    )
    np.testing.assert_allclose(result.power, exact.power, rtol=1e-5)
    failed, succeeded = result.decision.attempts
    assert isinstance(failed.cause, Inexact)
    assert (succeeded.device, succeeded.error) == (Device.CPU, "")
    assert "the result of learned" in result.decision.why
    assert "was not accurate enough, so " in result.decision.why
    with pytest.raises(Inexact):
        rlx.welch_peaks(white_noise(), **options, strict=True)


def test_nan_rows_are_propagated() -> None:
    x = steep_rows()
    x[1, 100] = np.nan
    options = {**CPU_OPTIONS, "strategy": "learned", "model": learned_model()}
    with pytest.raises(rlx.RlxError, match="finite"):
        rlx.welch_peaks(x, **options)
    result = rlx.welch_peaks(x, **options, nan="propagate")
    assert np.isnan(result.power[1]).all()
    finite_result = rlx.welch_peaks(np.delete(x, 1, axis=0), **options)
    np.testing.assert_allclose(
        np.delete(result.power, 1, axis=0), finite_result.power, rtol=1e-6
    )


def test_devices_compute_the_same(adapter: AdapterRequest) -> None:
    """Devices give NumPy's numbers in float32, for bins and for a part of the band."""
    x = steep_rows()[:, :6000]
    for band in ({}, {"fmin": 64.0, "fmax": 128.0}):
        options = {
            **LEARNED_OPTIONS,
            **band,
            "strategy": "learned",
            "model": learned_model(),
        }
        on_cpu = rlx.welch_peaks(x, **options, device="cpu")
        on_device = rlx.welch_peaks(
            x, **options, **adapter_arguments(adapter), strict=True
        )
        assert on_device.decision.what.startswith("learned on ")
        np.testing.assert_array_equal(on_device.bins, on_cpu.bins)
        np.testing.assert_allclose(on_device.power, on_cpu.power, rtol=1e-5)
        repeated = rlx.welch_peaks(
            x, **options, **adapter_arguments(adapter), strict=True
        )
        np.testing.assert_array_equal(repeated.power, on_device.power)


@pytest.mark.requires_wgpu
def test_devices_refuse_integers_and_device_arrays() -> None:
    """Devices refuse integers and arrays on the device, with a reason."""
    options = {**LEARNED_OPTIONS, "strategy": "learned", "model": learned_model()}
    counts = np.round(1000 * steep_rows()).astype(np.int16)
    with pytest.raises(rlx.RlxError, match="only the CPU supports integer samples"):
        rlx.welch_peaks(counts, **options, device="gpu")
    device_rows = rlx.put(steep_rows(), device="gpu")
    with pytest.raises(rlx.RlxError, match="but must be in host memory"):
        rlx.welch_peaks(device_rows, **options)
