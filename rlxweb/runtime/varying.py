"""A compiled graph whose sizes vary: every run binds them by the arrays it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Array
from rlxweb.choose.graphs import GraphJob
from rlxweb.compile.plan import Plan
from rlxweb.decision.attempt import Attempt
from rlxweb.decision.decision import Decision
from rlxweb.device import Device
from rlxweb.errors import OutOfMemory, SessionClosed, UsageError
from rlxweb.gpu.drive import drive
from rlxweb.ir.binding import sizes_of
from rlxweb.ir.fitting import unknown
from rlxweb.runtime.bindings import Bindings, BoundCheck
from rlxweb.runtime.cache_info import CacheInfo
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.device_array import DeviceArray, Keep, put_on
from rlxweb.runtime.feeds import as_input, param_named, shaped_feeds
from rlxweb.runtime.mapped import check_here

if TYPE_CHECKING:
    from rlxweb.runtime.profile import Profile
    from rlxweb.runtime.session import Session


MOST_TOLD = 1024


class CompiledVarying(CompiledGraph):
    """See `CompiledGraph`. Of a graph with dims there is one for every binding.

    What a binding decides (`device`, `plan`, `decisions`, …) is told of the latest.
    """

    def __init__(
        self, job: GraphJob, session: Session, check: BoundCheck | None = None
    ) -> None:
        self._job, self._session = job, session
        self._inputs = job.graph.named("input")
        self._params = job.graph.named("param")
        self._bindings = Bindings(job, session, check)
        # What the dims were for shapes that were given; it costs more to work out.
        self._told: dict[tuple[Any, ...], dict[str, int]] = {}
        self._is_closed = False

    async def begun(self, inputs: Mapping[str, Any] | None) -> None:
        """Errors  of dims that no run can bind, and of what the device cannot run."""
        graph, log = self._job.graph, self._job.graph.recording
        doing = f"compile '{graph.name}'"
        if log is None:
            return
        first = GraphJob(log.tried(graph.outputs), self._job.optimise)
        shapes = {n: one.type.shape for n, one in first.graph.named("input").items()}
        sizes_of(graph, shapes, doing)
        await self._session._check_runs(first)
        if inputs and self._inputs.keys() <= inputs.keys():
            await self._for(inputs, doing)

    async def _for_sizes(self, given: dict[str, Any]) -> CompiledGraph:
        doing, dims = f"bind '{self._job.graph.name}'", self._job.graph.dims
        self._check_open(doing)
        for name in given:
            if name not in dims:
                raise unknown(doing, "dim", str(name), dims)
        missing = [name for name in dims if name not in given]
        if missing:
            raise UsageError(
                doing,
                f"dim '{missing[0]}' was not given",
                f"{len(given)} of {len(dims)} dims given",
                f"pass {', '.join(f'{name}=…' for name in missing)}",
            )
        every = {name: dim.check(given[name], doing) for name, dim in dims.items()}
        return await self._bindings.at(every)

    def cache_info(self) -> CacheInfo:
        return self._bindings.info

    def _bound(self, inputs: Any, doing: str) -> tuple[dict[str, int], dict[str, Any]]:
        """What the dims are for what a run is given, and that as arrays."""
        feeds = shaped_feeds(doing, self._inputs, inputs)
        shapes = tuple(one.shape for one in feeds.values())
        sizes = self._told.get(shapes)
        if sizes is None:
            by_name = dict(zip(feeds, shapes, strict=True))
            sizes = sizes_of(self._job.graph, by_name, doing)
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            self._told[shapes] = sizes
        return sizes, feeds

    async def _for(
        self, inputs: Any, doing: str
    ) -> tuple[CompiledGraph, dict[str, Any]]:
        """The graph for what a run is given, and that as arrays."""
        sizes, feeds = self._bound(inputs, doing)
        return await self._bindings.at(sizes, feeds), feeds

    async def computed(
        self,
        inputs: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        keep: Keep = False,
    ) -> list[Any]:
        doing = f"run '{self._job.graph.name}'"
        self._check_open(doing)
        one, feeds = await self._for(inputs, doing)
        try:
            return await one.computed(feeds, strict, keep)
        except MemoryError as error:
            raise OutOfMemory(
                doing,
                f"the host's memory is not enough: {error}",
                hint="run it with smaller sizes",
            ) from None

    async def computed_each(
        self,
        feeds: Iterable[Mapping[str, Any]],
        take: Callable[[list[Array]], object],
    ) -> None:
        """Runs of the same sizes after each other may overlap."""
        doing = f"run '{self._job.graph.name}'"
        self._check_open(doing)

        def given() -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
            for at, each in enumerate(feeds):
                what = f"batch {at}: {doing}"
                sizes, arrays = self._bound(each, what)
                for name, array in arrays.items():
                    check_here(what, name, array)
                yield sizes, arrays

        for sizes, group in groupby(given(), itemgetter(0)):
            one = await self._bindings.at(sizes)
            await one.computed_each(map(itemgetter(1), group), take)

    async def _profiled(
        self,
        inputs: Mapping[str, Any] | None,
        repeats: int,
        keep: Keep,
        warm: bool = False,
    ) -> Profile:
        doing = f"profile '{self._job.graph.name}'"
        self._check_open(doing)
        one, feeds = await self._for(inputs, doing)
        return await one._profiled(feeds, repeats, keep, warm)

    async def param_set(self, name: str, value: Any) -> None:
        doing = f"set_param of '{self._job.graph.name}'"
        self._check_open(doing)
        node = param_named(doing, self._params, name)
        await self._bindings.set_param(name, as_input(doing, node, value))

    def params(self) -> dict[str, Array]:
        self._check_open(f"params of '{self._job.graph.name}'")
        if self._bindings.latest is not None:
            return self._bindings.latest.params()
        return {
            name: one.numpy() if isinstance(one, DeviceArray) else one
            for name, one in self._bindings.values.items()
        }

    def put(self, x: Any) -> DeviceArray:
        doing = f"put an array for '{self._job.graph.name}'"
        self._check_open(doing)
        device = self._session.device
        if self._bindings.latest is not None or device is None:
            return self._latest(doing).put(x)
        engine = pool.backend(device.label, self._session.adapter)
        return drive(put_on(engine, x, device, self._session.adapter))

    def _latest(self, doing: str) -> CompiledGraph:
        """Errors  UsageError before sizes were bound."""
        latest = self._bindings.latest
        if latest is None:
            dims = ", ".join(f"{name}=…" for name in self._job.graph.dims)
            raise UsageError(
                doing,
                "no sizes were bound yet",
                "each binding decides for itself",
                f"run it first, or ask compiled.bind({dims})",
            )
        return latest

    def _asked(self, what: str) -> CompiledGraph:
        return self._latest(f"{what} of '{self._job.graph.name}'")

    @property
    def device(self) -> Device:
        return self._asked("the device").device

    @property
    def engine(self) -> str:
        return self._asked("the engine").engine

    @property
    def plan(self) -> Plan:
        return self._asked("the plan").plan

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return self._asked("the decisions").decisions

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        latest = self._bindings.latest
        return () if latest is None else latest.attempts

    @property
    def nbytes(self) -> int:
        """Bytes of devices' memory of all bindings; params that they share once."""
        total, seen = 0, list[object]()
        for one in self._bindings:
            program = one._placed.ready.program
            params = getattr(program, "params", program)
            is_seen = any(params is other for other in seen)
            total += program.nbytes - (program.params_nbytes if is_seen else 0)
            seen.append(params)
        return total

    def explain(self) -> str:
        """What varies, which sizes are prepared, and what was decided for each."""
        graph, info = self._job.graph, self.cache_info()
        dims = ", ".join(map(repr, graph.dims.values()))
        lines = [
            f"{graph.name}: its sizes vary, by {dims}",
            f"{info.currsize} of at most {info.maxsize} bindings prepared; "
            f"{info.hits} runs found theirs, {info.misses} did not",
        ]
        for sizes, one in zip(self._bindings.sizes, self._bindings, strict=True):
            said = ", ".join(f"{name}={size}" for name, size in sizes.items())
            lines.append(f"with {said}: {one.explain()}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        dims = ", ".join(self._job.graph.dims)
        return f"CompiledGraph('{self._job.graph.name}' over {dims})"

    def save(self, file: Any, *, outputs: Any = None) -> None:
        graph = self._job.graph
        self._check_open(f"save '{graph.name}'")
        graph.save(file, self.params(), outputs=outputs)

    def export_web(self, folder: Any, **options: Any) -> NoReturn:
        dims = ", ".join(f"{name}=…" for name in self._job.graph.dims)
        raise UsageError(
            f"export '{self._job.graph.name}'",
            f"its sizes vary: {', '.join(self._job.graph.dims)}",
            "a page has the shaders and buffers of one binding",
            f"bind them: compiled.bind({dims}).export_web(…)",
        )

    def _check_open(self, doing: str) -> None:
        if self._is_closed:
            raise SessionClosed(
                doing, "this compiled graph was closed", hint="compile it again"
            )

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            drive(self._bindings.close())
