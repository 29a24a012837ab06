"""Waits end: by the event, by the deadline, or later, when they were broken off."""

from __future__ import annotations

import gc
import threading
import time
from unittest.mock import Mock

import pytest

from rlxweb.errors import GpuTimeout
from rlxweb.gpu import waiting
from rlxweb.gpu.waiting import Waits, happened
from tests.threads import submitting_threads


def test_an_event_that_is_set_needs_no_time() -> None:
    event = threading.Event()
    event.set()
    assert happened(event, 0.0)


def test_an_event_that_never_comes_ends_at_the_deadline() -> None:
    start = time.monotonic()
    assert not happened(threading.Event(), 0.02)
    assert 0.02 <= time.monotonic() - start < 5


def test_the_timeout_names_the_deadline() -> None:
    with pytest.raises(GpuTimeout, match=r"deadline 0\.01 s"):
        Waits(lambda: 0.01).until(threading.Event(), lambda: None)


def test_a_call_runs_on_another_thread_and_hands_errors_back() -> None:
    waits = Waits(lambda: 10.0)
    seen = []
    waits.call(lambda: seen.append(threading.current_thread().name))
    assert seen == ["rlxweb-submit"]
    with pytest.raises(KeyError, match="from the driver"):
        waits.call(Mock(side_effect=KeyError("from the driver")))
    waits.call(lambda: seen.append("still serving"))
    assert seen[-1] == "still serving"


def test_a_call_that_blocks_meets_the_deadline() -> None:
    waits, gate = Waits(lambda: 0.02), threading.Event()
    with pytest.raises(GpuTimeout):
        waits.call(lambda: gate.wait(3))
    gate.set()


def test_an_interrupted_wait_is_finished_before_it_is_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C leaves the wait open; `finish` waits for the event, undoes it once."""
    waits, event, undone = Waits(lambda: 10.0), threading.Event(), []
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "happened", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            waits.until(event, lambda: undone.append(event.is_set()))
    assert undone == []
    threading.Timer(0.02, event.set).start()
    waits.finish()
    waits.finish()
    assert undone == [True]


def test_a_timed_out_wait_stays_open_until_it_ends() -> None:
    waits, event, undone = Waits(lambda: 0.01), threading.Event(), []
    with pytest.raises(GpuTimeout):
        waits.until(event, lambda: undone.append(1))
    with pytest.raises(GpuTimeout):
        waits.finish()
    event.set()
    waits.finish()
    assert undone == [1]


def test_the_thread_ends_with_its_waits() -> None:
    before = submitting_threads()
    waits = Waits(lambda: 10.0)
    waits.call(lambda: None)
    waits.call(lambda: None)
    (worker,) = submitting_threads() - before
    del waits
    gc.collect()
    worker.join(5)
    assert not worker.is_alive()
