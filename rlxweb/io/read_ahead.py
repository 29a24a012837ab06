"""Read-ahead cache for remote files, which are fetched in blocks before they are
needed.

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

from rlxweb.core.fork_safety import ForkSafeLock, register_child_callback

FetchRange = Callable[[int, int], bytes]
"""Function that returns exactly the bytes [start, stop), or raises."""

MAX_BLOCK_NBYTES = 4 << 20
"""Block size for a file that is read at one position."""
MIN_BLOCK_NBYTES = 16 << 10
MAX_CACHED_NBYTES = 64 << 20
"""Maximum number of bytes cached per file."""
_MAX_REQUESTS = 8  # requests under way


class ReadAheadFile(io.RawIOBase):
    """Seekable file of `nbytes` bytes that is fetched in blocks; the first block is
    fetched immediately.

    head   the first bytes, where they are there already: a block, or the whole file
    state  by what the file is known to be the same, "" where nothing tells

    Safe to use by several threads. `read_at` moves no position.
    """

    def __init__(
        self, fetch: FetchRange, nbytes: int, head: bytes = b"", state: str = ""
    ) -> None:
        super().__init__()
        self.state = state
        self.nbytes = nbytes
        self._fetch = fetch
        self._head = head or fetch(0, min(nbytes, MAX_BLOCK_NBYTES))
        self._grid = _BlockGrid(MAX_BLOCK_NBYTES, 1, 0, nbytes)
        self._position = 0
        self._blocks: OrderedDict[int, _FetchedBlock] = OrderedDict()
        self._read_starts: set[int] = set()
        self._lock = ForkSafeLock()
        self._n_requests = 0
        register_child_callback(self, ReadAheadFile._reset_after_fork)

    def _reset_after_fork(self) -> None:
        """Clear the cache after a fork: the threads that were fetching exist in the
        parent alone.
        """
        self._blocks.clear()
        self._read_starts.clear()
        self._n_requests = 0

    def set_access_pattern(
        self, n_positions: int, rows_start: int = 0, row_nbytes: int = 0
    ) -> None:
        """Choose the block size for reads that advance at `n_positions` positions at
        once, each in its own row.

        rows_start  where the rows begin, one behind the other
        row_nbytes  of each
        """
        grid = _BlockGrid(MAX_BLOCK_NBYTES, 1, 0, self.nbytes)
        # All of a short file is kept, wherever it is read.
        if n_positions > 1 and self.nbytes > MAX_CACHED_NBYTES // 2:
            size = MAX_BLOCK_NBYTES
            target_size = max(
                MIN_BLOCK_NBYTES, MAX_CACHED_NBYTES // (2 * n_positions + 4)
            )
            while size > target_size:
                size >>= 1
            grid = _BlockGrid(size, n_positions, rows_start, row_nbytes)
        if grid == self._grid:
            return
        with self._lock:
            self._grid = grid
            self._blocks.clear()
            self._read_starts.clear()

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Return bytes [offset, offset + nbytes), fewer at the end of the file."""
        stop = min(offset + nbytes, self.nbytes)
        if stop <= len(self._head):
            return self._head[offset:stop]
        if 2 * self._grid.n_positions * MIN_BLOCK_NBYTES > MAX_CACHED_NBYTES:
            return self._fetch(
                offset, stop
            )  # what is kept would be gone before its use
        parts = []
        position = offset
        while position < stop:
            block, data = self._read_block(position, stop)
            end = min(stop, block.stop)
            parts.append(data[position - block.start : end - block.start])
            position = end
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_block(self, position: int, stop: int) -> tuple[_FetchedBlock, bytes]:
        """Return the block that holds byte `position` of a read up to `stop`, with its
        data; prefetch what follows.
        """
        with self._lock:
            grid = self._grid
            start, block_stop = grid.block_span(position, self.nbytes)
            block = self._get_or_add_block(start, block_stop)
            previous_start = (
                grid.block_span(start - 1, self.nbytes)[0] if start > 0 else -1
            )
            continues_read = (
                start in self._read_starts or previous_start in self._read_starts
            )
            self._read_starts.add(start)
            # A look at one place is no walk, a read through half of a block may be.
            is_sequential = continues_read and stop - start >= (block_stop - start) // 2
            next_blocks = self._blocks_to_prefetch(block_stop, stop, is_sequential)
            self._evict()
        for next_block in next_blocks:
            self._start_prefetch(next_block)
        try:
            return block, block.wait_data(self._fetch)
        except BaseException:
            with self._lock:
                if self._blocks.get(start) is block:
                    del self._blocks[start]
            raise

    def _blocks_to_prefetch(
        self, block_stop: int, stop: int, is_sequential: bool
    ) -> list[_FetchedBlock]:
        """Return the blocks that are needed next; the caller holds the lock."""
        grid, blocks = self._grid, []
        for _ in range(2 if grid.n_positions == 1 else 1):
            if block_stop >= self.nbytes or not (block_stop < stop or is_sequential):
                break
            if block_stop >= stop and grid.is_row_start(block_stop):
                break
            block_start, block_stop = grid.block_span(block_stop, self.nbytes)
            if block_start not in self._read_starts:
                blocks.append(self._get_or_add_block(block_start, block_stop))
        return blocks

    def _get_or_add_block(self, start: int, stop: int) -> _FetchedBlock:
        """Return the block from the cache, added if it is missing; the caller holds the
        lock.
        """
        block = self._blocks.get(start)
        if block is None:
            block = _FetchedBlock(start, stop)
            if stop <= len(self._head):
                block.set_data(self._head[start:stop])
            self._blocks[start] = block
        self._blocks.move_to_end(start)
        return block

    def _evict(self) -> None:
        """Remove the least recently used blocks; the caller holds the lock."""
        max_blocks = 2 * self._grid.n_positions + 3
        if self.nbytes <= MAX_CACHED_NBYTES // 2:
            max_blocks = len(self._blocks)
        while len(self._blocks) > max_blocks:
            self._blocks.popitem(last=False)

    def _start_prefetch(self, block: _FetchedBlock) -> None:
        """Fetch a block in a thread of its own, unless too many requests are
        running.
        """
        with self._lock:
            if self._n_requests >= _MAX_REQUESTS or not block.claim():
                return
            self._n_requests += 1
        # A daemon: who stops the program waits for no request.
        threading.Thread(target=self._prefetch, args=(block,), daemon=True).start()

    def _prefetch(self, block: _FetchedBlock) -> None:
        """Fetch a claimed block and count the request as done."""
        try:
            block.run_fetch(self._fetch)
        finally:
            with self._lock:
                self._n_requests -= 1

    def close(self) -> None:
        """Drop the cache and close the file."""
        self._blocks.clear()
        self._head = b""
        super().close()

    # --- as zipfile sees a file -----------------------------------------------------

    def seekable(self) -> bool:
        """Return True: the file supports random access."""
        return True

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte to be read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next byte to be read, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.nbytes}
        self._position = max(0, base[whence] + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Read up to `size` bytes from the position, or all that follow it."""
        available = max(0, self.nbytes - self._position)
        nbytes = available if size is None or size < 0 else min(size, available)
        data = self.read_at(self._position, nbytes) if nbytes else b""
        self._position += len(data)
        return data


@dataclass(frozen=True, slots=True)
class _BlockGrid:
    """Block boundaries of a file: one every `size` bytes, counted from the start of
    each row.

    n_positions  at which a file is read at once; a single one knows no rows
    """

    size: int
    n_positions: int
    rows_start: int
    row_nbytes: int

    def block_span(self, position: int, end: int) -> tuple[int, int]:
        """Return start and stop of the block that holds byte `position` of a file of
        `end` bytes.
        """
        if self.n_positions == 1:
            start = position // self.size * self.size
            return start, min(start + self.size, end)
        if position < self.rows_start:
            return 0, self.rows_start
        row = (
            self.rows_start
            + (position - self.rows_start) // self.row_nbytes * self.row_nbytes
        )
        start = row + (position - row) // self.size * self.size
        return start, min(start + self.size, row + self.row_nbytes, end)

    def is_row_start(self, position: int) -> bool:
        """Return whether a new row starts at this byte."""
        return (
            self.n_positions > 1 and (position - self.rows_start) % self.row_nbytes == 0
        )


class _FetchedBlock:
    """Bytes [start, stop), fetched once by the thread that claims them while the others
    wait.
    """

    __slots__ = ("_claim_lock", "_data", "_error", "_ready", "start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self._claim_lock = threading.Lock()
        self._ready = threading.Event()
        self._data = b""
        self._error: BaseException | None = None

    def claim(self) -> bool:
        """Claim the block for this thread; return False if another thread has it."""
        return self._claim_lock.acquire(blocking=False)

    def set_data(self, data: bytes) -> None:
        """Set the data of the block without a fetch."""
        self.claim()
        self._data = data
        self._ready.set()

    def run_fetch(self, fetch: FetchRange) -> None:
        """Fetch the claimed block; an error is stored for its readers."""
        try:
            self._data = fetch(self.start, self.stop)
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    def wait_data(self, fetch: FetchRange) -> bytes:
        """Return the data, fetched here or waited for.

        Errors   those of `fetch`.
        """
        if self.claim():
            self.run_fetch(fetch)
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self._data
