"""Work and verdicts that callers keep for an engine as long as it lives."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from rlxweb.core.lru_cache import LruCache
from rlxweb.engines.protocol import Engine
from rlxweb.gpu.coroutine_runner import AsyncLock

MAX_CACHED_PROGRAMS, MAX_CACHED_PROGRAM_BYTES = 32, 256 << 20
"""How many prepared programs are kept for an engine, and their memory."""


class EngineCaches:
    """Caches of one engine, shared by all its callers.

    programs  prepared work that will be wanted again
    run_lock  held while work from `programs` is run
    checked_custom_ops  custom ops that were compared with their references there
    """

    def __init__(self) -> None:
        self.programs: LruCache[Any, Any] = LruCache(
            MAX_CACHED_PROGRAMS, MAX_CACHED_PROGRAM_BYTES
        )
        self.run_lock = AsyncLock()
        self.checked_custom_ops: dict[Hashable, object] = {}


def engine_caches(engine: Engine) -> EngineCaches:
    """Return the caches of an engine, created at first use."""
    # An engine need not call a constructor of ours; threads agree on one.
    attributes = vars(engine)
    caches: EngineCaches | None = attributes.get("_caches")
    return caches or attributes.setdefault("_caches", EngineCaches())
