"""A signal fed in pieces gives the spectrum of the whole."""

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
from rlxweb.backends.pool import pool
from rlxweb.choose.chooser import Pick
from rlxweb.decision.decision import Decision
from rlxweb.device import Device
from rlxweb.devices.place import CPU
from rlxweb.errors import DeviceLost, DTypeError, UsageError
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.signal.engine import Engine, device_engine
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.picked import PickedEngine
from rlxweb.signal.presets import from_preset
from rlxweb.signal.stream import WelchAverage
from tests.agreement import Array
from tests.fake_port import Failure
from tests.unit.host.resolved import resolve
from tests.unit.signal.pretend_gpu import LABEL, PLACE, PretendGpu


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_cut_gives_the_whole_answer(data: st.DataObject) -> None:
    """Blocks of 0 samples up to all of them, with overlap or gaps, give one answer."""
    nperseg = data.draw(st.integers(2, 40), label="nperseg")
    n_samples = data.draw(st.integers(nperseg, 600), label="T")
    hop = data.draw(st.integers(1, nperseg + 30), label="hop")
    dtype = data.draw(st.sampled_from(["float32", "float64", "complex128"]))
    channels = data.draw(st.integers(1, 4), label="C")
    cuts = sorted(data.draw(st.lists(st.integers(0, n_samples), max_size=9)))
    rng = np.random.default_rng(nperseg)
    x = rng.standard_normal((channels, n_samples)).astype(dtype)
    made = resolve(None, nperseg=nperseg, dtype=x.dtype, window="hamming")
    spec = replace(made, hop=hop)
    wanted = welch_power(x, spec)
    one = WelchAverage(spec, channels)
    for start, end in zip([0, *cuts], [*cuts, n_samples], strict=True):
        one.feed(x[:, start:end])
    power, n_segments = one.result(), one.n_segments
    assert n_segments == spec.segments_of(n_samples)
    assert power.dtype == wanted.dtype
    rtol = 1e-5 if dtype == "float32" else 1e-9
    np.testing.assert_allclose(power, wanted, rtol=rtol, atol=1e-12)


def test_many_passes_on_threads() -> None:
    """A stream many times longer than what is held, several channels on threads."""
    x = np.random.default_rng(2).standard_normal((9, 300_000))
    one = WelchAverage(resolve(None), 9)
    for start in range(0, 300_000, 70_001):
        one.feed(x[:, start : start + 70_001])
    power, n_segments = one.result(), one.n_segments
    assert n_segments == 1 + (300_000 - 256) // 128
    np.testing.assert_allclose(power, welch_power(x, resolve(300_000)), rtol=1e-11)


def test_a_result_in_between_changes_nothing() -> None:
    """The running estimate can be looked at while the stream goes on."""
    x = np.random.default_rng(3).standard_normal((2, 2000))
    one = WelchAverage(resolve(None, nperseg=64), 2)
    one.feed(x[:, :777])
    early = one.result()
    assert one.n_segments == 1 + (777 - 64) // 32
    np.testing.assert_allclose(
        early, welch_power(x[:, :777], resolve(777, nperseg=64)), rtol=1e-12
    )
    one.feed(x[:, 777:])
    late = one.result()
    np.testing.assert_allclose(
        late, welch_power(x, resolve(2000, nperseg=64)), rtol=1e-12
    )


def test_a_segment_count_ends_the_stream() -> None:
    """What comes after the asked-for segments is ignored."""
    x = np.random.default_rng(4).standard_normal((2, 2000))
    one = WelchAverage(resolve(None, nperseg=64, nsegments=5), 2)
    for start in range(0, 2000, 90):
        one.feed(x[:, start : start + 90])
    power, n_segments = one.result(), one.n_segments
    wanted = welch_power(x, resolve(2000, nperseg=64, nsegments=5))
    assert n_segments == 5
    np.testing.assert_allclose(power, wanted, rtol=1e-12)


def test_memory_does_not_grow() -> None:
    """What is held between blocks is less than a segment per channel."""
    one = WelchAverage(resolve(None, nperseg=64), 4)
    for _ in range(5):
        one.feed(np.zeros((4, 100_001)))
        assert one._tail.shape[1] < 64
        assert one._tail.base is None


def test_wrong_streams_are_refused() -> None:
    """Medians, no channels, wrong blocks, complex samples, no segment: refused."""
    with pytest.raises(UsageError, match="averaged by its mean"):
        WelchAverage(resolve(None, average="median"), 2)
    with pytest.raises(UsageError, match="0 channels"):
        WelchAverage(resolve(None), 0)
    one = WelchAverage(resolve(None), 2)
    with pytest.raises(UsageError, match=r"shape \(3, 10\)"):
        one.feed(np.zeros((3, 10)))
    with pytest.raises(UsageError, match=r"shape \(10,\)"):
        one.feed(np.zeros(10))
    with pytest.raises(DTypeError, match="resolved for float64"):
        one.feed(np.zeros((2, 10), complex))
    one.feed(np.zeros((2, 100)))
    with pytest.raises(UsageError, match=r"1 segments of 256 samples.*gave 0"):
        one.result()


def test_a_recording_in_blocks_survives_its_device(gpu: PretendGpu) -> None:
    """The block that was lost is done again elsewhere, and the rest follows it."""
    x = np.random.default_rng(0).standard_normal((3, 4000)).astype(np.float32)
    spec = from_preset("scipy", None, nperseg=128, dtype=np.float32)
    job = WelchJob(spec, 3, 4000, 0)
    ways = [*job.offers(PLACE), *job.offers(CPU)]
    ways = [replace(way, blocker="", terms=None) for way in ways]
    decision = Decision("fused on TPU", "of the test", {}, tuple(ways))
    lost = Failure("read", "lost")
    for strict in (True, False):
        gpu.forget()
        gpu.fail = [lost]
        engine = PickedEngine(Pick(job, ways[0], decision), strict)
        stream = WelchAverage(spec, 3, engine, strict=True)
        if strict:
            with pytest.raises(DeviceLost):
                stream.feed(x[:, :1000])
            continue
        pool.backend(LABEL)
        gpu.fail = [lost]
        for at in range(0, 4000, 1000):
            stream.feed(x[:, at : at + 1000])
        assert engine.device is Device.CPU
        assert [a.device for a in engine.decision.attempts][-1] is Device.CPU
        _, whole = rlx.welch(x, nperseg=128, device="cpu")
        np.testing.assert_allclose(stream.result(), whole, rtol=1e-5)


def test_a_block_lost_with_the_engine_s_device_is_done_again(gpu: PretendGpu) -> None:
    """A block lost with its device is done again on it, once, as `attempts` says."""
    x = np.ones((3, 1000), np.float32)
    spec = from_preset("scipy", None, nperseg=128, dtype=np.float32)
    stream = WelchAverage(spec, 3, device_engine(Device.TPU))
    strict = WelchAverage(spec, 3, device_engine(Device.TPU), strict=True)
    for one in (strict, stream):
        gpu.forget()
        gpu.fail = [Failure("read", "lost")]
        pool.backend(LABEL)
        if one is strict:
            with pytest.raises(DeviceLost):
                one.feed(x)
            assert one.n_segments == 0
        one.feed(x)
        assert one.n_segments == 1 + (1000 - 128) // 64
    assert [(a.device, bool(a.error)) for a in stream.attempts] == [
        (Device.TPU, True),
        (Device.TPU, False),
    ]
    assert strict.attempts == ()


class SharedEngine:
    """Gives another thread a moment to come in beside the one it works for."""

    device, name = Device.CPU, "NumPy"

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.company = threading.Event()

    async def power(self, x: Array, spec: WelchSpec) -> Array:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside > 1:
            self.company.set()
        self.company.wait(0.01)
        self.inside -= 1
        return welch_power(x, spec)


def test_threads_take_turns() -> None:
    """No sample is lost or counted twice, and a result in between is whole."""
    x = np.random.default_rng(1).standard_normal((2, 64))
    engine = SharedEngine()
    one = WelchAverage(resolve(None, nperseg=64), 2, cast(Engine, engine))
    one.feed(x)
    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(one.feed, x) for _ in range(12)]
        done += [threads.submit(one.result)]
        for each in done:
            each.result(60)
    assert engine.most == 1
    assert one.n_segments == 1 + (13 * 64 - 64) // 32
    whole = welch_power(np.tile(x, 13), resolve(13 * 64, nperseg=64))
    np.testing.assert_allclose(one.result(), whole, rtol=1e-12)


def test_a_copy_goes_on_by_itself() -> None:
    """A copied or pickled stream has its own sums and its own lock."""
    x = np.random.default_rng(4).standard_normal((2, 500))
    one = WelchAverage(resolve(None, nperseg=64), 2)
    one.feed(x)
    before = one.result()
    for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        other.feed(x)
        np.testing.assert_array_equal(one.result(), before)
        assert other.n_segments > one.n_segments


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"engine": None}, "None was given for the engine.*device_engine"),
        ({"engine": "vulkan"}, "for the engine"),
        ({"names": "ab"}, "names are 'ab'; a list of texts .* 2 channels"),
        ({"names": ["a"]}, "each of 2 channels"),
        ({"names": 3}, "names are 3"),
        ({"strict": "no"}, "strict is 'no'"),
    ],
)
def test_arguments_are_checked_when_it_is_made(given: Any, match: str) -> None:
    """Arguments are checked when the average is made, not at the first block."""
    with pytest.raises(UsageError, match=match):
        WelchAverage(resolve(None), 2, **given)
