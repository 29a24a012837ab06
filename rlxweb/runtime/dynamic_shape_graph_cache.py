"""LRU cache of the compiled graphs of a graph with dynamic shapes, keyed by dim sizes.

Each is an ordinary compiled graph. Their params lie once on each device, for all of
them that run there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import ref

from rlxweb.engines.protocol import Array, Engine, Program
from rlxweb.gpu.coroutine_runner import AsyncLock
from rlxweb.ir.graph import Graph
from rlxweb.runtime.cache_info import CacheInfo
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.input_validation import is_mutable
from rlxweb.select.graph_job import GraphJob

if TYPE_CHECKING:
    from rlxweb.runtime.session import Session

BoundGraphCheck = Callable[[Graph, str], None]
"""Check of a bound graph; the string is the context that errors name."""
MAX_BOUND_GRAPHS = 16
"""Bindings kept of a compiled graph; the least recently used is dropped when there are
more.
"""


class BoundGraphCache:
    """LRU cache of compiled graphs, keyed by the sizes of their dims.

    check   refuses a bound graph before it is compiled
    values  params that have a value, by name
    latest  the one that was asked for last
    """

    def __init__(
        self, job: GraphJob, session: Session, check: BoundGraphCheck | None = None
    ) -> None:
        self._job, self._session, self._check = job, session, check
        self._graphs: dict[tuple[int, ...], CompiledGraph] = {}
        self._lock = AsyncLock()
        self._hits = self._misses = 0
        self.values: dict[str, Array | DeviceArray] = {}
        self.latest: CompiledGraph | None = None

    def __iter__(self) -> Iterator[CompiledGraph]:
        return iter(list(self._graphs.values()))

    @property
    def cached_sizes(self) -> list[dict[str, int]]:
        """Dim sizes of each cached graph."""
        names = list(self._job.graph.dims)
        return [dict(zip(names, key, strict=True)) for key in list(self._graphs)]

    @property
    def cache_info(self) -> CacheInfo:
        """Hits, misses and size of the cache."""
        return CacheInfo(self._hits, self._misses, MAX_BOUND_GRAPHS, len(self._graphs))

    async def get_or_compile(
        self, sizes: Mapping[str, int], inputs: Mapping[str, Any] | None = None
    ) -> CompiledGraph:
        """Return the graph for these sizes, compiling it unless it is cached.

        inputs   what it is to run on, if that is known
        Errors   those of `Graph.bind` and `Session.compile`.
        """
        key = tuple(sizes.values())
        async with self._lock:
            compiled = self._graphs.pop(key, None)
            if compiled is None:
                self._misses += 1
                compiled = await self._compile(sizes, inputs)
            else:
                self._hits += 1
            self.latest = self._graphs[key] = compiled
            while len(self._graphs) > MAX_BOUND_GRAPHS:
                # Let go of and not closed: another thread may be running it.
                del self._graphs[next(iter(self._graphs))]
        return compiled

    async def _compile(
        self, sizes: Mapping[str, int], inputs: Mapping[str, Any] | None
    ) -> CompiledGraph:
        """Bind the graph, compile it and set the params that have a value."""
        job = self._job
        bound = job.graph.bind(sizes)
        if self._check is not None:
            self._check(bound, f"run '{job.graph.name}'")
        bound_job = GraphJob(bound, job.optimise, job.cost_mode)
        device_inputs = {
            n: x for n, x in (inputs or {}).items() if isinstance(x, DeviceArray)
        }
        weak_self = ref(self)  # what is dropped is freed at once, without a cycle

        def find_shared_program(engine: Engine) -> Program | None:
            cache = weak_self()
            return None if cache is None else cache._find_program(engine)

        compiled = await self._session._compile_job(
            bound_job, device_inputs, find_shared_program
        )
        shares_params = compiled._placement.prepared.shares_params
        for name, value in self.values.items():
            await set_param_on(compiled, name, value, is_already_set=shares_params)
        return compiled

    def _find_program(self, engine: Engine) -> Program | None:
        """Return the program of a cached graph on this engine, or None."""
        for compiled in self:
            prepared = compiled._placement.prepared
            if prepared.engine is engine and not engine.lost:
                return prepared.program
        return None

    async def set_param(self, name: str, value: Array | DeviceArray) -> None:
        """Set a param of all cached and future graphs; each device gets it once."""
        if not isinstance(value, DeviceArray) and is_mutable(value):
            value = value.copy()
            value.setflags(write=False)
        async with self._lock:
            updated: list[object] = []
            for compiled in self:
                params = param_storage(compiled)
                is_already_set = any(params is other for other in updated)
                await set_param_on(compiled, name, value, is_already_set)
                updated.append(params)
            self.values[name] = value

    async def close(self) -> None:
        """Free all graphs, once no run needs them."""
        async with self._lock:
            graphs, self._graphs = list(self._graphs.values()), {}
            self.values, self.latest = {}, None
        for compiled in graphs:
            await compiled._placement.close()


def param_storage(compiled: CompiledGraph) -> object:
    """Return the object that holds the graph's params; the program itself where the
    engine has none.
    """
    program = compiled._placement.prepared.program
    params: object = getattr(program, "params", None)
    return program if params is None else params


async def set_param_on(
    compiled: CompiledGraph, name: str, value: Array | DeviceArray, is_already_set: bool
) -> None:
    """Set a param of one compiled graph; `is_already_set`: another graph that shares
    its params has the value.
    """
    placement = compiled._placement
    async with placement.lock:
        if is_already_set:
            placement.note_shared_param(
                name, None if isinstance(value, DeviceArray) else value
            )
        elif isinstance(value, DeviceArray):
            context = f"set_param of '{compiled.graph.name}', param '{name}'"
            prepared = await placement.ensure_prepared()
            await placement.set_param_buffer(
                name, value.lying_on(prepared.engine, context)
            )
        else:
            await placement.set_param_array(name, value)
