"""Cache of device picks, which keeps small repeated jobs quick: lifetime and
eviction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlxweb.core.device import Device
from rlxweb.select import chooser
from rlxweb.select.calibration.calibration_store import calibration_store
from rlxweb.select.calibration.profitability import profitability_policy
from rlxweb.select.chooser import (
    DevicePick,
    PlaceRequest,
    choose_fastest,
    choose_place,
)
from rlxweb.select.device_and_adapter import CPU_PLACE
from rlxweb.select.device_pick_cache import PickCache, present_circumstances
from tests.unit.signal.fake_gpu import CPU_AND_GPU, FakeGpu, make_job


def has(cache: PickCache, key: str, pick: DevicePick[Any]) -> bool:
    """Return whether the cache answers a key with this pick."""
    entry = cache.get(key)
    return entry is not None and entry.pick is pick


def test_expired_pick_uses_new_corrections(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cached pick is decided again after its uses, with the corrections since."""
    monkeypatch.setattr(chooser, "recent_picks", PickCache(uses=3))
    profitability_policy.add_job(1e9)
    job = make_job(300)
    first = choose_place(job)
    assert first.device is Device.TPU
    for candidate in first.decision.candidates:
        if candidate.strategy == "fused":
            for _ in range(30):
                replace(first, candidate=candidate).observe(100e6)
    repeated = [choose_place(job) for _ in range(4)]
    assert [pick is first for pick in repeated] == [True, True, True, False]
    assert repeated[-1].device is Device.CPU


@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_pick_of_a_named_device_is_cached(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """A pick of a named device is cached for its job and device, for its uses."""
    monkeypatch.setattr(chooser, "recent_picks", PickCache(uses=1))
    first, repeated, fresh = (
        choose_place(make_job(4), PlaceRequest(device)) for _ in range(3)
    )
    assert repeated is first
    assert fresh is not first
    assert choose_place(make_job(5), PlaceRequest(device)).job.n_rows == 5
    other_device = "tpu" if device == "cpu" else "cpu"
    assert choose_place(make_job(4), PlaceRequest(other_device)).device is Device(
        other_device
    )


def test_pick_is_cached_for_a_number_of_uses(two: FakeGpu) -> None:
    """Uses of a cached pick count as work whose device was left open."""
    cache, pick = PickCache(uses=2), choose_fastest(make_job(60), places=CPU_AND_GPU)
    assert cache.get("a") is None
    cache.add("a", pick, present_circumstances())
    before = profitability_policy.spent_ns
    assert [has(cache, "a", pick) for _ in range(4)] == [True, True, False, False]
    assert profitability_policy.spent_ns == pytest.approx(before + 2 * pick.cpu_ns)
    cache.add("a", pick, present_circumstances())
    cache.clear()
    assert cache.get("a") is None


def test_oldest_pick_is_evicted_first() -> None:
    """The oldest pick is evicted however often it was used: it would expire soon
    anyway.
    """
    cache, pick = PickCache(capacity=2), choose_fastest(make_job(), places=[CPU_PLACE])
    for name in "ab":
        cache.add(name, pick, present_circumstances())
    cache.get("a")
    cache.add("c", pick, present_circumstances())
    assert [has(cache, name, pick) for name in "abc"] == [False, True, True]
    cache.add("b", pick, present_circumstances())  # anew: it is the youngest now
    cache.add("d", pick, present_circumstances())
    assert [has(cache, name, pick) for name in "bcd"] == [True, False, True]


def test_an_entry_in_hand_ends_with_what_it_was_made_in(
    two: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another environment, a new measurement, eviction and `clear` all end it."""
    cache = PickCache(capacity=1)
    pick = choose_fastest(make_job(), places=[CPU_PLACE])
    entry = cache.add("a", pick, present_circumstances())
    assert entry.is_current()
    assert entry.use()
    with monkeypatch.context() as patch:
        patch.setenv("RLX_DENY_DEVICES", "cpu")
        assert not entry.is_current()
        patch.delenv("RLX_DENY_DEVICES")
        assert entry.is_current()
        patch.setattr(calibration_store, "change_count", -1)
        assert not entry.is_current()
    other = cache.add("b", pick, present_circumstances())
    assert not entry.use()
    assert other.use()
    newer = cache.add("b", pick, present_circumstances())
    assert not other.use()
    cache.clear()
    assert not newer.use()
