"""Welch averages of a signal fed in blocks equal the estimate of the whole signal."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlxweb as rlx
from rlxweb.core.device import Device
from rlxweb.core.errors import DeviceLost, DTypeError, UsageError
from rlxweb.cost.decision import Decision
from rlxweb.engines.pool import pool
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.chooser import DevicePick
from rlxweb.select.device_and_adapter import CPU_PLACE
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_blockwise_average import WelchAverage
from rlxweb.signal.welch_candidates import PickedEngine, WelchJob
from rlxweb.signal.welch_engine import WelchEngine, device_engine
from tests.engines_under_test import Array
from tests.fake_gpu_port import InjectedFailure
from tests.unit.ops.welch_spec_factory import resolve_spec
from tests.unit.signal.fake_gpu import DEVICE_LABEL, GPU_PLACE, FakeGpu


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_block_sizes_give_the_same_estimate(data: st.DataObject) -> None:
    """Blocks of 0 samples up to all of them, with overlap or gaps, give the same
    estimate.
    """
    nperseg = data.draw(st.integers(2, 40), label="nperseg")
    n_samples = data.draw(st.integers(nperseg, 600), label="T")
    hop = data.draw(st.integers(1, nperseg + 30), label="hop")
    dtype = data.draw(st.sampled_from(["float32", "float64", "complex128"]))
    channels = data.draw(st.integers(1, 4), label="C")
    boundaries = sorted(data.draw(st.lists(st.integers(0, n_samples), max_size=9)))
    rng = np.random.default_rng(nperseg)
    x = rng.standard_normal((channels, n_samples)).astype(dtype)
    resolved_spec = resolve_spec(None, nperseg=nperseg, dtype=x.dtype, window="hamming")
    spec = replace(resolved_spec, hop=hop)
    expected = welch_power(x, spec)
    average = WelchAverage(spec, channels)
    for start, end in zip([0, *boundaries], [*boundaries, n_samples], strict=True):
        average.feed(x[:, start:end])
    power, n_segments = average.result(), average.n_segments
    assert n_segments == spec.segments_per_row(n_samples)
    assert power.dtype == expected.dtype
    rtol = 1e-5 if dtype == "float32" else 1e-9
    np.testing.assert_allclose(power, expected, rtol=rtol, atol=1e-12)


def test_long_stream_on_several_threads() -> None:
    """A stream much longer than the buffer, with several channels on threads, is
    averaged.
    """
    x = np.random.default_rng(2).standard_normal((9, 300_000))
    average = WelchAverage(resolve_spec(None), 9)
    for start in range(0, 300_000, 70_001):
        average.feed(x[:, start : start + 70_001])
    power, n_segments = average.result(), average.n_segments
    assert n_segments == 1 + (300_000 - 256) // 128
    np.testing.assert_allclose(power, welch_power(x, resolve_spec(300_000)), rtol=1e-11)


def test_intermediate_result_leaves_the_stream_unchanged() -> None:
    """The running estimate can be read while the stream continues."""
    x = np.random.default_rng(3).standard_normal((2, 2000))
    average = WelchAverage(resolve_spec(None, nperseg=64), 2)
    average.feed(x[:, :777])
    early = average.result()
    assert average.n_segments == 1 + (777 - 64) // 32
    np.testing.assert_allclose(
        early, welch_power(x[:, :777], resolve_spec(777, nperseg=64)), rtol=1e-12
    )
    average.feed(x[:, 777:])
    late = average.result()
    np.testing.assert_allclose(
        late, welch_power(x, resolve_spec(2000, nperseg=64)), rtol=1e-12
    )


def test_a_segment_count_ends_the_stream() -> None:
    """Samples after the requested number of segments are ignored."""
    x = np.random.default_rng(4).standard_normal((2, 2000))
    average = WelchAverage(resolve_spec(None, nperseg=64, nsegments=5), 2)
    for start in range(0, 2000, 90):
        average.feed(x[:, start : start + 90])
    power, n_segments = average.result(), average.n_segments
    expected = welch_power(x, resolve_spec(2000, nperseg=64, nsegments=5))
    assert n_segments == 5
    np.testing.assert_allclose(power, expected, rtol=1e-12)


def test_memory_does_not_grow() -> None:
    """The samples held between blocks are fewer than a segment per channel."""
    average = WelchAverage(resolve_spec(None, nperseg=64), 4)
    for _ in range(5):
        average.feed(np.zeros((4, 100_001)))
        assert average._tail.shape[1] < 64
        assert average._tail.base is None


def test_invalid_streams_are_refused() -> None:
    """Medians, no channels, wrong blocks, complex samples and too few samples are
    refused.
    """
    with pytest.raises(UsageError, match="supports only average='mean'"):
        WelchAverage(resolve_spec(None, average="median"), 2)
    with pytest.raises(UsageError, match="n_rows is 0"):
        WelchAverage(resolve_spec(None), 0)
    average = WelchAverage(resolve_spec(None), 2)
    with pytest.raises(UsageError, match=r"shape \(3, 10\)"):
        average.feed(np.zeros((3, 10)))
    with pytest.raises(UsageError, match=r"shape \(10,\)"):
        average.feed(np.zeros(10))
    with pytest.raises(DTypeError, match="estimate was created for float64"):
        average.feed(np.zeros((2, 10), complex))
    average.feed(np.zeros((2, 100)))
    with pytest.raises(
        UsageError, match="contains 0 segments of 256 samples; at least 1"
    ):
        average.result()


def test_a_lost_block_is_retried_on_another_device(gpu: FakeGpu) -> None:
    """The lost block and those after it are computed on another device."""
    x = np.random.default_rng(0).standard_normal((3, 4000)).astype(np.float32)
    spec = spec_from_preset("scipy", None, nperseg=128, dtype=np.float32)
    job = WelchJob(spec, 3, 4000, 0)
    candidates = [*job.candidates(GPU_PLACE), *job.candidates(CPU_PLACE)]
    candidates = [
        replace(candidate, blocker="", terms=None) for candidate in candidates
    ]
    decision = Decision("fused on TPU", "of the test", {}, tuple(candidates))
    lost = InjectedFailure("read", "lost")
    for strict in (True, False):
        gpu.reset()
        gpu.failures = [lost]
        engine = PickedEngine(DevicePick(job, candidates[0], decision), strict)
        stream = WelchAverage(spec, 3, engine, strict=True)
        if strict:
            with pytest.raises(DeviceLost):
                stream.feed(x[:, :1000])
            continue
        pool.engine(DEVICE_LABEL)
        gpu.failures = [lost]
        for start in range(0, 4000, 1000):
            stream.feed(x[:, start : start + 1000])
        assert engine.device is Device.CPU
        assert [a.device for a in engine.decision.attempts][-1] is Device.CPU
        _, expected = rlx.welch(x, nperseg=128, device="cpu")
        np.testing.assert_allclose(stream.result(), expected, rtol=1e-5)


def test_a_lost_block_is_retried_on_the_same_device(gpu: FakeGpu) -> None:
    """A block lost with its device is retried on it once, as `attempts` records."""
    x = np.ones((3, 1000), np.float32)
    spec = spec_from_preset("scipy", None, nperseg=128, dtype=np.float32)
    stream = WelchAverage(spec, 3, device_engine(Device.TPU))
    strict = WelchAverage(spec, 3, device_engine(Device.TPU), strict=True)
    for average in (strict, stream):
        gpu.reset()
        gpu.failures = [InjectedFailure("read", "lost")]
        pool.engine(DEVICE_LABEL)
        if average is strict:
            with pytest.raises(DeviceLost):
                average.feed(x)
            assert average.n_segments == 0
        average.feed(x)
        assert average.n_segments == 1 + (1000 - 128) // 64
    assert [(a.device, bool(a.error)) for a in stream.attempts] == [
        (Device.TPU, True),
        (Device.TPU, False),
    ]
    assert strict.attempts == ()


class ConcurrencyCountingEngine:
    """Engine that counts how many threads compute with it at once."""

    device, name = Device.CPU, "NumPy"

    def __init__(self) -> None:
        self.n_running = self.max_running = 0
        self.second_thread_entered = threading.Event()

    async def power(self, x: Array, spec: WelchSpec) -> Array:
        self.n_running += 1
        self.max_running = max(self.max_running, self.n_running)
        if self.n_running > 1:
            self.second_thread_entered.set()
        self.second_thread_entered.wait(0.01)
        self.n_running -= 1
        return welch_power(x, spec)


def test_concurrent_feeds_are_serialized() -> None:
    """No sample is lost or counted twice, and an intermediate result is consistent."""
    x = np.random.default_rng(1).standard_normal((2, 64))
    engine = ConcurrencyCountingEngine()
    average = WelchAverage(resolve_spec(None, nperseg=64), 2, cast(WelchEngine, engine))
    average.feed(x)
    with ThreadPoolExecutor(4) as thread_pool:
        futures = [thread_pool.submit(average.feed, x) for _ in range(12)]
        futures += [thread_pool.submit(average.result)]
        for future in futures:
            future.result(60)
    assert engine.max_running == 1
    assert average.n_segments == 1 + (13 * 64 - 64) // 32
    expected = welch_power(np.tile(x, 13), resolve_spec(13 * 64, nperseg=64))
    np.testing.assert_allclose(average.result(), expected, rtol=1e-12)


def test_copies_are_independent() -> None:
    """A copied or pickled stream has its own sums and its own lock."""
    x = np.random.default_rng(4).standard_normal((2, 500))
    average = WelchAverage(resolve_spec(None, nperseg=64), 2)
    average.feed(x)
    before = average.result()
    for copied in (copy.deepcopy(average), pickle.loads(pickle.dumps(average))):
        copied.feed(x)
        np.testing.assert_array_equal(average.result(), before)
        assert copied.n_segments > average.n_segments


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"engine": None}, "engine is None.*device_engine"),
        ({"engine": "vulkan"}, "engine is a str"),
        ({"names": "ab"}, "names is 'ab'; expected a list of strings, .* 2 channels"),
        ({"names": ["a"]}, "each of 2 channels"),
        ({"names": 3}, "names is 3"),
        ({"strict": "no"}, "strict is 'no'"),
    ],
)
def test_arguments_are_checked_at_construction(options: Any, match: str) -> None:
    """Arguments are checked at construction and not at the first block."""
    with pytest.raises(UsageError, match=match):
        WelchAverage(resolve_spec(None), 2, **options)
