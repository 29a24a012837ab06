"""Candidates of a Welch job, their predicted costs, and the choice among them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlxweb.core.device import Device
from rlxweb.core.errors import UsageError
from rlxweb.cost.calibration_record import MeasuredPoint
from rlxweb.cost.decision import Candidate
from rlxweb.rlx import estimate_welch_peaks_costs
from rlxweb.select.calibration.profitability import ProfitabilityPolicy
from rlxweb.select.choice_by_rlx_constants import seed_candidates
from rlxweb.select.chooser import choose_fastest
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace
from rlxweb.signal import welch_engine
from rlxweb.signal.batch_size_crossover import crossover_text, welch_candidates
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.welch_candidates import WelchJob, engine_for_candidate
from rlxweb.signal.welch_engine import NUMPY_ENGINE, WelchGraphEngine
from tests.unit.signal.fake_gpu import (
    CPU_AND_GPU,
    CPU_SPEED,
    ENGINE_NAME,
    GPU_PLACE,
    GPU_SPEED,
    EngineSpeed,
    FakeGpu,
    candidates_by_name,
    make_job,
)


def job_candidates(job: WelchJob) -> dict[str, Candidate]:
    return candidates_by_name(welch_candidates(job, CPU_AND_GPU))


def test_every_strategy_is_a_candidate(two: FakeGpu) -> None:
    """Strategies of every engine are candidates, open ones first, with the calibrated
    predictions.
    """
    ranked = welch_candidates(make_job(32), CPU_AND_GPU)
    candidates = candidates_by_name(ranked)
    assert sorted(candidates) == [
        "fast host",
        "fused block_fft_host",
        "fused fused_op",
        "learned",
        "ultra host",
    ]
    fast, fused = candidates["fast host"], candidates["fused fused_op"]
    assert fast.predicted_ns == pytest.approx(
        CPU_SPEED.duration_ns(256, 8, 32), rel=1e-3
    )
    assert fused.predicted_ns == pytest.approx(
        GPU_SPEED.duration_ns(256, 8, 32), rel=1e-3
    )
    assert (fast.source, fused.source) == ("calibrated", "calibrated")
    assert fast.engine == f"NumPy {np.__version__}"
    assert fused.engine == ENGINE_NAME
    assert [bool(c.blocker) for c in ranked] == [False] * 3 + [True] * 2
    times = [c.predicted_ns for c in ranked]
    assert times == sorted(times)
    assert candidates["ultra host"].blocker == (
        "this strategy averages only 1 segment, which requires min_segments=1"
    )
    assert candidates["learned"].blocker.startswith("a trained model is required")
    assert candidates["learned"].terms is None


def test_ultra_is_priced_as_one_segment(two: FakeGpu) -> None:
    """`ultra` is priced as one segment and has no price where more are required."""
    ultra = job_candidates(make_job(500, min_segments=1))["ultra host"]
    assert ultra.blocker == ""
    assert ultra.predicted_ns == pytest.approx(
        CPU_SPEED.duration_ns(256, 1, 500), rel=1e-3
    )
    for min_segments in (None, 2, 8):
        candidates = job_candidates(make_job(500, min_segments=min_segments))
        assert candidates["ultra host"].predicted_ns == math.inf


def test_unmeasured_engines_are_marked_assumed(gpu: FakeGpu) -> None:
    for candidate in welch_candidates(make_job(), CPU_AND_GPU):
        if not candidate.blocker:
            assert candidate.source == "assumed"
            assert candidate.error is not None
            assert candidate.error > 0


def test_a_spectrum_has_no_peaks_to_fuse(two: FakeGpu) -> None:
    """A spectrum (k = 0) has only the candidates that read it back."""
    assert sorted(job_candidates(make_job(8, k=0))) == [
        "fast host",
        "fused block_fft_host",
        "ultra host",
    ]


def test_only_the_band_is_read_back(two: FakeGpu) -> None:
    """The band is cropped on the device where that is cheaper: more launches, fewer
    bytes back.
    """
    rows, band = 4000, BinRange(10, 50)
    readback_points = [
        MeasuredPoint("readback", {"bytes": n}, 1.0 * n) for n in (1 << 10, 1 << 20)
    ]
    points = [MeasuredPoint("dispatch", {}, 1e5), *readback_points]
    GPU_SPEED.save_calibration(GPU_PLACE, *points)
    candidates = job_candidates(make_job(rows, 1024, k=0, band=band))
    assert sorted(candidates) == [
        "fast host",
        "fused band_fft_host",
        "fused block_fft_host",
        "ultra host",
    ]
    band_terms = candidates["fused band_fft_host"].terms
    full_terms = candidates["fused block_fft_host"].terms
    assert band_terms is not None
    assert full_terms is not None
    assert (
        full_terms
        == job_candidates(make_job(rows, 1024, k=0))["fused block_fft_host"].terms
    )
    assert band_terms.launches > full_terms.launches
    assert full_terms.readback_ns == pytest.approx(4 * rows * 513, rel=0.01)
    assert band_terms.readback_ns == pytest.approx(4 * rows * 40, rel=0.01)
    fused_terms = job_candidates(make_job(rows, 1024, k=4, band=band))[
        "fused fused_op"
    ].terms
    assert fused_terms is not None
    assert fused_terms.readback_ns == pytest.approx(8 * rows * 4, rel=0.01)
    for n_rows, execution in ((1, "block_fft_host"), (rows, "band_fft_host")):
        (first, *_) = welch_candidates(
            make_job(n_rows, 1024, k=0, band=band), [GPU_PLACE]
        )
        assert first.how == execution


def test_integer_offsets_keep_bands_on_the_host(two: FakeGpu) -> None:
    job = make_job(32, k=4, band=BinRange(1, 9))
    spec = replace(job.spec, dtype="int24", detrend=None)
    candidates = job_candidates(replace(job, spec=spec))
    for execution in ("fused_op", "band_fft_host"):
        assert (
            "for integer samples, the power of the mean is added"
            in candidates[f"fused {execution}"].blocker
        )


def test_local_maxima_block_the_fused_search(two: FakeGpu) -> None:
    candidates = job_candidates(make_job(8, mode="peaks"))
    assert (
        candidates["fused fused_op"].blocker
        == "local maxima are found on the host, not on the device"
    )
    assert candidates["fused block_fft_host"].blocker == ""


def test_wide_samples_block_devices(two: FakeGpu) -> None:
    """Wide samples block devices with the reason; the CPU is a little slower."""
    job = make_job(300)
    wide = replace(job, spec=replace(job.spec, dtype="float64"))
    candidates = job_candidates(wide)
    assert candidates["fused fused_op"].blocker == (
        "the samples are float64, but every device except the CPU computes in float32"
    )
    float32_candidate = job_candidates(job)["fast host"]
    assert 1 < candidates["fast host"].predicted_ns / float32_candidate.predicted_ns < 2


def test_device_that_does_not_open_is_blocked(gpu: FakeGpu) -> None:
    ranked = welch_candidates(make_job(), [CPU_PLACE, DevicePlace(Device.CUDA)])
    (cuda,) = [c for c in ranked if c.device is Device.CUDA]
    assert "no engine supports this device" in cuda.blocker
    assert ranked[0].device is Device.CPU


@pytest.mark.requires_wgpu
def test_unmeasured_software_adapter_is_blocked(adapter: Any) -> None:
    place = DevicePlace(Device(adapter.backends[0]), adapter.name)
    ranked = candidates_by_name(welch_candidates(make_job(), [place]))
    assert "run `rlxweb calibrate` to measure it" in ranked["fused fused_op"].blocker


def test_each_batch_waits_once(two: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven rows, three at a time, take three submissions."""
    GPU_SPEED.save_calibration(GPU_PLACE, MeasuredPoint("submit", {}, 50_000.0))
    monkeypatch.setattr(welch_engine, "MAX_BATCH_BYTES", 3 * 4 * 1152)
    terms = job_candidates(make_job(7))["fused fused_op"].terms
    assert terms is not None
    assert (terms.launches, terms.syncs, terms.sync_ns) == (3, 3, 150_000.0)


@pytest.mark.parametrize(
    "places", [(CPU_PLACE,), (CPU_PLACE, DevicePlace(Device.VULKAN), GPU_PLACE)]
)
def test_seed_candidates_are_rlxs_numbers(gpu: FakeGpu, places: Any) -> None:
    """Each device has the four estimates under its label; infinite ones are blocked."""
    ranked = seed_candidates(places, 8192, 256, 16)
    assert len(ranked) == 4 * len(places)
    for place in places:
        costs = estimate_welch_peaks_costs(place.device, 8192, 256, 16)
        by_strategy = {c.strategy: c for c in ranked if c.device is place.device}
        for name, ns in (
            ("ultra", costs.ultra_ns),
            ("fast", costs.fast_ns),
            ("fused", costs.rlx_ns),
            ("learned", costs.learned_ns),
        ):
            assert by_strategy[name].predicted_ns == ns
            assert by_strategy[name].source == "seed"
            assert bool(by_strategy[name].blocker) == math.isinf(ns)
    assert gpu.ports == []


def test_engine_for_each_candidate() -> None:
    """Ultra and fast average on the host, whatever device they were compared for."""
    for device in (Device.CPU, Device.VULKAN):
        for strategy in ("ultra", "fast"):
            assert (
                engine_for_candidate(Candidate(device, "e", strategy)) is NUMPY_ENGINE
            )
    fused = engine_for_candidate(
        Candidate(Device.VULKAN, "e", "fused", "fused_op", adapter="a")
    )
    assert isinstance(fused, WelchGraphEngine)
    assert (fused.device, fused.adapter, fused.execution) == (
        Device.VULKAN,
        "a",
        "fused_op",
    )
    block = engine_for_candidate(
        Candidate(Device.VULKAN, "e", "fused", "block_fft_host")
    )
    assert isinstance(block, WelchGraphEngine)
    assert block.execution == "block_fft_host"
    with pytest.raises(UsageError, match=r"^fused on e: not today$"):
        engine_for_candidate(
            Candidate(Device.VULKAN, "e", "fused", blocker="not today")
        )


def test_only_ultra_computes_another_estimate() -> None:
    job = make_job()
    assert (
        job.job_for_candidate(Candidate(Device.CPU, "e", "ultra")).spec.n_segments == 1
    )
    for strategy in ("fast", "fused"):
        assert job.job_for_candidate(Candidate(Device.CPU, "e", strategy)) is job


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 5000),
    call=st.floats(1e3, 1e7),
    work=st.floats(0.001, 10.0),
)
def test_the_smallest_prediction_is_picked(
    gpu: FakeGpu, rows: int, call: float, work: float
) -> None:
    """The smallest prediction is picked, unless two are too near to tell."""
    gpu_speed = EngineSpeed(call, work)
    CPU_SPEED.save_calibration(CPU_PLACE)
    gpu_speed.save_calibration(GPU_PLACE)
    pick = choose_fastest(
        make_job(rows), places=CPU_AND_GPU, profitability=ProfitabilityPolicy()
    )
    ns = {
        True: CPU_SPEED.duration_ns(256, 8, rows),
        False: gpu_speed.duration_ns(256, 8, rows),
    }
    is_cpu = pick.device is Device.CPU
    assert ns[is_cpu] < 1.01 * ns[not is_cpu]
    assert pick.cpu_ns == pytest.approx(ns[True], rel=1e-3)


def test_decision_gives_engine_and_reason(two: FakeGpu) -> None:
    decision = choose_fastest(
        make_job(3000), places=CPU_AND_GPU, profitability=ProfitabilityPolicy()
    ).decision
    assert decision.what == f"fused on {ENGINE_NAME}"
    assert decision.why.startswith("predicted ")
    assert "(calibrated); next best: " in decision.why
    size = {"rows": 3000, "n_fft": 256, "segments": 8, "k": 16, "source": "calibrated"}
    assert size.items() <= decision.numbers.items()
    predicted = GPU_SPEED.duration_ns(256, 8, 3000) / 1e6
    assert decision.numbers["predicted_ms"] == pytest.approx(predicted, rel=0.01)
    assert len(decision.candidates) == 5


@pytest.mark.usefixtures("nowhere_else")
def test_small_jobs_open_nothing() -> None:
    """Other devices are opened neither for small jobs nor for the CPU's strategies."""
    tiny = choose_fastest(make_job(1), profitability=ProfitabilityPolicy())
    assert "too small to benefit from another device" in tiny.decision.why
    middle = choose_fastest(make_job(60), profitability=ProfitabilityPolicy())
    assert (
        "other devices are opened only for jobs of 5 ms or more" in middle.decision.why
    )
    for strategy in ("fast", "ultra"):
        assert choose_fastest(make_job(9999, strategy=strategy)).device is Device.CPU
    for job in (make_job(9999), make_job(1, strategy="fused")):
        with pytest.raises(AssertionError, match="were looked for"):
            choose_fastest(job, profitability=ProfitabilityPolicy())


def test_large_jobs_calibrate_unknown_engines(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large jobs calibrate each unknown engine once with Welch jobs, if allowed."""
    requests: list[tuple[DevicePlace, Any]] = []

    def measure(device: Device, adapter: str, points: Any, budget_s: float) -> None:
        requests.append((DevicePlace(device, adapter), points))

    monkeypatch.setattr(
        "rlxweb.select.calibration.engine_calibration_lookup.record_for", measure
    )
    choose_fastest(
        make_job(9999), places=CPU_AND_GPU, profitability=ProfitabilityPolicy()
    )
    assert requests == []
    monkeypatch.setenv("RLX_CALIBRATION", "lazy")
    choose_fastest(
        make_job(60), places=CPU_AND_GPU, profitability=ProfitabilityPolicy()
    )
    assert requests == []
    CPU_SPEED.save_calibration(CPU_PLACE)
    choose_fastest(
        make_job(9999), places=CPU_AND_GPU, profitability=ProfitabilityPolicy()
    )
    assert requests == [(GPU_PLACE, ("welch_fused",))]


def test_no_candidate_is_an_error_with_every_reason(gpu: FakeGpu) -> None:
    with pytest.raises(
        UsageError, match="run this job; the list of devices is empty; allow"
    ):
        choose_fastest(make_job(), places=[])
    message = (
        "run this job; none of tpu supports the strategy 'fast'; allow another "
        "device or"
    )
    with pytest.raises(UsageError, match=message):
        choose_fastest(make_job(strategy="fast"), places=[GPU_PLACE])
    with pytest.raises(UsageError, match=r"learned on fake \(fake\): a trained model"):
        choose_fastest(make_job(strategy="learned"), places=[GPU_PLACE])


def test_the_crossover_in_words(two: FakeGpu) -> None:
    """The crossover is the first power of two where the other prediction is smaller."""
    job = make_job()
    batch = 1
    while CPU_SPEED.duration_ns(256, 8, batch) < GPU_SPEED.duration_ns(256, 8, batch):
        batch *= 2
    assert 1 < batch < 65_536
    assert crossover_text(job, CPU_AND_GPU) == (
        f"CPU is fastest below batch size {batch:,}, fused on {ENGINE_NAME} from "
        f"batch size {batch:,} on this machine"
    )
    assert crossover_text(job, [CPU_PLACE]) == (
        "CPU is fastest at all batch sizes up to 65,536 on this machine"
    )
    no_engine = crossover_text(job, [DevicePlace(Device.CUDA)])
    assert no_engine == "no engine can run this job"
