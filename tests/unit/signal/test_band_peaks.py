"""Peaks of a band, in Python: as the whole spectrum has them, on every engine."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import scipy.signal

import rlxweb as rlx
from rlxweb.device import Device
from rlxweb.errors import UsageError
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.signal import engine
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.engine import NUMPY, How, device_engine
from rlxweb.signal.presets import from_preset
from tests.threads import in_a_loop
from tests.unit.signal.near import by_name
from tests.unit.signal.pretend_gpu import PretendGpu

T = np.arange(30 * 256) / 256
X = 10.0 + np.sin(2 * np.pi * 10 * T) + 0.5 * np.sin(2 * np.pi * 23.3 * T)
X = X + 0.1 * np.random.default_rng(1).standard_normal((2, 3, T.size))
NAMED: dict[str, Any] = {"fs": 256, "nperseg": 512, "k": 2, "preset": "scipy"}


def check(found: rlx.WelchPeaks, mode: str) -> None:
    """The two sines, or the two strongest bins between 5 and 40 Hz."""
    assert found.bins.shape == (2, 3, 2)
    assert (found.count == 2).all()
    if mode == "peaks":
        np.testing.assert_allclose(found.hz, np.full((2, 3, 2), [10, 23.3]), atol=0.05)
        return
    f, power = scipy.signal.welch(X, 256, nperseg=512)
    power[..., (f < 5) | (f > 40)] = 0
    order = np.argsort(-power, axis=-1, kind="stable")[..., :2]
    np.testing.assert_array_equal(found.bins, order)
    want = np.take_along_axis(power, order, -1)
    np.testing.assert_allclose(found.power, want, rtol=1e-4)


@pytest.mark.parametrize("mode", ["bins", "peaks"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_on_the_cpu(mode: Any, dtype: str) -> None:
    """Peaks of a band on the CPU are the same the first time and as a known call."""
    x = X.reshape(6, -1).astype(dtype)
    for _ in range(3):
        found = rlx.welch_peaks(x, **NAMED, mode=mode, fmin=5, fmax=40)
        assert found.bins.shape == (6, 2)
    check(rlx.welch_peaks(X.astype(dtype), **NAMED, mode=mode, fmin=5, fmax=40), mode)
    everywhere = rlx.welch_peaks(x, **NAMED, mode=mode)
    np.testing.assert_allclose(everywhere.hz[:, 0], 10, atol=0.01)


@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_on_devices(adapter: Want, mode: Any) -> None:
    x = X.astype(np.float32)
    found = rlx.welch_peaks(x, **NAMED, mode=mode, fmin=5, fmax=40, **by_name(adapter))
    check(found, mode)


@pytest.mark.parametrize("how", get_args(How))
@pytest.mark.parametrize("batch", [1 << 12, 1 << 20])
def test_every_way_of_a_device_gives_the_same_bins(
    adapter: Want, how: How, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bins of a band are the same searched or cut out on the device, or on the host."""
    monkeypatch.setattr(engine, "BATCH_BYTES", batch)
    x = X.reshape(6, -1)[:, :2000].astype(np.float32)
    spec = from_preset("scipy", 2000, fs=256, nperseg=512, dtype=np.float32)
    band, own = (
        Band(11, 80),
        device_engine(Device(adapter.backends[0]), adapter.name, how),
    )
    (bins, power), part = (
        drive(own.strongest(x, spec, 3, band)),
        drive(own.power(x, spec, band)),
    )
    right, exact = drive(NUMPY.strongest(x, spec, 3, band))
    np.testing.assert_array_equal(bins, right)
    np.testing.assert_allclose(power, exact, rtol=1e-5)
    whole = drive(NUMPY.power(x, spec))
    np.testing.assert_allclose(
        part, whole[:, 11:80], rtol=1e-4, atol=1e-6 * whole.max()
    )
    assert own.is_ready(x.shape, spec, 3, band)
    assert own.is_ready(x.shape, spec, 0, band)
    assert not own.is_ready(x.shape, spec, 0, Band(11, 81)) or how != "band_fft_host"


@pytest.mark.parametrize("mode", ["bins", "peaks"])
def test_a_device_gives_back_the_band_alone(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """The band alone comes back where that is predicted to be cheaper."""
    asked: list[Any] = []

    async def searched(self: Any, x: Any, spec: Any, *rest: Any) -> Any:
        asked.append((self.how, *rest))
        return await getattr(NUMPY, "strongest" if mode == "bins" else "power")(
            x, spec, *rest
        )

    for name in ("strongest", "power"):
        monkeypatch.setattr(engine.GraphEngine, name, searched)
    x = X.reshape(6, -1).astype(np.float32)
    found = rlx.welch_peaks(x, **NAMED, mode=mode, fmin=5, fmax=40, device="tpu")
    by_host = rlx.welch_peaks(x, **NAMED, mode=mode, fmin=5, fmax=40, device="cpu")
    np.testing.assert_array_equal(found.bins, by_host.bins)
    ways = {c.how: c.predicted_ns for c in found.decision.candidates if not c.blocker}
    ((how, *rest),) = asked
    assert how == min(ways, key=ways.__getitem__)
    assert rest[-1] == (Band(10, 81) if mode == "bins" else Band(9, 82))


def test_a_maximum_is_told_by_its_neighbours_beyond_the_ends() -> None:
    """A slope into the band is no peak of it."""
    found = rlx.welch_peaks(X, **NAMED, mode="peaks", fmin=10.5, fmax=40)
    np.testing.assert_allclose(found.hz[..., 0], 23.3, atol=0.05)


def test_beside_an_event_loop() -> None:
    found = in_a_loop(rlx.welch_peaks_async(X, **NAMED, mode="peaks", fmin=5, fmax=40))
    check(found, "peaks")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"fmin": 5, "fmax": 5.9, "k": 3}, "k is 3; it must be 1 to 2, the number of"),
        ({"fmin": 5.1, "fmax": 5.2}, "no bin lies between 5.1 and 5.2 Hz"),
        ({"fmin": 50, "fmax": 5}, "fmin is 50 Hz; fmax is 5 Hz"),
        ({"fmin": "5"}, "fmin is '5'; it must be a number"),
    ],
)
def test_bands_that_are_none(named: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        rlx.welch_peaks(X, **{**NAMED, **named})
