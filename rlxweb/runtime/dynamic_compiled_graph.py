"""Compiled graph with dynamic shapes: every run binds the dims by the arrays it is
given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn

from rlxweb.compiler.plan import Plan
from rlxweb.core.device import Device
from rlxweb.core.errors import OutOfMemory, SessionClosed, UsageError
from rlxweb.cost.decision import Attempt, Decision
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Array
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.array_validation import unknown_name_error
from rlxweb.ir.dim_binding import infer_dim_sizes
from rlxweb.runtime.batch_map_mixin import check_on_host
from rlxweb.runtime.cache_info import CacheInfo
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.device_array import DeviceArray, Keep, put_on_engine
from rlxweb.runtime.dynamic_shape_graph_cache import BoundGraphCache, BoundGraphCheck
from rlxweb.runtime.input_validation import (
    find_param,
    validate_array,
    validate_dynamic_feeds,
)
from rlxweb.select.graph_job import GraphJob

if TYPE_CHECKING:
    from rlxweb.runtime.profile import Profile
    from rlxweb.runtime.session import Session


MAX_CACHED_SHAPES = 1024


class DynamicCompiledGraph(CompiledGraph):
    """Compiled graph with dynamic shapes; see `CompiledGraph`. Each binding of its dims
    is compiled on its own.

    What a binding decides (`device`, `plan`, `decisions`, …) is told of the latest.
    """

    def __init__(
        self, job: GraphJob, session: Session, check: BoundGraphCheck | None = None
    ) -> None:
        self._job, self._session = job, session
        self._input_nodes = job.graph.named("input")
        self._param_nodes = job.graph.named("param")
        self._bound_graphs = BoundGraphCache(job, session, check)
        # What the dims were for shapes that were given; it costs more to work out.
        self._sizes_by_shapes: dict[tuple[Any, ...], dict[str, int]] = {}
        self._is_closed = False

    async def prepare(self, inputs: Mapping[str, Any] | None) -> None:
        """Raise the errors of dims that no run can bind and of what the device cannot
        run; compile for `inputs`, if given.
        """
        graph, trace = self._job.graph, self._job.graph.recording
        context = f"compile '{graph.name}'"
        if trace is None:
            return
        sample_job = GraphJob(trace.trial_graph(graph.outputs), self._job.optimise)
        shapes = {
            n: node.type.shape for n, node in sample_job.graph.named("input").items()
        }
        infer_dim_sizes(graph, shapes, context)
        await self._session._check_supported(sample_job)
        if inputs and self._input_nodes.keys() <= inputs.keys():
            await self._bind_inputs(inputs, context)

    async def _bind_sizes(self, sizes: dict[str, Any]) -> CompiledGraph:
        """Return the graph compiled for these sizes of all dims."""
        context, dims = f"bind '{self._job.graph.name}'", self._job.graph.dims
        self._check_open(context)
        for name in sizes:
            if name not in dims:
                raise unknown_name_error(context, "dim", str(name), dims)
        missing = [name for name in dims if name not in sizes]
        if missing:
            raise UsageError(
                context,
                f"dim '{missing[0]}' was not given",
                f"{len(sizes)} of {len(dims)} dims given",
                f"pass {', '.join(f'{name}=…' for name in missing)}",
            )
        valid_sizes = {
            name: dim.check(sizes[name], context) for name, dim in dims.items()
        }
        return await self._bound_graphs.get_or_compile(valid_sizes)

    def cache_info(self) -> CacheInfo:
        """Return the statistics of the cache of bindings."""
        return self._bound_graphs.cache_info

    def _sizes_and_feeds(
        self, inputs: Any, context: str
    ) -> tuple[dict[str, int], dict[str, Any]]:
        """Return the dim sizes of a run's inputs, and the inputs as arrays."""
        feeds = validate_dynamic_feeds(context, self._input_nodes, inputs)
        shapes = tuple(array.shape for array in feeds.values())
        sizes = self._sizes_by_shapes.get(shapes)
        if sizes is None:
            shapes_by_name = dict(zip(feeds, shapes, strict=True))
            sizes = infer_dim_sizes(self._job.graph, shapes_by_name, context)
            if len(self._sizes_by_shapes) >= MAX_CACHED_SHAPES:
                self._sizes_by_shapes.clear()
            self._sizes_by_shapes[shapes] = sizes
        return sizes, feeds

    async def _bind_inputs(
        self, inputs: Any, context: str
    ) -> tuple[CompiledGraph, dict[str, Any]]:
        """Return the graph compiled for a run's inputs, and the inputs as arrays."""
        sizes, feeds = self._sizes_and_feeds(inputs, context)
        return await self._bound_graphs.get_or_compile(sizes, feeds), feeds

    async def computed(
        self,
        inputs: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        keep: Keep = False,
    ) -> list[Any]:
        """Bind the dims by the inputs and compute the outputs."""
        context = f"run '{self._job.graph.name}'"
        self._check_open(context)
        bound_graph, feeds = await self._bind_inputs(inputs, context)
        try:
            return await bound_graph.computed(feeds, strict, keep)
        except MemoryError as error:
            raise OutOfMemory(
                context,
                f"the host is out of memory: {error}",
                hint="run the graph with smaller inputs",
            ) from None

    async def computed_each(
        self,
        feeds: Iterable[Mapping[str, Any]],
        take: Callable[[list[Array]], object],
    ) -> None:
        """Run over batches in order; consecutive runs of the same sizes may overlap."""
        context = f"run '{self._job.graph.name}'"
        self._check_open(context)

        def sized_batches() -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
            for index, batch in enumerate(feeds):
                label = f"batch {index}: {context}"
                sizes, arrays = self._sizes_and_feeds(batch, label)
                for name, array in arrays.items():
                    check_on_host(label, name, array)
                yield sizes, arrays

        for sizes, group in groupby(sized_batches(), itemgetter(0)):
            bound_graph = await self._bound_graphs.get_or_compile(sizes)
            await bound_graph.computed_each(map(itemgetter(1), group), take)

    async def _profile(
        self,
        inputs: Mapping[str, Any] | None,
        repeats: int,
        keep: Keep,
        warm: bool = False,
    ) -> Profile:
        context = f"profile '{self._job.graph.name}'"
        self._check_open(context)
        bound_graph, feeds = await self._bind_inputs(inputs, context)
        return await bound_graph._profile(feeds, repeats, keep, warm)

    async def param_set(self, name: str, value: Any) -> None:
        """Set a param of every binding."""
        context = f"set_param of '{self._job.graph.name}'"
        self._check_open(context)
        node = find_param(context, self._param_nodes, name)
        await self._bound_graphs.set_param(name, validate_array(context, node, value))

    def params(self) -> dict[str, Array]:
        self._check_open(f"params of '{self._job.graph.name}'")
        if self._bound_graphs.latest is not None:
            return self._bound_graphs.latest.params()
        return {
            name: value.numpy() if isinstance(value, DeviceArray) else value
            for name, value in self._bound_graphs.values.items()
        }

    def put(self, x: Any) -> DeviceArray:
        context = f"put an array for '{self._job.graph.name}'"
        self._check_open(context)
        device = self._session.device
        if self._bound_graphs.latest is not None or device is None:
            return self._latest_graph(context).put(x)
        engine = pool.engine(device.label, self._session.adapter)
        return run_blocking(put_on_engine(engine, x, device, self._session.adapter))

    def _latest_graph(self, context: str) -> CompiledGraph:
        """Return the binding that was used last; raises UsageError before sizes were
        bound.
        """
        latest = self._bound_graphs.latest
        if latest is None:
            dims = ", ".join(f"{name}=…" for name in self._job.graph.dims)
            raise UsageError(
                context,
                "no sizes are bound yet",
                "the device and the plan are chosen for each set of sizes",
                f"run the graph first, or use compiled.bind({dims})",
            )
        return latest

    def _latest_graph_for(self, label: str) -> CompiledGraph:
        """Return the binding that was used last; `label` names what is asked of it in
        errors.
        """
        return self._latest_graph(f"{label} of '{self._job.graph.name}'")

    @property
    def device(self) -> Device:
        return self._latest_graph_for("the device").device

    @property
    def engine(self) -> str:
        return self._latest_graph_for("the engine").engine

    @property
    def plan(self) -> Plan:
        return self._latest_graph_for("the plan").plan

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return self._latest_graph_for("the decisions").decisions

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        latest = self._bound_graphs.latest
        return () if latest is None else latest.attempts

    @property
    def nbytes(self) -> int:
        """Bytes of device memory of all bindings; params that they share count once."""
        total, seen = 0, list[object]()
        for bound_graph in self._bound_graphs:
            program = bound_graph._placement.prepared.program
            params = getattr(program, "params", program)
            is_seen = any(params is other for other in seen)
            total += program.nbytes - (program.params_nbytes if is_seen else 0)
            seen.append(params)
        return total

    def explain(self) -> str:
        """Describe which dims vary, which sizes are compiled, and what was decided for
        each.
        """
        graph, info = self._job.graph, self.cache_info()
        dims = ", ".join(map(repr, graph.dims.values()))
        lines = [
            f"{graph.name}: its dynamic sizes are {dims}",
            f"compiled for {info.currsize} sets of sizes (at most {info.maxsize} are "
            f"kept); {info.hits} runs reused a compiled graph, {info.misses} runs "
            "compiled a new one",
        ]
        for sizes, bound_graph in zip(
            self._bound_graphs.cached_sizes, self._bound_graphs, strict=True
        ):
            sizes_text = ", ".join(f"{name}={size}" for name, size in sizes.items())
            lines.append(f"with {sizes_text}: {bound_graph.explain()}")
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
            f"it has dynamic sizes ({', '.join(self._job.graph.dims)})",
            "an exported page supports one fixed set of sizes",
            f"bind the sizes first: compiled.bind({dims}).export_web(…)",
        )

    def _check_open(self, context: str) -> None:
        """Raise SessionClosed if the graph was closed."""
        if self._is_closed:
            raise SessionClosed(
                context, "this compiled graph was closed", hint="compile it again"
            )

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            run_blocking(self._bound_graphs.close())
