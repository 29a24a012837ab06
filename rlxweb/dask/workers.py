"""The workers of a cluster: what each has, and who computes the same as this process.

The same bits need the same rlxweb and the same NumPy, so a worker with others is left
out. Versions are asked in words of Python's own library, which a worker understands
whatever is installed there. Knows no recording and no array.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from distributed import Client

from rlxweb.errors import ClusterError

ALIKE = ("rlxweb", "numpy", "llvmlite")
"""Packages whose versions must be those of this process: numbers come of them."""
_LISTED = 4


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What is known of a worker.

    versions   of ALIKE; "" for a package that is not installed there; none of them as
               long as it was not asked
    nthreads   tasks it runs at a time
    silent     why it could not be asked, or ""
    """

    name: str
    host: str
    versions: Mapping[str, str]
    nthreads: int
    silent: str = ""


def here() -> dict[str, str]:
    """The versions of ALIKE in this process; "" for what was never installed."""
    return {name: _version(name) for name in ALIKE}


def known(
    client: Client, workers: Collection[str] | None = None
) -> dict[str, WorkerFacts]:
    """What the scheduler knows of each worker, by its address; no versions yet.

    In the order in which they joined.

    workers  the addresses that are asked about; all when left out
    """
    found = client.scheduler_info(n_workers=-1)["workers"]
    return {
        address: WorkerFacts(
            name=str(one["name"]),
            host=str(one["host"]),
            versions={},
            nthreads=int(one["nthreads"]),
        )
        for address, one in found.items()
        if workers is None or address in workers
    }


def with_versions(one: WorkerFacts, answers: Sequence[object]) -> WorkerFacts:
    """The facts, where a worker was asked for the version of each of ALIKE."""
    versions = {n: _version_in(a) for n, a in zip(ALIKE, answers, strict=True)}
    return replace(one, versions=versions, silent=_silence(answers[0]))


def apart(one: WorkerFacts) -> str:
    """Why a worker would not compute the same as this process; "" where it would."""
    if one.silent:
        return one.silent
    mine = here()
    return ", ".join(
        f"{name} is {one.versions[name] or 'not installed'} there and "
        f"{mine[name] or 'not installed'} here"
        for name in ALIKE
        if one.versions[name] != mine[name]
    )


def nobody(left_out: Mapping[str, str], same_versions: bool = True) -> ClusterError:
    """The error where every worker was left out, by address with the reason.

    same_versions  other versions would help
    """
    mine = " ".join(f"{name}=={v}" for name, v in here().items() if v)
    return ClusterError(
        "work on the cluster",
        "none of its workers can be used",
        "; ".join(grouped(left_out)),
        f"install on the workers what this machine has: {mine}" * same_versions,
    )


def grouped(left_out: Mapping[str, str]) -> list[str]:
    """One line per reason: the workers it holds for, and the reason."""
    by_reason: dict[str, list[str]] = {}
    for address, why in left_out.items():
        by_reason.setdefault(why, []).append(address)
    return [f"{listed(a)}: {why}" for why, a in by_reason.items()]


def listed(addresses: Sequence[str]) -> str:
    """`worker tcp://a:1`, `workers tcp://a:1, tcp://b:2 and 3 more`."""
    more = len(addresses) - _LISTED
    rest = f" and {more} more" if more > 0 else ""
    noun = "worker" if len(addresses) == 1 else "workers"
    return f"{noun} {', '.join(addresses[:_LISTED])}{rest}"


def _version_in(answer: object) -> str:
    return answer if isinstance(answer, str) else ""


def _silence(answer: object) -> str:
    if isinstance(answer, str | PackageNotFoundError):
        return ""
    said = "" if answer is None else f" ({type(answer).__name__}: {answer})"
    return f"it does not answer{said}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
