"""Workers of a browser that compute beside its Python, in a memory that they share.

Python's own memory is its thread's alone, so a second one is theirs: weights lie in it,
what a job reads is copied there and its result back. `workers.js` has the Workers, here
is what they are asked for. There are none where a page is not isolated from others (the
headers COOP and COEP), where there is one processor, and before they have started.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.compiled import address
from rlxweb.machine.making import fast_mode
from rlxweb.machine.wasm import IN_A_TAB

MOST: Final = 7
"""Workers beside Python's thread."""
PAGE: Final = 1 << 16
MOST_PAGES: Final = (1 << 14, 1 << 12)
"""Of the memory: 1 GiB, or a quarter of it where a browser has not so much room for
what may never be used.
"""
MOST_ROOM: Final = 1 << 28
"""Bytes that jobs write over: such a memory never shrinks."""
_SPIN_MS: Final = 0.5
"""So long a Worker looks for the next job before it sleeps."""
_ALIGNED: Final = 64
_STALE, _OVER = -1, -2


class Shelf:
    """Places in a memory that grows: the first that is large enough is given."""

    def __init__(self, first: int) -> None:
        self._free: list[tuple[int, int]] = []
        self.end = first
        """Up to there it is in use."""

    def take(self, nbytes: int) -> tuple[int, int]:
        """A place, and its size."""
        size = -(-max(nbytes, 1) // _ALIGNED) * _ALIGNED
        for number, (at, there) in enumerate(self._free):
            if there >= size:
                self._free.pop(number)
                if there > size:
                    insort(self._free, (at + size, there - size))
                return at, size
        at, self.end = self.end, self.end + size
        return at, size

    def give(self, at: int, size: int) -> None:
        """It is free again, and one with what is free beside it."""
        insort(self._free, (at, size))
        joined: list[tuple[int, int]] = []
        for one in self._free:
            if joined and sum(joined[-1]) == one[0]:
                joined[-1] = joined[-1][0], joined[-1][1] + one[1]
            else:
                joined.append(one)
        if joined and sum(joined[-1]) == self.end:
            self.end = joined.pop()[0]
        self._free = joined


class Place:
    """So many bytes of the shared memory, for as long as this is held."""

    def __init__(self, shelf: Shelf, nbytes: int) -> None:
        self.at, size = shelf.take(nbytes)
        self.end = self.at + size
        finalize(self, shelf.give, self.at, size)


class Workers:
    """Those of this page, or of the Worker that Python is in.

    js       what `workers.js` made
    threads  they and Python's
    """

    def __init__(self, js: Any, threads: int) -> None:
        self._js, self._is_up, self.threads = js, False, threads
        self._shelf = Shelf(PAGE)
        self._room: Place | None = None
        self._held: NDArray[Any] = np.zeros(16, np.uint8)

    @property
    def are_there(self) -> bool:
        """Is there one that can be asked?"""
        if not self._is_up:
            self._is_up = self._js.there() > 0
        return self._is_up

    def room(self, nbytes: int) -> int | None:
        """Memory that jobs write over; None where there is not so much."""
        if nbytes > MOST_ROOM:
            return None
        if self._room is None or self._room.end - self._room.at < nbytes:
            self._room = None
            self._room = self._place(nbytes)
        return None if self._room is None else self._room.at

    def kept(self, array: NDArray[Any]) -> Place | None:
        """A copy of an array that lies element by element; None where there is no
        place for it.
        """
        place = self._place(array.nbytes)
        if place is not None:
            self._asked(self._js.put, address(array), place.at, array.nbytes)
        return place

    def region(self, code: bytes) -> tuple[int, Place] | None:
        """The place of a region in the tables of all; None where there is none left."""
        place = self.kept(np.frombuffer(code, np.uint8))
        if place is None:
            return None
        number = self._js.loaded(place.at, len(code))
        return (number, place) if number else None

    def run(self, job: NDArray[np.uint32]) -> bool:
        """What is said in words, as `job_of` says it: was it done? If not, nobody is
        there any more.
        """
        if self._asked(self._js.run, address(job)) != _OVER:
            return True
        self._is_up = False
        return False

    def _place(self, nbytes: int) -> Place | None:
        place = Place(self._shelf, nbytes)
        return place if self._js.grown(-(-self._shelf.end // PAGE)) else None

    def _asked(self, function: Any, *given: int) -> int:
        """What it says; Python's memory may have grown since it was last asked."""
        said: int = function(*given)
        if said != _STALE:
            return said
        self._js.held(self._held)
        again: int = function(*given)
        return again


def job_of(
    out: tuple[int, int, int],
    operands: Sequence[tuple[int, int, int]],
    words: Sequence[int],
) -> NDArray[np.uint32]:
    """A job as `Workers.run` takes it.

    out       where the result is made, where it goes to, and its bytes
    operands  where each lies, where it goes to, and its bytes
    words     those of `machine/wasm_shares.py`
    """
    told = [len(words), *out, len(operands)]
    for one in operands:
        told += one
    return np.array([*told, *words], np.uint32)


def workers() -> Workers | None:
    """Them, who may still be starting; None where there can be none."""
    return _workers() if IN_A_TAB and fast_mode() != "off" else None


@cache
def _workers() -> Workers | None:
    import js
    from pyodide.code import run_js
    from pyodide.ffi import JsException, to_js

    navigator = getattr(js, "navigator", None)
    count = min(MOST, getattr(navigator, "hardwareConcurrency", 1) - 1)
    if count < 1 or not getattr(js, "crossOriginIsolated", False):
        return None
    from rlxweb.machine.wasm_shares import shares_module

    make = run_js(Path(__file__).with_name("workers.js").read_text("utf-8"))
    for fused, pages in product((True, False), MOST_PAGES):
        code = to_js(shares_module(fused=fused))
        try:
            return Workers(make(code, count, pages, _SPIN_MS), count + 1)
        except JsException:  # no such additions, or memory, or no Workers
            continue
    return None
