"""Check the facts collected from cluster workers, and that workers with other package
versions are excluded.
"""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from distributed import Client

from rlxweb.batch.cluster.cluster_messenger import ClusterMessenger, WorkerAnswer
from rlxweb.batch.cluster.recordings import spread
from rlxweb.batch.cluster.worker_versions import (
    MATCHED_PACKAGES,
    WorkerFacts,
    list_workers,
    local_versions,
    no_worker_error,
    version_mismatch,
    with_versions,
)
from rlxweb.core.errors import ClusterError
from tests.cluster.conftest import START_S, ClusterProcesses, free_port
from tests.cluster.test_recordings_on_cluster import ON_CPU
from tests.wait_with_deadline import wait_until


def test_facts_of_every_worker_are_collected(client: Client) -> None:
    facts = list_workers(client)
    assert list(facts) == list(client.scheduler_info(n_workers=-1)["workers"])
    for worker in facts.values():
        assert (worker.host, worker.nthreads, worker.no_answer_reason) == (
            "127.0.0.1",
            1,
            "",
        )
        assert worker.versions == {}
    first = next(iter(facts))
    assert list_workers(client, [first]) == {first: facts[first]}


def test_silent_worker_does_not_delay_the_answers_of_others(
    client: Client,
) -> None:
    """A worker's version arrives as a message; a silent worker delays no other
    answer.
    """
    messenger = ClusterMessenger(client)
    with closing(messenger):
        silent_key = messenger.query(
            f"tcp://127.0.0.1:{free_port()}", version, MATCHED_PACKAGES
        )
        keys = {
            messenger.query(address, version, MATCHED_PACKAGES)
            for address in list_workers(client)
        }
        answers: list[WorkerAnswer] = []

        def have_answered() -> bool:
            answers.extend(
                a for a in messenger.receive(1) if isinstance(a, WorkerAnswer)
            )
            return keys <= {answer.key for answer in answers}

        wait_until(have_answered, "all workers have answered")
    assert {answer.key for answer in answers}.isdisjoint({silent_key})
    for answer in answers:
        assert answer.value == [local_versions()[name] for name in MATCHED_PACKAGES]


SAMPLE_FACTS = WorkerFacts("0", "a", {}, 0, 1)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (
            [
                local_versions()["rlxweb"],
                "1.0",
                local_versions()["llvmlite"] or PackageNotFoundError(),
            ],
            f"numpy is 1.0 on the worker and {local_versions()['numpy']} on the client",
        ),
        (
            [
                PackageNotFoundError(),
                *[local_versions()[name] for name in MATCHED_PACKAGES[1:]],
            ],
            "rlxweb is not installed on the worker and "
            f"{local_versions()['rlxweb']} on the client",
        ),
        ([None, None, None], "no response"),
        ([OSError("gone"), None, None], "no response (OSError: gone)"),
        ([local_versions()[name] for name in MATCHED_PACKAGES], ""),
    ],
)
def test_worker_with_other_versions_is_excluded(
    answers: list[object], reason: str
) -> None:
    assert version_mismatch(with_versions(SAMPLE_FACTS, answers)) == reason


def test_error_names_both_versions_when_every_worker_differs() -> None:
    differs = (
        "rlxweb is not installed on the worker and "
        f"{local_versions()['rlxweb']} on the client"
    )
    message = str(no_worker_error({"a": differs, "b": differs, "c": "no response"}))
    assert f"workers a, b: {differs}; worker c: no response" in message
    assert f"rlxweb=={local_versions()['rlxweb']}" in message


def make_fake_rlxweb(folder: Path, version: str) -> str:
    """Create a folder that, put first in PYTHONPATH, makes rlxweb report another
    version.
    """
    info = folder / f"rlxweb-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: rlxweb\nVersion: {version}\n"
    )
    return str(folder)


def test_worker_with_another_rlxweb_version_is_left_out(
    cluster_processes: ClusterProcesses, tmp_path: Path
) -> None:
    scheduler = cluster_processes.scheduler()
    fake_package = make_fake_rlxweb(tmp_path / "old", "0.0.9")
    cluster_processes.worker(scheduler.address, PYTHONPATH=fake_package)
    messages: list[str] = []
    with Client(scheduler.address, timeout=START_S) as client:
        client.wait_for_workers(1, timeout=START_S)
        with pytest.raises(ClusterError, match=r"no worker can be used"):
            list(spread(["any.edf"], ON_CPU, client, messages.append))
        (address,) = list_workers(client)
    own_version = local_versions()["rlxweb"]
    assert messages == [
        f"excluded worker {address}: rlxweb is 0.0.9 on the worker and "
        f"{own_version} on the client"
    ]
