"""Check that a run on a cluster gives the results of a local run, and that one bad file
fails alone.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from rlxweb.batch.cluster.cluster_messenger import ClusterMessage, ClusterMessenger
from rlxweb.batch.cluster.recordings import spread
from rlxweb.batch.file_job_protocol import analyse_sequentially
from rlxweb.batch.results import FileResult
from rlxweb.batch.settings import Settings
from rlxweb.core.errors import RecordingError, WorkerFailed
from tests.cli_runners import check_rejected, drop_times, run_cli
from tests.cluster.edf_recordings import write_edf_recordings
from tests.wait_with_deadline import wait_until

ON_CPU = Settings(device="cpu", nperseg=128)


def scheduler_tasks(client: Client) -> list[str]:
    """Return the tasks that the scheduler has to do, or has done and keeps."""
    return list(client.run_on_scheduler(_task_keys))


def _task_keys(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks]


def is_identical(a: Any, b: Any) -> bool:
    """Return whether two results are equal to the last bit, arrays inside too; NaNs are
    equal.
    """
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if dataclasses.is_dataclass(a):
        fields = (f for f in dataclasses.fields(a) if f.compare)
        names = [f.name for f in fields if f.name != "decision"]
        return type(a) is type(b) and all(
            is_identical(getattr(a, n), getattr(b, n)) for n in names
        )
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(is_identical, a, b))
    return bool(a == b)


def test_cluster_results_are_bit_identical(client: Client, tmp_path: Path) -> None:
    files = write_edf_recordings(tmp_path, 12)
    local_outcomes = dict(analyse_sequentially(files, ON_CPU))
    messages: list[str] = []
    worker_counts: list[int] = []
    cluster_outcomes = list(
        spread(
            files, ON_CPU, client, messages.append, on_worker_count=worker_counts.append
        )
    )
    assert sorted(name for name, _ in cluster_outcomes) == files
    for name, outcome in cluster_outcomes:
        assert isinstance(outcome, FileResult)
        assert is_identical(outcome, local_outcomes[name]), name
    # All may be done before the second is ready.
    assert messages == []
    assert {*worker_counts} <= {0, 1, 2}
    assert worker_counts[-1] >= 1
    wait_until(lambda: scheduler_tasks(client) == [], "the scheduler has no task left")


def test_worker_count_is_reported_before_the_first_result(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_counts: list[int] = []
    receive = ClusterMessenger.receive

    def checked_receive(
        self: ClusterMessenger, wait_s: float
    ) -> Iterator[ClusterMessage]:
        assert worker_counts
        return receive(self, wait_s)

    monkeypatch.setattr(ClusterMessenger, "receive", checked_receive)
    list(
        spread(
            write_edf_recordings(tmp_path, 1),
            ON_CPU,
            client,
            print,
            on_worker_count=worker_counts.append,
        )
    )
    # 0 while they are asked about their device; the second may come too late.
    assert worker_counts[-1] in (1, 2)


def test_file_names_are_kept_as_given(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers run in another folder and still find files with relative names, which are
    kept.
    """
    write_edf_recordings(tmp_path / "night", 1)
    (tmp_path / "night/bad.edf").write_bytes(b"0       no header")
    monkeypatch.chdir(tmp_path)
    files = ["night/000.edf", os.path.join("night", "..", "night", "bad.edf")]
    cluster_outcomes = dict(spread(files, ON_CPU, client, print))
    result, error = (cluster_outcomes[name] for name in files)
    assert isinstance(result, FileResult)
    assert result.path == files[0]
    (_, local_error) = next(iter(analyse_sequentially(files[1:], ON_CPU)))
    assert isinstance(error, RecordingError)
    assert type(error) is type(local_error)
    assert str(error) == str(local_error)


def test_file_missing_on_workers_is_refused(client: Client, tmp_path: Path) -> None:
    """A file that no worker sees is tried elsewhere; the error names the worker."""
    missing_file = str(tmp_path / "gone.edf")
    ((name, error),) = spread([missing_file], ON_CPU, client, print)
    assert name == missing_file
    assert isinstance(error, WorkerFailed)
    assert f"cannot find the file {missing_file!r}" in str(error)
    assert "tried 3 times" in str(error)
    assert "every worker can read under the same path" in str(error)


def test_closing_the_run_leaves_no_tasks(client: Client, tmp_path: Path) -> None:
    outcomes = spread(write_edf_recordings(tmp_path, 8), ON_CPU, client, print)
    next(iter(outcomes))
    outcomes.close()  # type: ignore[attr-defined]
    wait_until(lambda: scheduler_tasks(client) == [], "the scheduler has no task left")


def test_local_workers_give_the_same_record(tmp_path: Path) -> None:
    """Workers of this machine make the same record as a run without a cluster.

    One of the recordings is bad, and one is not there.
    """
    write_edf_recordings(tmp_path / "night", 6)
    (tmp_path / "night/bad.edf").write_bytes(b"0       no header")
    folder, missing_file = str(tmp_path / "night"), str(tmp_path / "gone.edf")
    args = (
        "welch",
        folder,
        missing_file,
        "--device",
        "cpu",
        "--json",
        "-",
        "--nperseg",
        "128",
    )
    local_run = run_cli(*args, "--keep-going", RLX_CALIBRATION="off")
    cluster_run = run_cli(*args, "--workers", "2", RLX_CALIBRATION="off")
    assert (local_run.code, cluster_run.code) == (1, 1), cluster_run.err
    cluster = cluster_run.document["cluster"]
    assert drop_times(cluster_run.document, "cluster") == drop_times(
        local_run.document, "cluster"
    )
    (share,) = cluster["decided"]
    assert (share["device"], share["count"], share["share"]) == ("cpu", 6, 1.0)
    assert "2 of 8 recordings failed" in cluster_run.err
    assert "100 % ran on cpu: it was requested" in cluster_run.err


def test_dask_and_workers_options_exclude_each_other(tmp_path: Path) -> None:
    run_result = run_cli(
        "welch",
        write_edf_recordings(tmp_path, 1)[0],
        "--workers",
        2,
        "--dask",
        "tcp://a:1",
    )
    check_rejected(run_result, 2, "--dask and --workers", "one cluster")
