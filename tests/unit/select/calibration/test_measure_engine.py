"""Calibration of an engine: points, time budget, failing jobs, and real engines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from rlxweb.core.device import Device
from rlxweb.core.errors import (
    AdapterMissing,
    DeviceError,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    ShaderRejected,
)
from rlxweb.cost.calibration_json import calibration_from_json
from rlxweb.cost.calibration_probes import CalibrationProbe
from rlxweb.cost.calibration_record import (
    Calibration,
    MeasuredPoint,
)
from rlxweb.cost.work_kinds import KINDS
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import DeviceBuffer
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.lowering import ConcatLowering, Expr, Kernel
from rlxweb.ir.op import registry
from rlxweb.select.calibration import measure_engine as measuring
from rlxweb.select.calibration.calibration_jobs import (
    ESSENTIAL_KERNEL_COUNT,
    CalibrationJob,
    kernel_jobs,
    probe_job,
)
from rlxweb.select.calibration.measure_engine import calibrate, engine_identity
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace, parse_place
from tests.unit.select.calibration.fake_clock_calibration import CalibrationLab

MS = 1_000_000
MODULE = "rlxweb.select.calibration.measure_engine"
GPU = DevicePlace(Device.GPU)
KERNEL_KINDS = {kind.name for kind in KINDS.values() if kind.probes}


def ns_by_kind(record: Calibration) -> dict[str, float]:
    return {p.what: p.ns for p in record.points}


def test_every_job_becomes_a_point(lab: CalibrationLab) -> None:
    """Jobs become points in order, each the median of the samples up to twice the
    fastest.

    All are closed, each step is told.
    """
    lab.kernel_makers.append(
        lambda: lab.make_job("copy", 7, 7, 50, 40, 60, size={"bytes": 64})
    )
    steps: list[str] = []
    # One sample of three is what the work takes; a neighbour had the others.
    welch_job = lab.make_job(
        "welch_host", 7, 7, 300, 20, 400, size={"n": 1024, "rows": 2}
    )
    got = lab.calibrate(welch_job, progress=steps.append)
    assert got.points == (
        MeasuredPoint("run", {}, 10.0, 0.0, 3),
        MeasuredPoint("call", {}, 20.0, 0.0, 3),
        MeasuredPoint(
            "welch_host", {"n": 1024, "rows": 2}, 40.0, pytest.approx(0.63, abs=0.01), 3
        ),
        MeasuredPoint("copy", {"bytes": 64}, 50.0, pytest.approx(0.2), 3),
    )
    assert got.left_out == ()
    assert lab.closed == ["run", "call", "welch_host", "copy", "welch_host"]
    assert steps[:3] == ["run", "call", "welch_host n 1,024, rows 2"]
    assert steps[4:] == ["second pass"]
    assert (got.device, got.identity) == ("cpu", engine_identity(CPU_PLACE))
    assert got.made
    assert got.took_s >= 0


def test_overhead_is_subtracted(lab: CalibrationLab) -> None:
    """The time of the surrounding run and of other parts of a run is subtracted."""
    got = lab.calibrate(
        lab.make_job("kernel", 110, overhead_kind="run"),
        lab.make_job("many", 330, overhead_kind="run", units_per_run=32),
        lab.make_job("noise", 5, overhead_kind="run"),
        lab.make_job("alone", 5, overhead_kind="nothing measured so"),
    )
    assert ns_by_kind(got) == {
        "run": 10.0,
        "call": 20.0,
        "kernel": 100.0,
        "many": 10.0,
        "noise": pytest.approx(0.1),
        "alone": 5.0,
    }


def test_jobs_beyond_time_budget_are_left_out_by_name(lab: CalibrationLab) -> None:
    """One job may exceed the budget by its own length; no job starts or is created
    after that.
    """
    late_error = AssertionError("made when the time was over")
    lab.kernel_makers.append(Mock(side_effect=late_error))
    jobs = [lab.make_job(f"job {n}", 20 * MS, size={"n": 1_000 * n}) for n in (1, 2, 3)]
    got = lab.calibrate(*jobs, budget_s=0.15)
    assert list(ns_by_kind(got)) == ["run", "call", "job 1", "job 2"]
    assert got.left_out[0] == "job 3 n 3,000: the time limit was reached"
    assert len(got.left_out) == 2
    assert "job 3" not in lab.started
    assert lab.clock.now < 0.15e9 + 5 * 20 * MS
    assert lab.closed == ["run", "call", "job 1", "job 2", "job 3"]


def test_no_job_starts_at_end_of_budget(lab: CalibrationLab) -> None:
    """Run and call take 150 ns together, the first job the rest of half a second."""
    for first, begun in ((99_999_970, False), (99_999_969, True)):
        lab.clock.now = 0
        lab.started.clear()
        lab.calibrate(
            lab.make_job("first", first), lab.make_job("last", 1), budget_s=0.5
        )
        assert ("last" in lab.started) is begun


def test_graph_pricing_kernels_come_before_engine_jobs(
    lab: CalibrationLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that price graphs come first, before the time of a slow engine is used
    up.
    """
    monkeypatch.setattr(f"{MODULE}.ESSENTIAL_KERNEL_COUNT", ESSENTIAL_KERNEL_COUNT)
    names = [f"kernel {at}" for at in range(ESSENTIAL_KERNEL_COUNT + 2)]
    lab.kernel_makers += [partial(lab.make_job, name, 50) for name in names]
    got = lab.calibrate(lab.make_job("mine", 40))
    order = [p.what for p in got.points if p.what not in ("run", "call")]
    assert order == [
        *names[:ESSENTIAL_KERNEL_COUNT],
        "mine",
        *names[ESSENTIAL_KERNEL_COUNT:],
    ]
    kinds = {
        name.split()[0]
        for name, _ in list(kernel_jobs(CPU_PLACE))[:ESSENTIAL_KERNEL_COUNT]
    }
    assert kinds == KERNEL_KINDS


def test_kernels_left_out_for_time_are_named_individually(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel left out for lack of time is named, so that the missing matmul, FFT or
    copy is known.
    """
    lab = CalibrationLab()
    monkeypatch.setattr(
        f"{MODULE}.empty_run_job", lambda place: lab.make_job("run", MS)
    )
    monkeypatch.setattr(f"{MODULE}.call_job", lambda place: lab.make_job("call", MS))
    left_out = lab.calibrate(budget_s=0.001).left_out
    text = " ".join(left_out)
    assert all(kind in text for kind in ("call", "matmul", "fft", "copy", "element"))
    assert len(set(left_out)) == len(left_out)


def test_nothing_measured_is_an_error_with_every_reason(lab: CalibrationLab) -> None:
    lab.kernel_makers.append(lambda: lab.make_job("copy", 1))
    with pytest.raises(DeviceError) as excinfo:
        lab.calibrate(lab.make_job("mine", 1), budget_s=0)
    message = str(excinfo.value)
    assert message.startswith("calibrate cpu: nothing could be measured; ")
    for name in ("run", "call", "mine"):
        assert f"{name}: the time limit was reached" in message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OutOfMemory("buffer 'a'", "no memory left"), "buffer 'a': no memory left"),
        (ShaderRejected("pipeline", "line 3"), "pipeline: line 3"),
        (MemoryError(), "MemoryError"),
        (MemoryError("no 9 GiB"), "no 9 GiB"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_failing_job_is_reported_and_others_continue(
    lab: CalibrationLab, error: BaseException, message: str
) -> None:
    """A job may fail when it is created or when it runs: it is reported and the others
    continue.
    """
    lab.kernel_makers += [Mock(side_effect=error), lambda: lab.make_job("copy", 50)]
    got = lab.calibrate(lab.make_failing_job("mine", error))
    assert list(ns_by_kind(got)) == ["run", "call", "copy"]
    assert got.left_out[0] == f"mine: {message}"
    assert got.left_out[1].endswith(f": {message}")
    assert lab.closed == ["run", "call", "mine", "copy", "mine"]


@pytest.mark.parametrize(
    "error",
    [
        DeviceLost("run", "the device went away"),
        GpuTimeout("run", "no answer in 30 s"),
        ZeroDivisionError("a mistake in a job"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_fatal_error_ends_calibration(
    lab: CalibrationLab, error: BaseException
) -> None:
    """A lost device, a timeout or a mistake ends the calibration."""
    with pytest.raises(type(error)) as excinfo:
        lab.calibrate(lab.make_failing_job("mine", error), lab.make_job("next", 1))
    assert excinfo.value is error
    assert lab.closed == ["run", "call", "mine"]
    assert "next" not in lab.started
    lab.kernel_makers.append(Mock(side_effect=error))
    with pytest.raises(type(error)):
        lab.calibrate()


@pytest.mark.parametrize(
    ("second", "expected_ns"), [(50, 50.0), (149, 149.0), (150, 150.0), (900, 150.0)]
)
def test_faster_of_two_passes_counts(
    lab: CalibrationLab, second: int, expected_ns: float
) -> None:
    """Noise only adds time; each size is compared with itself, without the surrounding
    run.
    """
    first_job = lab.make_job(
        "sort", *[160] * 5, second + 10, overhead_kind="run", size={"n": 1}
    )
    second_job = lab.make_job("sort", 7_010, overhead_kind="run", size={"n": 2})
    got = lab.calibrate(first_job, second_job)
    assert [(p.size["n"], p.ns) for p in got.points_of_kind("sort")] == [
        (1, expected_ns),
        (2, 7_000.0),
    ]


def test_second_pass_needs_time_for_all_jobs(lab: CalibrationLab) -> None:
    """A second pass needs a fifth of the budget to spare; the engine's own jobs have
    one pass.
    """
    for budget, passes in ((0.21, 1), (0.23, 2)):
        lab.started.clear()
        got = lab.calibrate(lab.make_job("sort", 20 * MS), budget_s=budget)
        assert lab.started.count("sort") == 5 * passes
        assert lab.started.count("run") == 5
        assert (got.left_out, len(got.points)) == ((), 3)


@pytest.mark.parametrize(
    ("error", "ends_calibration"),
    [(OutOfMemory("buffer", "no memory"), False), (DeviceLost("read", "gone"), True)],
    ids=lambda e: type(e).__name__,
)
def test_failing_second_pass_keeps_first(
    lab: CalibrationLab, error: Exception, ends_calibration: bool
) -> None:
    """A second pass that fails keeps the first; a lost device ends the calibration."""
    passes = iter([[lab.make_job("sort", 30)], [lab.make_failing_job("sort", error)]])
    measure = partial(
        calibrate, CPU_PLACE, jobs=lambda place: next(passes), watch=lab.stopwatch
    )
    if ends_calibration:
        with pytest.raises(DeviceLost, match="gone"):
            measure()
    else:
        assert ns_by_kind(measure())["sort"] == 30.0
    assert lab.closed == ["run", "call", "sort", "sort"]


def test_missing_device_is_an_error() -> None:
    with pytest.raises(AdapterMissing, match="tpu"):
        calibrate(DevicePlace(Device.TPU))


MEASURED_KINDS = {"run", *KERNEL_KINDS}


def ops_timed_by_name(*kinds: type) -> set[str]:
    """Names of the ops of these lowerings that no work kind prices, as they are
    measured.
    """
    priced_by_kind = {"matmul", "conv", "fft", "rfft", "irfft", "lstm", "gru", "rnn"}
    priced_by_kind |= {"selective_scan", "linear_scan", "linear_recurrence"}
    names = {o.name for o in registry if isinstance(o.lower, kinds)} - priced_by_kind
    integer_prefixes = ("bitwise_", "shift_")
    return {f"{n} whole" if n.startswith(integer_prefixes) else n for n in names}


def brief_stopwatch() -> Stopwatch:
    """Stopwatch that takes one sample of one call each, so that seconds become tenths
    of a second.
    """
    return Stopwatch(sample_ns=1, samples=1, min_samples=1)


@pytest.fixture
def smallest_sizes(monkeypatch: pytest.MonkeyPatch, is_full_tier: bool) -> None:
    """Measure each kernel at the smallest of its sizes; at all in the full tier."""

    def smallest_kernel_jobs(
        place: DevicePlace,
    ) -> Iterator[tuple[str, partial[CalibrationJob]]]:
        sizes: dict[str, tuple[int, str, partial[CalibrationJob]]] = {}
        for name, build in kernel_jobs(place):
            assert isinstance(build, partial)
            _, what, probe = build.args
            size = math.prod(probe.size.values())
            if what not in sizes or size < sizes[what][0]:
                sizes[what] = (size, name, build)
        return ((name, build) for _, name, build in sizes.values())

    if not is_full_tier:
        monkeypatch.setattr(f"{MODULE}.kernel_jobs", smallest_kernel_jobs)


def check_plausible_record(record: Calibration, device: str) -> None:
    """Check that a record holds times of real runs, survives JSON and has the engine's
    identity.
    """
    assert record.device == device
    for point in record.points:
        assert 0 < point.ns < math.inf
        assert 0 <= point.spread < math.inf
        assert point.samples >= 1
        size = dict(point.size)
        assert size.pop("k", 0) >= 0  # 0: the spectrum without a search
        assert all(n > 0 for n in size.values())
    assert calibration_from_json(json.loads(json.dumps(record.as_json()))) == record
    assert all(record.identity)
    assert len({json.dumps([p.what, dict(p.size)]) for p in record.points}) == len(
        record.points
    )


def test_real_cpu() -> None:
    """The CPU's record has every kind of point that prices need, with nothing left
    out.
    """
    got = calibrate(CPU_PLACE, budget_s=600, watch=brief_stopwatch())
    check_plausible_record(got, "cpu")
    ops = ops_timed_by_name(Expr, ConcatLowering, Kernel)
    assert {"exp", "concat", "softmax"} < ops
    slow = {"div whole", "mul half", "topk whole"}
    extra_kinds = slow | {"call", "welch_host"}
    assert {p.what for p in got.points} == MEASURED_KINDS | ops | extra_kinds
    assert got.left_out == ()
    assert got.identity == engine_identity(CPU_PLACE)
    largest = max(p.size["bytes"] for p in got.points_of_kind("copy"))
    assert largest >= 2 * (64 << 20)


@pytest.mark.full("jax-cpu", "mlx")
@pytest.mark.parametrize(
    ("device", "skips"),
    [
        pytest.param("torch-cpu", False, marks=pytest.mark.requires_torch),
        pytest.param("jax-cpu", True, marks=pytest.mark.requires_jax),
        pytest.param("mlx", False, marks=pytest.mark.requires_mlx),
    ],
)
@pytest.mark.usefixtures("smallest_sizes")
def test_real_array_libraries(device: str, skips: bool) -> None:
    """Libraries have all that a graph's price needs; one that skips unused work is
    measured on all of it.
    """
    place = parse_place(device)
    got = calibrate(place, jobs=lambda place: (), budget_s=600, watch=brief_stopwatch())
    check_plausible_record(got, device)
    assert {p.what for p in got.points} == MEASURED_KINDS | ops_timed_by_name(
        Kernel
    ) | {"call"}
    assert got.left_out == ()
    assert got.identity == engine_identity(place)
    assert pool.engine(device).skips is skips


@pytest.mark.parametrize("skips", [False, True])
def test_unread_work_is_measured(skips: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread work is measured in full although one number is read back."""
    engine = pool.engine("cpu")
    monkeypatch.setattr(CpuEngine, "skips", skips)
    output_kinds: list[list[tuple[int, ...]]] = []
    run = engine.run

    async def record_outputs(*arguments: Any) -> list[Any]:
        outs = await run(*arguments)
        output_kinds.append(
            [(*out.shape, isinstance(out, DeviceBuffer)) for out in outs]
        )
        return outs

    monkeypatch.setattr(engine, "run", record_outputs)
    probe = CalibrationProbe("copy", {"bytes": 48}, {"x": (2, 3)}, lambda g, x: x * 1.5)
    with closing(probe_job(CPU_PLACE, "copy", probe)) as job:
        job.run()
    assert output_kinds == [[(2, 3, True), (1, 1, False)] if skips else [(1, 1, False)]]


@pytest.mark.requires_torch
def test_latency_points_of_library_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch on the CPU counts as host, until it says that it is not software."""
    engine = pool.engine("torch-cpu")
    assert (
        run_blocking(engine.latency_probes())
        is run_blocking(pool.engine("cpu").latency_probes())
        is None
    )
    monkeypatch.setattr(engine, "identity", replace(engine.identity, software=False))
    got = calibrate(
        parse_place("torch-cpu"),
        jobs=lambda place: (),
        budget_s=0.5,
        watch=brief_stopwatch(),
    )
    latency_kinds = {"cold_start", "submit", "dispatch", "upload", "readback"}
    assert latency_kinds <= {p.what for p in got.points}
    assert max(p.size["bytes"] for p in got.points_of_kind("readback")) == 16 << 20


@pytest.mark.requires_wgpu
@pytest.mark.usefixtures("smallest_sizes")
def test_real_adapter(monkeypatch: pytest.MonkeyPatch, is_full_tier: bool) -> None:
    """An adapter has latency points, transfers of several sizes, a compilation and
    kernels.

    Of the ops that are told apart by name alone it takes an eighth, which all run on
    the CPU above, and on this adapter in tests/ops.
    """
    ops = sorted(ops_timed_by_name(Kernel))[:: 1 if is_full_tier else 8]
    all_kernel_jobs = measuring.kernel_jobs

    def selected_kernel_jobs(
        place: DevicePlace,
    ) -> Iterator[tuple[str, partial[CalibrationJob]]]:
        for name, build in all_kernel_jobs(place):
            assert isinstance(build, partial)
            if build.args[1] in KERNEL_KINDS.union(ops):
                yield name, build

    monkeypatch.setattr(measuring, "kernel_jobs", selected_kernel_jobs)

    def extra_jobs(place: DevicePlace) -> Iterator[CalibrationJob]:
        yield CalibrationJob("of another room", {"n": 3}, lambda: None)

    got = calibrate(GPU, jobs=extra_jobs, budget_s=600, watch=brief_stopwatch())
    check_plausible_record(got, "gpu")
    expected_kinds = {
        "submit",
        "dispatch",
        "upload",
        "readback",
        "compile",
        "of another room",
    }
    kinds = {p.what for p in got.points} - {"cold_start"}
    assert kinds == MEASURED_KINDS | {*ops} | expected_kinds
    assert got.identity == engine_identity(GPU)
    for what in ("upload", "readback"):
        sizes = [p.size["bytes"] for p in got.points_of_kind(what)]
        assert len(sizes) >= 3
        assert max(sizes) >= 16 << 20
    assert set(got.left_out) <= {"cold_start: the device was open already"}
    assert bool(got.points_of_kind("cold_start")) is not bool(got.left_out)
