"""Waits end by the event, by the deadline, or after an interruption."""

from __future__ import annotations

import gc
import threading
import time
from unittest.mock import Mock

import pytest

from rlxweb.core.errors import GpuTimeout
from rlxweb.gpu import deadline_waits
from rlxweb.gpu.deadline_waits import DeadlineWaits, wait_for_event
from tests.run_in_threads import submitting_threads


def test_a_set_event_returns_at_once() -> None:
    event = threading.Event()
    event.set()
    assert wait_for_event(event, 0.0)


def test_a_wait_for_an_unset_event_ends_at_the_deadline() -> None:
    start = time.monotonic()
    assert not wait_for_event(threading.Event(), 0.02)
    assert 0.02 <= time.monotonic() - start < 5


def test_the_timeout_names_the_deadline() -> None:
    with pytest.raises(GpuTimeout, match=r"deadline is 0\.01 s"):
        DeadlineWaits(lambda: 0.01).wait(threading.Event(), lambda: None)


def test_a_call_runs_on_another_thread_and_returns_its_errors() -> None:
    waits = DeadlineWaits(lambda: 10.0)
    thread_names = []
    waits.call_in_thread(lambda: thread_names.append(threading.current_thread().name))
    assert thread_names == ["rlxweb-submit"]
    with pytest.raises(KeyError, match="from the driver"):
        waits.call_in_thread(Mock(side_effect=KeyError("from the driver")))
    waits.call_in_thread(lambda: thread_names.append("still serving"))
    assert thread_names[-1] == "still serving"


def test_a_blocking_call_ends_at_the_deadline() -> None:
    waits, release = DeadlineWaits(lambda: 0.02), threading.Event()
    with pytest.raises(GpuTimeout):
        waits.call_in_thread(lambda: release.wait(3))
    release.set()


def test_an_interrupted_wait_is_finished_before_its_cleanup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C leaves the wait open; `finish` waits for the event and cleans up once."""
    waits, event, cleanups = DeadlineWaits(lambda: 10.0), threading.Event(), []
    with monkeypatch.context() as patch:
        patch.setattr(
            deadline_waits, "wait_for_event", Mock(side_effect=KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            waits.wait(event, lambda: cleanups.append(event.is_set()))
    assert cleanups == []
    threading.Timer(0.02, event.set).start()
    waits.finish_interrupted()
    waits.finish_interrupted()
    assert cleanups == [True]


def test_a_timed_out_wait_stays_open_until_it_ends() -> None:
    waits, event, cleanups = DeadlineWaits(lambda: 0.01), threading.Event(), []
    with pytest.raises(GpuTimeout):
        waits.wait(event, lambda: cleanups.append(1))
    with pytest.raises(GpuTimeout):
        waits.finish_interrupted()
    event.set()
    waits.finish_interrupted()
    assert cleanups == [1]


def test_the_thread_ends_with_its_waits() -> None:
    before = submitting_threads()
    waits = DeadlineWaits(lambda: 10.0)
    waits.call_in_thread(lambda: None)
    waits.call_in_thread(lambda: None)
    (worker,) = submitting_threads() - before
    del waits
    gc.collect()
    worker.join(5)
    assert not worker.is_alive()
