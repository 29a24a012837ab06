"""The process in which `bench gpu` measures; `bench_gpu_parent.py` starts it.

A kernel that hangs and a driver that crashes take it along, and nothing else: whatever
is known by then was told, and who was on its turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlxweb.cli.bench_gpu import Bench
from rlxweb.cli.bench_gpu_cases import Case, cases
from rlxweb.cli.bench_gpu_contenders import Row
from rlxweb.cli.bench_gpu_facts import engine, memory_types, missing, nvidia, peers
from rlxweb.cli.bench_gpu_trips import from_host, trips_of
from rlxweb.devices.place import Place, parse_place
from rlxweb.io.writers import finite
from rlxweb.smoke.answering import Say
from rlxweb.smoke.child import Write, serve
from rlxweb.smoke.sabotage import Sabotage

MIB = 1 << 20


def main() -> None:
    """Do what the line on the input asks for."""
    serve(_measure)


def chosen(mib: float, rows: int, pattern: str) -> list[Case]:
    """The cases whose names have the pattern in them."""
    return [one for one in cases(mib * MIB, rows) if pattern in one.label]


def row_of(row: Row) -> dict[str, Any]:
    """A row as JSON; what is not known of it is null."""
    return {
        "case": row.case.name,
        "shape": row.case.shape,
        "engine": row.engine,
        "variant": row.variant,
        "chosen": row.chosen,
        "by_hand": row.is_peer,
        "judged": row.judged,
        "max_error": finite(row.max_error),
        "ns": finite(row.ns),
        "spread": finite(row.spread),
        "samples": row.samples,
        "first_ns": finite(row.first_ns),
        "bytes": row.case.nbytes,
        "flops": row.case.flops,
        "why": row.why,
    }


def _measure(asked: dict[str, Any], say: Say, write: Write) -> None:
    places = [parse_place(text) for text in asked["places"]]
    if asked["around"]:
        _around(places, asked, say)
    every = chosen(asked["mib"], asked["rows"], asked["pattern"])

    def begun(case: Case, row: Row | None) -> None:
        key = None if row is None else row.key
        say(begun=case.label, case=every.index(case), key=key)

    work = Bench(
        places,
        asked["budget_s"],
        asked["rounds"],
        with_peers=asked["with_peers"],
        without=frozenset(tuple(key) for key in asked["without"]),
        begun=begun,
        sabotage=Sabotage.of(asked["sabotage"], write),
    )
    for rows in work.run(every[asked["first"] :]):
        spoiled = [row for row in rows if row.spoils]
        told = [row_of(row) for row in spoiled or rows]
        say(rows=told, spoiled=[row.key for row in spoiled])
    say(left_out=work.left_out)


def _around(places: list[Place], asked: dict[str, Any], say: Say) -> None:
    """The machine and the trips: everything that is no case."""
    say(doing="the machine")
    say(engines=[engine(place) for place in places])
    say(missing=missing(places), peers=peers(), nvidia=nvidia())
    say(doing="memory types")
    say(memory_types=memory_types())
    for place in places:
        with _told(say, "trips", place) as found:
            found |= trips_of(place, asked["mib"] * MIB)
        with _told(say, "from_host", place) as found:
            found |= from_host(place, asked["mib"] * MIB)


@contextmanager
def _told(say: Say, what: str, place: Place) -> Iterator[dict[str, Any]]:
    """Told whether it succeeds or not, and why not."""
    say(doing=f"{what} {place}")
    found: dict[str, Any] = {}
    try:
        yield found
    except Exception as error:  # each library fails in ways of its own
        found["why"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    say(**{what: {place.label: found}})
