"""What comes of one chunk: its arrays, and word of where they were computed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from numpy.typing import NDArray

from rlxweb.dask.annotated import asked_resources, check_resources
from rlxweb.dask.workers import ALIKE, here
from rlxweb.decision.decision import Decision
from rlxweb.errors import ClusterError


@dataclass(frozen=True, slots=True)
class Ran:
    """Where a chunk was computed.

    worker   the address of a worker of a cluster; elsewhere host and process
    decision without the other ways there were, which would weigh more than the answer
    """

    rows: int
    device: str
    adapter: str
    engine: str
    decision: Decision
    worker: str


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The arrays of a chunk by name; `ran` is None where it has no rows."""

    values: Mapping[str, NDArray[Any]]
    ran: Ran | None

    def __sizeof__(self) -> int:
        """In bytes; Dask plans its memory by it."""
        return 512 + sum(one.nbytes for one in self.values.values())


def ran_here(
    rows: int, device: str, adapter: str, engine: str, decision: Decision
) -> Ran:
    """The word of this process."""
    why = replace(decision, candidates=())
    return Ran(rows, device, adapter, engine, why, _worker())


def value_of(given: Any, name: str) -> NDArray[Any]:
    """One of the arrays of a chunk, whose piece may come as `only` takes it."""
    piece: Piece = only(given)
    return piece.values[name]


def ran_of(piece: Piece) -> list[Ran | None]:
    """Where it was computed; in a list, for Dask joins what it takes for arrays."""
    return [piece.ran]


def only(given: Any) -> Any:
    """What Dask hands over as lists of one, an axis each, where axes were joined."""
    while isinstance(given, list):
        (given,) = given
    return given


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and what a worker must have: the same versions, these resources."""

    versions: Mapping[str, str]
    resources: Mapping[str, float]


def asker() -> Asker:
    """Who asks now: the code that builds a graph."""
    return Asker(here(), asked_resources())


def check_worker(by: Asker, doing: str) -> None:
    """Refuse to compute with other packages than those of who asks, or elsewhere.

    Errors   ClusterError naming this worker and both versions, or both numbers.
    """
    check_resources(by.resources, doing)
    mine, versions = _versions(), by.versions
    other = [
        f"{name} is {mine[name] or 'not installed'} there and "
        f"{versions[name] or 'not installed'} here"
        for name in ALIKE
        if mine[name] != versions[name]
    ]
    if other:
        wanted = " ".join(f"{name}=={v}" for name, v in versions.items() if v)
        raise ClusterError(
            doing,
            f"worker {_worker()} would not compute the same",
            ", ".join(other),
            f"give the workers what this machine has: {wanted}",
        )


@cache
def _versions() -> dict[str, str]:
    return here()


def _worker() -> str:
    """The worker whose task this is, or this process."""
    if "distributed" in sys.modules:
        from distributed import get_worker

        try:
            return str(get_worker().address)
        except ValueError:
            pass
    return f"{platform.node()}, process {os.getpid()}"
