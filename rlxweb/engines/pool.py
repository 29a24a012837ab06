"""Pool of open engines, one per device and adapter, shared by all sessions of the
process.

Opening an adapter takes from milliseconds to seconds and some drivers dislike being
opened twice, so an engine stays open until `close_all` or the end of the process.
"""

from __future__ import annotations

import atexit
import sys
from time import perf_counter_ns

from rlxweb.core.device import check_adapter_name
from rlxweb.core.errors import AdapterMissing, DeviceError, GraphError, MustAwait
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.limits import Limits
from rlxweb.engines.capabilities import with_limits
from rlxweb.engines.protocol import Engine
from rlxweb.engines.registry import (
    NO_ENGINE,
    absence_reason,
    clear_detection_caches,
    find_row,
    hint_or_default,
)
from rlxweb.gpu.coroutine_runner import run_blocking

EngineKey = tuple[str, str]


class EnginePool:
    """Open engines by (device label, adapter name); failures are remembered too."""

    def __init__(self) -> None:
        self._engines: dict[EngineKey, Engine] = {}
        self._failures: dict[EngineKey, DeviceError] = {}
        self._opening_ns: dict[EngineKey, int] = {}
        self._limited_engines: dict[tuple[str, str, Limits], Engine] = {}
        self._lock = ForkSafeLock()

    def engine(self, label: str, adapter: str = "") -> Engine:
        """Return the open engine of a device, opening it if need be. Errors
        AdapterMissing, DeviceLost, with the reason.
        """
        open_engine = self._open_engine_or_none(label, adapter)
        return (
            run_blocking(self._open_engine(label, adapter))
            if open_engine is None
            else open_engine
        )

    async def engine_async(self, label: str, adapter: str = "") -> Engine:
        """Return the open engine of a device in hosts that must be awaited; see
        `engine`.
        """
        open_engine = self._open_engine_or_none(label, adapter)
        return (
            await self._open_engine(label, adapter)
            if open_engine is None
            else open_engine
        )

    def _open_engine_or_none(self, label: str, adapter: str) -> Engine | None:
        """Return the engine if it is open; close one whose device was lost. Errors
        AdapterMissing; the error of an earlier opening.
        """
        key = _engine_key(label, adapter)
        reason = "" if key in self._engines else absence_reason(label)
        if reason:
            raise AdapterMissing(
                f"open device '{label}'", reason, hint=hint_or_default(label)
            )
        with self._lock:
            if key in self._failures:
                raise self._failures[key]
            engine = self._engines.get(key)
            if engine is not None and engine.lost:
                # Its device went away: it is closed, and opened anew.
                del self._engines[key]
                for limited_key in [k for k in self._limited_engines if k[:2] == key]:
                    run_blocking(self._limited_engines.pop(limited_key).close())
                run_blocking(engine.close())
            return self._engines.get(key)

    async def _open_engine(self, label: str, adapter: str) -> Engine:
        """Open an engine and remember it or its failure."""
        key = _engine_key(label, adapter)
        with self._lock:
            if key in self._engines:
                return self._engines[key]
            start_ns = perf_counter_ns()
            try:
                engine = _require_engine(label, await _open_device(key[0], adapter))
            except MustAwait:
                raise  # it may well open when it is awaited
            except DeviceError as error:
                self._failures[key] = error
                raise
            # In a tab another task may have opened it while this one waited.
            if key in self._engines:
                await engine.close()
            else:
                self._engines[key] = engine
                self._opening_ns[key] = perf_counter_ns() - start_ns
            return self._engines[key]

    def opening_ns(self, label: str, adapter: str = "") -> int:
        """Nanoseconds that the last opening of the engine took; 0 before that."""
        return self._opening_ns.get(_engine_key(label, adapter), 0)

    def engine_with_limits(self, label: str, adapter: str, limits: Limits) -> Engine:
        """Return the engine under stricter limits, on the same device.

        Errors   as `engine`; Unsupported for an engine that has no such limits.
        """
        engine = self.engine(label, adapter)
        key = (*_engine_key(label, adapter), limits)
        with self._lock:
            if key not in self._limited_engines:
                self._limited_engines[key] = with_limits(engine, limits)
            return self._limited_engines[key]

    def close_all(self) -> None:
        """Close every engine and forget failures; the next use opens them again."""
        clear_detection_caches()
        with self._lock:
            engines = [*self._engines.values(), *self._limited_engines.values()]
            self._engines.clear()
            self._limited_engines.clear()
            self._failures.clear()
        for engine in engines:
            run_blocking(engine.close())


def _engine_key(label: str, adapter: str) -> EngineKey:
    """Return the pool's key of a device label and an adapter name: a tab has one GPU,
    whatever it is called.
    """
    is_tab_gpu = label == "gpu" and sys.platform == "emscripten"
    canonical_label = "webgpu" if is_tab_gpu else label
    return canonical_label, check_adapter_name(adapter).lower()


async def _open_device(label: str, adapter: str) -> object:
    """Open a device by its registry row."""
    row = find_row(label)
    if row is None:
        raise AdapterMissing(f"open device '{label}'", NO_ENGINE)
    return await row.open(adapter)


def _require_engine(label: str, engine: object) -> Engine:
    """Return the opened object if it is an engine. Errors  GraphError that names its
    type.
    """
    if isinstance(engine, Engine):
        return engine
    raise GraphError(
        f"open device '{label}'",
        f"its registry entry returned a {type(engine).__name__}, which is not an "
        "engine",
        "an engine must be a subclass of rlxweb.engines.protocol.Engine",
        "declare the class as a subclass: class MyEngine(Engine)",
    )


pool = EnginePool()
atexit.register(pool.close_all)
