"""The half of a CompiledGraph that binds sizes, where these vary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from rlxweb.choose.graphs import GraphJob
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.ir.fitting import unknown
from rlxweb.runtime.cache_info import CacheInfo

if TYPE_CHECKING:
    from rlxweb.runtime.compiled import CompiledGraph


class Binds:
    """A graph, of whose dims none is free here; see `varying.py` for others."""

    _job: GraphJob

    def bind(
        self, sizes: Mapping[str, int] | None = None, /, **named: int
    ) -> CompiledGraph:
        """The compiled graph for these sizes of all dims, as a run of them uses it.

        It shares its params with all others. A graph without dims is its own.
        Errors   UnknownName for a dim that the graph has not, UsageError for one that
        is left out; those of `Graph.bind` and `Session.compile`.
        """
        return drive(self._for_sizes({**(sizes or {}), **named}))

    async def bind_async(
        self, sizes: Mapping[str, int] | None = None, /, **named: int
    ) -> CompiledGraph:
        """`bind` beside the caller's event loop."""
        return await awaited_here(lambda: self._for_sizes({**(sizes or {}), **named}))

    async def _for_sizes(self, given: dict[str, Any]) -> CompiledGraph:
        for name in given:
            raise unknown(f"bind '{self._job.graph.name}'", "dim", str(name), {})
        return cast("CompiledGraph", self)

    def cache_info(self) -> CacheInfo:
        """Bindings of a graph whose sizes vary: runs that found theirs prepared, those
        that did not, the most that are kept, and how many are.
        """
        return CacheInfo(0, 0, 1, 1)
