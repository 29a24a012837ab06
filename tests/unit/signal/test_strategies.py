"""What the strategies compute: the same peaks on every engine, as many segments as were
asked for, each against an estimate in plain NumPy or scipy's.
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
from rlxweb.backends.pool import pool
from rlxweb.calibration.welch_jobs import GRID, welch_jobs
from rlxweb.calibration.worth import worth
from rlxweb.cost.welch_model import WelchSize, columns
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.terms import Terms
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place
from rlxweb.errors import (
    AdapterMissing,
    DeviceLost,
    GpuTimeout,
    UsageError,
)
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.host.strongest import strongest_bins
from rlxweb.signal import engine, offers
from rlxweb.signal.engine import device_engine
from rlxweb.signal.on_device import FUSED
from rlxweb.signal.result import WelchPeaks
from rlxweb.signal.ways import WelchEstimate
from tests.fake_port import Failure
from tests.oracles import estimate
from tests.unit.signal.pretend_gpu import LABEL, PLACE, QUICK, SLOW, PretendGpu, Speed

SHARP = 1e-9
SINGLE = 1e-5


def noise(rows: int, samples: int, dtype: str = "float32") -> np.ndarray:
    """Coloured noise with a strong tone in each row, at a frequency of its own."""
    draw = np.random.default_rng(rows * samples)
    x = draw.standard_normal((rows, samples)).cumsum(axis=-1) * 0.1
    pitch = 0.05 + 0.3 * np.arange(rows)[:, None] / rows
    return (x + 3 * np.sin(2 * np.pi * pitch * np.arange(samples))).astype(dtype)


def check(found: WelchPeaks, power: np.ndarray, within: float) -> None:
    """The k strongest bins of `power`, strongest first, each with its own power."""
    top = -np.sort(-power, axis=-1)[..., : found.k]
    own = np.take_along_axis(power, found.bins, axis=-1)
    close = {"rtol": within, "atol": within * float(top.max())}
    np.testing.assert_allclose(found.power, top, **close)
    np.testing.assert_allclose(found.power, own, **close)
    assert all(len(set(row)) == found.k for row in found.bins.reshape(-1, found.k))
    assert (found.count == found.k).all()


def at(want: Want) -> dict[str, str]:
    """An adapter as the arguments that ask for it."""
    return {"device": want.backends[0], "adapter": want.name}


@pytest.mark.parametrize("name", ["fast", "streaming", "Fast-Streaming", "2seg"])
@pytest.mark.parametrize("segments", [1, 2, 5, None])
def test_fast_averages_the_segments_asked_for(name: str, segments: int | None) -> None:
    """`fast` averages the segments asked for, whatever RLX means by the name."""
    x = noise(3, 1152, "float64")
    found = rlx.welch_peaks(x, strategy=name, nsegments=segments)
    check(found, estimate(x, 256, segments), SHARP)
    assert found.spec.n_segments == (segments or 8)
    assert found.decision.numbers["segments"] == (segments or 8)
    assert found.device is Device.CPU


@pytest.mark.parametrize("name", ["ultra", "ultra_fast", "1seg", " ULTRA "])
@pytest.mark.parametrize("where", [{}, {"device": "cpu"}], ids=["open", "cpu"])
def test_ultra_averages_the_first_segment_alone(name: str, where: Any) -> None:
    """`ultra` averages the first segment alone; result and decision say so."""
    x = noise(3, 1152, "float64")
    found = rlx.welch_peaks(x, strategy=name, **where)
    check(found, estimate(x, 256, 1), SHARP)
    assert found.spec.n_segments == 1
    assert found.decision.numbers["segments"] == 1
    assert found.decision.what.startswith("ultra on NumPy")
    assert "1 segments of 256" in found.explain()
    all_ = rlx.welch_peaks(x)
    assert not np.allclose(found.power, all_.power)


@settings(max_examples=40)
@given(
    n=st.integers(3, 200),  # a symmetric Hann of 2 is 0 throughout
    more=st.integers(0, 300),
    rows=st.integers(1, 4),
    data=st.data(),
)
def test_any_size_on_the_cpu(n: int, more: int, rows: int, data: st.DataObject) -> None:
    """The CPU takes odd lengths, rows that end inside a segment, and every k."""
    most = 1 + more // max(1, n // 2)
    segments = data.draw(st.none() | st.integers(1, most), label="segments")
    k = data.draw(st.integers(1, n // 2 + 1), label="k")
    x = noise(rows, n + more, "float64")
    found = rlx.welch_peaks(x, 1.0, n, k, nsegments=segments, strategy="fast")
    check(found, estimate(x, n, segments), 1e-7)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("least", [None, 1, 2, 8])
def test_a_single_segment_only_where_it_is_allowed(
    least: int | None, device: str | None
) -> None:
    """Ultra is predicted to be faster, and is taken with min_segments=1 alone."""
    Speed(1e3, 1.0).give_to(CPU)
    x = noise(4, 1152)
    found = rlx.welch_peaks(x, min_segments=least, device=device)
    segments = 1 if least == 1 else 8
    assert found.spec.n_segments == segments
    assert found.decision.what.split()[0] == ("ultra" if least == 1 else "fast")
    check(found, estimate(x, 256, segments), SINGLE)


def test_one_segment_that_was_asked_for_is_no_other_statistic() -> None:
    """One segment that was asked for (nsegments=1) is the plain way."""
    found = rlx.welch_peaks(noise(2, 1152), nsegments=1)
    assert found.decision.what.startswith("fast")
    assert found.spec.n_segments == 1


@pytest.mark.parametrize(
    ("least", "said"),
    [
        (0, "min_segments is 0; it must be 1 to 8, the number of segments asked for"),
        (-1, "min_segments is -1; it must be 1 to 8"),
        (9, "min_segments is 9; it must be 1 to 8"),
        (1.5, "min_segments is 1.5; it must be a whole number"),
        ("1", "min_segments is '1'; it must be a whole number"),
    ],
)
def test_nonsense_for_min_segments(least: Any, said: str) -> None:
    with pytest.raises(UsageError, match=f"^welch_peaks: {said}"):
        rlx.welch_peaks(noise(1, 1152), min_segments=least)


def test_min_segments_counts_the_segments_asked_for() -> None:
    with pytest.raises(UsageError, match="min_segments is 4; it must be 1 to 3"):
        rlx.welch_peaks(noise(1, 1152), nsegments=3, min_segments=4)


def test_ultra_does_not_break_a_promise_of_more_segments() -> None:
    with pytest.raises(UsageError, match="averages 1 segment; min_segments is 2; "):
        rlx.welch_peaks(noise(1, 1152), strategy="ultra", min_segments=2)


@pytest.mark.parametrize("name", ["fft", "learn", "ultrafast", "auto,fast", "None", 3])
def test_unknown_strategies_are_refused(name: Any) -> None:
    said = rf"unknown welch peaks strategy {name!r} \(try auto\|ultra\|fast\|rlx\|ba"
    with pytest.raises(UsageError, match=said):
        rlx.welch_peaks(noise(1, 300), strategy=name)


@pytest.mark.parametrize("name", ["learned", "learned-compiled"])
@pytest.mark.parametrize("device", [None, "auto", "cpu", "tpu"])
def test_learned_needs_a_model(gpu: PretendGpu, name: str, device: Any) -> None:
    """The learned strategy needs a model; nothing is opened to find that out."""
    with pytest.raises(UsageError) as found:
        rlx.welch_peaks(noise(1, 300), strategy=name, device=device)
    assert "needs a trained model" in found.value.problem
    assert "rlxweb learn" in found.value.hint
    assert gpu.ports == []


def test_strategies_stay_on_their_side(gpu: PretendGpu) -> None:
    """The CPU does not fuse, a device does not average on the host."""
    x = noise(1, 300)
    with pytest.raises(UsageError, match="on CPU: strategy 'fused' does not run") as no:
        rlx.welch_peaks(x, device="cpu", strategy="rlx")
    assert no.value.rule == "it has fast, ultra, band, learned"
    for name in ("ultra", "fast"):
        said = f"on TPU: strategy '{name}' does not run there; it has fused, ba"
        with pytest.raises(UsageError, match=said):
            rlx.welch_peaks(x, device=LABEL, strategy=name)


def test_a_strategy_is_one_record(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A made-up one is offered, priced, picked, run and told of like the others."""

    def ways(estimate: WelchEstimate, place: Place) -> Iterator[Candidate]:
        yield Candidate(place.device, "a model", "fused", terms=Terms(compute_ns=1.0))

    made = replace(FUSED, ways=ways, engine=lambda way, job: engine.NUMPY, blocker="")
    monkeypatch.setitem(offers.STRATEGIES, "fused", made)
    worth.add(1e9)  # work enough to look at other devices
    x = noise(60, 1152)
    for asked in ("auto", "fused"):
        found = rlx.welch_peaks(x, strategy=asked, k=5)
        assert found.decision.what == "fused on a model"
        assert found.decision.candidates[0].terms == Terms(compute_ns=1.0)
        check(found, estimate(x, 256), SINGLE)
    there = rlx.welch_peaks(x, strategy="fused", device=LABEL)
    assert there.decision.what == "fused on a model"
    with pytest.raises(UsageError, match="on CPU: strategy 'fused' does not run"):
        rlx.welch_peaks(x, strategy="fused", device="cpu")


@pytest.mark.parametrize("strategy", ["ultra", "fast"])
def test_scipys_estimate_by_each_strategy(strategy: str) -> None:
    """The preset decides what is averaged, the strategy only how."""
    x = noise(2, 900, "float64")
    seen = x[:, :256] if strategy == "ultra" else x
    _, power = scipy.signal.welch(seen, 50.0, nperseg=256)
    found = rlx.welch_peaks(x, 50.0, preset="scipy", strategy=strategy, k=9)
    check(found, power, SHARP)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    ("rows", "samples", "n", "k", "segments"),
    [(5, 1152, 256, 16, None), (3, 230, 30, 16, 4), (2, 95, 31, 1, 1)],
)
def test_every_way_that_keeps_the_statistics_agrees(
    adapter: Want, rows: int, samples: int, n: int, k: int, segments: int | None
) -> None:
    """The CPU, the fused kernel and the spectrum brought back give one answer."""
    x = noise(rows, samples)
    power = estimate(x, n, segments)
    asked = {"nperseg": n, "k": k, "nsegments": segments}
    ways = [
        rlx.welch_peaks(x, **asked, strategy="fast"),
        rlx.welch_peaks(x, **asked, **at(adapter)),
        rlx.welch_peaks(x, **asked, **at(adapter), strategy="fused"),
    ]
    for found in ways:
        check(found, power, SINGLE)
    assert [w.device.label for w in ways] == ["cpu", *[adapter.backends[0]] * 2]
    whole = device_engine(Device(adapter.backends[0]), adapter.name, "block_fft_host")
    bins, kept = drive(whole.strongest(x, ways[0].spec, k))
    np.testing.assert_array_equal(bins[:, 0], ways[0].bins[:, 0])
    np.testing.assert_allclose(kept, ways[0].power, rtol=SINGLE, atol=1e-5 * kept.max())


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("preset", ["scipy", "mne"])
def test_presets_on_devices(adapter: Want, preset: str) -> None:
    """Presets on devices are SciPy's, with either one's window and overlap."""
    x = noise(3, 1000) + np.float32(7)
    window, overlap = ("hann", None) if preset == "scipy" else ("hamming", 0)
    _, power = scipy.signal.welch(
        x.astype(np.float64), 64.0, window=window, nperseg=32, noverlap=overlap
    )
    found = rlx.welch_peaks(x, 64.0, 32, 8, preset=preset, **at(adapter))
    check(found, power, SINGLE)
    np.testing.assert_array_equal(found.hz, found.bins * 2.0)


@pytest.mark.requires_wgpu
def test_local_maxima_are_the_same_on_devices(adapter: Want) -> None:
    """The spectrum comes back and the host searches it; shapes are kept."""
    x = noise(6, 1152).reshape(2, 3, 1152)
    here = rlx.welch_peaks(x, 256.0, mode="peaks", k=3, strategy="fast")
    there = rlx.welch_peaks(x, 256.0, mode="peaks", k=3, **at(adapter))
    assert there.bins.shape == (2, 3, 3)
    np.testing.assert_array_equal(there.bins[..., 0], here.bins[..., 0])
    np.testing.assert_allclose(there.hz[..., 0], here.hz[..., 0], rtol=1e-4)


@pytest.mark.requires_wgpu
def test_rows_beyond_one_batch(adapter: Want, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 3 rows and a rest of 1 give what one batch gives."""
    x = noise(7, 300)
    whole = rlx.welch_peaks(x, nperseg=32, k=5, **at(adapter))
    monkeypatch.setattr(engine, "BATCH_BYTES", 3 * 300 * 4)
    cut = rlx.welch_peaks(x, nperseg=32, k=5, **at(adapter))
    np.testing.assert_array_equal(cut.bins, whole.bins)
    np.testing.assert_array_equal(cut.power, whole.power)


@pytest.mark.requires_wgpu
def test_threads_share_a_device(adapter: Want) -> None:
    """Threads wait for a busy device, and each gets its own rows' peaks."""
    signals = [noise(3, 300) * np.float32(1 + i) for i in range(8)]

    def ask(x: np.ndarray) -> WelchPeaks:
        return rlx.welch_peaks(x, nperseg=32, k=5, **at(adapter))

    with ThreadPoolExecutor(4) as threads:
        for x, found in zip(signals, threads.map(ask, signals), strict=True):
            check(found, estimate(x, 32), SINGLE)


@pytest.mark.requires_wgpu
def test_a_fused_strategy_finds_a_device_by_itself() -> None:
    """A fused strategy takes a device that nobody has measured."""
    x = noise(2, 1152)
    found = rlx.welch_peaks(x, strategy="fused")
    assert found.device is not Device.CPU
    check(found, estimate(x, 256), SINGLE)


def test_without_a_device_fused_is_refused(gpu: PretendGpu) -> None:
    """A fused strategy without a device is refused with what was there instead."""
    gpu.fail = [Failure("open", "no-adapter")]
    with pytest.raises(UsageError, match="none of cpu has the strategy 'fused'"):
        rlx.welch_peaks(noise(1, 300), strategy="fused")
    with pytest.raises(AdapterMissing, match="no adapter was found"):
        rlx.welch_peaks(noise(1, 300), device=LABEL)


@pytest.mark.parametrize("kind", ["lost", "lost-unseen", "timeout"])
def test_a_lost_device_is_opened_anew(gpu: PretendGpu, kind: Any) -> None:
    """The run is done again there and says so; strictly, the call fails."""
    verb = "submit" if kind == "lost-unseen" else "read"
    gpu.fail = [Failure(verb, kind)]
    x = noise(2, 1152)
    found = rlx.welch_peaks(x, device=LABEL)
    assert found.device is Device.TPU
    assert [a.device for a in found.decision.attempts] == [Device.TPU] * 2
    assert "lost with its device" in found.explain()
    assert found.as_json()["decision"]["attempts"][0]["error"]
    assert not rlx.welch_peaks(x, device=LABEL).decision.attempts
    assert len(gpu.ports) == 2
    gpu.fail = [Failure(verb, kind)]
    gpu.ports[-1].lost = "it was asked to go"
    with pytest.raises((DeviceLost, GpuTimeout)):
        rlx.welch_peaks(x, device=LABEL, strict=True)
    assert len(gpu.ports) == 3


def test_a_lost_run_goes_on_elsewhere_if_its_device_was_rlxwebs_choice(
    gpu: PretendGpu,
) -> None:
    """A lost run goes to the decision's next way; a named device has none."""
    SLOW.give_to(CPU)
    QUICK.give_to(PLACE)
    x = noise(2048, 1152)
    assert rlx.welch_peaks(x).device is Device.TPU

    def lose() -> None:
        """The device that is open, and the next one, at its first answer."""
        gpu.ports[-1].lost = "it was asked to go"
        pool.backend(LABEL)
        gpu.ports[-1]._pending.append(Failure("read", "lost"))
        gpu.fail = [Failure("read", "lost")]

    lose()
    found = rlx.welch_peaks(x)
    assert found.device is Device.CPU
    assert "done again on CPU" in found.explain()
    tried = [a.device for a in found.decision.attempts]
    assert tried == [Device.TPU, Device.TPU, Device.CPU]
    check(found, estimate(x, 256), SINGLE)
    lose()
    with pytest.raises(DeviceLost, match="tried again on TPU"):
        rlx.welch_peaks(x, device=LABEL)


def test_a_calibration_runs_the_engines_that_serve_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs average their rows and search k of each, if they search at all."""
    seen: list[tuple[int, ...]] = []

    def power(x: np.ndarray, spec: WelchSpec) -> np.ndarray:
        found = welch_power(x, spec)
        segments = spec.segments_of(x.shape[1])
        seen.append((spec.nfft, segments, *found.shape, 0))
        return found

    def strongest(found: np.ndarray, k: int) -> None:
        seen[-1] = (*seen[-1][:2], *strongest_bins(found, k)[0].shape, k)

    monkeypatch.setattr("rlxweb.calibration.welch_jobs.welch_power", power)
    monkeypatch.setattr("rlxweb.calibration.welch_jobs.strongest_bins", strongest)
    jobs = list(welch_jobs(CPU))
    assert len(jobs) == sum(len(rows) for rows in GRID.values())
    assert {job.what for job in jobs} == {"welch_host"}
    for job in jobs:
        job.run()
        n, segments, rows, k = job.size.values()
        assert seen[-1] == (n, segments, rows, k or n // 2 + 1, k)
    assert len(seen) == len(jobs)


def test_a_device_is_calibrated_fused(gpu: PretendGpu) -> None:
    job = next(iter(welch_jobs(Place(Device.TPU))))
    assert job.what == "welch_fused"
    assert gpu.ports == []
    job.run()
    (port,) = gpu.ports
    assert len(port.submissions) == 1


def test_the_grid_tells_the_parts_of_the_model_apart() -> None:
    """The grid's sizes tell the model's parts apart, and none is one of the sweep's."""
    sizes = [WelchSize.of(job.size) for job in welch_jobs(CPU)]
    table = np.array([columns(s) for s in sizes])
    table /= np.linalg.norm(table, axis=0)
    assert np.linalg.matrix_rank(table, tol=1e-3) == table.shape[1]
    assert not {n for n, _, _ in GRID} & {64, 256, 1024, 4096}
