"""Device choice: the caller's request, the environment, and corrections learned from
runs.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.device import Device
from rlxweb.core.errors import (
    AdapterMissing,
    DeviceLost,
    DTypeError,
    EnvironmentWarning,
    UnknownDevice,
    Unsupported,
    UsageError,
)
from rlxweb.engines import library_detection
from rlxweb.engines.registry import clear_detection_caches
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.select.calibration.observed_run_corrections import corrections
from rlxweb.select.chooser import choose_fastest, choose_place
from rlxweb.select.device_and_adapter import CPU_PLACE
from rlxweb.select.device_pick_cache import PickCache, present_circumstances
from rlxweb.signal.batch_size_crossover import welch_candidates
from tests.fake_gpu_port import InjectedFailure
from tests.run_in_threads import run_concurrently
from tests.unit.signal.fake_gpu import (
    CPU_AND_GPU,
    ENGINE_NAME,
    GPU_PLACE,
    FakeGpu,
    candidates_by_name,
    make_job,
)

SMALL = np.zeros((4, 1152), np.float32)
LARGE = np.zeros((3000, 1152), np.float32)


def test_requested_device_is_used(two: FakeGpu) -> None:
    """A requested device is used however slow; the decision says both."""
    result = rlx.welch_peaks(SMALL, device="tpu")
    assert (result.device, result.engine) == (Device.TPU, ENGINE_NAME)
    assert result.decision.why.startswith("it was requested; predicted ")
    result = rlx.welch_peaks(LARGE, device=Device.CPU)
    assert result.device is Device.CPU
    assert result.decision.why.startswith("it was requested; predicted ")
    assert {c.device for c in result.decision.candidates} == {Device.CPU}


@pytest.mark.parametrize("name", ["welch", "welch_peaks"])
def test_async_calls_have_the_same_device_parameters(name: str) -> None:
    """Editors, type checkers and the manual read these parameters from the
    signature.
    """
    sync_parameters, async_parameters = (
        signature(getattr(rlx, n)).parameters for n in (name, f"{name}_async")
    )
    for parameter in {"device", "adapter", "strategy"} & sync_parameters.keys():
        assert async_parameters[parameter] == sync_parameters[parameter]


@pytest.mark.parametrize("name", ["abacus", "", "cpu,tpu", 3])
def test_unknown_devices_are_refused(name: Any) -> None:
    with pytest.raises(UnknownDevice):
        rlx.welch_peaks(SMALL, device=name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cuda", "CuPy is not installed; PyTorch is not installed; needs an NVIDIA"),
        ("rocm", "CuPy is not installed; PyTorch is not installed; needs an AMD"),
        ("tpu", "JAX is not installed; on a machine with a TPU: pip install"),
        ("ane", "only Core ML can use the Neural Engine"),
    ],
)
def test_devices_that_are_missing_are_refused(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing device is refused with what to do, and never replaced by a CPU."""
    monkeypatch.setattr(library_detection, "is_importable", lambda module: False)
    clear_detection_caches()
    with pytest.raises(AdapterMissing, match=f"open device '{name}': .*{words}"):
        rlx.welch_peaks(SMALL, device=name)
    clear_detection_caches()


@pytest.mark.requires_wgpu
def test_missing_adapter_is_refused() -> None:
    """An adapter's name asks for a GPU, even where no device is named."""
    for options in ({"device": "gpu"}, {}, {"device": "auto"}):
        with pytest.raises(AdapterMissing, match="no-such-adapter"):
            rlx.welch_peaks(SMALL, adapter="no-such-adapter", **options)


@pytest.mark.requires_wgpu
def test_requested_adapter_computes(adapter: AdapterRequest) -> None:
    result = rlx.welch_peaks(SMALL, device=adapter.backends[0], adapter=adapter.name)
    assert adapter.name.lower() in result.engine.lower()
    assert f"({adapter.backends[0]})" in result.engine
    assert {c.adapter for c in result.decision.candidates} == {adapter.name}


def test_the_cpu_has_no_adapters() -> None:
    message = (
        "on CPU: adapter 'llvmpipe' was requested; the CPU has no adapters; "
        "leave the adap"
    )
    with pytest.raises(UsageError, match=message):
        rlx.welch_peaks(SMALL, device="cpu", adapter="llvmpipe")


def test_float64_is_not_demoted_unasked(gpu: FakeGpu) -> None:
    """A device refuses float64 samples; precision='f32' demotes them."""
    wide = SMALL.astype(np.float64)
    with pytest.raises(DTypeError) as error_info:
        rlx.welch_peaks(wide, device="tpu")
    assert (
        error_info.value.problem
        == "the samples are float64, but every device except the CPU computes in "
        "float32"
    )
    assert (
        error_info.value.rule == "samples are never converted to float32 automatically"
    )
    assert "precision='f32'" in error_info.value.hint
    assert rlx.welch_peaks(wide, device="tpu", precision="f32").device is Device.TPU
    assert rlx.welch_peaks(wide).device is Device.CPU


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": "median"}, "only NumPy supports average='median'"),
        ({"return_onesided": False}, "only NumPy supports two-sided spectra"),
    ],
)
def test_estimates_without_a_kernel_are_refused(
    gpu: FakeGpu, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Unsupported, match=f"welch on TPU: {message}; use device='cpu'"):
        rlx.welch(SMALL, device="tpu", **options)
    rlx.welch(SMALL, **options)


def test_complex_rows_are_refused_on_devices(gpu: FakeGpu) -> None:
    with pytest.raises(
        Unsupported,
        match="complex64, but every device except the CPU computes in float32",
    ):
        rlx.welch(SMALL + 1j, device="tpu")


def test_rlx_device_variable_is_followed(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLX_DEVICE is followed by small jobs too; a device in the call goes before it."""
    monkeypatch.setenv("RLX_DEVICE", " TPU ")
    result = rlx.welch_peaks(SMALL)
    assert result.device is Device.TPU
    assert result.decision.why.startswith("RLX_DEVICE=tpu; predicted ")
    assert rlx.welch_peaks(SMALL, device="cpu").device is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    assert rlx.welch_peaks(LARGE).device is Device.CPU


def test_rlx_device_variable_that_cannot_run_the_job_warns(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that RLX_DEVICE cannot run goes where the prediction says, with a warning
    at the caller's line.
    """
    monkeypatch.setenv("RLX_DEVICE", "tpu")
    message = "RLX_DEVICE=tpu cannot run this job and is ignored: .* are float64"
    with pytest.warns(EnvironmentWarning, match=message) as caught:
        result = rlx.welch_peaks(SMALL.astype(np.float64))
    assert result.device is Device.CPU
    assert caught[0].filename == __file__
    with pytest.warns(
        EnvironmentWarning, match="strategy 'fast' is not supported on this device"
    ):
        assert rlx.welch_peaks(SMALL, strategy="fast").device is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "cuda")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=cuda cannot.*engine"):
        rlx.welch_peaks(SMALL)
    monkeypatch.setenv("RLX_DEVICE", "tpuu")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE='tpuu' is ignored: .*tpu"):
        rlx.welch_peaks(SMALL)


@pytest.mark.parametrize(
    "policy", [{"RLX_DENY_DEVICES": "gl;tpu"}, {"RLX_DEVICES": "cpu"}], ids=str
)
def test_denied_devices_are_not_used(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch, policy: dict[str, str]
) -> None:
    """Denied devices are not used, though faster and though RLX_DEVICE names them."""
    assert rlx.welch_peaks(LARGE).device is Device.TPU
    for name, value in policy.items():
        monkeypatch.setenv(name, value)
    result = rlx.welch_peaks(LARGE)
    assert result.device is Device.CPU
    assert {c.device for c in result.decision.candidates} == {Device.CPU}
    monkeypatch.setenv("RLX_DEVICE", "tpu")
    with pytest.warns(
        EnvironmentWarning, match="RLX_DENY_DEVICES excludes this device"
    ):
        assert rlx.welch_peaks(LARGE).device is Device.CPU


def test_denied_cpu_is_not_used(two: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A denied CPU is not used for jobs picked before, unless the call names it."""
    assert rlx.welch_peaks(SMALL).device is Device.CPU
    monkeypatch.setenv("RLX_DENY_DEVICES", "cpu")
    assert rlx.welch_peaks(SMALL).device is Device.TPU
    assert rlx.welch_peaks(SMALL, device="cpu").device is Device.CPU
    monkeypatch.setenv("RLX_DENY_DEVICES", "cpu,tpu")
    with pytest.raises(
        UsageError, match=r"cuda: no engine supports .*allow another device"
    ):
        rlx.welch_peaks(SMALL)


def test_invalid_policy_variable_warns(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DENY_DEVICES", "abacus")
    with pytest.warns(EnvironmentWarning, match="RLX_DENY_DEVICES='abacus' is ignored"):
        assert rlx.welch_peaks(SMALL).device is Device.CPU


def test_a_preferred_device_from_the_environment(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preferred device is taken in a near tie and in no other case."""
    near = make_job(120)  # the sums are equal at 123 rows
    assert choose_place(near).device is Device.CPU
    monkeypatch.setenv("RLX_PREFER_DEVICES", "tpu")
    pick = choose_place(near)
    assert pick.device is Device.TPU
    assert "preferred because its time is within 10% of the best" in pick.decision.why
    assert choose_place(make_job(100)).device is Device.CPU


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", ["vulkan", "opengl"])
def test_an_allowed_device_is_found_under_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An allowed name is found, though "gpu" may open the same adapter."""
    rlx.welch_peaks(SMALL, device=name)
    monkeypatch.setenv("RLX_DEVICES", name)
    assert rlx.welch_peaks(SMALL).device is Device(name)


def test_runs_correct_the_next_pick(two: FakeGpu) -> None:
    """A GPU that is slower than its model loses the jobs that were mispredicted."""
    job = make_job(3000)
    pick = choose_fastest(job, places=CPU_AND_GPU)
    bucket = job.bucket(pick.candidate)
    for _ in range(20):
        pick.observe(4 * pick.candidate.predicted_ns)
    assert corrections.run_count(bucket) == 20
    assert 3 < corrections.factor(bucket) <= 4
    corrected = choose_fastest(job, places=CPU_AND_GPU).decision
    (candidate,) = [c for c in corrected.candidates if c.how == pick.candidate.how]
    assert candidate.correction == corrections.factor(bucket)
    assert corrected.candidates[0] is not candidate
    elsewhere = choose_fastest(make_job(3000, n=64), places=CPU_AND_GPU).decision
    assert {c.correction for c in elsewhere.candidates} == {1.0}


def test_a_corrected_model_is_not_corrected_twice(two: FakeGpu) -> None:
    """Runs count against the uncorrected model, so the factor converges."""
    job = make_job(3000)
    elapsed_ns = 2 * choose_fastest(job, places=[GPU_PLACE]).candidate.predicted_ns
    for _ in range(60):
        pick = choose_fastest(job, places=[GPU_PLACE])
        (candidate,) = [c for c in pick.decision.candidates if c.how == "fused_op"]
        replace(pick, candidate=candidate).observe(elapsed_ns)
    bucket = job.bucket(candidate)
    assert corrections.factor(bucket) == pytest.approx(2.0, rel=0.03)


def test_short_runs_and_runs_without_a_model_are_ignored(two: FakeGpu) -> None:
    """Runs below a tenth of a millisecond, or without a model to correct, are
    ignored.
    """
    pick = choose_fastest(make_job(3000), places=CPU_AND_GPU)
    pick.observe(0.09e6)
    blank = replace(pick, candidate=replace(pick.candidate, terms=None))
    blank.observe(1e9)
    for elapsed_ns in (0.0, -1.0, math.nan, math.inf):
        pick.observe(elapsed_ns)
    assert corrections.run_count(pick.job.bucket(pick.candidate)) == 0


def test_single_segment_runs_are_corrected_separately(two: FakeGpu) -> None:
    """Times of ultra say nothing of eight segments."""
    job = make_job(2000, min_segments=1)
    pick = choose_fastest(job, places=[CPU_PLACE])
    assert pick.decision.what.startswith("ultra")
    pick.observe(3 * pick.candidate.predicted_ns)
    candidates = candidates_by_name(welch_candidates(job, [CPU_PLACE]))
    assert candidates["ultra host"].correction > 1
    assert candidates["fast host"].correction == 1.0


def test_only_warm_runs_are_recorded(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run of a size compiles; only the times after it are recorded."""
    now = iter(range(0, 10**12, 1_000_000))
    monkeypatch.setattr("rlxweb.signal.welch_peaks.perf_counter_ns", lambda: next(now))
    runs = []
    for _ in range(3):
        candidates = rlx.welch_peaks(SMALL, device="tpu").decision.candidates
        bucket = make_job(4).bucket(candidates_by_name(candidates)["fused fused_op"])
        runs.append(corrections.run_count(bucket))
    assert runs == [0, 1, 2]


def test_row_operation_runs_have_their_own_corrections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs of row operations on the host have correction buckets apart from those of
    graphs.
    """
    now = iter(range(0, 10**12, 1_000_000))
    monkeypatch.setattr(
        "rlxweb.signal.row_operation_runner.perf_counter_ns", lambda: next(now)
    )
    notes: list[Any] = []
    monkeypatch.setattr(corrections, "record_run", lambda *note: notes.append(note))
    samples, counts = np.ones((64, 4000), np.float32), []
    for _ in range(3):
        ran = rlx.multitaper(samples, 250.0).ran
        counts.append(len(notes))
    assert ran.decision is not None
    (cpu_candidate,) = [c for c in ran.decision.candidates if c.device is Device.CPU]
    assert cpu_candidate.terms is not None
    assert counts == [0, 1, 2]
    for bucket, predicted_ns, took_ns in notes:
        assert bucket[:2] == (cpu_candidate.engine, "rows: multitaper")
        assert (predicted_ns, took_ns) == (cpu_candidate.terms.total_ns, 1_000_000)


def test_threads_share_the_uses_of_a_cached_pick() -> None:
    cache, pick = PickCache(uses=100), choose_fastest(make_job(), places=[CPU_PLACE])
    cache.add("a", pick, present_circumstances())
    hits: list[bool] = []
    run_concurrently(
        [lambda: hits.extend(cache.get("a") is not None for _ in range(60))] * 4
    )
    assert (len(hits), sum(hits)) == (240, 100)


def test_a_result_carries_its_decision(two: FakeGpu) -> None:
    """A result has its decision in JSON and in its line of prose."""
    result = rlx.welch_peaks(SMALL)
    document = json.loads(json.dumps(result.as_json()))
    assert document["decision"]["what"] == result.decision.what
    assert result.decision.why in result.explain()
    assert result.explain().startswith(f"ran on {result.engine}: ")


def test_non_finite_values_are_null_in_json() -> None:
    """JSON has no NaN; rows without one keep their numbers."""
    x = np.ones((2, 64), np.float32)
    x[0] = np.nan
    result = rlx.welch_peaks(x, nperseg=64, k=2, nan="propagate", device="cpu")
    first, second = json.loads(json.dumps(result.as_json(), allow_nan=False))["rows"]
    assert first == {"bins": [], "hz": [], "power": []}
    assert second["power"] == result.power[1].tolist()
    infinite = replace(result, power=np.full((2, 2), np.inf), count=np.array([1, 2]))
    document = json.loads(json.dumps(infinite.as_json(), allow_nan=False))
    assert [row["power"] for row in document["rows"]] == [[None], [None, None]]


def test_device_loss_is_reported(two: FakeGpu) -> None:
    """A retried run says so; with strict=True the call fails, even where no device was
    named.
    """
    two.reset()
    two.failures = [InjectedFailure("read", "lost")]
    with pytest.raises(DeviceLost):
        rlx.welch_peaks(LARGE, strict=True)
    two.reset()
    two.failures = [InjectedFailure("read", "lost")]
    result = rlx.welch_peaks(LARGE)
    assert "the run was lost with its device" in result.explain()
    assert [bool(a.error) for a in result.decision.attempts] == [True, False]
