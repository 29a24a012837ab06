"""Facts about the workers of a cluster, and which of them have the same package
versions as this process.

The same bits need the same rlxweb and the same NumPy, so a worker with others is left
out. Versions are asked in words of Python's own library, which a worker understands
whatever is installed there. Knows no recording and no array.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from distributed import Client

from rlxweb.core.errors import ClusterError

MATCHED_PACKAGES = ("rlxweb", "numpy", "llvmlite")
"""Packages whose versions must be those of this process, as results depend on them."""
_MAX_LISTED = 4


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """Facts known of a worker.

    versions   of ALIKE; "" for a package that is not installed there; none of them as
               long as it was not asked
    nthreads   tasks it runs at a time
    no_answer_reason  why it could not be asked, or ""
    """

    name: str
    host: str
    versions: Mapping[str, str]
    nthreads: int
    no_answer_reason: str = ""


def local_versions() -> dict[str, str]:
    """Return the versions of MATCHED_PACKAGES in this process; "" for one that is not
    installed.
    """
    return {name: _installed_version(name) for name in MATCHED_PACKAGES}


def list_workers(
    client: Client, workers: Collection[str] | None = None
) -> dict[str, WorkerFacts]:
    """Return what the scheduler knows of each worker, by its address; no versions yet.

    In the order in which they joined.

    workers  the addresses that are asked about; all when left out
    """
    infos = client.scheduler_info(n_workers=-1)["workers"]
    return {
        address: WorkerFacts(
            name=str(info["name"]),
            host=str(info["host"]),
            versions={},
            nthreads=int(info["nthreads"]),
        )
        for address, info in infos.items()
        if workers is None or address in workers
    }


def with_versions(facts: WorkerFacts, answers: Sequence[object]) -> WorkerFacts:
    """Return the facts with the versions of MATCHED_PACKAGES that the worker
    answered.
    """
    versions = {
        name: _version_from_answer(answer)
        for name, answer in zip(MATCHED_PACKAGES, answers, strict=True)
    }
    return replace(
        facts, versions=versions, no_answer_reason=_no_answer_reason(answers[0])
    )


def version_mismatch(facts: WorkerFacts) -> str:
    """Return why a worker would not compute the same as this process; "" where it
    would.
    """
    if facts.no_answer_reason:
        return facts.no_answer_reason
    own_versions = local_versions()
    return ", ".join(
        f"{name} is {facts.versions[name] or 'not installed'} on the worker and "
        f"{own_versions[name] or 'not installed'} on the client"
        for name in MATCHED_PACKAGES
        if facts.versions[name] != own_versions[name]
    )


def no_worker_error(
    excluded: Mapping[str, str], same_versions: bool = True
) -> ClusterError:
    """Return the error for a cluster whose workers are all excluded, by address with
    the reason.

    same_versions  other versions would help
    """
    install_list = " ".join(
        f"{name}=={version}" for name, version in local_versions().items() if version
    )
    return ClusterError(
        "work on the cluster",
        "no worker can be used",
        "; ".join(group_by_reason(excluded)),
        f"install the client's versions on the workers: {install_list}" * same_versions,
    )


def group_by_reason(excluded: Mapping[str, str]) -> list[str]:
    """Return one line per reason: the workers it applies to, and the reason."""
    by_reason: dict[str, list[str]] = {}
    for address, why in excluded.items():
        by_reason.setdefault(why, []).append(address)
    return [
        f"{format_addresses(addresses)}: {why}" for why, addresses in by_reason.items()
    ]


def format_addresses(addresses: Sequence[str]) -> str:
    """Return `worker tcp://a:1`, or `workers tcp://a:1, tcp://b:2 and 3 more`."""
    more = len(addresses) - _MAX_LISTED
    rest = f" and {more} more" if more > 0 else ""
    noun = "worker" if len(addresses) == 1 else "workers"
    return f"{noun} {', '.join(addresses[:_MAX_LISTED])}{rest}"


def _version_from_answer(answer: object) -> str:
    return answer if isinstance(answer, str) else ""


def _no_answer_reason(answer: object) -> str:
    if isinstance(answer, str | PackageNotFoundError):
        return ""
    details = "" if answer is None else f" ({type(answer).__name__}: {answer})"
    return f"no response{details}"


def _installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
