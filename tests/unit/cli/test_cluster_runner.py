"""Options `--dask` and `--workers`: the state of a cluster when a run ends early."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import dask
import pytest
from distributed.system import MEMORY_LIMIT

from rlxweb.batch.cluster import cluster_clients, recordings
from rlxweb.batch.file_job_protocol import analyse_sequentially
from rlxweb.batch.settings import Settings
from rlxweb.cli.cluster_runner import ClusterRunner
from rlxweb.cli.console import make_console
from rlxweb.cli.welch_command import run_welch_job
from rlxweb.cli.welch_output_options import WelchOutputOptions
from rlxweb.core.errors import ClusterError, RecordingError, UnknownDevice, UsageError


def test_pending_tasks_are_cancelled_before_client_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tasks are cancelled before the connection closes, even if the iterator is still
    referenced.
    """
    events: list[str] = []

    @contextmanager
    def client(self: ClusterRunner, *arguments: object) -> Iterator[None]:
        try:
            yield
        finally:
            events.append("client closed")

    def spread(*args: object, **options: object) -> Iterator[tuple[str, object]]:
        try:
            while True:
                yield "x.npy", RecordingError("reading 'x.npy'", "it is empty")
        finally:
            events.append("tasks taken back")

    monkeypatch.setattr(ClusterRunner, "_connect", client)
    monkeypatch.setattr(recordings, "spread", spread)
    outcomes = ClusterRunner(make_console(stderr=True), "tcp://a:1", None)(
        ["x.npy"], Settings()
    )
    assert next(iter(outcomes))[0] == "x.npy"
    outcomes.close()  # type: ignore[attr-defined]
    assert events == ["tasks taken back", "client closed"]


def test_no_idle_worker_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No worker is started for missing files or an unknown device.

    Missing files are told in the words of a run here.
    """
    worker_counts: list[int] = []
    monkeypatch.setattr(
        cluster_clients, "local", lambda n: worker_counts.append(n) or nullcontext()
    )
    monkeypatch.setattr(
        recordings, "spread", lambda *arguments, **options: (_ for _ in ())
    )
    present_files = [str(tmp_path / name) for name in ("a.npy", "b.npy")]
    for path in present_files:
        Path(path).touch()
    runner = ClusterRunner(make_console(stderr=True), None, 8)
    missing_file = str(tmp_path / "gone.npy")
    ((name, error),) = runner([*present_files, missing_file], Settings())
    assert worker_counts == [2]
    assert (name, str(error)) == (
        missing_file,
        str(dict(analyse_sequentially([missing_file], Settings()))[missing_file]),
    )
    assert [file for file, _ in runner([missing_file], Settings())] == [missing_file]
    with pytest.raises(UnknownDevice, match="quantum"):
        run_welch_job(
            present_files, Settings(device="quantum"), WelchOutputOptions(), runner
        )
    assert worker_counts == [2]


def test_workers_beyond_memory_are_rejected() -> None:
    """Workers with too little memory would die and be restarted for ever."""
    max_workers = MEMORY_LIMIT // cluster_clients.MIN_WORKER_NBYTES
    with (
        pytest.raises(UsageError, match=f"256 MiB, .* at most {max_workers} workers"),
        cluster_clients.local(max_workers + 1),
    ):
        pass


@pytest.mark.parametrize(("configured", "expected"), [("10ms", "50ms"), ("1s", "1s")])
def test_dask_profiles_workers_less_often_unless_configured(
    monkeypatch: pytest.MonkeyPatch, configured: str, expected: str
) -> None:
    """Workers keep the memory of a block, in addition to the variables that the user
    has set for them.
    """
    settings: list[tuple[str, dict[str, object]]] = []

    def fail_to_start(**_: object) -> None:
        interval = dask.config.get("distributed.worker.profile.interval")
        settings.append(
            (interval, dask.config.get("distributed.nanny.pre-spawn-environ"))
        )
        raise RuntimeError("not today")

    monkeypatch.setattr(cluster_clients, "LocalCluster", fail_to_start)
    user_config = {
        "distributed.worker.profile.interval": configured,
        "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1},
    }
    with (
        dask.config.set(user_config),
        pytest.raises(ClusterError, match="not today"),
        cluster_clients.local(1),
    ):
        pass
    (interval, environ) = settings[0]
    assert interval == expected
    assert environ.keys() >= {"OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_"}
