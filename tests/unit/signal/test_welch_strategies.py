"""Welch strategies (fast, ultra and others): the same peaks on every engine, each
compared with an estimate in plain NumPy or SciPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.device import Device
from rlxweb.core.errors import (
    AdapterMissing,
    DeviceLost,
    GpuTimeout,
    UsageError,
)
from rlxweb.cost.decision import Candidate, Terms
from rlxweb.cost.welch_model import WelchSize, column_values
from rlxweb.engines.pool import pool
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.cpu.strongest_bins import strongest_bins
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.calibration.profitability import profitability_policy
from rlxweb.select.calibration.welch_jobs import SIZE_GRID, welch_jobs
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace
from rlxweb.signal import welch_candidates, welch_engine
from rlxweb.signal.fused_device_strategy import FUSED
from rlxweb.signal.welch_engine import device_engine
from rlxweb.signal.welch_peaks_result import WelchPeaks
from rlxweb.signal.welch_strategy import WelchEstimate
from tests.fake_gpu_port import InjectedFailure
from tests.numpy_welch_peaks_reference import reference_welch
from tests.unit.signal.fake_gpu import (
    CPU_SPEED,
    DEVICE_LABEL,
    GPU_PLACE,
    GPU_SPEED,
    EngineSpeed,
    FakeGpu,
)

FLOAT64_RTOL = 1e-9
FLOAT32_RTOL = 1e-5


def noise(rows: int, samples: int, dtype: str = "float32") -> np.ndarray:
    """Return coloured noise with a strong tone in each row, at a frequency of its
    own.
    """
    draw = np.random.default_rng(rows * samples)
    x = draw.standard_normal((rows, samples)).cumsum(axis=-1) * 0.1
    pitch = 0.05 + 0.3 * np.arange(rows)[:, None] / rows
    return (x + 3 * np.sin(2 * np.pi * pitch * np.arange(samples))).astype(dtype)


def check_strongest_bins(result: WelchPeaks, power: np.ndarray, rtol: float) -> None:
    """Expect the k strongest bins of `power`, strongest first, each with its own
    power.
    """
    top = -np.sort(-power, axis=-1)[..., : result.k]
    bin_power = np.take_along_axis(power, result.bins, axis=-1)
    close = {"rtol": rtol, "atol": rtol * float(top.max())}
    np.testing.assert_allclose(result.power, top, **close)
    np.testing.assert_allclose(result.power, bin_power, **close)
    assert all(len(set(row)) == result.k for row in result.bins.reshape(-1, result.k))
    assert (result.count == result.k).all()


def adapter_arguments(want: AdapterRequest) -> dict[str, str]:
    """Return the arguments that ask for an adapter."""
    return {"device": want.backends[0], "adapter": want.name}


@pytest.mark.parametrize("name", ["fast", "streaming", "Fast-Streaming", "2seg"])
@pytest.mark.parametrize("segments", [1, 2, 5, None])
def test_fast_averages_the_segments_asked_for(name: str, segments: int | None) -> None:
    """`fast` averages the segments asked for, whatever RLX means by the name."""
    x = noise(3, 1152, "float64")
    result = rlx.welch_peaks(x, strategy=name, nsegments=segments)
    check_strongest_bins(result, reference_welch(x, 256, segments), FLOAT64_RTOL)
    assert result.spec.n_segments == (segments or 8)
    assert result.decision.numbers["segments"] == (segments or 8)
    assert result.device is Device.CPU


@pytest.mark.parametrize("name", ["ultra", "ultra_fast", "1seg", " ULTRA "])
@pytest.mark.parametrize("placement", [{}, {"device": "cpu"}], ids=["open", "cpu"])
def test_ultra_averages_the_first_segment_alone(name: str, placement: Any) -> None:
    """`ultra` averages the first segment alone; result and decision say so."""
    x = noise(3, 1152, "float64")
    result = rlx.welch_peaks(x, strategy=name, **placement)
    check_strongest_bins(result, reference_welch(x, 256, 1), FLOAT64_RTOL)
    assert result.spec.n_segments == 1
    assert result.decision.numbers["segments"] == 1
    assert result.decision.what.startswith("ultra on NumPy")
    assert "1 segments of 256" in result.explain()
    all_segments = rlx.welch_peaks(x)
    assert not np.allclose(result.power, all_segments.power)


@settings(max_examples=40)
@given(
    n=st.integers(3, 200),  # a symmetric Hann of 2 is 0 throughout
    more=st.integers(0, 300),
    rows=st.integers(1, 4),
    data=st.data(),
)
def test_any_size_on_the_cpu(n: int, more: int, rows: int, data: st.DataObject) -> None:
    """The CPU takes odd lengths, rows that end inside a segment, and every k."""
    max_segments = 1 + more // max(1, n // 2)
    segments = data.draw(st.none() | st.integers(1, max_segments), label="segments")
    k = data.draw(st.integers(1, n // 2 + 1), label="k")
    x = noise(rows, n + more, "float64")
    result = rlx.welch_peaks(x, 1.0, n, k, nsegments=segments, strategy="fast")
    check_strongest_bins(result, reference_welch(x, n, segments), 1e-7)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("min_segments", [None, 1, 2, 8])
def test_a_single_segment_only_where_it_is_allowed(
    min_segments: int | None, device: str | None
) -> None:
    """Ultra is predicted to be faster, and is taken with min_segments=1 alone."""
    EngineSpeed(1e3, 1.0).save_calibration(CPU_PLACE)
    x = noise(4, 1152)
    result = rlx.welch_peaks(x, min_segments=min_segments, device=device)
    segments = 1 if min_segments == 1 else 8
    assert result.spec.n_segments == segments
    assert result.decision.what.split()[0] == ("ultra" if min_segments == 1 else "fast")
    check_strongest_bins(result, reference_welch(x, 256, segments), FLOAT32_RTOL)


def test_nsegments_one_uses_the_fast_strategy() -> None:
    """A single requested segment (nsegments=1) is averaged by `fast`."""
    result = rlx.welch_peaks(noise(2, 1152), nsegments=1)
    assert result.decision.what.startswith("fast")
    assert result.spec.n_segments == 1


@pytest.mark.parametrize(
    ("min_segments", "message"),
    [
        (0, "min_segments is 0; must be 1 to 8, the number of averaged segments"),
        (-1, "min_segments is -1; must be 1 to 8"),
        (9, "min_segments is 9; must be 1 to 8"),
        (1.5, "min_segments is 1.5; it must be a whole number"),
        ("1", "min_segments is '1'; it must be a whole number"),
    ],
)
def test_invalid_min_segments_are_refused(min_segments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^welch_peaks: {message}"):
        rlx.welch_peaks(noise(1, 1152), min_segments=min_segments)


def test_min_segments_counts_the_segments_asked_for() -> None:
    with pytest.raises(UsageError, match="min_segments is 4; must be 1 to 3"):
        rlx.welch_peaks(noise(1, 1152), nsegments=3, min_segments=4)


def test_ultra_with_more_min_segments_is_refused() -> None:
    with pytest.raises(
        UsageError, match="min_segments is 2; the strategy averages only 1 segment; "
    ):
        rlx.welch_peaks(noise(1, 1152), strategy="ultra", min_segments=2)


@pytest.mark.parametrize("name", ["fft", "learn", "ultrafast", "auto,fast", "None", 3])
def test_unknown_strategies_are_refused(name: Any) -> None:
    message = rf"unknown welch peaks strategy {name!r} \(try auto\|ultra\|fast\|rlx\|ba"
    with pytest.raises(UsageError, match=message):
        rlx.welch_peaks(noise(1, 300), strategy=name)


@pytest.mark.parametrize("name", ["learned", "learned-compiled"])
@pytest.mark.parametrize("device", [None, "auto", "cpu", "tpu"])
def test_learned_needs_a_model(gpu: FakeGpu, name: str, device: Any) -> None:
    """The learned strategy needs a model; nothing is opened to find that out."""
    with pytest.raises(UsageError) as error_info:
        rlx.welch_peaks(noise(1, 300), strategy=name, device=device)
    assert "a trained model is required" in error_info.value.problem
    assert "rlxweb learn" in error_info.value.hint
    assert gpu.ports == []


def test_strategies_are_refused_on_other_devices(gpu: FakeGpu) -> None:
    """The CPU does not fuse, a device does not average on the host."""
    x = noise(1, 300)
    with pytest.raises(
        UsageError, match="on CPU: strategy 'fused' is not supported"
    ) as error_info:
        rlx.welch_peaks(x, device="cpu", strategy="rlx")
    assert error_info.value.rule == "supported: fast, ultra, band, learned"
    for name in ("ultra", "fast"):
        message = (
            f"on TPU: strategy '{name}' is not supported on this device; "
            "supported: fused, ba"
        )
        with pytest.raises(UsageError, match=message):
            rlx.welch_peaks(x, device=DEVICE_LABEL, strategy=name)


def test_registered_strategy_is_used(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake strategy is offered, priced, picked, run and reported like the others."""

    def fake_candidates(
        estimate: WelchEstimate, place: DevicePlace
    ) -> Iterator[Candidate]:
        yield Candidate(place.device, "a model", "fused", terms=Terms(compute_ns=1.0))

    fake_strategy = replace(
        FUSED,
        candidates=fake_candidates,
        make_engine=lambda candidate, job: welch_engine.NUMPY_ENGINE,
        blocker="",
    )
    monkeypatch.setitem(welch_candidates.STRATEGIES, "fused", fake_strategy)
    profitability_policy.add_job(1e9)  # work enough to look at other devices
    x = noise(60, 1152)
    for strategy in ("auto", "fused"):
        result = rlx.welch_peaks(x, strategy=strategy, k=5)
        assert result.decision.what == "fused on a model"
        assert result.decision.candidates[0].terms == Terms(compute_ns=1.0)
        check_strongest_bins(result, reference_welch(x, 256), FLOAT32_RTOL)
    on_device = rlx.welch_peaks(x, strategy="fused", device=DEVICE_LABEL)
    assert on_device.decision.what == "fused on a model"
    with pytest.raises(UsageError, match="on CPU: strategy 'fused' is not supported"):
        rlx.welch_peaks(x, strategy="fused", device="cpu")


@pytest.mark.parametrize("strategy", ["ultra", "fast"])
def test_scipys_estimate_by_each_strategy(strategy: str) -> None:
    """The preset decides what is averaged, the strategy only how."""
    x = noise(2, 900, "float64")
    averaged_x = x[:, :256] if strategy == "ultra" else x
    _, power = scipy.signal.welch(averaged_x, 50.0, nperseg=256)
    result = rlx.welch_peaks(x, 50.0, preset="scipy", strategy=strategy, k=9)
    check_strongest_bins(result, power, FLOAT64_RTOL)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    ("rows", "samples", "n", "k", "segments"),
    [(5, 1152, 256, 16, None), (3, 230, 30, 16, 4), (2, 95, 31, 1, 1)],
)
def test_equivalent_strategies_agree(
    adapter: AdapterRequest,
    rows: int,
    samples: int,
    n: int,
    k: int,
    segments: int | None,
) -> None:
    """The CPU, the fused kernel and the spectrum that is read back give one result."""
    x = noise(rows, samples)
    power = reference_welch(x, n, segments)
    options = {"nperseg": n, "k": k, "nsegments": segments}
    results = [
        rlx.welch_peaks(x, **options, strategy="fast"),
        rlx.welch_peaks(x, **options, **adapter_arguments(adapter)),
        rlx.welch_peaks(x, **options, **adapter_arguments(adapter), strategy="fused"),
    ]
    for result in results:
        check_strongest_bins(result, power, FLOAT32_RTOL)
    assert [w.device.label for w in results] == ["cpu", *[adapter.backends[0]] * 2]
    spectrum_engine = device_engine(
        Device(adapter.backends[0]), adapter.name, "block_fft_host"
    )
    bins, bin_power = run_blocking(
        spectrum_engine.strongest_bins(x, results[0].spec, k)
    )
    np.testing.assert_array_equal(bins[:, 0], results[0].bins[:, 0])
    np.testing.assert_allclose(
        bin_power, results[0].power, rtol=FLOAT32_RTOL, atol=1e-5 * bin_power.max()
    )


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("preset", ["scipy", "mne"])
def test_presets_on_devices(adapter: AdapterRequest, preset: str) -> None:
    """Presets on devices are SciPy's, with either one's window and overlap."""
    x = noise(3, 1000) + np.float32(7)
    window, overlap = ("hann", None) if preset == "scipy" else ("hamming", 0)
    _, power = scipy.signal.welch(
        x.astype(np.float64), 64.0, window=window, nperseg=32, noverlap=overlap
    )
    result = rlx.welch_peaks(
        x, 64.0, 32, 8, preset=preset, **adapter_arguments(adapter)
    )
    check_strongest_bins(result, power, FLOAT32_RTOL)
    np.testing.assert_array_equal(result.hz, result.bins * 2.0)


@pytest.mark.requires_wgpu
def test_local_maxima_are_the_same_on_devices(adapter: AdapterRequest) -> None:
    """The spectrum is read back and searched by the host; shapes are kept."""
    x = noise(6, 1152).reshape(2, 3, 1152)
    on_cpu = rlx.welch_peaks(x, 256.0, mode="peaks", k=3, strategy="fast")
    on_device = rlx.welch_peaks(
        x, 256.0, mode="peaks", k=3, **adapter_arguments(adapter)
    )
    assert on_device.bins.shape == (2, 3, 3)
    np.testing.assert_array_equal(on_device.bins[..., 0], on_cpu.bins[..., 0])
    np.testing.assert_allclose(on_device.hz[..., 0], on_cpu.hz[..., 0], rtol=1e-4)


@pytest.mark.requires_wgpu
def test_rows_beyond_one_batch(
    adapter: AdapterRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of 3 rows and a rest of 1 give what one batch gives."""
    x = noise(7, 300)
    single_batch = rlx.welch_peaks(x, nperseg=32, k=5, **adapter_arguments(adapter))
    monkeypatch.setattr(welch_engine, "MAX_BATCH_BYTES", 3 * 300 * 4)
    batched = rlx.welch_peaks(x, nperseg=32, k=5, **adapter_arguments(adapter))
    np.testing.assert_array_equal(batched.bins, single_batch.bins)
    np.testing.assert_array_equal(batched.power, single_batch.power)


@pytest.mark.requires_wgpu
def test_threads_share_a_device(adapter: AdapterRequest) -> None:
    """Threads wait for a busy device, and each gets its own rows' peaks."""
    signals = [noise(3, 300) * np.float32(1 + i) for i in range(8)]

    def find_peaks(x: np.ndarray) -> WelchPeaks:
        return rlx.welch_peaks(x, nperseg=32, k=5, **adapter_arguments(adapter))

    with ThreadPoolExecutor(4) as threads:
        for x, result in zip(signals, threads.map(find_peaks, signals), strict=True):
            check_strongest_bins(result, reference_welch(x, 32), FLOAT32_RTOL)


@pytest.mark.requires_wgpu
def test_a_fused_strategy_finds_a_device_by_itself() -> None:
    """A fused strategy takes a device that nobody has measured."""
    x = noise(2, 1152)
    result = rlx.welch_peaks(x, strategy="fused")
    assert result.device is not Device.CPU
    check_strongest_bins(result, reference_welch(x, 256), FLOAT32_RTOL)


def test_without_a_device_fused_is_refused(gpu: FakeGpu) -> None:
    """A fused strategy without a device is refused; the error says what was there
    instead.
    """
    gpu.failures = [InjectedFailure("open", "no-adapter")]
    with pytest.raises(UsageError, match="none of cpu supports the strategy 'fused'"):
        rlx.welch_peaks(noise(1, 300), strategy="fused")
    with pytest.raises(AdapterMissing, match="no adapter was found"):
        rlx.welch_peaks(noise(1, 300), device=DEVICE_LABEL)


@pytest.mark.parametrize("kind", ["lost", "lost-unseen", "timeout"])
def test_lost_device_is_reopened(gpu: FakeGpu, kind: Any) -> None:
    """The run is retried on the reopened device and says so; with strict=True the call
    fails.
    """
    verb = "submit" if kind == "lost-unseen" else "read"
    gpu.failures = [InjectedFailure(verb, kind)]
    x = noise(2, 1152)
    result = rlx.welch_peaks(x, device=DEVICE_LABEL)
    assert result.device is Device.TPU
    assert [a.device for a in result.decision.attempts] == [Device.TPU] * 2
    assert "lost with its device" in result.explain()
    assert result.as_json()["decision"]["attempts"][0]["error"]
    assert not rlx.welch_peaks(x, device=DEVICE_LABEL).decision.attempts
    assert len(gpu.ports) == 2
    gpu.failures = [InjectedFailure(verb, kind)]
    gpu.ports[-1].lost = "it was asked to go"
    with pytest.raises((DeviceLost, GpuTimeout)):
        rlx.welch_peaks(x, device=DEVICE_LABEL, strict=True)
    assert len(gpu.ports) == 3


def test_lost_run_moves_to_another_device_unless_one_was_named(
    gpu: FakeGpu,
) -> None:
    """A lost run moves to the decision's next candidate; a named device has none."""
    CPU_SPEED.save_calibration(CPU_PLACE)
    GPU_SPEED.save_calibration(GPU_PLACE)
    x = noise(2048, 1152)
    assert rlx.welch_peaks(x).device is Device.TPU

    def lose_devices() -> None:
        """Lose the open device, and the next one at its first answer."""
        gpu.ports[-1].lost = "it was asked to go"
        pool.engine(DEVICE_LABEL)
        gpu.ports[-1]._pending.append(InjectedFailure("read", "lost"))
        gpu.failures = [InjectedFailure("read", "lost")]

    lose_devices()
    result = rlx.welch_peaks(x)
    assert result.device is Device.CPU
    assert "repeated on CPU" in result.explain()
    tried = [a.device for a in result.decision.attempts]
    assert tried == [Device.TPU, Device.TPU, Device.CPU]
    check_strongest_bins(result, reference_welch(x, 256), FLOAT32_RTOL)
    lose_devices()
    with pytest.raises(DeviceLost, match="retried on TPU"):
        rlx.welch_peaks(x, device=DEVICE_LABEL)


def test_calibration_runs_the_engines_of_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs average their rows and search k bins of each, if they search at all."""
    sizes: list[tuple[int, ...]] = []

    def power(x: np.ndarray, spec: WelchSpec) -> np.ndarray:
        spectrum = welch_power(x, spec)
        segments = spec.segments_per_row(x.shape[1])
        sizes.append((spec.nfft, segments, *spectrum.shape, 0))
        return spectrum

    def strongest(spectrum: np.ndarray, k: int) -> None:
        sizes[-1] = (*sizes[-1][:2], *strongest_bins(spectrum, k)[0].shape, k)

    monkeypatch.setattr("rlxweb.select.calibration.welch_jobs.welch_power", power)
    monkeypatch.setattr(
        "rlxweb.select.calibration.welch_jobs.strongest_bins", strongest
    )
    jobs = list(welch_jobs(CPU_PLACE))
    assert len(jobs) == sum(len(rows) for rows in SIZE_GRID.values())
    assert {job.point_kind for job in jobs} == {"welch_host"}
    for job in jobs:
        job.run()
        n, segments, rows, k = job.size.values()
        assert sizes[-1] == (n, segments, rows, k or n // 2 + 1, k)
    assert len(sizes) == len(jobs)


def test_device_calibration_runs_fused_jobs(gpu: FakeGpu) -> None:
    job = next(iter(welch_jobs(DevicePlace(Device.TPU))))
    assert job.point_kind == "welch_fused"
    assert gpu.ports == []
    job.run()
    (port,) = gpu.ports
    assert len(port.submissions) == 1


def test_calibration_grid_determines_the_model() -> None:
    """The grid's sizes determine every term of the model, and none is one of the
    sweep's.
    """
    sizes = [WelchSize.from_mapping(job.size) for job in welch_jobs(CPU_PLACE)]
    table = np.array([column_values(s) for s in sizes])
    table /= np.linalg.norm(table, axis=0)
    assert np.linalg.matrix_rank(table, tol=1e-3) == table.shape[1]
    assert not {n for n, _, _ in SIZE_GRID} & {64, 256, 1024, 4096}
