"""A run on a cluster gives what a run here gives, and one bad file costs itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from rlxweb.dask.post import Message, Post
from rlxweb.dask.recordings import spread
from rlxweb.errors import RecordingError, WorkerFailed
from rlxweb.jobs.results import FileResult
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import one_by_one
from tests.cluster.night import night
from tests.command_line import check_refused, spawn, untimed
from tests.waiting import until

ON_CPU = Settings(device="cpu", nperseg=128)


def tasks_of(client: Client) -> list[str]:
    """What the scheduler has to do, or has done and keeps."""
    return list(client.run_on_scheduler(_tasks))


def _tasks(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks]


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit, arrays inside too; a NaN is equal to a NaN."""
    if isinstance(one, np.ndarray):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if dataclasses.is_dataclass(one):
        fields = (f for f in dataclasses.fields(one) if f.compare)
        names = [f.name for f in fields if f.name != "decision"]
        return type(one) is type(other) and all(
            same(getattr(one, n), getattr(other, n)) for n in names
        )
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_a_cluster_gives_the_same_bits(client: Client, tmp_path: Path) -> None:
    files = night(tmp_path, 12)
    here = dict(one_by_one(files, ON_CPU))
    told: list[str] = []
    seen: list[int] = []
    there = list(spread(files, ON_CPU, client, told.append, watch=seen.append))
    assert sorted(name for name, _ in there) == files
    for name, outcome in there:
        assert isinstance(outcome, FileResult)
        assert same(outcome, here[name]), name
    # All may be done before the second is ready.
    assert told == []
    assert {*seen} <= {0, 1, 2}
    assert seen[-1] >= 1
    until(lambda: tasks_of(client) == [], "the scheduler has no task left")


def test_who_is_at_work_is_told_before_the_first_answer(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    messages = Post.messages

    def watched(self: Post, wait_s: float) -> Iterator[Message]:
        assert seen
        return messages(self, wait_s)

    monkeypatch.setattr(Post, "messages", watched)
    list(spread(night(tmp_path, 1), ON_CPU, client, print, watch=seen.append))
    # 0 while they are asked about their device; the second may come too late.
    assert seen[-1] in (1, 2)


def test_names_stay_as_they_were_given(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker stands in another folder, and finds them all the same."""
    night(tmp_path / "night", 1)
    (tmp_path / "night/bad.edf").write_bytes(b"0       no header")
    monkeypatch.chdir(tmp_path)
    files = ["night/000.edf", os.path.join("night", "..", "night", "bad.edf")]
    there = dict(spread(files, ON_CPU, client, print))
    result, error = (there[name] for name in files)
    assert isinstance(result, FileResult)
    assert result.path == files[0]
    (_, here) = next(iter(one_by_one(files[1:], ON_CPU)))
    assert isinstance(error, RecordingError)
    assert type(error) is type(here)
    assert str(error) == str(here)


def test_a_file_that_only_this_machine_sees(client: Client, tmp_path: Path) -> None:
    """A file that no worker sees is tried elsewhere; the error names the worker."""
    gone = str(tmp_path / "gone.edf")
    ((name, error),) = spread([gone], ON_CPU, client, print)
    assert name == gone
    assert isinstance(error, WorkerFailed)
    assert f"sees no file {gone!r}" in str(error)
    assert "tried 3 times" in str(error)
    assert "every worker finds them under the same path" in str(error)


def test_whoever_stops_listening_leaves_nothing_behind(
    client: Client, tmp_path: Path
) -> None:
    outcomes = spread(night(tmp_path, 8), ON_CPU, client, print)
    next(iter(outcomes))
    outcomes.close()  # type: ignore[attr-defined]
    until(lambda: tasks_of(client) == [], "the scheduler has no task left")


def test_workers_of_this_machine_do_the_same(tmp_path: Path) -> None:
    """Workers of this machine make the record that a run without a cluster makes.

    One of the recordings is bad, and one is not there.
    """
    night(tmp_path / "night", 6)
    (tmp_path / "night/bad.edf").write_bytes(b"0       no header")
    folder, gone = str(tmp_path / "night"), str(tmp_path / "gone.edf")
    args = "welch", folder, gone, "--device", "cpu", "--json", "-", "--nperseg", "128"
    here = spawn(*args, "--keep-going", RLX_CALIBRATION="off")
    there = spawn(*args, "--workers", "2", RLX_CALIBRATION="off")
    assert (here.code, there.code) == (1, 1), there.err
    cluster = there.record["cluster"]
    assert untimed(there.record, "cluster") == untimed(here.record, "cluster")
    (share,) = cluster["decided"]
    assert (share["device"], share["count"], share["share"]) == ("cpu", 6, 1.0)
    assert "2 of 8 recordings failed" in there.err
    assert "100 % ran on cpu: it was asked for" in there.err


def test_a_run_has_one_cluster(tmp_path: Path) -> None:
    said = spawn("welch", night(tmp_path, 1)[0], "--workers", 2, "--dask", "tcp://a:1")
    check_refused(said, 2, "--dask and --workers", "one cluster")
