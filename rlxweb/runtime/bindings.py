"""What was compiled of a graph whose sizes vary: the latest bindings of its dims.

Each is an ordinary compiled graph. Their params lie once on each device, for all of
them that run there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import ref

from rlxweb.backends.protocol import Array, Backend, Program
from rlxweb.choose.graphs import GraphJob
from rlxweb.gpu.turns import Turn
from rlxweb.ir.graph import Graph
from rlxweb.runtime.cache_info import CacheInfo
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.feeds import may_change

if TYPE_CHECKING:
    from rlxweb.runtime.session import Session

BoundCheck = Callable[[Graph, str], None]
"""Check of a graph of numbers, and what an error says was being done."""
MOST_BOUND = 16
"""Bindings of a compiled graph that are kept; the one that was not run for longest is
let go of when there are more."""


class Bindings:
    """Compiled graphs by the sizes of their dims, least recently used first.

    check   refuses a bound graph before it is compiled
    values  params that have a value, by name
    latest  the one that was asked for last
    """

    def __init__(
        self, job: GraphJob, session: Session, check: BoundCheck | None = None
    ) -> None:
        self._job, self._session, self._check = job, session, check
        self._kept: dict[tuple[int, ...], CompiledGraph] = {}
        self._turn = Turn()
        self._hits = self._misses = 0
        self.values: dict[str, Array | DeviceArray] = {}
        self.latest: CompiledGraph | None = None

    def __iter__(self) -> Iterator[CompiledGraph]:
        return iter(list(self._kept.values()))

    @property
    def sizes(self) -> list[dict[str, int]]:
        """What the dims are in each that is kept."""
        names = list(self._job.graph.dims)
        return [dict(zip(names, key, strict=True)) for key in list(self._kept)]

    @property
    def info(self) -> CacheInfo:
        return CacheInfo(self._hits, self._misses, MOST_BOUND, len(self._kept))

    async def at(
        self, sizes: Mapping[str, int], inputs: Mapping[str, Any] | None = None
    ) -> CompiledGraph:
        """The graph for these sizes, compiled now or kept from before.

        inputs   what it is to run on, if that is known
        Errors   those of `Graph.bind` and `Session.compile`.
        """
        key = tuple(sizes.values())
        async with self._turn:
            found = self._kept.pop(key, None)
            if found is None:
                self._misses += 1
                found = await self._made(sizes, inputs)
            else:
                self._hits += 1
            self.latest = self._kept[key] = found
            while len(self._kept) > MOST_BOUND:
                # Let go of and not closed: another thread may be running it.
                del self._kept[next(iter(self._kept))]
        return found

    async def _made(
        self, sizes: Mapping[str, int], inputs: Mapping[str, Any] | None
    ) -> CompiledGraph:
        job = self._job
        bound = job.graph.bind(sizes)
        if self._check is not None:
            self._check(bound, f"run '{job.graph.name}'")
        one = GraphJob(bound, job.optimise, job.cost_mode)
        there = {n: x for n, x in (inputs or {}).items() if isinstance(x, DeviceArray)}
        me = ref(self)  # what is dropped is freed at once, without a cycle

        def beside(backend: Backend) -> Program | None:
            found = me()
            return None if found is None else found._program_on(backend)

        made = await self._session._compiled_job(one, there, beside)
        shared = made._placed.ready.shares
        for name, value in self.values.items():
            await set_on(made, name, value, is_there=shared)
        return made

    def _program_on(self, backend: Backend) -> Program | None:
        """One of the kept programs on an engine."""
        for one in self:
            ready = one._placed.ready
            if ready.backend is backend and not backend.lost:
                return ready.program
        return None

    async def set_param(self, name: str, given: Array | DeviceArray) -> None:
        """A param's value for all there are and will be; uploaded once to a device."""
        if not isinstance(given, DeviceArray) and may_change(given):
            given = given.copy()
            given.setflags(write=False)
        async with self._turn:
            done: list[object] = []
            for one in self:
                params = params_of(one)
                is_there = any(params is other for other in done)
                await set_on(one, name, given, is_there)
                done.append(params)
            self.values[name] = given

    async def close(self) -> None:
        """Free them all, once no run needs them."""
        async with self._turn:
            gone, self._kept = list(self._kept.values()), {}
            self.values, self.latest = {}, None
        for one in gone:
            one._placed.closed = True
            await one._placed.release()


def params_of(one: CompiledGraph) -> object:
    """Where its params lie; itself where the engine does not say."""
    program = one._placed.ready.program
    params: object = getattr(program, "params", None)
    return program if params is None else params


async def set_on(
    one: CompiledGraph, name: str, given: Array | DeviceArray, is_there: bool
) -> None:
    """A param's value; `is_there`: another that shares its params has it already."""
    placed = one._placed
    async with placed.mending:
        if is_there:
            placed.knows(name, None if isinstance(given, DeviceArray) else given)
        elif isinstance(given, DeviceArray):
            doing = f"set_param of '{one.graph.name}', param '{name}'"
            now = await placed.present()
            await placed.set_resident(name, given.lying_on(now.backend, doing))
        else:
            await placed.set_array(name, given)
