"""`--dask` and `--workers`: what becomes of a cluster when a run ends early."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import dask
import pytest
from distributed.system import MEMORY_LIMIT

from rlxweb.cli.crowd import Crowd
from rlxweb.cli.screen import screen
from rlxweb.cli.wanted import Wanted
from rlxweb.cli.welch_command import run_job
from rlxweb.dask import connect, recordings
from rlxweb.errors import ClusterError, RecordingError, UnknownDevice, UsageError
from rlxweb.jobs.settings import Settings
from rlxweb.jobs.spreading import one_by_one


def test_what_is_under_way_is_taken_back_while_the_cluster_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tasks are taken back before the connection, whoever still holds the iterator."""
    told: list[str] = []

    @contextmanager
    def client(self: Crowd, *how: object) -> Iterator[None]:
        try:
            yield
        finally:
            told.append("client closed")

    def spread(*args: object, **more: object) -> Iterator[tuple[str, object]]:
        try:
            while True:
                yield "x.npy", RecordingError("reading 'x.npy'", "it is empty")
        finally:
            told.append("tasks taken back")

    monkeypatch.setattr(Crowd, "_client", client)
    monkeypatch.setattr(recordings, "spread", spread)
    outcomes = Crowd(screen(stderr=True), "tcp://a:1", None)(["x.npy"], Settings())
    assert next(iter(outcomes))[0] == "x.npy"
    outcomes.close()  # type: ignore[attr-defined]
    assert told == ["tasks taken back", "client closed"]


def test_no_worker_is_started_that_has_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No worker is started for missing files, nor where nobody can know the device.

    Missing files are told in the words of a run here.
    """
    started: list[int] = []
    monkeypatch.setattr(connect, "local", lambda n: started.append(n) or nullcontext())
    monkeypatch.setattr(recordings, "spread", lambda *how, **more: (_ for _ in ()))
    there = [str(tmp_path / name) for name in ("a.npy", "b.npy")]
    for path in there:
        Path(path).touch()
    crowd = Crowd(screen(stderr=True), None, 8)
    gone = str(tmp_path / "gone.npy")
    ((name, error),) = crowd([*there, gone], Settings())
    assert started == [2]
    assert (name, str(error)) == (gone, str(dict(one_by_one([gone], Settings()))[gone]))
    assert [file for file, _ in crowd([gone], Settings())] == [gone]
    with pytest.raises(UnknownDevice, match="quantum"):
        run_job(there, Settings(device="quantum"), Wanted(), crowd)
    assert started == [2]


def test_more_workers_than_there_is_memory_for_are_refused() -> None:
    """Workers with too little memory would end and be started again for ever."""
    most = MEMORY_LIMIT // connect.LEAST_MEMORY
    with (
        pytest.raises(UsageError, match=f"256 MiB, so {most} have"),
        connect.local(most + 1),
    ):
        pass


@pytest.mark.parametrize(("set_to", "looks"), [("10ms", "50ms"), ("1s", "1s")])
def test_dask_looks_at_workers_less_often_but_as_often_as_a_user_says(
    monkeypatch: pytest.MonkeyPatch, set_to: str, looks: str
) -> None:
    """Workers keep the memory of a block, beside what else is to be set for them."""
    seen: list[tuple[str, dict[str, object]]] = []

    def started(**_: object) -> None:
        looked = dask.config.get("distributed.worker.profile.interval")
        seen.append((looked, dask.config.get("distributed.nanny.pre-spawn-environ")))
        raise RuntimeError("not today")

    monkeypatch.setattr(connect, "LocalCluster", started)
    here = {
        "distributed.worker.profile.interval": set_to,
        "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1},
    }
    with (
        dask.config.set(here),
        pytest.raises(ClusterError, match="not today"),
        connect.local(1),
    ):
        pass
    (looked, environ) = seen[0]
    assert looked == looks
    assert environ.keys() >= {"OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_"}
