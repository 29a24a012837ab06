"""A remote file as blocks that are fetched before they are asked for.

Owns which bytes are fetched together, which are kept, and what is fetched ahead. Knows
no network: it is handed a function that gives a range. A walk through the file fetches
nothing twice, whether it goes along at one place or, as with the channels of an array
that lie one behind the other, at hundreds.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from rlxweb.forked import ForkLock, watch

Fetch = Callable[[int, int], bytes]
"""Gives bytes [start, stop), all of them, or raises."""

LARGEST = 4 << 20
"""Bytes of a block where a file is read at one place."""
SMALLEST = 16 << 10
BUDGET = 64 << 20
"""Bytes kept of one file, at most."""
_AT_ONCE = 8  # requests under way


class BlockFile(io.RawIOBase):
    """A file of `nbytes` bytes that `fetch` reads; the first block is fetched at once.

    head   the first bytes, where they are there already: a block, or the whole file
    state  by what the file is known to be the same, "" where nothing tells

    Safe to use by several threads. `read_at` moves no position.
    """

    def __init__(
        self, fetch: Fetch, nbytes: int, head: bytes = b"", state: str = ""
    ) -> None:
        super().__init__()
        self.state = state
        self.nbytes = nbytes
        self._fetch = fetch
        self._head = head or fetch(0, min(nbytes, LARGEST))
        self._grid = _Grid(LARGEST, 1, 0, nbytes)
        self._place = 0
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._was_read: set[int] = set()
        self._lock = ForkLock()
        self._under_way = 0
        watch(self, BlockFile._in_child)

    def _in_child(self) -> None:
        """Fetch again what other threads were fetching: none of them is here."""
        self._blocks.clear()
        self._was_read.clear()
        self._under_way = 0

    def expect(self, places: int, begin: int = 0, row_nbytes: int = 0) -> None:
        """Reads go along at so many places at once, each in a row of its own.

        begin       where the rows begin, one behind the other
        row_nbytes  of each
        """
        grid = _Grid(LARGEST, 1, 0, self.nbytes)
        # All of a short file is kept, wherever it is read.
        if places > 1 and self.nbytes > BUDGET // 2:
            size, wanted = LARGEST, max(SMALLEST, BUDGET // (2 * places + 4))
            while size > wanted:
                size >>= 1
            grid = _Grid(size, places, begin, row_nbytes)
        if grid == self._grid:
            return
        with self._lock:
            self._grid = grid
            self._blocks.clear()
            self._was_read.clear()

    def read_at(self, place: int, nbytes: int) -> bytes:
        """Bytes [place, place + nbytes), fewer where the file ends."""
        stop = min(place + nbytes, self.nbytes)
        if stop <= len(self._head):
            return self._head[place:stop]
        if 2 * self._grid.places * SMALLEST > BUDGET:
            return self._fetch(place, stop)  # what is kept would be gone before its use
        pieces = []
        at = place
        while at < stop:
            block, data = self._read_of(at, stop)
            past = min(stop, block.stop)
            pieces.append(data[at - block.start : past - block.start])
            at = past
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_of(self, at: int, stop: int) -> tuple[_Block, bytes]:
        """The block that holds `at` of a read that goes to `stop`, and its bytes."""
        with self._lock:
            grid = self._grid
            start, past = grid.span(at, self.nbytes)
            block = self._kept(start, past)
            before = grid.span(start - 1, self.nbytes)[0] if start > 0 else -1
            goes_on = start in self._was_read or before in self._was_read
            self._was_read.add(start)
            # A look at one place is no walk, a read through half of a block may be.
            is_walk = goes_on and stop - start >= (past - start) // 2
            coming = self._coming(past, stop, is_walk)
            self._forget()
        for one in coming:
            self._begin(one)
        try:
            return block, block.bytes(self._fetch)
        except BaseException:
            with self._lock:
                if self._blocks.get(start) is block:
                    del self._blocks[start]
            raise

    def _coming(self, past: int, stop: int, is_walk: bool) -> list[_Block]:
        """The blocks that are wanted next; the lock is held."""
        grid, coming = self._grid, []
        for _ in range(2 if grid.places == 1 else 1):
            if past >= self.nbytes or not (past < stop or is_walk):
                break
            if past >= stop and grid.begins_row(past):
                break
            begin, past = grid.span(past, self.nbytes)
            if begin not in self._was_read:
                coming.append(self._kept(begin, past))
        return coming

    def _kept(self, start: int, stop: int) -> _Block:
        """The block, made where it is not there; the lock is held."""
        block = self._blocks.get(start)
        if block is None:
            block = _Block(start, stop)
            if stop <= len(self._head):
                block.put(self._head[start:stop])
            self._blocks[start] = block
        self._blocks.move_to_end(start)
        return block

    def _forget(self) -> None:
        """Let go of the blocks that were not used for longest; the lock is held."""
        most = 2 * self._grid.places + 3
        if self.nbytes <= BUDGET // 2:
            most = len(self._blocks)
        while len(self._blocks) > most:
            self._blocks.popitem(last=False)

    def _begin(self, block: _Block) -> None:
        """Fetch a block in a thread of its own, unless enough is under way."""
        with self._lock:
            if self._under_way >= _AT_ONCE or not block.claim():
                return
            self._under_way += 1
        # A daemon: who stops the program waits for no request.
        threading.Thread(target=self._ahead, args=(block,), daemon=True).start()

    def _ahead(self, block: _Block) -> None:
        try:
            block.run(self._fetch)
        finally:
            with self._lock:
                self._under_way -= 1

    def close(self) -> None:
        self._blocks.clear()
        self._head = b""
        super().close()

    # --- as zipfile sees a file -----------------------------------------------------

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.nbytes}
        self._place = max(0, begin[whence] + offset)
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        there = max(0, self.nbytes - self._place)
        nbytes = there if size is None or size < 0 else min(size, there)
        data = self.read_at(self._place, nbytes) if nbytes else b""
        self._place += len(data)
        return data


@dataclass(frozen=True, slots=True)
class _Grid:
    """Where blocks begin: every `size` bytes, from the begin of every row anew.

    places  at which a file is read at once; a single one knows no rows
    """

    size: int
    places: int
    begin: int
    row_nbytes: int

    def span(self, at: int, end: int) -> tuple[int, int]:
        """The block that holds byte `at` of a file of `end` bytes."""
        if self.places == 1:
            start = at // self.size * self.size
            return start, min(start + self.size, end)
        if at < self.begin:
            return 0, self.begin
        row = self.begin + (at - self.begin) // self.row_nbytes * self.row_nbytes
        start = row + (at - row) // self.size * self.size
        return start, min(start + self.size, row + self.row_nbytes, end)

    def begins_row(self, at: int) -> bool:
        """True where a walk along one row ends and another row begins."""
        return self.places > 1 and (at - self.begin) % self.row_nbytes == 0


class _Block:
    """Bytes [start, stop), fetched once by whoever claims it; others wait."""

    __slots__ = ("_claimed", "_data", "_error", "_there", "start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self._claimed = threading.Lock()
        self._there = threading.Event()
        self._data = b""
        self._error: BaseException | None = None

    def claim(self) -> bool:
        return self._claimed.acquire(blocking=False)

    def put(self, data: bytes) -> None:
        self.claim()
        self._data = data
        self._there.set()

    def run(self, fetch: Fetch) -> None:
        """Fetch it, once it is claimed; what goes wrong is kept for who reads it."""
        try:
            self._data = fetch(self.start, self.stop)
        except BaseException as error:
            self._error = error
        finally:
            self._there.set()

    def bytes(self, fetch: Fetch) -> bytes:
        """Its bytes, waited for or fetched here.

        Errors   those of `fetch`.
        """
        if self.claim():
            self.run(fetch)
        self._there.wait()
        if self._error is not None:
            raise self._error
        return self._data
