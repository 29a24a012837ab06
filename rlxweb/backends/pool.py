"""Open backends, one per device and adapter, shared by all sessions of the process.

Opening an adapter takes from milliseconds to seconds and some drivers dislike being
opened twice, so a backend stays open until `close_all` or the end of the process.
"""

from __future__ import annotations

import atexit
import threading
from inspect import isawaitable
from time import perf_counter_ns
from typing import Any

from rlxweb.backends.registry import ROWS, blocker, opened_as
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.errors import AdapterMissing, DeviceError, MustAwait, Unsupported
from rlxweb.gpu.drive import drive
from rlxweb.limits import Limits


class Pool:
    """Backends by (device label, adapter name); failures are remembered too."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Any] = {}
        self._failed: dict[tuple[str, str], DeviceError] = {}
        self._opening_ns: dict[tuple[str, str], int] = {}
        self._limited: dict[tuple[str, str, Limits], Any] = {}
        self._lock = threading.RLock()

    def backend(self, label: str, adapter: str = "") -> Any:
        """The open backend. Errors  AdapterMissing, DeviceLost, with the reason."""
        known = self._known(label, adapter)
        return known if known is not None else drive(self._opened(label, adapter))

    async def backend_async(self, label: str, adapter: str = "") -> Any:
        """`backend` for hosts that must be awaited."""
        known = self._known(label, adapter)
        return known if known is not None else await self._opened(label, adapter)

    def _known(self, label: str, adapter: str) -> Any:
        """The backend if it is open. Errors  AdapterMissing; what opening it raised."""
        key = _key(label, adapter)
        reason = blocker(label)
        if reason:
            raise AdapterMissing(
                f"open device '{label}'", reason, hint="see `rlxweb devices`"
            )
        with self._lock:
            if key in self._failed:
                raise self._failed[key]
            self._let_go_if_lost(key)
            return self._open.get(key)

    async def _opened(self, label: str, adapter: str) -> Any:
        key = _key(label, adapter)
        with self._lock:
            if key in self._open:
                return self._open[key]
            begun = perf_counter_ns()
            try:
                backend = ROWS[key[0]].open(adapter)
                if isawaitable(backend):
                    backend = await backend
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

    def is_open(self, label: str, adapter: str = "") -> bool:
        """Has the backend been opened and not been lost since?"""
        backend = self._open.get(_key(label, adapter))
        return backend is not None and not getattr(backend, "lost", "")

    def opening_ns(self, label: str, adapter: str = "") -> int:
        """How long opening the backend took, when it was opened last; 0 before that."""
        return self._opening_ns.get(_key(label, adapter), 0)

    def _let_go_if_lost(self, key: tuple[str, str]) -> None:
        """Close a backend whose device went away, so that it is opened anew."""
        backend = self._open.get(key)
        if isinstance(backend, WebGpuBackend) and backend.lost:
            del self._open[key]
            for known in [k for k in self._limited if k[:2] == key]:
                drive(self._limited.pop(known).close())
            drive(backend.close())

    def limited(self, label: str, adapter: str, limits: Limits) -> Any:
        """The backend under stricter limits, on the same port.

        Errors   as `backend`; Unsupported for an engine that has no such limits.
        """
        backend = self.backend(label, adapter)
        if not isinstance(backend, WebGpuBackend):
            raise Unsupported(
                f"Session('{label}', limits=…)",
                "limits can be set for wgpu devices only",
                hint="leave `limits` out",
            )
        key = (*_key(label, adapter), limits)
        with self._lock:
            if key not in self._limited:
                self._limited[key] = WebGpuBackend(backend.port, limits=limits)
            return self._limited[key]

    def close_all(self) -> None:
        """Close every backend and forget failures; the next use opens afresh."""
        with self._lock:
            backends = list(self._open.values())
            backends += self._limited.values()
            self._open.clear()
            self._limited.clear()
            self._failed.clear()
        for backend in backends:
            drive(backend.close())


def _key(label: str, adapter: str) -> tuple[str, str]:
    return opened_as(label), adapter.lower()


pool = Pool()
atexit.register(pool.close_all)
