"""Check how recordings share tasks: small ones together, long or suspicious ones
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.batch.cluster.task_packing import (
    MAX_RECORDINGS_PER_TASK,
    MAX_TASK_NBYTES,
    PendingRecording,
    RecordingQueue,
    sort_by_size,
)
from rlxweb.batch.cluster.worker_death_blame import (
    MAX_DEATHS,
    MAX_DEATHS_AMONG_OTHERS,
    WorkerDeathLog,
)
from rlxweb.batch.cluster.worker_tasks import RecordingPath


def make_recording(name: str, nbytes: int | None) -> PendingRecording:
    return PendingRecording(RecordingPath(name, name), nbytes)


def make_queue(*recordings: PendingRecording) -> RecordingQueue:
    queue = RecordingQueue([])
    queue.push_back(recordings)
    return queue


def pop_names(
    queue: RecordingQueue, address: str = "a", n_threads: int = 1
) -> list[str]:
    """Return the names of the recordings in the next task for a worker."""
    popped = queue.pop_task(address, n_threads, lambda tried: "b" not in tried)
    return [piece.recording.user_path for piece in popped]


def test_largest_recording_comes_first(tmp_path: Path) -> None:
    for name, size in (("a", 5), ("b", 50), ("c", 20)):
        (tmp_path / name).write_bytes(bytes(size))
    files = [str(tmp_path / name) for name in "abc"]
    ordered = sort_by_size([*files, "s3://bucket/d.edf", str(tmp_path)])
    assert [piece.nbytes for piece in ordered] == [50, 20, 5, None, None]
    assert [piece.recording.path[-1] for piece in ordered[:4]] == ["b", "c", "a", "f"]
    assert ordered[3].recording.path == "s3://bucket/d.edf"


@given(
    sizes=st.lists(
        st.one_of(
            st.none(), st.integers(0, 2 * MAX_TASK_NBYTES), st.integers(0, 1 << 20)
        ),
        max_size=300,
    ),
    n_threads=st.integers(1, 9),
)
def test_every_recording_is_assigned_once(
    sizes: list[int | None], n_threads: int
) -> None:
    """Every recording is in one task; no task is too large, and the last holds one."""
    nbytes = {str(index): size for index, size in enumerate(sizes)}
    queue = make_queue(*(make_recording(name, size) for name, size in nbytes.items()))
    tasks = []
    while queue:
        max_per_task = max(1, len(queue) // (2 * n_threads))
        tasks.append(pop_names(queue, n_threads=n_threads))
        assert 1 <= len(tasks[-1]) <= min(max_per_task, MAX_RECORDINGS_PER_TASK)
        if len(tasks[-1]) > 1:
            task_sizes = [nbytes[name] for name in tasks[-1]]
            assert None not in task_sizes
            assert sum(size or 0 for size in task_sizes) <= MAX_TASK_NBYTES
    assert [name for names in tasks for name in names] == list(nbytes)
    assert not tasks or len(tasks[-1]) == 1


@pytest.mark.parametrize("fault", ["ended_workers", "failed_workers"])
def test_suspicious_recording_gets_its_own_task(fault: str) -> None:
    suspect = make_recording("suspect", 1)
    getattr(suspect, fault).append("elsewhere")
    others = [make_recording(name, 1) for name in "vwxyz"]
    assert pop_names(make_queue(suspect, *others)) == ["suspect"]
    assert pop_names(make_queue(others[0], suspect, *others[1:])) == ["v"]
    assert pop_names(make_queue(*others[:4], suspect)) == ["v", "w"]


def test_failed_recording_returns_to_a_worker_only_as_last_resort() -> None:
    failed = make_recording("failed", 1)
    failed.failed_workers.append("a")
    queue = make_queue(failed, make_recording("other", 1))
    assert [pop_names(queue), pop_names(queue), len(queue)] == [["other"], [], 1]
    failed.failed_workers.append("b")  # and there is no third
    assert pop_names(queue) == ["failed"]


def test_returned_recordings_come_first() -> None:
    queue = make_queue(make_recording("c", 1))
    queue.push_front([make_recording("a", 1), make_recording("b", 1)])
    queue.push_back([make_recording("d", 1)])
    assert [pop_names(queue) for _ in "abcd"] == [["a"], ["b"], ["c"], ["d"]]


def count_deaths_until_blamed(
    deaths: WorkerDeathLog,
    suspect: PendingRecording,
    others: Sequence[PendingRecording],
) -> int:
    """Return how many workers end over the suspect until it is blamed, one also ending
    over each other recording in between.
    """
    for count in range(1, 100):
        if suspect in deaths.record_death([suspect], f"w{count}"):
            return count
        for other in others:
            deaths.record_death([other], f"w{count}")
    raise AssertionError("it was never blamed")


def test_recording_is_blamed_if_workers_end_only_over_it() -> None:
    """A recording is to blame if workers end over nothing else.

    Its task may have held others, once; from then on it is alone.
    """
    deaths = WorkerDeathLog()
    suspect = make_recording("suspect", 1)
    innocent = make_recording("beside", 1)
    assert deaths.record_death([suspect, innocent], "w0") == []
    assert innocent.needs_own_task
    assert count_deaths_until_blamed(deaths, suspect, []) == MAX_DEATHS - 1
    assert len(innocent.ended_workers) == 1


def test_recording_is_blamed_later_if_workers_end_over_others_too() -> None:
    """A recording is blamed later where workers end over others too, but not never.

    What ended before its own first is no excuse.
    """
    other = [make_recording(name, 1) for name in "ab"]
    assert (
        count_deaths_until_blamed(WorkerDeathLog(), make_recording("s", 1), other)
        == MAX_DEATHS_AMONG_OTHERS
    )
    before = WorkerDeathLog()
    for number in range(3 * MAX_DEATHS):
        before.record_death([make_recording(f"early {number}", 1)], "w")
    assert count_deaths_until_blamed(before, make_recording("s", 1), []) == MAX_DEATHS
