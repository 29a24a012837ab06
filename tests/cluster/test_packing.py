"""Small recordings share a task; what may be long, or harm others, goes alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.dask.deaths import MOST_AMONG_OTHERS, MOST_DEATHS, Deaths
from rlxweb.dask.packing import (
    MOST_TOGETHER,
    TASK_BYTES,
    Piece,
    Waiting,
    largest_first,
)
from rlxweb.dask.there import Recording


def sized(name: str, nbytes: int | None) -> Piece:
    return Piece(Recording(name, name), nbytes)


def waiting(*pieces: Piece) -> Waiting:
    made = Waiting([])
    made.last(pieces)
    return made


def task(of: Waiting, address: str = "a", n_threads: int = 1) -> list[str]:
    given_out = of.task_for(address, n_threads, lambda tried: "b" not in tried)
    return [piece.one.named for piece in given_out]


def test_the_largest_comes_first(tmp_path: Path) -> None:
    for name, size in (("a", 5), ("b", 50), ("c", 20)):
        (tmp_path / name).write_bytes(bytes(size))
    files = [str(tmp_path / name) for name in "abc"]
    found = largest_first([*files, "s3://bucket/d.edf", str(tmp_path)])
    assert [piece.nbytes for piece in found] == [50, 20, 5, None, None]
    assert [piece.one.path[-1] for piece in found[:4]] == ["b", "c", "a", "f"]
    assert found[3].one.path == "s3://bucket/d.edf"


@given(
    sizes=st.lists(
        st.one_of(st.none(), st.integers(0, 2 * TASK_BYTES), st.integers(0, 1 << 20)),
        max_size=300,
    ),
    n_threads=st.integers(1, 9),
)
def test_everything_is_handed_out_once(sizes: list[int | None], n_threads: int) -> None:
    """Every recording is in one task; no task is too large, and the last holds one."""
    nbytes = {str(at): size for at, size in enumerate(sizes)}
    left = waiting(*(sized(name, size) for name, size in nbytes.items()))
    tasks = []
    while left:
        most = max(1, len(left) // (2 * n_threads))
        tasks.append(task(left, n_threads=n_threads))
        assert 1 <= len(tasks[-1]) <= min(most, MOST_TOGETHER)
        if len(tasks[-1]) > 1:
            together = [nbytes[name] for name in tasks[-1]]
            assert None not in together
            assert sum(size or 0 for size in together) <= TASK_BYTES
    assert [name for one in tasks for name in one] == list(nbytes)
    assert not tasks or len(tasks[-1]) == 1


@pytest.mark.parametrize("fault", ["over", "tried"])
def test_what_may_harm_others_goes_alone(fault: str) -> None:
    suspect = sized("suspect", 1)
    getattr(suspect, fault).append("elsewhere")
    few = [sized(name, 1) for name in "vwxyz"]
    assert task(waiting(suspect, *few)) == ["suspect"]
    assert task(waiting(few[0], suspect, *few[1:])) == ["v"]
    assert task(waiting(*few[:4], suspect)) == ["v", "w"]


def test_where_it_failed_it_goes_only_if_it_may_nowhere_else() -> None:
    failed = sized("failed", 1)
    failed.tried.append("a")
    left = waiting(failed, sized("other", 1))
    assert [task(left), task(left), len(left)] == [["other"], [], 1]
    failed.tried.append("b")  # and there is no third
    assert task(left) == ["failed"]


def test_what_comes_back_for_no_fault_of_its_own_is_next() -> None:
    left = waiting(sized("c", 1))
    left.first([sized("a", 1), sized("b", 1)])
    left.last([sized("d", 1)])
    assert [task(left) for _ in "abcd"] == [["a"], ["b"], ["c"], ["d"]]


def deaths_until_blamed(deaths: Deaths, suspect: Piece, others: Sequence[Piece]) -> int:
    """How many workers end over it, and over each of the others in between."""
    for count in range(1, 100):
        if suspect in deaths.note([suspect], f"w{count}"):
            return count
        for other in others:
            deaths.note([other], f"w{count}")
    raise AssertionError("it was never blamed")


def test_a_recording_is_to_blame_where_workers_end_over_nothing_else() -> None:
    """A recording is to blame if workers end over nothing else.

    Its task may have held others, once; from then on it is alone.
    """
    deaths, suspect, beside = Deaths(), sized("suspect", 1), sized("beside", 1)
    assert deaths.note([suspect, beside], "w0") == []
    assert beside.goes_alone
    assert deaths_until_blamed(deaths, suspect, []) == MOST_DEATHS - 1
    assert len(beside.over) == 1


def test_where_workers_end_over_everything_a_recording_has_time() -> None:
    """A recording is blamed later where workers end over others too, but not never.

    What ended before its own first is no excuse.
    """
    other = [sized(name, 1) for name in "ab"]
    assert deaths_until_blamed(Deaths(), sized("s", 1), other) == MOST_AMONG_OTHERS
    before = Deaths()
    for at in range(3 * MOST_DEATHS):
        before.note([sized(f"early {at}", 1)], "w")
    assert deaths_until_blamed(before, sized("s", 1), []) == MOST_DEATHS
