"""What is known of workers, and that those with other versions are left out."""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from distributed import Client

from rlxweb.dask.post import Answer, Post
from rlxweb.dask.recordings import spread
from rlxweb.dask.workers import (
    ALIKE,
    WorkerFacts,
    apart,
    here,
    known,
    nobody,
    with_versions,
)
from rlxweb.errors import ClusterError
from tests.cluster.conftest import START_S, Started, free_port
from tests.cluster.test_recordings import ON_CPU
from tests.waiting import until


def test_facts_of_every_worker(client: Client) -> None:
    found = known(client)
    assert list(found) == list(client.scheduler_info(n_workers=-1)["workers"])
    for one in found.values():
        assert (one.host, one.nthreads, one.silent) == ("127.0.0.1", 1, "")
        assert one.versions == {}
    first = next(iter(found))
    assert known(client, [first]) == {first: found[first]}


def test_a_worker_is_asked_and_nobody_waits_for_one_that_is_silent(
    client: Client,
) -> None:
    """A worker's version is a message; nobody waits for a worker that is silent."""
    post = Post(client)
    with closing(post):
        silent = post.ask(f"tcp://127.0.0.1:{free_port()}", version, ALIKE)
        keys = {post.ask(address, version, ALIKE) for address in known(client)}
        answers: list[Answer] = []

        def have_answered() -> bool:
            answers.extend(a for a in post.messages(1) if isinstance(a, Answer))
            return keys <= {answer.key for answer in answers}

        until(have_answered, "all workers have answered")
    assert {answer.key for answer in answers}.isdisjoint({silent})
    for answer in answers:
        assert answer.value == [here()[name] for name in ALIKE]


MADE = WorkerFacts("0", "a", {}, 0, 1)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (
            [here()["rlxweb"], "1.0", here()["llvmlite"] or PackageNotFoundError()],
            f"numpy is 1.0 there and {here()['numpy']} here",
        ),
        (
            [PackageNotFoundError(), *[here()[name] for name in ALIKE[1:]]],
            f"rlxweb is not installed there and {here()['rlxweb']} here",
        ),
        ([None, None, None], "it does not answer"),
        ([OSError("gone"), None, None], "it does not answer (OSError: gone)"),
        ([here()[name] for name in ALIKE], ""),
    ],
)
def test_whoever_would_not_compute_the_same_is_apart(
    answers: list[object], why: str
) -> None:
    assert apart(with_versions(MADE, answers)) == why


def test_where_every_worker_differs_the_error_has_both_versions() -> None:
    differs = f"rlxweb is not installed there and {here()['rlxweb']} here"
    said = str(nobody({"a": differs, "b": differs, "c": "it does not answer"}))
    assert f"workers a, b: {differs}; worker c: it does not answer" in said
    assert f"rlxweb=={here()['rlxweb']}" in said


def another_rlxweb(folder: Path, version: str) -> str:
    """A folder that, put first in PYTHONPATH, makes rlxweb say another version."""
    info = folder / f"rlxweb-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: rlxweb\nVersion: {version}\n"
    )
    return str(folder)


def test_a_process_with_another_rlxweb_is_found_out(
    started: Started, tmp_path: Path
) -> None:
    scheduler = started.scheduler()
    old = another_rlxweb(tmp_path / "old", "0.0.9")
    started.worker(scheduler.address, PYTHONPATH=old)
    told: list[str] = []
    with Client(scheduler.address, timeout=START_S) as client:
        client.wait_for_workers(1, timeout=START_S)
        with pytest.raises(ClusterError, match=r"none of its workers can be used"):
            list(spread(["any.edf"], ON_CPU, client, told.append))
        (address,) = known(client)
    mine = here()["rlxweb"]
    assert told == [f"left out worker {address}: rlxweb is 0.0.9 there and {mine} here"]
