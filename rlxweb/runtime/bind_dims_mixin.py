"""Mixin that binds the dim sizes of a CompiledGraph with dynamic shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ir.array_validation import unknown_name_error
from rlxweb.runtime.cache_info import CacheInfo
from rlxweb.select.graph_job import GraphJob

if TYPE_CHECKING:
    from rlxweb.runtime.compiled_graph import CompiledGraph


class BindMixin:
    """Binding for a graph without dims; `DynamicCompiledGraph` overrides it."""

    _job: GraphJob

    def bind(
        self, sizes: Mapping[str, int] | None = None, /, **named: int
    ) -> CompiledGraph:
        """Return the compiled graph for these sizes of all dims, as a run with them
        uses it.

        It shares its params with all others. A graph without dims is its own.
        Errors   UnknownName for a dim that the graph has not, UsageError for one that
        is left out; those of `Graph.bind` and `Session.compile`.
        """
        return run_blocking(self._bind_sizes({**(sizes or {}), **named}))

    async def bind_async(
        self, sizes: Mapping[str, int] | None = None, /, **named: int
    ) -> CompiledGraph:
        """Bind sizes without blocking the caller's event loop; see `bind`."""
        return await await_or_offload(
            lambda: self._bind_sizes({**(sizes or {}), **named})
        )

    async def _bind_sizes(self, sizes: dict[str, Any]) -> CompiledGraph:
        """Return this graph; raises UnknownName for any dim, as it has none."""
        for name in sizes:
            raise unknown_name_error(
                f"bind '{self._job.graph.name}'", "dim", str(name), {}
            )
        return cast("CompiledGraph", self)

    def cache_info(self) -> CacheInfo:
        """Return cache statistics of the bindings of a graph with dynamic shapes: hits,
        misses, the most that are kept, and how many are.
        """
        return CacheInfo(0, 0, 1, 1)
