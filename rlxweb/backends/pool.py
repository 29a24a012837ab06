"""Open backends, one per device and adapter, shared by all sessions of the process.

Opening an adapter takes from milliseconds to seconds and some drivers dislike being
opened twice, so a backend stays open until `close_all` or the end of the process.
"""

from __future__ import annotations

import atexit
from time import perf_counter_ns

from rlxweb.backends.protocol import Backend
from rlxweb.backends.registry import (
    NO_BACKEND,
    blocker,
    how_to_get,
    look_again,
    opened_as,
    row_of,
)
from rlxweb.device import adapter_name
from rlxweb.errors import AdapterMissing, DeviceError, GraphError, MustAwait
from rlxweb.forked import ForkLock
from rlxweb.gpu.drive import drive
from rlxweb.limits import Limits

Key = tuple[str, str]


class Pool:
    """Backends by (device label, adapter name); failures are remembered too."""

    def __init__(self) -> None:
        self._open: dict[Key, Backend] = {}
        self._failed: dict[Key, DeviceError] = {}
        self._opening_ns: dict[Key, int] = {}
        self._limited: dict[tuple[str, str, Limits], Backend] = {}
        self._lock = ForkLock()

    def backend(self, label: str, adapter: str = "") -> Backend:
        """The open backend. Errors  AdapterMissing, DeviceLost, with the reason."""
        known = self._known(label, adapter)
        return drive(self._opened(label, adapter)) if known is None else known

    async def backend_async(self, label: str, adapter: str = "") -> Backend:
        """`backend` for hosts that must be awaited."""
        known = self._known(label, adapter)
        return await self._opened(label, adapter) if known is None else known

    def _known(self, label: str, adapter: str) -> Backend | None:
        """The backend if it is open. Errors  AdapterMissing; what opening it raised."""
        key = _key(label, adapter)
        reason = blocker(label, looked=key in self._open)
        if reason:
            raise AdapterMissing(
                f"open device '{label}'", reason, hint=how_to_get(label)
            )
        with self._lock:
            if key in self._failed:
                raise self._failed[key]
            backend = self._open.get(key)
            if backend is not None and backend.lost:
                # Its device went away: it is closed, and opened anew.
                del self._open[key]
                for known in [k for k in self._limited if k[:2] == key]:
                    drive(self._limited.pop(known).close())
                drive(backend.close())
            return self._open.get(key)

    async def _opened(self, label: str, adapter: str) -> Backend:
        key = _key(label, adapter)
        with self._lock:
            if key in self._open:
                return self._open[key]
            begun = perf_counter_ns()
            try:
                backend = _checked(label, await _open(key[0], adapter))
            except MustAwait:
                raise  # it may well open when it is awaited
            except DeviceError as error:
                self._failed[key] = error
                raise
            # In a tab another task may have opened it while this one waited.
            if key in self._open:
                await backend.close()
            else:
                self._open[key] = backend
                self._opening_ns[key] = perf_counter_ns() - begun
            return self._open[key]

    def opening_ns(self, label: str, adapter: str = "") -> int:
        """How long opening the backend took, when it was opened last; 0 before that."""
        return self._opening_ns.get(_key(label, adapter), 0)

    def limited(self, label: str, adapter: str, limits: Limits) -> Backend:
        """The backend under stricter limits, on the same device.

        Errors   as `backend`; Unsupported for an engine that has no such limits.
        """
        backend = self.backend(label, adapter)
        key = (*_key(label, adapter), limits)
        with self._lock:
            if key not in self._limited:
                self._limited[key] = backend.limited(limits)
            return self._limited[key]

    def close_all(self) -> None:
        """Close every backend and forget failures; the next use opens afresh."""
        look_again()
        with self._lock:
            backends = [*self._open.values(), *self._limited.values()]
            self._open.clear()
            self._limited.clear()
            self._failed.clear()
        for backend in backends:
            drive(backend.close())


def _key(label: str, adapter: str) -> Key:
    return opened_as(label), adapter_name(adapter).lower()


async def _open(label: str, adapter: str) -> object:
    row = row_of(label)
    if row is None:
        raise AdapterMissing(f"open device '{label}'", NO_BACKEND)
    return await row.open(adapter)


def _checked(label: str, backend: object) -> Backend:
    """What a row opened, if it is an engine. Errors  GraphError saying what is not."""
    if isinstance(backend, Backend):
        return backend
    raise GraphError(
        f"open device '{label}'",
        f"its row opened a {type(backend).__name__}, which is no engine",
        "an engine is a subclass of rlxweb.backends.protocol.Backend",
        "let the class say so: class MyEngine(Backend)",
    )


pool = Pool()
atexit.register(pool.close_all)
