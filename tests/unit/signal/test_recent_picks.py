"""Picks that are kept, so that small jobs that come again stay quick."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlxweb.calibration.worth import worth
from rlxweb.choose import chooser
from rlxweb.choose.chooser import Asked, choose, decide
from rlxweb.choose.recent_picks import RecentPicks
from rlxweb.device import Device
from rlxweb.devices.place import CPU
from tests.unit.signal.pretend_gpu import BOTH, PretendGpu, job_of


def test_a_kept_pick_is_made_anew_with_what_was_learned(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept pick is made anew after its uses, with the corrections since."""
    monkeypatch.setattr(chooser, "recent", RecentPicks(uses=3))
    worth.add(1e9)
    job = job_of(300)
    first = choose(job)
    assert first.device is Device.TPU
    for candidate in first.decision.candidates:
        if candidate.strategy == "fused":
            for _ in range(30):
                replace(first, candidate=candidate).observe(100e6)
    again = [choose(job) for _ in range(4)]
    assert [one is first for one in again] == [True, True, True, False]
    assert again[-1].device is Device.CPU


@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_the_pick_of_a_device_asked_for_is_kept_too(
    two: PretendGpu, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """A pick of a named device is kept for its job and device, for its uses."""
    monkeypatch.setattr(chooser, "recent", RecentPicks(uses=1))
    first, again, anew = (choose(job_of(4), Asked(device)) for _ in range(3))
    assert again is first
    assert anew is not first
    assert choose(job_of(5), Asked(device)).job.n_rows == 5
    other = "tpu" if device == "cpu" else "cpu"
    assert choose(job_of(4), Asked(other)).device is Device(other)


def test_a_pick_is_kept_for_some_uses(two: PretendGpu) -> None:
    """A kept pick's uses are counted as work that was left open."""
    kept, pick = RecentPicks(uses=2), decide(job_of(60), places=BOTH)
    assert kept.get("a") is None
    kept.keep("a", pick)
    before = worth.spent_ns
    assert [kept.get("a") is pick for _ in range(4)] == [True, True, False, False]
    assert worth.spent_ns == pytest.approx(before + 2 * pick.cpu_ns)
    kept.keep("a", pick)
    kept.forget()
    assert kept.get("a") is None


def test_the_pick_made_first_goes_first() -> None:
    """However often it was used: it is soon to be made anew anyway."""
    kept, pick = RecentPicks(capacity=2), decide(job_of(), places=[CPU])
    for name in "ab":
        kept.keep(name, pick)
    kept.get("a")
    kept.keep("c", pick)
    assert [kept.get(name) is pick for name in "abc"] == [False, True, True]
    kept.keep("b", pick)  # anew: it is the youngest now
    kept.keep("d", pick)
    assert [kept.get(name) is pick for name in "bcd"] == [True, False, True]
