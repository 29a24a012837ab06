"""Welch estimates of samples on a device: computed there, with the results of the
host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.errors import (
    DTypeError,
    InputError,
    NotFinite,
    OutOfMemory,
    ShapeError,
    Unsupported,
    UsageError,
)
from rlxweb.core.message_text import Advice
from rlxweb.cost.calibration_record import MeasuredPoint
from rlxweb.engines.pool import pool
from rlxweb.engines.webgpu import input_bindings
from rlxweb.gpu.port_protocol import BufferCopy
from rlxweb.signal import welch_engine
from tests.run_in_threads import run_in_event_loop
from tests.unit.signal.fake_gpu import (
    GPU_PLACE,
    GPU_SPEED,
    FakeGpu,
    candidates_by_name,
    make_job,
)

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


def test_job_runs_where_the_samples_are(place: str) -> None:
    """Samples on a device are searched there, as on the host; the decision says why."""
    x = rlx.put(X, place)
    result = rlx.welch_peaks(x, fs=100, nperseg=128, k=3, device="auto")
    want = rlx.welch_peaks(X, fs=100, nperseg=128, k=3, device="cpu")
    np.testing.assert_array_equal(result.bins, want.bins)
    np.testing.assert_allclose(result.power, want.power, rtol=1e-4)
    assert (result.device, result.engine) == (x.device, x.engine)
    assert result.decision.why.startswith("the samples are on this device")
    maxima = rlx.welch_peaks(x, fs=100, nperseg=128, k=3, mode="peaks")
    want = rlx.welch_peaks(X, fs=100, nperseg=128, k=3, mode="peaks", device="cpu")
    np.testing.assert_array_equal(maxima.count, want.count)
    np.testing.assert_allclose(maxima.hz, want.hz, rtol=1e-4)
    hz, power = run_in_event_loop(rlx.welch_async(x, 100, fmax=20, device=place))
    expected = rlx.welch(X, 100, fmax=20, device="cpu")
    np.testing.assert_array_equal(hz, expected[0])
    np.testing.assert_allclose(power, expected[1], rtol=1e-4, atol=1e-9)


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
    """Rows are read out of the device array in place; silent ones are rows too."""
    x = np.random.default_rng(batch).standard_normal(shape).astype(np.float32)
    if silent:
        x.reshape(-1, shape[-1])[0] = 0
    want = rlx.welch(x, 10, nperseg=16, device="cpu")[1]
    with pytest.MonkeyPatch.context() as patch, rlx.put(x, "vulkan") as device_x:
        patch.setattr(welch_engine, "MAX_BATCH_BYTES", 4 * batch)
        result = rlx.welch(device_x, 10, nperseg=16)[1]
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-6)


@pytest.mark.requires_wgpu
def test_samples_are_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two numbers per row and the result are read back."""
    x = rlx.put(np.tile(X, (1, 1, 8)), "vulkan")
    engine: Any = pool.engine("vulkan")
    sizes: list[int] = []
    original_read = engine.port.read

    async def counting_read(handle: int, offset: int, nbytes: int) -> memoryview:
        sizes.append(nbytes)
        return await original_read(handle, offset, nbytes)

    monkeypatch.setattr(engine.port, "read", counting_read)
    rlx.welch_peaks(x, fs=100, nperseg=128, k=3)
    assert sum(sizes) <= 6 * 2 * 4 + 6 * 2 * 3 * 4 + 64, sizes


@pytest.mark.requires_wgpu
def test_batches_are_bound_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of an odd length, in batches, are not copied on the device."""
    monkeypatch.setattr(welch_engine, "MAX_BATCH_BYTES", 4 * 33 * 100)
    monkeypatch.setattr(input_bindings, "MIN_BIND_BYTES", 0)
    x = np.random.default_rng(1).standard_normal((200, 33)).astype(np.float32)
    device_x = rlx.put(x, "vulkan")
    port: Any = pool.engine("vulkan").port
    copied: list[int] = []
    original_submit = port.submit

    def counting_submit(*command_lists: Any) -> None:
        commands = [
            command for command_list in command_lists for command in command_list
        ]
        copied.extend(c.source.handle for c in commands if isinstance(c, BufferCopy))
        original_submit(*command_lists)

    monkeypatch.setattr(port, "submit", counting_submit)
    result = rlx.welch_peaks(device_x, fs=10, nperseg=16, k=2)
    want = rlx.welch_peaks(x, fs=10, nperseg=16, k=2, device="cpu")
    np.testing.assert_array_equal(result.bins, want.bins)
    assert copied, "results are packed"
    assert device_x._buffer.placement.span.handle not in copied  # type: ignore[attr-defined]


def test_upload_is_free_for_samples_on_the_device(gpu: FakeGpu) -> None:
    """The upload is left out of every candidate on the device, and nothing else."""
    points = [MeasuredPoint("submit", {}, 1e5)]
    for what in ("upload", "readback"):
        points += [
            MeasuredPoint(what, {"bytes": n}, float(n)) for n in (1 << 10, 1 << 20)
        ]
    GPU_SPEED.save_calibration(GPU_PLACE, *points)
    job = make_job(64)
    for is_on_device in (False, True):
        candidates = candidates_by_name(
            list(replace(job, is_on_device=is_on_device).candidates(GPU_PLACE))
        )
        terms = candidates["fused fused_op"].terms
        assert terms is not None
        assert (terms.upload_ns == 0, terms.readback_ns > 0) == (is_on_device, True)


@pytest.mark.parametrize("place", PLACES[1:], indirect=True)
def test_host_only_options_are_refused(place: str) -> None:
    """Samples are never moved to the host unasked."""
    x = rlx.put(X, place)
    with pytest.raises(InputError, match=f"are on device '{place}'.*pass x.numpy"):
        rlx.welch(x, device="cpu")
    with pytest.raises(InputError, match="adapter 'other'"):
        rlx.welch_peaks(x, adapter="other")
    with pytest.raises(ShapeError, match="time must be the last axis"):
        rlx.welch(x, axis=0)
    with pytest.raises(ShapeError, match="a single number"):
        rlx.welch(rlx.put(X[0, 0, 0], place))
    with pytest.raises(DTypeError, match="except the CPU must be float32"):
        rlx.welch(rlx.put(X.astype(np.int32), place))
    with pytest.raises(Unsupported, match="custom detrend of DeviceArray"):
        rlx.welch(x, detrend=lambda segment: segment)
    hint = r"use x\.numpy\(\) and device='cpu'"
    with pytest.raises(Unsupported, match=f"median.*; {hint}"):
        rlx.welch(x, average="median")
    with pytest.raises(DTypeError, match=f"leave precision='f64' out, or {hint}"):
        rlx.welch_peaks(x, precision="f64")
    with pytest.raises(UsageError, match="'ultra' is not supported on this device"):
        rlx.welch_peaks(x, strategy="ultra", min_segments=1)
    with pytest.raises(UsageError, match="nan"):
        rlx.welch(x, nan="no such policy")  # type: ignore[arg-type]


@pytest.mark.parametrize("place", PLACES[1:], indirect=True)
@pytest.mark.parametrize(
    ("value", "nan", "error", "message"),
    [
        (np.nan, "raise", NotFinite, r"channel \[2, 1\] is nan at sample 77; 1 of its"),
        (np.inf, "raise", NotFinite, r"channel \[2, 1\] is inf at sample 77"),
        (np.nan, "propagate", Unsupported, "not finite; pass x.numpy"),
        (1e30, "raise", Unsupported, "the channel's samples are outside the range"),
    ],
)
def test_a_row_that_cannot_be_computed_is_named(
    place: str, value: float, nan: Any, error: type[Exception], message: str
) -> None:
    """The first such row is named; the data stays on the device."""
    bad = X.copy()
    bad[2, 1, 77] = value
    x = rlx.put(bad, place)
    with pytest.raises(error, match=message):
        rlx.welch(x, nan=nan)
    with pytest.raises(error, match=message):
        rlx.welch_peaks(x, nan=nan)


@pytest.mark.requires_torch
def test_engine_advice_fits_device_arrays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only callers with samples on the device are told to take them along to the
    CPU.
    """

    async def raise_out_of_memory(*args: Any) -> Any:
        raise OutOfMemory("run", "no room", hint=Advice("use {}", device="cpu"))

    x = rlx.put(X, "torch-cpu")
    monkeypatch.setattr(pool.engine("torch-cpu"), "run", raise_out_of_memory)
    for function in (rlx.welch, rlx.welch_peaks):
        with pytest.raises(OutOfMemory, match=r"use x\.numpy\(\) and device='cpu'"):
            function(x)
        with pytest.raises(OutOfMemory, match="; use device='cpu'"):
            function(X, device="torch-cpu")


def test_arrays_on_the_cpu_take_every_option() -> None:
    """Arrays on the CPU take any type, any axis and any option."""
    x = rlx.put(X.astype(float), "cpu")
    for options in ({"axis": 0}, {"average": "median"}, {"detrend": lambda s: s - 1}):
        result = rlx.welch(x, nperseg=3, **options)  # type: ignore[arg-type]
        want = rlx.welch(X.astype(float), nperseg=3, device="cpu", **options)  # type: ignore[arg-type]
        np.testing.assert_array_equal(result[1], want[1])
    assert rlx.welch(rlx.put(X[:, :, :0], "cpu"))[1].shape == (3, 2, 0)
