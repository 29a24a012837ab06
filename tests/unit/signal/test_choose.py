"""What a caller asks for, what the environment says, and what runs teach the picker."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends import presence
from rlxweb.backends.registry import look_again
from rlxweb.calibration.corrections import corrections
from rlxweb.choose.chooser import choose, decide
from rlxweb.choose.recent_picks import RecentPicks
from rlxweb.device import Device
from rlxweb.devices.place import CPU
from rlxweb.errors import (
    AdapterMissing,
    DeviceLost,
    DTypeError,
    EnvironmentWarning,
    UnknownDevice,
    Unsupported,
    UsageError,
)
from rlxweb.gpu.port import Want
from rlxweb.signal.crossover import welch_candidates
from tests.fake_port import Failure
from tests.threads import at_once
from tests.unit.signal.pretend_gpu import (
    BOTH,
    NAME,
    PLACE,
    PretendGpu,
    by_name,
    job_of,
)

SMALL = np.zeros((4, 1152), np.float32)
LARGE = np.zeros((3000, 1152), np.float32)


def test_a_device_asked_for_is_used(two: PretendGpu) -> None:
    """A device asked for is used however slow; the decision says both."""
    found = rlx.welch_peaks(SMALL, device="tpu")
    assert (found.device, found.engine) == (Device.TPU, NAME)
    assert found.decision.why.startswith("it was asked for; predicted ")
    found = rlx.welch_peaks(LARGE, device=Device.CPU)
    assert found.device is Device.CPU
    assert found.decision.why.startswith("it was asked for; predicted ")
    assert {c.device for c in found.decision.candidates} == {Device.CPU}


@pytest.mark.parametrize("name", ["welch", "welch_peaks"])
def test_where_to_run_stands_in_the_awaited_calls_too(name: str) -> None:
    """Editors, type checkers and the manual read it from the signature."""
    called, awaited = (
        signature(getattr(rlx, n)).parameters for n in (name, f"{name}_async")
    )
    for where in {"device", "adapter", "strategy"} & called.keys():
        assert awaited[where] == called[where]


@pytest.mark.parametrize("name", ["abacus", "", "cpu,tpu", 3])
def test_unknown_devices_are_refused(name: Any) -> None:
    with pytest.raises(UnknownDevice):
        rlx.welch_peaks(SMALL, device=name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cuda", "CuPy is not installed; PyTorch is not installed; it takes an NVIDIA"),
        ("rocm", "CuPy is not installed; PyTorch is not installed; it takes an AMD"),
        ("tpu", "JAX is not installed; on a machine with a TPU: pip install"),
        ("ane", "only Core ML reaches the Neural Engine"),
    ],
)
def test_devices_that_are_missing_are_refused(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing device is refused with what to do, and never replaced by a CPU."""
    monkeypatch.setattr(presence, "importable", lambda module: False)
    look_again()
    with pytest.raises(AdapterMissing, match=f"open device '{name}': .*{words}"):
        rlx.welch_peaks(SMALL, device=name)
    look_again()


@pytest.mark.requires_wgpu
def test_an_adapter_that_is_not_there_is_refused() -> None:
    """An adapter's name asks for a GPU, also where the device is left open."""
    for where in ({"device": "gpu"}, {}, {"device": "auto"}):
        with pytest.raises(AdapterMissing, match="no-such-adapter"):
            rlx.welch_peaks(SMALL, adapter="no-such-adapter", **where)


@pytest.mark.requires_wgpu
def test_the_adapter_asked_for_computes(adapter: Want) -> None:
    found = rlx.welch_peaks(SMALL, device=adapter.backends[0], adapter=adapter.name)
    assert adapter.name.lower() in found.engine.lower()
    assert f"({adapter.backends[0]})" in found.engine
    assert {c.adapter for c in found.decision.candidates} == {adapter.name}


def test_the_cpu_has_no_adapters() -> None:
    said = "on CPU: adapter 'llvmpipe' was asked for; the CPU has none; leave the adap"
    with pytest.raises(UsageError, match=said):
        rlx.welch_peaks(SMALL, device="cpu", adapter="llvmpipe")


def test_nothing_is_narrowed_unasked(gpu: PretendGpu) -> None:
    """A device refuses float64 samples; precision='f32' narrows them."""
    wide = SMALL.astype(np.float64)
    with pytest.raises(DTypeError) as found:
        rlx.welch_peaks(wide, device="tpu")
    assert found.value.problem == "the samples are float64 and devices compute float32"
    assert found.value.rule == "nothing is narrowed unasked"
    assert "precision='f32'" in found.value.hint
    assert rlx.welch_peaks(wide, device="tpu", precision="f32").device is Device.TPU
    assert rlx.welch_peaks(wide).device is Device.CPU


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"average": "median"}, "average='median' is computed by NumPy only"),
        ({"return_onesided": False}, "two-sided spectra are computed by NumPy only"),
    ],
)
def test_estimates_without_a_kernel_are_refused(
    gpu: PretendGpu, how: dict[str, Any], said: str
) -> None:
    with pytest.raises(Unsupported, match=f"welch on TPU: {said}; use device='cpu'"):
        rlx.welch(SMALL, device="tpu", **how)
    rlx.welch(SMALL, **how)


def test_complex_rows_are_refused_on_devices(gpu: PretendGpu) -> None:
    with pytest.raises(Unsupported, match="complex64 and devices compute float32"):
        rlx.welch(SMALL + 1j, device="tpu")


def test_rlx_device_is_followed(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLX_DEVICE is followed by small jobs too; a device in the call goes before it."""
    monkeypatch.setenv("RLX_DEVICE", " TPU ")
    found = rlx.welch_peaks(SMALL)
    assert found.device is Device.TPU
    assert found.decision.why.startswith("RLX_DEVICE=tpu; predicted ")
    assert rlx.welch_peaks(SMALL, device="cpu").device is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "cpu")
    assert rlx.welch_peaks(LARGE).device is Device.CPU


def test_rlx_device_is_followed_or_warned_about(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it cannot run goes where the prediction says, at the caller's line."""
    monkeypatch.setenv("RLX_DEVICE", "tpu")
    said = "RLX_DEVICE=tpu cannot run this job and is not followed: .* are float64"
    with pytest.warns(EnvironmentWarning, match=said) as seen:
        found = rlx.welch_peaks(SMALL.astype(np.float64))
    assert found.device is Device.CPU
    assert seen[0].filename == __file__
    with pytest.warns(EnvironmentWarning, match="strategy 'fast' does not run there"):
        assert rlx.welch_peaks(SMALL, strategy="fast").device is Device.CPU
    monkeypatch.setenv("RLX_DEVICE", "cuda")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE=cuda cannot.*backend"):
        rlx.welch_peaks(SMALL)
    monkeypatch.setenv("RLX_DEVICE", "tpuu")
    with pytest.warns(EnvironmentWarning, match="RLX_DEVICE='tpuu' is ignored: .*tpu"):
        rlx.welch_peaks(SMALL)


@pytest.mark.parametrize(
    "policy", [{"RLX_DENY_DEVICES": "gl;tpu"}, {"RLX_DEVICES": "cpu"}], ids=str
)
def test_denied_devices_are_left_alone(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch, policy: dict[str, str]
) -> None:
    """Denied devices are left alone, though faster and though RLX_DEVICE names them."""
    assert rlx.welch_peaks(LARGE).device is Device.TPU
    for name, value in policy.items():
        monkeypatch.setenv(name, value)
    found = rlx.welch_peaks(LARGE)
    assert found.device is Device.CPU
    assert {c.device for c in found.decision.candidates} == {Device.CPU}
    monkeypatch.setenv("RLX_DEVICE", "tpu")
    with pytest.warns(EnvironmentWarning, match="RLX_DENY_DEVICES exclude it"):
        assert rlx.welch_peaks(LARGE).device is Device.CPU


def test_a_denied_cpu_is_left_alone(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A denied CPU is not used for jobs picked before, unless the call names it."""
    assert rlx.welch_peaks(SMALL).device is Device.CPU
    monkeypatch.setenv("RLX_DENY_DEVICES", "cpu")
    assert rlx.welch_peaks(SMALL).device is Device.TPU
    assert rlx.welch_peaks(SMALL, device="cpu").device is Device.CPU
    monkeypatch.setenv("RLX_DENY_DEVICES", "cpu,tpu")
    with pytest.raises(UsageError, match=r"cuda: there is no .*allow another device"):
        rlx.welch_peaks(SMALL)


def test_nonsense_in_the_policy_is_named(
    gpu: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_DENY_DEVICES", "abacus")
    with pytest.warns(EnvironmentWarning, match="RLX_DENY_DEVICES='abacus' is ignored"):
        assert rlx.welch_peaks(SMALL).device is Device.CPU


def test_a_preferred_device_from_the_environment(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preferred device is taken in a near tie and in no other case."""
    near = job_of(120)  # the sums are equal at 123 rows
    assert choose(near).device is Device.CPU
    monkeypatch.setenv("RLX_PREFER_DEVICES", "tpu")
    pick = choose(near)
    assert pick.device is Device.TPU
    assert "preferred, being within 10% of the best" in pick.decision.why
    assert choose(job_of(100)).device is Device.CPU


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", ["vulkan", "opengl"])
def test_an_allowed_device_is_found_under_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An allowed name is found, though "gpu" may open the same adapter."""
    rlx.welch_peaks(SMALL, device=name)
    monkeypatch.setenv("RLX_DEVICES", name)
    assert rlx.welch_peaks(SMALL).device is Device(name)


def test_runs_teach_the_next_pick(two: PretendGpu) -> None:
    """A GPU that is slower than its model loses the jobs it was wrong about."""
    job = job_of(3000)
    pick = decide(job, places=BOTH)
    bucket = job.bucket(pick.candidate)
    for _ in range(20):
        pick.observe(4 * pick.candidate.predicted_ns)
    assert corrections.runs(bucket) == 20
    assert 3 < corrections.factor(bucket) <= 4
    taught = decide(job, places=BOTH).decision
    (same,) = [c for c in taught.candidates if c.how == pick.candidate.how]
    assert same.correction == corrections.factor(bucket)
    assert taught.candidates[0] is not same
    elsewhere = decide(job_of(3000, n=64), places=BOTH).decision
    assert {c.correction for c in elsewhere.candidates} == {1.0}


def test_a_corrected_model_is_not_corrected_twice(two: PretendGpu) -> None:
    """Runs count against what the model says itself, so the factor comes to rest."""
    job = job_of(3000)
    took = 2 * decide(job, places=[PLACE]).candidate.predicted_ns
    for _ in range(60):
        pick = decide(job, places=[PLACE])
        (way,) = [c for c in pick.decision.candidates if c.how == "fused_op"]
        replace(pick, candidate=way).observe(took)
    bucket = job.bucket(way)
    assert corrections.factor(bucket) == pytest.approx(2.0, rel=0.03)


def test_runs_nobody_can_tell_apart_teach_nothing(two: PretendGpu) -> None:
    """Below a tenth of a millisecond, or without a model to correct."""
    pick = decide(job_of(3000), places=BOTH)
    pick.observe(0.09e6)
    blank = replace(pick, candidate=replace(pick.candidate, terms=None))
    blank.observe(1e9)
    for took in (0.0, -1.0, math.nan, math.inf):
        pick.observe(took)
    assert corrections.runs(pick.job.bucket(pick.candidate)) == 0


def test_a_single_segment_is_learned_apart(two: PretendGpu) -> None:
    """What ultra took says nothing of eight segments."""
    job = job_of(2000, min_segments=1)
    pick = decide(job, places=[CPU])
    assert pick.decision.what.startswith("ultra")
    pick.observe(3 * pick.candidate.predicted_ns)
    found = by_name(welch_candidates(job, [CPU]))
    assert found["ultra host"].correction > 1
    assert found["fast host"].correction == 1.0


def test_only_warm_runs_are_learned_from(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run of a size compiles; the times after it are kept."""
    now = iter(range(0, 10**12, 1_000_000))
    monkeypatch.setattr("rlxweb.signal.welch_peaks.perf_counter_ns", lambda: next(now))
    runs = []
    for _ in range(3):
        found = rlx.welch_peaks(SMALL, device="tpu").decision.candidates
        bucket = job_of(4).bucket(by_name(found)["fused fused_op"])
        runs.append(corrections.runs(bucket))
    assert runs == [0, 1, 2]


def test_warm_runs_of_rows_are_learned_apart_from_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs of rows on the host have buckets apart from graphs': they are none."""
    now = iter(range(0, 10**12, 1_000_000))
    monkeypatch.setattr("rlxweb.signal.row_calls.perf_counter_ns", lambda: next(now))
    noted: list[Any] = []
    monkeypatch.setattr(corrections, "note", lambda *all_: noted.append(all_))
    samples, counts = np.ones((64, 4000), np.float32), []
    for _ in range(3):
        ran = rlx.multitaper(samples, 250.0).ran
        counts.append(len(noted))
    assert ran.decision is not None
    (own,) = [c for c in ran.decision.candidates if c.device is Device.CPU]
    assert own.terms is not None
    assert counts == [0, 1, 2]
    for bucket, predicted_ns, took_ns in noted:
        assert bucket[:2] == (own.engine, "rows: multitaper")
        assert (predicted_ns, took_ns) == (own.terms.total_ns, 1_000_000)


def test_threads_use_a_pick_as_often_as_one_would() -> None:
    kept, pick = RecentPicks(uses=100), decide(job_of(), places=[CPU])
    kept.keep("a", pick)
    used: list[bool] = []
    at_once([lambda: used.extend(kept.get("a") is pick for _ in range(60))] * 4)
    assert (len(used), sum(used)) == (240, 100)


def test_a_result_carries_its_decision(two: PretendGpu) -> None:
    """A result has its decision in JSON and in its line of prose."""
    found = rlx.welch_peaks(SMALL)
    document = json.loads(json.dumps(found.as_json()))
    assert document["decision"]["what"] == found.decision.what
    assert found.decision.why in found.explain()
    assert found.explain().startswith(f"ran on {found.engine}: ")


def test_what_is_no_number_is_null_in_json() -> None:
    """JSON has no NaN; rows without one keep their numbers."""
    x = np.ones((2, 64), np.float32)
    x[0] = np.nan
    found = rlx.welch_peaks(x, nperseg=64, k=2, nan="propagate", device="cpu")
    first, second = json.loads(json.dumps(found.as_json(), allow_nan=False))["rows"]
    assert first == {"bins": [], "hz": [], "power": []}
    assert second["power"] == found.power[1].tolist()
    endless = replace(found, power=np.full((2, 2), np.inf), count=np.array([1, 2]))
    document = json.loads(json.dumps(endless.as_json(), allow_nan=False))
    assert [row["power"] for row in document["rows"]] == [[None], [None, None]]


def test_a_device_lost_in_a_run_is_not_hidden(two: PretendGpu) -> None:
    """Nothing is computed again unsaid; strictly, a call that was left open fails."""
    two.forget()
    two.fail = [Failure("read", "lost")]
    with pytest.raises(DeviceLost):
        rlx.welch_peaks(LARGE, strict=True)
    two.forget()
    two.fail = [Failure("read", "lost")]
    found = rlx.welch_peaks(LARGE)
    assert "the run was lost with its device" in found.explain()
    assert [bool(a.error) for a in found.decision.attempts] == [True, False]
