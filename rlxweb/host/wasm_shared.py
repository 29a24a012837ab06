"""Products of float32 with weights in a browser, by Python's thread and Workers.

How such a product is cut into parts, where its operands lie in the memory that all
share, and what is done with it there. Where there are no Workers, `wasm_products.py`
computes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.compiled import address
from rlxweb.host.workers import Place, Workers, job_of
from rlxweb.machine.wasm_products import COLUMNS, PANELS, ROWS
from rlxweb.machine.wasm_shares import FIELDS, JOB, NEXT, ROOM, mine_for

LEAST: Final = 1 << 20
"""Multiplications from which a second thread brings more than it costs: about 20
microseconds, on paper.
"""
_PART: Final = 1 << 19
"""Multiplications of a part: some 20 microseconds, so that nobody waits long for
another,
"""
_LEAST_PANELS: Final = 2
"""and panels of it: a line of the cache is written by one thread alone."""
_TURNS: Final = 4
"""Parts for each thread, if they are not too small."""
_FEW_ROWS: Final = 96
"""Up to so many, each part has all of them: on paper, as what panels are kept for."""
_ROWS: Final = 8 * ROWS
"""Of a part where there are more: as many as make reading panels cheap."""
_ALIGNED: Final = 64
_OUT, _FIRST, _EACH = 2, 5, 3
"""In the words of a job: where the result goes to, where the first operand lies, and
words of each.
"""
MOST_OPERANDS: Final = (ROOM - mine_for(0)) // (mine_for(1) - mine_for(0))
Array = NDArray[Any]
Steps = Sequence[tuple[int, int, int]]


class Done(NamedTuple):
    """What is done with a product.

    place   of the region in the table
    steps   for the result, the product and what else is read, bytes from one row, one
            column and one matrix to the next
    others  what else is read, element by element
    """

    place: int
    steps: Steps
    others: Sequence[Array]


class Parts(NamedTuple):
    """How many there are, how many side by side, and how large they are."""

    parts: int
    across: int
    rows: int
    columns: int

    @classmethod
    def of(cls, rows: int, terms: int, columns: int, threads: int) -> Parts:
        """Of a product: of few rows all in each part, else what caches hold."""
        high, panels = _ROWS, PANELS
        if rows <= _FEW_ROWS:
            each = _PART // (rows * terms * COLUMNS)
            turns = columns // (COLUMNS * _TURNS * threads)
            high, panels = rows, max(_LEAST_PANELS, min(each, turns) // 2 * 2)
        wide = panels * COLUMNS
        across = -(-columns // wide)
        return cls(across * -(-rows // high), across, high, wide)


def fits(columns: int) -> bool:
    """May a region be done with parts of so many columns? It wants a whole vector."""
    left = columns % COLUMNS
    return left == 0 or left >= COLUMNS // 2


class SharedProduct:
    """Products of one size, with one thing that is done with them."""

    def __init__(self, rows: int, terms: int, columns: int) -> None:
        self._sizes = rows, terms, columns
        self._place: int | None = None
        self._room: list[int] = []
        """Where what is copied begins in the room, then the result, then the end."""
        self._for: tuple[int, int] | None = None
        self._job = np.empty(0, np.uint32)

    def run(
        self, workers: Workers, x: Array, laid: Place, out: Array, done: Done | None
    ) -> bool:
        """The product, or what is done with it, into an array: was it?

        x     [rows, terms], element by element
        laid  the right matrix in panels, in the memory that all share
        """
        given = (x,) if done is None else (x, *done.others)
        place = 0 if done is None else done.place
        if place != self._place:
            made = out.nbytes * (1 if done is None else 2)
            self._room = _laid_out([*(one.nbytes for one in given), made])
            self._place, self._for = place, None
        room = workers.room(self._room[-1])
        if room is None:
            return False
        if self._for != (room, laid.at):
            parts = Parts.of(*self._sizes, workers.threads)
            starts = [room + one for one in self._room[:-1]]
            nbytes = [one.nbytes for one in given]
            self._job = self._told(parts, starts, nbytes, laid.at, out.nbytes, done)
            self._for = room, laid.at
        job = self._job
        job[_OUT] = address(out)
        for at, one in enumerate(given):
            job[_FIRST + _EACH * at] = address(one)
        return workers.run(job)

    def _told(
        self,
        parts: Parts,
        starts: Sequence[int],
        nbytes: Sequence[int],
        laid: int,
        result: int,
        done: Done | None,
    ) -> NDArray[np.uint32]:
        """The job, but for addresses in Python's memory."""
        rows, terms, columns = self._sizes
        *ends, made = starts
        words = dict.fromkeys(FIELDS, 0) | {
            "next": NEXT,
            "parts": parts.parts,
            "across": parts.across,
            "each_rows": parts.rows,
            "each_columns": parts.columns,
            "a": ends[0],
            "panels": laid,
            "made": made,
            "rows": rows,
            "terms": terms,
            "columns": columns,
            "a_row": 4 * terms,
            "made_row": 4 * columns,
        }
        operands: list[int] = []
        if done is not None:
            bases = [made + result, made, *ends[1:]]
            words |= {
                "tail": done.place,
                "count": len(bases),
                "operands": JOB + 4 * len(FIELDS),
            }
            for base, (row, column, _) in zip(bases, done.steps, strict=True):
                operands += [base, row, column]
        out = made if done is None else made + result, 0, result
        copies = [(0, at, size) for at, size in zip(ends, nbytes, strict=True)]
        return job_of(out, copies, [*words.values(), *operands])


def _laid_out(sizes: Sequence[int]) -> list[int]:
    """Where each begins, one after the other, and where the last ends."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // _ALIGNED) * _ALIGNED)
    return starts
