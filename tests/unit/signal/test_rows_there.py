"""Welch estimates of samples that lie on a device: there, and as on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.advice import Advice
from rlxweb.backends import webgpu_bindings
from rlxweb.backends.pool import pool
from rlxweb.cost.record import Point
from rlxweb.errors import (
    DTypeError,
    InputError,
    NotFinite,
    OutOfMemory,
    ShapeError,
    Unsupported,
    UsageError,
)
from rlxweb.gpu.port import Copy
from rlxweb.signal import engine
from tests.threads import in_a_loop
from tests.unit.signal.pretend_gpu import PLACE, QUICK, PretendGpu, by_name, job_of

X = np.random.default_rng(4).standard_normal((3, 2, 600)).astype(np.float32)
PLACES = [
    "cpu",
    "torch-cpu",
    "jax-cpu",
    pytest.param("vulkan", marks=pytest.mark.requires_wgpu),
]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_job_goes_where_the_samples_lie(place: str) -> None:
    """Samples on a device are searched there, as on the host; the decision says why."""
    x = rlx.put(X, place)
    found = rlx.welch_peaks(x, fs=100, nperseg=128, k=3, device="auto")
    want = rlx.welch_peaks(X, fs=100, nperseg=128, k=3, device="cpu")
    np.testing.assert_array_equal(found.bins, want.bins)
    np.testing.assert_allclose(found.power, want.power, rtol=1e-4)
    assert (found.device, found.engine) == (x.device, x.engine)
    assert found.decision.why.startswith("the samples lie there")
    maxima = rlx.welch_peaks(x, fs=100, nperseg=128, k=3, mode="peaks")
    want = rlx.welch_peaks(X, fs=100, nperseg=128, k=3, mode="peaks", device="cpu")
    np.testing.assert_array_equal(maxima.count, want.count)
    np.testing.assert_allclose(maxima.hz, want.hz, rtol=1e-4)
    hz, power = in_a_loop(rlx.welch_async(x, 100, fmax=20, device=place))
    right = rlx.welch(X, 100, fmax=20, device="cpu")
    np.testing.assert_array_equal(hz, right[0])
    np.testing.assert_allclose(power, right[1], rtol=1e-4, atol=1e-9)


@pytest.mark.requires_wgpu
@settings(max_examples=20)
@given(
    shape=st.sampled_from([(40,), (1, 40), (7, 33), (2, 3, 64), (65, 50)]),
    batch=st.integers(1, 4000),
    silent=st.booleans(),
)
def test_batches_and_shapes_change_no_answer(
    shape: tuple[int, ...], batch: int, silent: bool
) -> None:
    """Rows are taken out of the array where they lie; silent ones are rows too."""
    x = np.random.default_rng(batch).standard_normal(shape).astype(np.float32)
    if silent:
        x.reshape(-1, shape[-1])[0] = 0
    want = rlx.welch(x, 10, nperseg=16, device="cpu")[1]
    with pytest.MonkeyPatch.context() as patch, rlx.put(x, "vulkan") as there:
        patch.setattr(engine, "BATCH_BYTES", 4 * batch)
        found = rlx.welch(there, 10, nperseg=16)[1]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


@pytest.mark.requires_wgpu
def test_samples_are_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two numbers per row are, and the result."""
    x = rlx.put(np.tile(X, (1, 1, 8)), "vulkan")
    backend: Any = pool.backend("vulkan")
    read: list[int] = []
    inner = backend.port.read

    async def counted(handle: int, offset: int, nbytes: int) -> memoryview:
        read.append(nbytes)
        return await inner(handle, offset, nbytes)

    monkeypatch.setattr(backend.port, "read", counted)
    rlx.welch_peaks(x, fs=100, nperseg=128, k=3)
    assert sum(read) <= 6 * 2 * 4 + 6 * 2 * 3 * 4 + 64, read


@pytest.mark.requires_wgpu
def test_batches_are_bound_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of an odd length, in batches: none of them is copied on the device."""
    monkeypatch.setattr(engine, "BATCH_BYTES", 4 * 33 * 100)
    monkeypatch.setattr(webgpu_bindings, "WORTH_BINDING", 0)
    x = np.random.default_rng(1).standard_normal((200, 33)).astype(np.float32)
    there = rlx.put(x, "vulkan")
    port: Any = pool.backend("vulkan").port
    copied: list[int] = []
    inner = port.submit

    def counted(*lists: Any) -> None:
        commands = [command for one in lists for command in one]
        copied.extend(c.source.handle for c in commands if isinstance(c, Copy))
        inner(*lists)

    monkeypatch.setattr(port, "submit", counted)
    found = rlx.welch_peaks(there, fs=10, nperseg=16, k=2)
    want = rlx.welch_peaks(x, fs=10, nperseg=16, k=2, device="cpu")
    np.testing.assert_array_equal(found.bins, want.bins)
    assert copied, "results are packed"
    assert there._resident.lying.span.handle not in copied  # type: ignore[attr-defined]


def test_what_is_there_is_not_priced_as_if_it_came(gpu: PretendGpu) -> None:
    """The upload is left out of every way on the device, and nothing else."""
    trips = [Point("submit", {}, 1e5)]
    for what in ("upload", "readback"):
        trips += [Point(what, {"bytes": n}, float(n)) for n in (1 << 10, 1 << 20)]
    QUICK.give_to(PLACE, *trips)
    job = job_of(64)
    for there in (False, True):
        ways = by_name(list(replace(job, is_there=there).offers(PLACE)))
        terms = ways["fused fused_op"].terms
        assert terms is not None
        assert (terms.upload_ns == 0, terms.readback_ns > 0) == (there, True)


@pytest.mark.parametrize("place", PLACES[1:], indirect=True)
def test_what_only_the_host_can_do_is_refused(place: str) -> None:
    """Nothing is moved there unasked."""
    x = rlx.put(X, place)
    with pytest.raises(InputError, match=f"lie on device '{place}'.*pass x.numpy"):
        rlx.welch(x, device="cpu")
    with pytest.raises(InputError, match="adapter 'other'"):
        rlx.welch_peaks(x, adapter="other")
    with pytest.raises(ShapeError, match="the time axis is the last"):
        rlx.welch(x, axis=0)
    with pytest.raises(ShapeError, match="a single number"):
        rlx.welch(rlx.put(X[0, 0, 0], place))
    with pytest.raises(DTypeError, match="on a device they are float32"):
        rlx.welch(rlx.put(X.astype(np.int32), place))
    with pytest.raises(Unsupported, match="a detrend function over DeviceArray"):
        rlx.welch(x, detrend=lambda segment: segment)
    home = r"use x\.numpy\(\) and device='cpu'"
    with pytest.raises(Unsupported, match=f"median.*; {home}"):
        rlx.welch(x, average="median")
    with pytest.raises(DTypeError, match=f"leave precision='f64' out, or {home}"):
        rlx.welch_peaks(x, precision="f64")
    with pytest.raises(UsageError, match="'ultra' does not run there"):
        rlx.welch_peaks(x, strategy="ultra", min_segments=1)
    with pytest.raises(UsageError, match="nan"):
        rlx.welch(x, nan="no such policy")  # type: ignore[arg-type]


@pytest.mark.parametrize("place", PLACES[1:], indirect=True)
@pytest.mark.parametrize(
    ("value", "nan", "error", "said"),
    [
        (np.nan, "raise", NotFinite, r"channel \[2, 1\] is nan at sample 77; 1 of its"),
        (np.inf, "raise", NotFinite, r"channel \[2, 1\] is inf at sample 77"),
        (np.nan, "propagate", Unsupported, "not finite; pass x.numpy"),
        (1e30, "raise", Unsupported, "squares leave the range of float32"),
    ],
)
def test_a_row_that_cannot_be_computed_is_named(
    place: str, value: float, nan: Any, error: type[Exception], said: str
) -> None:
    """The first of them; the data stays where it is."""
    bad = X.copy()
    bad[2, 1, 77] = value
    x = rlx.put(bad, place)
    with pytest.raises(error, match=said):
        rlx.welch(x, nan=nan)
    with pytest.raises(error, match=said):
        rlx.welch_peaks(x, nan=nan)


@pytest.mark.requires_torch
def test_what_an_engine_advises_holds_for_what_lies_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only who has samples there is told to take them along to the CPU."""

    async def full(*given: Any) -> Any:
        raise OutOfMemory("run", "no room", hint=Advice("use {}", device="cpu"))

    x = rlx.put(X, "torch-cpu")
    monkeypatch.setattr(pool.backend("torch-cpu"), "run", full)
    monkeypatch.setattr(pool.backend("torch-cpu"), "run_resident", full)
    for work in (rlx.welch, rlx.welch_peaks):
        with pytest.raises(OutOfMemory, match=r"use x\.numpy\(\) and device='cpu'"):
            work(x)
        with pytest.raises(OutOfMemory, match="; use device='cpu'"):
            work(X, device="torch-cpu")


def test_on_the_cpu_all_of_numpys_ways_are_open() -> None:
    """Arrays that lie on the CPU take any type, any axis and any option."""
    x = rlx.put(X.astype(float), "cpu")
    for options in ({"axis": 0}, {"average": "median"}, {"detrend": lambda s: s - 1}):
        found = rlx.welch(x, nperseg=3, **options)  # type: ignore[arg-type]
        want = rlx.welch(X.astype(float), nperseg=3, device="cpu", **options)  # type: ignore[arg-type]
        np.testing.assert_array_equal(found[1], want[1])
    assert rlx.welch(rlx.put(X[:, :, :0], "cpu"))[1].shape == (3, 2, 0)
