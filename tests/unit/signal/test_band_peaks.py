"""Peaks of a frequency band are those of the whole spectrum, on every engine."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from rlxweb.core.device import Device
from rlxweb.core.errors import UsageError
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.signal import welch_engine
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_engine import NUMPY_ENGINE, GraphExecution, device_engine
from tests.run_in_threads import run_in_event_loop
from tests.unit.signal.device_comparison import adapter_arguments
from tests.unit.signal.fake_gpu import FakeGpu

T = np.arange(30 * 256) / 256
X = 10.0 + np.sin(2 * np.pi * 10 * T) + 0.5 * np.sin(2 * np.pi * 23.3 * T)
X = X + 0.1 * np.random.default_rng(1).standard_normal((2, 3, T.size))
OPTIONS: dict[str, Any] = {"fs": 256, "nperseg": 512, "k": 2, "preset": "scipy"}


def check_peaks(result: rlx.WelchPeaks, mode: str) -> None:
    """Expect the two sines, or the two strongest bins between 5 and 40 Hz."""
    assert result.bins.shape == (2, 3, 2)
    assert (result.count == 2).all()
    if mode == "peaks":
        np.testing.assert_allclose(result.hz, np.full((2, 3, 2), [10, 23.3]), atol=0.05)
        return
    f, power = scipy.signal.welch(X, 256, nperseg=512)
    power[..., (f < 5) | (f > 40)] = 0
    order = np.argsort(-power, axis=-1, kind="stable")[..., :2]
    np.testing.assert_array_equal(result.bins, order)
    want = np.take_along_axis(power, order, -1)
    np.testing.assert_allclose(result.power, want, rtol=1e-4)


@pytest.mark.parametrize("mode", ["bins", "peaks"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_on_the_cpu(mode: Any, dtype: str) -> None:
    """Peaks of a band on the CPU are the same the first time and as a cached call."""
    x = X.reshape(6, -1).astype(dtype)
    for _ in range(3):
        result = rlx.welch_peaks(x, **OPTIONS, mode=mode, fmin=5, fmax=40)
        assert result.bins.shape == (6, 2)
    check_peaks(
        rlx.welch_peaks(X.astype(dtype), **OPTIONS, mode=mode, fmin=5, fmax=40), mode
    )
    everywhere = rlx.welch_peaks(x, **OPTIONS, mode=mode)
    np.testing.assert_allclose(everywhere.hz[:, 0], 10, atol=0.01)


@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_on_devices(adapter: AdapterRequest, mode: Any) -> None:
    x = X.astype(np.float32)
    result = rlx.welch_peaks(
        x, **OPTIONS, mode=mode, fmin=5, fmax=40, **adapter_arguments(adapter)
    )
    check_peaks(result, mode)


@pytest.mark.parametrize("execution", get_args(GraphExecution))
@pytest.mark.parametrize("batch", [1 << 12, 1 << 20])
def test_every_device_execution_gives_the_same_bins(
    adapter: AdapterRequest,
    execution: GraphExecution,
    batch: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bins of a band are the same searched or cropped on the device, or on the host."""
    monkeypatch.setattr(welch_engine, "MAX_BATCH_BYTES", batch)
    x = X.reshape(6, -1)[:, :2000].astype(np.float32)
    spec = spec_from_preset("scipy", 2000, fs=256, nperseg=512, dtype=np.float32)
    band = BinRange(11, 80)
    graph_engine = device_engine(Device(adapter.backends[0]), adapter.name, execution)
    (bins, power), band_power = (
        run_blocking(graph_engine.strongest_bins(x, spec, 3, band)),
        run_blocking(graph_engine.power(x, spec, band)),
    )
    expected_bins, expected_power = run_blocking(
        NUMPY_ENGINE.strongest_bins(x, spec, 3, band)
    )
    np.testing.assert_array_equal(bins, expected_bins)
    np.testing.assert_allclose(power, expected_power, rtol=1e-5)
    full_power = run_blocking(NUMPY_ENGINE.power(x, spec))
    np.testing.assert_allclose(
        band_power, full_power[:, 11:80], rtol=1e-4, atol=1e-6 * full_power.max()
    )
    assert graph_engine.is_ready(x.shape, spec, 3, band)
    assert graph_engine.is_ready(x.shape, spec, 0, band)
    assert (
        not graph_engine.is_ready(x.shape, spec, 0, BinRange(11, 81))
        or execution != "band_fft_host"
    )


@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_device_reads_back_only_the_band(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """Only the band is read back where that is predicted to be cheaper."""
    requests: list[Any] = []

    async def record_request(self: Any, x: Any, spec: Any, *args: Any) -> Any:
        requests.append((self.execution, *args))
        return await getattr(
            NUMPY_ENGINE, "strongest_bins" if mode == "bins" else "power"
        )(x, spec, *args)

    for name in ("strongest_bins", "power"):
        monkeypatch.setattr(welch_engine.WelchGraphEngine, name, record_request)
    x = X.reshape(6, -1).astype(np.float32)
    result = rlx.welch_peaks(x, **OPTIONS, mode=mode, fmin=5, fmax=40, device="tpu")
    by_host = rlx.welch_peaks(x, **OPTIONS, mode=mode, fmin=5, fmax=40, device="cpu")
    np.testing.assert_array_equal(result.bins, by_host.bins)
    predicted_times = {
        c.how: c.predicted_ns for c in result.decision.candidates if not c.blocker
    }
    ((execution, *arguments),) = requests
    assert execution == min(predicted_times, key=predicted_times.__getitem__)
    assert arguments[-1] == (BinRange(10, 81) if mode == "bins" else BinRange(9, 82))


def test_maxima_at_the_band_edges_need_neighbours() -> None:
    """A slope into the band is no peak of it."""
    result = rlx.welch_peaks(X, **OPTIONS, mode="peaks", fmin=10.5, fmax=40)
    np.testing.assert_allclose(result.hz[..., 0], 23.3, atol=0.05)


def test_in_an_event_loop() -> None:
    result = run_in_event_loop(
        rlx.welch_peaks_async(X, **OPTIONS, mode="peaks", fmin=5, fmax=40)
    )
    check_peaks(result, "peaks")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fmin": 5, "fmax": 5.9, "k": 3}, "k is 3; must be 1 to 2, the number of"),
        ({"fmin": 5.1, "fmax": 5.2}, "there is no bin between 5.1 and 5.2 Hz"),
        ({"fmin": 50, "fmax": 5}, "fmin is 50 Hz; must be at most fmax, 5 Hz"),
        ({"fmin": "5"}, "fmin is '5'; it must be a number"),
    ],
)
def test_invalid_bands_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rlx.welch_peaks(X, **{**OPTIONS, **options})
