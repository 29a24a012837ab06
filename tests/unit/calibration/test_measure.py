"""Calibrating: what becomes a point, the time allowed, jobs that fail; real engines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Resident
from rlxweb.calibration import measure as measuring
from rlxweb.calibration.kernels import TELLING, Job, graph_job, kernel_jobs
from rlxweb.calibration.measure import calibrate, identity_of
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.cost.kinds import KINDS
from rlxweb.cost.probes import Probe
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.record_json import from_json
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place, parse_place
from rlxweb.errors import (
    AdapterMissing,
    DeviceError,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    ShaderRejected,
)
from rlxweb.gpu.drive import drive
from rlxweb.ir.lowering import Expr, Join, Kernel
from rlxweb.ir.op import registry
from tests.unit.calibration.lab import Lab

MS = 1_000_000
MODULE = "rlxweb.calibration.measure"
GPU = Place(Device.GPU)
KERNELS = {kind.name for kind in KINDS.values() if kind.probes}


def times(record: Calibration) -> dict[str, float]:
    return {p.what: p.ns for p in record.points}


def test_every_job_becomes_a_point(lab: Lab) -> None:
    """Jobs become points in order: the median of samples up to twice the fastest.

    All are closed, each step is told.
    """
    lab.kernels.append(lambda: lab.job("copy", 7, 7, 50, 40, 60, size={"bytes": 64}))
    steps: list[str] = []
    # One sample of three is what the work takes; a neighbour had the others.
    more = lab.job("welch_host", 7, 7, 300, 20, 400, size={"n": 1024, "rows": 2})
    got = lab.calibrate(more, progress=steps.append)
    assert got.points == (
        Point("run", {}, 10.0, 0.0, 3),
        Point("call", {}, 20.0, 0.0, 3),
        Point(
            "welch_host", {"n": 1024, "rows": 2}, 40.0, pytest.approx(0.63, abs=0.01), 3
        ),
        Point("copy", {"bytes": 64}, 50.0, pytest.approx(0.2), 3),
    )
    assert got.left_out == ()
    assert lab.closed == ["run", "call", "welch_host", "copy", "welch_host"]
    assert steps[:3] == ["run", "call", "welch_host n 1,024, rows 2"]
    assert steps[4:] == ["second look"]
    assert (got.device, got.identity) == ("cpu", identity_of(CPU))
    assert got.made
    assert got.took_s >= 0


def test_what_is_not_meant_is_taken_off(lab: Lab) -> None:
    """The run around a kernel and other things of a run are taken off."""
    got = lab.calibrate(
        lab.job("kernel", 110, less="run"),
        lab.job("many", 330, less="run", per=32),
        lab.job("noise", 5, less="run"),
        lab.job("alone", 5, less="nothing measured so"),
    )
    assert times(got) == {
        "run": 10.0,
        "call": 20.0,
        "kernel": 100.0,
        "many": 10.0,
        "noise": pytest.approx(0.1),
        "alone": 5.0,
    }


def test_what_the_time_does_not_allow_is_left_out_by_name(lab: Lab) -> None:
    """One may run over by its own length; none is begun or even made after that."""
    late = AssertionError("made when the time was over")
    lab.kernels.append(Mock(side_effect=late))
    jobs = [lab.job(f"job {n}", 20 * MS, size={"n": 1_000 * n}) for n in (1, 2, 3)]
    got = lab.calibrate(*jobs, budget_s=0.15)
    assert list(times(got)) == ["run", "call", "job 1", "job 2"]
    assert got.left_out[0] == "job 3 n 3,000: the time was over"
    assert len(got.left_out) == 2
    assert "job 3" not in lab.begun
    assert lab.clock.now < 0.15e9 + 5 * 20 * MS
    assert lab.closed == ["run", "call", "job 1", "job 2", "job 3"]


def test_at_the_very_end_nothing_is_begun(lab: Lab) -> None:
    """Run and call take 150 ns together, the first job the rest of half a second."""
    for first, begun in ((99_999_970, False), (99_999_969, True)):
        lab.clock.now = 0
        lab.begun.clear()
        lab.calibrate(lab.job("first", first), lab.job("last", 1), budget_s=0.5)
        assert ("last" in lab.begun) is begun


def test_what_graphs_are_priced_by_comes_before_the_jobs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that price graphs come first, before a slow engine's time is over."""
    monkeypatch.setattr(f"{MODULE}.TELLING", TELLING)
    names = [f"kernel {at}" for at in range(TELLING + 2)]
    lab.kernels += [partial(lab.job, name, 50) for name in names]
    got = lab.calibrate(lab.job("mine", 40))
    order = [p.what for p in got.points if p.what not in ("run", "call")]
    assert order == [*names[:TELLING], "mine", *names[TELLING:]]
    kinds = {name.split()[0] for name, _ in list(kernel_jobs(CPU))[:TELLING]}
    assert kinds == KERNELS


def test_kernels_without_time_are_named_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel without time is named: which product, transform or copy is missing."""
    lab = Lab()
    monkeypatch.setattr(f"{MODULE}.empty_run", lambda place: lab.job("run", MS))
    monkeypatch.setattr(f"{MODULE}.call_job", lambda place: lab.job("call", MS))
    left_out = lab.calibrate(budget_s=0.001).left_out
    said = " ".join(left_out)
    assert all(kind in said for kind in ("call", "matmul", "fft", "copy", "element"))
    assert len(set(left_out)) == len(left_out)


def test_nothing_measured_is_an_error_with_every_reason(lab: Lab) -> None:
    lab.kernels.append(lambda: lab.job("copy", 1))
    with pytest.raises(DeviceError) as found:
        lab.calibrate(lab.job("mine", 1), budget_s=0)
    said = str(found.value)
    assert said.startswith("calibrate cpu: nothing could be measured; ")
    for name in ("run", "call", "mine"):
        assert f"{name}: the time was over" in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OutOfMemory("buffer 'a'", "no memory left"), "buffer 'a': no memory left"),
        (ShaderRejected("pipeline", "line 3"), "pipeline: line 3"),
        (MemoryError(), "MemoryError"),
        (MemoryError("no 9 GiB"), "no 9 GiB"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_job_that_fails_is_noted_and_the_others_go_on(
    lab: Lab, error: BaseException, said: str
) -> None:
    """A job may fail when it is made or when it runs: it is noted, others go on."""
    lab.kernels += [Mock(side_effect=error), lambda: lab.job("copy", 50)]
    got = lab.calibrate(lab.failing("mine", error))
    assert list(times(got)) == ["run", "call", "copy"]
    assert got.left_out[0] == f"mine: {said}"
    assert got.left_out[1].endswith(f": {said}")
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
def test_a_lost_device_ends_it(lab: Lab, error: BaseException) -> None:
    """A lost device, a timeout or a mistake ends the calibration."""
    with pytest.raises(type(error)) as found:
        lab.calibrate(lab.failing("mine", error), lab.job("next", 1))
    assert found.value is error
    assert lab.closed == ["run", "call", "mine"]
    assert "next" not in lab.begun
    lab.kernels.append(Mock(side_effect=error))
    with pytest.raises(type(error)):
        lab.calibrate()


@pytest.mark.parametrize(
    ("second", "kept"), [(50, 50.0), (149, 149.0), (150, 150.0), (900, 150.0)]
)
def test_the_faster_of_two_looks_counts(lab: Lab, second: int, kept: float) -> None:
    """Noise only adds; each size is compared with itself, without the run around it."""
    one = lab.job("sort", *[160] * 5, second + 10, less="run", size={"n": 1})
    other = lab.job("sort", 7_010, less="run", size={"n": 2})
    got = lab.calibrate(one, other)
    assert [(p.size["n"], p.ns) for p in got.of("sort")] == [(1, kept), (2, 7_000.0)]


def test_a_second_look_needs_time_for_all_of_it(lab: Lab) -> None:
    """A second look needs a fifth to spare; the engine's own jobs have one look."""
    for budget, looks in ((0.21, 1), (0.23, 2)):
        lab.begun.clear()
        got = lab.calibrate(lab.job("sort", 20 * MS), budget_s=budget)
        assert lab.begun.count("sort") == 5 * looks
        assert lab.begun.count("run") == 5
        assert (got.left_out, len(got.points)) == ((), 3)


@pytest.mark.parametrize(
    ("error", "ends"),
    [(OutOfMemory("buffer", "no memory"), False), (DeviceLost("read", "gone"), True)],
    ids=lambda e: type(e).__name__,
)
def test_a_second_look_that_fails_leaves_the_first(
    lab: Lab, error: Exception, ends: bool
) -> None:
    """A second look that fails leaves the first; a lost device ends the calibration."""
    looks = iter([[lab.job("sort", 30)], [lab.failing("sort", error)]])
    measure = partial(calibrate, CPU, jobs=lambda place: next(looks), watch=lab.watch)
    if ends:
        with pytest.raises(DeviceLost, match="gone"):
            measure()
    else:
        assert times(measure())["sort"] == 30.0
    assert lab.closed == ["run", "call", "sort", "sort"]


def test_a_device_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AdapterMissing, match="tpu"):
        calibrate(Place(Device.TPU))


MEASURED = {"run", *KERNELS}


def timed(*kinds: type) -> set[str]:
    """Ops lowered so that no kind tells the price of; of bits, of whole numbers."""
    told = {"matmul", "conv", "fft", "rfft", "irfft", "lstm", "gru", "rnn"}
    told |= {"selective_scan", "linear_scan", "linear_recurrence"}
    found = {o.name for o in registry if isinstance(o.lower, kinds)} - told
    of_bits = ("bitwise_", "shift_")
    return {f"{n} whole" if n.startswith(of_bits) else n for n in found}


def in_brief() -> Stopwatch:
    """One sample of one call each: seconds become tenths of a second."""
    return Stopwatch(sample_ns=1, samples=1, least=1)


@pytest.fixture
def smallest_sizes(monkeypatch: pytest.MonkeyPatch, is_full_tier: bool) -> None:
    """Measure each kernel at the smallest of its sizes; at all in the full tier."""

    def smallest(place: Place) -> Iterator[tuple[str, partial[Job]]]:
        sizes: dict[str, tuple[int, str, partial[Job]]] = {}
        for name, build in kernel_jobs(place):
            assert isinstance(build, partial)
            _, what, probe = build.args
            size = math.prod(probe.size.values())
            if what not in sizes or size < sizes[what][0]:
                sizes[what] = (size, name, build)
        return ((name, build) for _, name, build in sizes.values())

    if not is_full_tier:
        monkeypatch.setattr(f"{MODULE}.kernel_jobs", smallest)


def sane(record: Calibration, device: str) -> None:
    """Times of real runs, whole through JSON, under the engine's identity."""
    assert record.device == device
    for point in record.points:
        assert 0 < point.ns < math.inf
        assert 0 <= point.spread < math.inf
        assert point.samples >= 1
        size = dict(point.size)
        assert size.pop("k", 0) >= 0  # 0: the spectrum without a search
        assert all(n > 0 for n in size.values())
    assert from_json(json.loads(json.dumps(record.as_json()))) == record
    assert all(record.identity)
    assert len({json.dumps([p.what, dict(p.size)]) for p in record.points}) == len(
        record.points
    )


def test_the_real_cpu() -> None:
    """Every kind of figure that prices need, nothing left out."""
    got = calibrate(CPU, budget_s=600, watch=in_brief())
    sane(got, "cpu")
    ops = timed(Expr, Join, Kernel)
    assert {"exp", "concat", "softmax"} < ops
    slow = {"div whole", "mul half", "topk whole"}
    more = slow | {"call", "welch_host"}
    assert {p.what for p in got.points} == MEASURED | ops | more
    assert got.left_out == ()
    assert got.identity == identity_of(CPU)
    largest = max(p.size["bytes"] for p in got.of("copy"))
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
def test_the_real_libraries(device: str, skips: bool) -> None:
    """Libraries have all a graph's price needs; one that skips work does the whole."""
    place = parse_place(device)
    got = calibrate(place, jobs=lambda place: (), budget_s=600, watch=in_brief())
    sane(got, device)
    assert {p.what for p in got.points} == MEASURED | timed(Kernel) | {"call"}
    assert got.left_out == ()
    assert got.identity == identity_of(place)
    assert pool.backend(device).skips is skips


@pytest.mark.parametrize("skips", [False, True])
def test_work_that_no_output_reads_is_measured(
    skips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unread work is measured whole though one number comes back."""
    backend = pool.backend("cpu")
    monkeypatch.setattr(CpuBackend, "skips", skips)
    seen: list[list[tuple[int, ...]]] = []
    run, run_resident = backend.run, backend.run_resident

    async def noted(*given: Any) -> list[Any]:
        outs = await (run(*given) if len(given) == 2 else run_resident(*given))
        seen.append([(*out.shape, isinstance(out, Resident)) for out in outs])
        return outs

    monkeypatch.setattr(backend, "run", noted)
    monkeypatch.setattr(backend, "run_resident", noted)
    probe = Probe("copy", {"bytes": 48}, {"x": (2, 3)}, lambda g, x: x * 1.5)
    with closing(graph_job(CPU, "copy", probe)) as job:
        job.run()
    assert seen == [[(2, 3, True), (1, 1, False)] if skips else [(1, 1, False)]]


@pytest.mark.requires_torch
def test_trips_of_a_device_that_a_library_drives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch's on the CPU is a host, until it says that it is none."""
    backend = pool.backend("torch-cpu")
    assert drive(backend.trips()) is drive(pool.backend("cpu").trips()) is None
    monkeypatch.setattr(backend, "software", False)
    got = calibrate(
        parse_place("torch-cpu"), jobs=lambda place: (), budget_s=0.5, watch=in_brief()
    )
    trips = {"cold_start", "submit", "dispatch", "upload", "readback"}
    assert trips <= {p.what for p in got.points}
    assert max(p.size["bytes"] for p in got.of("readback")) == 16 << 20


@pytest.mark.requires_wgpu
@pytest.mark.usefixtures("smallest_sizes")
def test_a_real_adapter(monkeypatch: pytest.MonkeyPatch, is_full_tier: bool) -> None:
    """An adapter has trips, transfers of several sizes, a compilation and kernels.

    Of the ops that are told apart by name alone it takes an eighth, which all run on
    the CPU above, and on this adapter in tests/ops.
    """
    ops = sorted(timed(Kernel))[:: 1 if is_full_tier else 8]
    every = measuring.kernel_jobs

    def some(place: Place) -> Iterator[tuple[str, partial[Job]]]:
        for name, build in every(place):
            assert isinstance(build, partial)
            if build.args[1] in KERNELS.union(ops):
                yield name, build

    monkeypatch.setattr(measuring, "kernel_jobs", some)

    def more(place: Place) -> Iterator[Job]:
        yield Job("of another room", {"n": 3}, lambda: None)

    got = calibrate(GPU, jobs=more, budget_s=600, watch=in_brief())
    sane(got, "gpu")
    wanted = {"submit", "dispatch", "upload", "readback", "compile", "of another room"}
    kinds = {p.what for p in got.points} - {"cold_start"}
    assert kinds == MEASURED | {*ops} | wanted
    assert got.identity == identity_of(GPU)
    for what in ("upload", "readback"):
        sizes = [p.size["bytes"] for p in got.of(what)]
        assert len(sizes) >= 3
        assert max(sizes) >= 16 << 20
    assert set(got.left_out) <= {"cold_start: the device was open already"}
    assert bool(got.of("cold_start")) is not bool(got.left_out)
