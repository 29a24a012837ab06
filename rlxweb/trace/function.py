"""Python functions on arrays as compiled graphs, cached by signature:
`rlxweb.function`.

The first call with arrays of some dtypes and shapes traces the function and compiles
what it did; later ones run that. Owns the cache, and what a call sees of a signature.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, overload

from rlxweb.core.argument_validation import bind_call
from rlxweb.core.array_coercion import describe_type
from rlxweb.core.device import DeviceLike
from rlxweb.core.errors import (
    DTypeError,
    Unsupported,
    UsageError,
)
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.runtime.cache_info import CacheInfo
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.session import Session
from rlxweb.trace.callable_signatures import (
    call_without_defaults,
    callable_name,
    callable_signature,
)
from rlxweb.trace.fixed_signature_call import BoundCall
from rlxweb.trace.function_options import FunctionOptions
from rlxweb.trace.pytrees import PyTree, content_key, flatten_tree, static_key
from rlxweb.trace.trace import current_trace
from rlxweb.trace.traced_array import TracedArray
from rlxweb.trace.traced_program import (
    ArgumentArray,
    TracedProgram,
    describe_argument,
    trace_function,
)

P = ParamSpec("P")
R = TypeVar("R")


class FlattenedArguments(NamedTuple):
    """Arguments of a call: their structure, the descriptions of their arrays, and the
    arrays.
    """

    tree: PyTree
    leaves: tuple[ArgumentArray, ...]
    arrays: list[Any]

    @property
    def key(self) -> Hashable:
        return self.tree, self.leaves


class TracedSignature:
    """Program traced for one signature; compiled when it first runs."""

    def __init__(self, program: TracedProgram) -> None:
        self.program = program
        self.compiled: CompiledGraph | None = None
        self.lock = ForkSafeLock()


class Function(Generic[P, R]):
    """Traced and compiled function with a cache of signatures. Created by
    `rlxweb.function`.

    Called as the function it wraps, with the same numbers. Threads may share it.
    """

    def __init__(self, function: Callable[P, R], options: FunctionOptions) -> None:
        self._name = callable_name(function)
        self._context = f"'{self._name}'"
        self._signature = callable_signature(function, "function")
        # The attributes of a callable object would hide the methods of this one.
        update_wrapper(self, function, updated=())
        self._function, self._options = function, options
        self._cache: OrderedDict[Hashable, TracedSignature] = OrderedDict()
        self._lock = ForkSafeLock()
        self._hits = self._misses = 0
        options.check_names(self._context, self._signature)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Compute the function's result on the requested device.

        Errors   TraceError for what no graph can say, with the place; those of
        `Session.compile` and of `CompiledGraph.run`; what the function raises.
        """
        arguments = self.given(args, kwargs)
        if any(isinstance(array, TracedArray) for array in arguments.arrays):
            return self._function(*args, **kwargs)  # within a function that is traced
        result: R = run_blocking(self._run(arguments))
        return result

    async def run_async(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the call without blocking the caller's event loop; in a page it is
        awaited.
        """
        arguments = self.given(args, kwargs)
        return await await_or_offload(lambda: self._run(arguments))

    def graph(self, *args: P.args, **kwargs: P.kwargs) -> Graph:
        """Return the graph that a call with these arguments runs; arrays captured from
        outside the function are its params. Errors  those of tracing; UsageError if no
        result of it is computed from arrays.
        """
        return self._copy_graph(self._get_or_trace(self.given(args, kwargs)))

    def compiled(self, *args: P.args, **kwargs: P.kwargs) -> CompiledGraph:
        """Return the compiled graph that a call with these arguments runs, for its
        plan, its decisions and a profile. Errors  those of a call.
        """
        arguments = self.given(args, kwargs)
        entry = self._get_or_trace(arguments)
        self._copy_graph(entry)
        return run_blocking(self._get_compiled(entry, arguments))

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return as text which arrays a call with these arguments takes, where it runs
        and why.
        """
        arguments = self.given(args, kwargs)
        entry = self._get_or_trace(arguments)
        lines = [f"{self._context[1:-1]}:"]
        lines += [f"  in   {leaf}" for leaf in arguments.leaves]
        lines += [
            f"  captured  {captured.param}: {captured.array.dtype} "
            f"{list(captured.array.shape)}"
            for captured in entry.program.captured
            if captured.param
        ]
        if entry.program.graph is None:
            note = "  there is no graph, because no result depends on any array"
            return "\n".join([*lines, note])
        return "\n".join(
            [*lines, run_blocking(self._get_compiled(entry, arguments)).explain()]
        )

    def cache_info(self) -> CacheInfo:
        """Return the cache's hits, misses, capacity and number of signatures."""
        return CacheInfo(
            self._hits, self._misses, self._options.maxsize, len(self._cache)
        )

    def cache_clear(self) -> None:
        """Drop every cached signature; running calls finish."""
        with self._lock:
            self._cache.clear()
            self._hits = self._misses = 0

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundMethod(self, instance)

    def __repr__(self) -> str:
        return f"<rlxweb.function {self._context[1:-1]}{self._signature}>"

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of {self._context}",
            "a traced function holds device memory",
            hint="pickle f.__wrapped__, and apply rlxweb.function to it after loading",
        )

    def held(self, *args: P.args, **kwargs: P.kwargs) -> BoundCall:
        """Return a callable bound to these arguments' signature, for repeated calls;
        its arrays may be on the device or not, such as earlier results.
        """
        return run_blocking(self.held_async(*args, **kwargs))

    async def held_async(self, *args: P.args, **kwargs: P.kwargs) -> BoundCall:
        """Return the same as `held`, awaited, for use in a page."""
        arguments = self.given(args, kwargs)
        entry = self._get_or_trace(arguments)
        self._copy_graph(entry)
        compiled = await self._get_compiled(entry, arguments)
        return BoundCall(
            self,
            entry,
            arguments,
            compiled,
            lambda: self._get_compiled(entry, arguments),
        )

    # --- a call, step by step -----------------------------------------------------

    def given(self, args: Any, kwargs: Any) -> FlattenedArguments:
        """Flatten the arguments of a call into a structure and arrays. Errors
        UsageError, ShapeError.
        """
        bound_arguments = bind_call(self._signature, self._name, args, kwargs)
        bound_arguments.apply_defaults()
        named_arrays: list[tuple[str, Any]] = []
        children = []
        for name, value in bound_arguments.arguments.items():
            if name in self._options.static_argnames:
                child = PyTree("static", content_key(value, name), value=value)
            else:
                child = flatten_tree(value, name, named_arrays, static_key)
            children.append(child)
        tree = PyTree("dict", (dict, tuple(bound_arguments.arguments)), tuple(children))
        if any(isinstance(value_array, TracedArray) for _, value_array in named_arrays):
            return FlattenedArguments(
                tree, (), [value_array for _, value_array in named_arrays]
            )
        dims = self._options.dims
        leaves_and_arrays = [
            describe_argument(path, value_array, dims.get(path))
            for path, value_array in named_arrays
        ]
        return FlattenedArguments(
            tree,
            tuple(leaf for leaf, _ in leaves_and_arrays),
            [value_array for _, value_array in leaves_and_arrays],
        )

    def _get_or_trace(self, arguments: FlattenedArguments) -> TracedSignature:
        """Return the program traced for a signature; trace it if it is not cached or no
        longer valid.
        """
        with self._lock:
            entry = self._cache.get(arguments.key)
            if entry is not None and entry.program.is_fresh:
                self._cache.move_to_end(arguments.key)
                self._hits += 1
                return entry
            self._misses += 1
            entry = TracedSignature(self._trace(arguments))
            self._cache[arguments.key] = entry
            while len(self._cache) > self._options.maxsize:
                self._cache.popitem(last=False)
            return entry

    def _trace(self, arguments: FlattenedArguments) -> TracedProgram:
        def call_by_name(arguments: dict[str, Any]) -> Any:
            return call_without_defaults(self._function, self._signature, arguments)

        float64_as_float32 = self._options.float64_as_float32
        return trace_function(
            self._function,
            self._name,
            arguments.tree,
            arguments.leaves,
            float64_as_float32,
            call_by_name,
        )

    def _copy_graph(self, entry: TracedSignature) -> Graph:
        if entry.program.graph is None:
            problem = "there is no graph, because no result depends on any array"
            raise UsageError(self._context, problem)
        return entry.program.graph.copy()

    async def _run(self, arguments: FlattenedArguments) -> Any:
        entry = self._get_or_trace(arguments)
        if entry.program.graph is None:
            return entry.program.build_result([])
        compiled = await self._get_compiled(entry, arguments)
        feeds = entry.program.feeds(arguments.arrays)
        keep, strict = self._options.keep, self._options.strict
        return entry.program.build_result(await compiled.computed(feeds, strict, keep))

    async def _get_compiled(
        self, entry: TracedSignature, arguments: FlattenedArguments
    ) -> CompiledGraph:
        """Return the compiled graph, its params updated to the present values of the
        captured arrays.
        """
        program = entry.program
        compiled = entry.compiled
        if compiled is None:
            compiled = await self._compile(program, arguments)
            with entry.lock:
                compiled = entry.compiled = entry.compiled or compiled
        changed_params = [
            captured
            for captured in program.captured
            if captured.param and captured.has_changed
        ]
        for captured in changed_params:
            captured.seen_values = captured.array.copy(order="C")
            await compiled.param_set(captured.param, program.params()[captured.param])
        return compiled

    async def _compile(
        self, program: TracedProgram, arguments: FlattenedArguments
    ) -> CompiledGraph:
        assert program.graph is not None
        options = self._options
        session = Session(
            "auto" if options.device is None else options.device.label,
            adapter=options.adapter,
            strict=options.strict,
        )
        feeds = program.feeds(arguments.arrays)
        device_arrays = {
            n: feed for n, feed in feeds.items() if isinstance(feed, DeviceArray)
        }
        try:
            compiled = await session.compiled(program.graph, device_arrays or None)
        except (DTypeError, Unsupported) as error:
            raise _add_float64_hint(error, program, options) from error.__cause__
        for name, array in program.params().items():
            await compiled.param_set(name, array)
        return compiled


def _add_float64_hint(
    error: Any, program: TracedProgram, options: FunctionOptions
) -> Any:
    """Add the hint precision='f32' to a device's refusal of float64, which is often not
    wanted.
    """
    assert program.graph is not None
    has_float64 = any(n.type.dtype is DType.F64 for n in program.graph.nodes())
    if has_float64 and not options.float64_as_float32:
        error.hint = (
            f"pass precision='f32' to rlxweb.function to treat float64 as float32, "
            f"or device='cpu' to compute in float64; {error.hint}"
        ).rstrip("; ")
    return error


class InlineFunction(Function[..., Any]):
    """Function that is inlined into the trace of its caller.

    The arrays around the other may be traced ones, so that within a tracing it is never
    compiled by itself, be its arguments what they may.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(
            fn, FunctionOptions(None, "", None, (), None, 32, False, False)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return self._function(*args, **kwargs)
        return super().__call__(*args, **kwargs)


class BoundMethod:
    """Traced function bound to an object as its method."""

    def __init__(self, function: Function[Any, Any], instance: Any) -> None:
        self.__func__, self.__self__ = function, instance
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.__func__, name)
        if name in ("run_async", "graph", "compiled", "explain"):
            return lambda *args, **kwargs: attribute(self.__self__, *args, **kwargs)
        return attribute

    def __repr__(self) -> str:
        return f"<bound {self.__func__!r} of {describe_type(self.__self__)}>"


@overload
def function(fn: Callable[P, R], /) -> Function[P, R]: ...


@overload
def function(
    fn: Callable[P, R],
    /,
    *,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: str | None = None,
    static_argnames: str | Iterable[str] = (),
    dims: Mapping[str, Sequence[Any]] | None = None,
    maxsize: int = 32,
    keep: bool = False,
    strict: bool = False,
) -> Function[P, R]: ...


@overload
def function(
    *,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: str | None = None,
    static_argnames: str | Iterable[str] = (),
    dims: Mapping[str, Sequence[Any]] | None = None,
    maxsize: int = 32,
    keep: bool = False,
    strict: bool = False,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...


def function(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    device: DeviceLike | None = None,
    adapter: str = "",
    precision: str | None = None,
    static_argnames: str | Iterable[str] = (),
    dims: Mapping[str, Sequence[Any]] | None = None,
    maxsize: int = 32,
    keep: bool = False,
    strict: bool = False,
) -> Any:
    """Compile a function on NumPy arrays: `@rlxweb.function`, or with arguments.

    The first call with arrays of some dtypes and shapes runs the Python code once, on
    what stands for its arrays, and compiles what NumPy's functions and operators did to
    them. Calls with such arrays run that, on any device, with NumPy's numbers and
    dtypes. Arrays and NumPy's numbers are its inputs, wherever they lie in tuples,
    lists, dicts and dataclasses; all else (Python's numbers, text, objects) is part of
    the signature. Arrays that the function takes from around itself are params.

    device           where; None: rlxweb chooses
    adapter          part of an adapter's name, where a device has several
    precision        None: NumPy's dtypes. "f32": float64 counts as float32, complex128
                     as complex64, for devices that have no float64
    static_argnames  arguments whose arrays and NumPy numbers are part of the signature
                     too, told apart by content
    dims             shapes of arguments whose sizes vary, by name or place ("x",
                     "tree['x'][0]"), as `Graph.input` takes them: {"x": ("batch", 64)}
                     is traced once for all sizes of a batch
    maxsize          signatures kept, the least recently used goes first
    keep             True: results stay on the device, as DeviceArrays; a complex one as
                     its two parts
    strict           True: nothing is done on another device or a second time
    Errors           UsageError; UnknownDevice
    """
    placement = device, adapter, precision
    options = FunctionOptions(*placement, static_argnames, dims, maxsize, keep, strict)

    def decorate(fn: Callable[..., Any]) -> Function[..., Any]:
        if isinstance(fn, staticmethod | classmethod):
            raise UsageError(
                "function",
                f"got {describe_type(fn)}",
                "expected a function",
                "put @function directly above `def`, below @staticmethod or "
                "@classmethod",
            )
        return Function(fn, options)

    return decorate if fn is None else decorate(fn)
