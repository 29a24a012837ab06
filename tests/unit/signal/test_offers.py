"""Every way to run a Welch job, what each is predicted to cost, and which is taken."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlxweb.calibration.worth import Worth
from rlxweb.choose.chooser import decide
from rlxweb.choose.seed import seed_candidates
from rlxweb.cost.record import Point
from rlxweb.decision.candidate import Candidate
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place
from rlxweb.errors import UsageError
from rlxweb.rlx import estimate_welch_peaks_costs
from rlxweb.signal import engine
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.crossover import crossover, welch_candidates
from rlxweb.signal.engine import NUMPY, GraphEngine
from rlxweb.signal.offers import WelchJob, engine_for
from tests.unit.signal.pretend_gpu import (
    BOTH,
    NAME,
    PLACE,
    QUICK,
    SLOW,
    PretendGpu,
    Speed,
    by_name,
    job_of,
)


def ways_of(job: WelchJob) -> dict[str, Candidate]:
    return by_name(welch_candidates(job, BOTH))


def test_every_way_is_a_candidate(two: PretendGpu) -> None:
    """Strategies of every engine, open ones first, predictions as they were put in."""
    found = welch_candidates(job_of(32), BOTH)
    ways = by_name(found)
    assert sorted(ways) == [
        "fast host",
        "fused block_fft_host",
        "fused fused_op",
        "learned",
        "ultra host",
    ]
    fast, fused = ways["fast host"], ways["fused fused_op"]
    assert fast.predicted_ns == pytest.approx(SLOW.ns(256, 8, 32), rel=1e-3)
    assert fused.predicted_ns == pytest.approx(QUICK.ns(256, 8, 32), rel=1e-3)
    assert (fast.source, fused.source) == ("calibrated", "calibrated")
    assert fast.engine == f"NumPy {np.__version__}"
    assert fused.engine == NAME
    assert [bool(c.blocker) for c in found] == [False] * 3 + [True] * 2
    times = [c.predicted_ns for c in found]
    assert times == sorted(times)
    assert ways["ultra host"].blocker == (
        "it averages 1 segment only; a min_segments of 1 allows that"
    )
    assert ways["learned"].blocker.startswith("it needs a trained model")
    assert ways["learned"].terms is None


def test_ultra_is_priced_as_one_segment(two: PretendGpu) -> None:
    """`ultra` is priced as one segment and has no price where more are asked for."""
    ultra = ways_of(job_of(500, min_segments=1))["ultra host"]
    assert ultra.blocker == ""
    assert ultra.predicted_ns == pytest.approx(SLOW.ns(256, 1, 500), rel=1e-3)
    for least in (None, 2, 8):
        ways = ways_of(job_of(500, min_segments=least))
        assert ways["ultra host"].predicted_ns == math.inf


def test_what_nobody_measured_is_assumed_and_said(gpu: PretendGpu) -> None:
    for candidate in welch_candidates(job_of(), BOTH):
        if not candidate.blocker:
            assert candidate.source == "assumed"
            assert candidate.error is not None
            assert candidate.error > 0


def test_a_spectrum_has_no_peaks_to_fuse(two: PretendGpu) -> None:
    """A spectrum (k = 0) has only the ways that bring it back."""
    assert sorted(ways_of(job_of(8, k=0))) == [
        "fast host",
        "fused block_fft_host",
        "ultra host",
    ]


def test_of_a_band_no_more_comes_back_than_is_wanted(two: PretendGpu) -> None:
    """Cut out on the device where that is cheaper: launches more, fewer bytes back."""
    rows, band = 4000, Band(10, 50)
    back = [Point("readback", {"bytes": n}, 1.0 * n) for n in (1 << 10, 1 << 20)]
    trips = [Point("dispatch", {}, 1e5), *back]
    QUICK.give_to(PLACE, *trips)
    ways = ways_of(job_of(rows, 1024, k=0, band=band))
    assert sorted(ways) == [
        "fast host",
        "fused band_fft_host",
        "fused block_fft_host",
        "ultra host",
    ]
    cut, all_ = ways["fused band_fft_host"].terms, ways["fused block_fft_host"].terms
    assert cut is not None
    assert all_ is not None
    assert all_ == ways_of(job_of(rows, 1024, k=0))["fused block_fft_host"].terms
    assert cut.launches > all_.launches
    assert all_.readback_ns == pytest.approx(4 * rows * 513, rel=0.01)
    assert cut.readback_ns == pytest.approx(4 * rows * 40, rel=0.01)
    searched = ways_of(job_of(rows, 1024, k=4, band=band))["fused fused_op"].terms
    assert searched is not None
    assert searched.readback_ns == pytest.approx(8 * rows * 4, rel=0.01)
    for n_rows, best in ((1, "block_fft_host"), (rows, "band_fft_host")):
        (first, *_) = welch_candidates(job_of(n_rows, 1024, k=0, band=band), [PLACE])
        assert first.how == best


def test_the_level_of_integers_keeps_bands_on_the_host(two: PretendGpu) -> None:
    job = job_of(32, k=4, band=Band(1, 9))
    spec = replace(job.spec, dtype="int24", detrend=None)
    ways = ways_of(replace(job, spec=spec))
    for how in ("fused_op", "band_fft_host"):
        assert "the host adds it" in ways[f"fused {how}"].blocker


def test_local_maxima_block_the_fused_search(two: PretendGpu) -> None:
    ways = ways_of(job_of(8, mode="peaks"))
    assert ways["fused fused_op"].blocker == "local maxima are searched on the host"
    assert ways["fused block_fft_host"].blocker == ""


def test_wide_samples_block_devices(two: PretendGpu) -> None:
    """Wide samples block devices with the reason; the CPU is a little slower."""
    job = job_of(300)
    wide = replace(job, spec=replace(job.spec, dtype="float64"))
    ways = ways_of(wide)
    assert ways["fused fused_op"].blocker == (
        "the samples are float64 and devices compute float32"
    )
    single = ways_of(job)["fast host"]
    assert 1 < ways["fast host"].predicted_ns / single.predicted_ns < 2


def test_a_device_that_does_not_open_is_told(gpu: PretendGpu) -> None:
    found = welch_candidates(job_of(), [CPU, Place(Device.CUDA)])
    (cuda,) = [c for c in found if c.device is Device.CUDA]
    assert "there is no backend for it" in cuda.blocker
    assert found[0].device is Device.CPU


@pytest.mark.requires_wgpu
def test_unmeasured_software_is_told_to_be_so(adapter: Any) -> None:
    place = Place(Device(adapter.backends[0]), adapter.name)
    found = by_name(welch_candidates(job_of(), [place]))
    assert "`rlxweb calibrate` measures it" in found["fused fused_op"].blocker


def test_batches_wait_once_each(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven rows, three at a time, are three submissions."""
    QUICK.give_to(PLACE, Point("submit", {}, 50_000.0))
    monkeypatch.setattr(engine, "BATCH_BYTES", 3 * 4 * 1152)
    terms = ways_of(job_of(7))["fused fused_op"].terms
    assert terms is not None
    assert (terms.launches, terms.syncs, terms.sync_ns) == (3, 3, 150_000.0)


@pytest.mark.parametrize("places", [(CPU,), (CPU, Place(Device.VULKAN), PLACE)])
def test_seed_candidates_are_rlxs_numbers(gpu: PretendGpu, places: Any) -> None:
    """The four estimates of each device, under its label; infinite ones blocked."""
    found = seed_candidates(places, 8192, 256, 16)
    assert len(found) == 4 * len(places)
    for place in places:
        costs = estimate_welch_peaks_costs(place.device, 8192, 256, 16)
        mine = {c.strategy: c for c in found if c.device is place.device}
        for name, ns in (
            ("ultra", costs.ultra_ns),
            ("fast", costs.fast_ns),
            ("fused", costs.rlx_ns),
            ("learned", costs.learned_ns),
        ):
            assert mine[name].predicted_ns == ns
            assert mine[name].source == "seed"
            assert bool(mine[name].blocker) == math.isinf(ns)
    assert gpu.ports == []


def test_what_runs_a_candidate() -> None:
    """Ultra and fast average on the host, whatever device they were compared for."""
    for device in (Device.CPU, Device.VULKAN):
        for strategy in ("ultra", "fast"):
            assert engine_for(Candidate(device, "e", strategy)) is NUMPY
    fused = engine_for(Candidate(Device.VULKAN, "e", "fused", "fused_op", adapter="a"))
    assert isinstance(fused, GraphEngine)
    assert (fused.device, fused.adapter, fused.how) == (Device.VULKAN, "a", "fused_op")
    block = engine_for(Candidate(Device.VULKAN, "e", "fused", "block_fft_host"))
    assert isinstance(block, GraphEngine)
    assert block.how == "block_fft_host"
    with pytest.raises(UsageError, match=r"^fused on e: not today$"):
        engine_for(Candidate(Device.VULKAN, "e", "fused", blocker="not today"))


def test_only_ultra_computes_another_estimate() -> None:
    job = job_of()
    assert job.by(Candidate(Device.CPU, "e", "ultra")).spec.n_segments == 1
    for strategy in ("fast", "fused"):
        assert job.by(Candidate(Device.CPU, "e", strategy)) is job


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 5000),
    call=st.floats(1e3, 1e7),
    work=st.floats(0.001, 10.0),
)
def test_the_smallest_prediction_is_picked(
    gpu: PretendGpu, rows: int, call: float, work: float
) -> None:
    """The smallest prediction is picked, unless two are too near to tell."""
    there = Speed(call, work)
    SLOW.give_to(CPU)
    there.give_to(PLACE)
    pick = decide(job_of(rows), places=BOTH, worthwhile=Worth())
    ns = {True: SLOW.ns(256, 8, rows), False: there.ns(256, 8, rows)}
    is_cpu = pick.device is Device.CPU
    assert ns[is_cpu] < 1.01 * ns[not is_cpu]
    assert pick.cpu_ns == pytest.approx(ns[True], rel=1e-3)


def test_the_decision_says_what_and_why(two: PretendGpu) -> None:
    decision = decide(job_of(3000), places=BOTH, worthwhile=Worth()).decision
    assert decision.what == f"fused on {NAME}"
    assert decision.why.startswith("predicted ")
    assert "(calibrated); next, " in decision.why
    size = {"rows": 3000, "n_fft": 256, "segments": 8, "k": 16, "source": "calibrated"}
    assert size.items() <= decision.numbers.items()
    predicted = QUICK.ns(256, 8, 3000) / 1e6
    assert decision.numbers["predicted_ms"] == pytest.approx(predicted, rel=0.01)
    assert len(decision.candidates) == 5


@pytest.mark.usefixtures("nowhere_else")
def test_small_jobs_open_nothing() -> None:
    """Other devices are opened neither for small jobs nor for the CPU's strategies."""
    tiny = decide(job_of(1), worthwhile=Worth())
    assert "too small to pay for a trip to any device" in tiny.decision.why
    middle = decide(job_of(60), worthwhile=Worth())
    assert "other devices are opened for jobs of 5 ms and more" in middle.decision.why
    for strategy in ("fast", "ultra"):
        assert decide(job_of(9999, strategy=strategy)).device is Device.CPU
    for asked in (job_of(9999), job_of(1, strategy="fused")):
        with pytest.raises(AssertionError, match="were looked for"):
            decide(asked, worthwhile=Worth())


def test_large_jobs_measure_with_the_very_jobs(
    gpu: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large jobs measure each engine once by Welch jobs, if allowed and unknown."""
    asked: list[tuple[Place, Any]] = []

    def measure(device: Device, adapter: str, points: Any, budget_s: float) -> None:
        asked.append((Place(device, adapter), points))

    monkeypatch.setattr("rlxweb.calibration.known.record_for", measure)
    decide(job_of(9999), places=BOTH, worthwhile=Worth())
    assert asked == []
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    decide(job_of(60), places=BOTH, worthwhile=Worth())
    assert asked == []
    SLOW.give_to(CPU)
    decide(job_of(9999), places=BOTH, worthwhile=Worth())
    assert asked == [(PLACE, ("welch_fused",))]


def test_nothing_left_is_an_error_with_every_reason(gpu: PretendGpu) -> None:
    with pytest.raises(UsageError, match="run it; the list of devices is empty; allow"):
        decide(job_of(), places=[])
    said = "run it; none of tpu has the strategy 'fast'; allow another device or"
    with pytest.raises(UsageError, match=said):
        decide(job_of(strategy="fast"), places=[PLACE])
    with pytest.raises(UsageError, match=r"learned on fake \(fake\): it needs a train"):
        decide(job_of(strategy="learned"), places=[PLACE])


def test_the_crossover_in_words(two: PretendGpu) -> None:
    """The first power of two where the other sum is smaller."""
    job = job_of()
    batch = 1
    while SLOW.ns(256, 8, batch) < QUICK.ns(256, 8, batch):
        batch *= 2
    assert 1 < batch < 65_536
    assert crossover(job, BOTH) == (
        f"CPU below batch {batch:,}, fused on {NAME} from batch {batch:,} "
        "on this machine"
    )
    assert crossover(job, [CPU]) == ("CPU at every batch up to 65,536 on this machine")
    none = crossover(job, [Place(Device.CUDA)])
    assert none == "no engine can run it"
