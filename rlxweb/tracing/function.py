"""rlxweb.function: a Python function on arrays as a compiled graph for each signature.

The first call with arrays of some dtypes and shapes traces the function and compiles
what it did; later ones run that. Owns the cache, and what a call sees of a signature.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, overload

from rlxweb.device import DeviceLike
from rlxweb.errors import (
    DTypeError,
    Unsupported,
    UsageError,
)
from rlxweb.forked import ForkLock
from rlxweb.given import named
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.runtime.cache_info import CacheInfo
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.session import Session
from rlxweb.tracing.asked import Asked
from rlxweb.tracing.callables import (
    call_without_defaults,
    name_of_callable,
    signature_of,
)
from rlxweb.tracing.held_call import HeldCall
from rlxweb.tracing.program import Leaf, Program, leaf_of, traced
from rlxweb.tracing.trace import running
from rlxweb.tracing.traced import Traced
from rlxweb.tracing.trees import Tree, by_content, by_value, flattened

P = ParamSpec("P")
R = TypeVar("R")


class Given(NamedTuple):
    """The arguments of a call: their structure, what tells their arrays apart, they."""

    tree: Tree
    leaves: tuple[Leaf, ...]
    arrays: list[Any]

    @property
    def key(self) -> Hashable:
        return self.tree, self.leaves


class Made:
    """What was made for a signature; compiled when it first runs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.compiled: CompiledGraph | None = None
        self.turn = ForkLock()


class Function(Generic[P, R]):
    """A function that is traced, compiled and kept. Made by `rlxweb.function`.

    Called as the function it wraps, with the same numbers. Threads may share it.
    """

    def __init__(self, function: Callable[P, R], asked: Asked) -> None:
        self._name = name_of_callable(function)
        self._doing = f"'{self._name}'"
        self._signature = signature_of(function, "function")
        # The attributes of a callable object would hide the methods of this one.
        update_wrapper(self, function, updated=())
        self._function, self._asked = function, asked
        self._kept: OrderedDict[Hashable, Made] = OrderedDict()
        self._turn = ForkLock()
        self._hits = self._misses = 0
        asked.check_names(self._doing, self._signature)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result, computed where it was asked for.

        Errors   TraceError for what no graph can say, with the place; those of
        `Session.compile` and of `CompiledGraph.run`; what the function raises.
        """
        given = self.given(args, kwargs)
        if any(isinstance(one, Traced) for one in given.arrays):
            return self._function(*args, **kwargs)  # within a function that is traced
        result: R = drive(self._run(given))
        return result

    async def run_async(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The call, beside the caller's event loop; in a page it is awaited."""
        given = self.given(args, kwargs)
        return await awaited_here(lambda: self._run(given))

    def graph(self, *args: P.args, **kwargs: P.kwargs) -> Graph:
        """The graph that a call of these arguments runs; arrays from around the
        function are its params. Errors  those of tracing; UsageError if no result of
        it is computed from arrays.
        """
        return self._graph_of(self._made(self.given(args, kwargs)))

    def compiled(self, *args: P.args, **kwargs: P.kwargs) -> CompiledGraph:
        """The compiled graph that a call of these arguments runs, to look into: its
        plan, its decisions, a profile. Errors  those of a call.
        """
        given = self.given(args, kwargs)
        made = self._made(given)
        self._graph_of(made)
        return drive(self._on_device(made, given))

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """What a call of these arguments takes, where it runs and why, as text."""
        given = self.given(args, kwargs)
        made = self._made(given)
        lines = [f"{self._doing[1:-1]}:"]
        lines += [f"  in   {leaf}" for leaf in given.leaves]
        lines += [
            f"  from around it  {one.param}: {one.array.dtype} {list(one.array.shape)}"
            for one in made.program.captured
            if one.param
        ]
        if made.program.graph is None:
            return "\n".join([*lines, "  nothing is computed from its arrays"])
        return "\n".join([*lines, drive(self._on_device(made, given)).explain()])

    def cache_info(self) -> CacheInfo:
        """How often a signature was known and not, and how many are kept."""
        return CacheInfo(self._hits, self._misses, self._asked.maxsize, len(self._kept))

    def cache_clear(self) -> None:
        """Forget every signature; what runs meanwhile is finished."""
        with self._turn:
            self._kept.clear()
            self._hits = self._misses = 0

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else Bound(self, instance)

    def __repr__(self) -> str:
        return f"<rlxweb.function {self._doing[1:-1]}{self._signature}>"

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of {self._doing}",
            "a traced function holds device memory",
            hint="pickle the plain function, f.__wrapped__, and wrap it there",
        )

    def held(self, *args: P.args, **kwargs: P.kwargs) -> HeldCall:
        """A call of these arguments' signature, to be made often: with arrays that are
        on its device or not, such as what it returned before.
        """
        return drive(self.held_async(*args, **kwargs))

    async def held_async(self, *args: P.args, **kwargs: P.kwargs) -> HeldCall:
        """`held` where a page awaits it."""
        given = self.given(args, kwargs)
        made = self._made(given)
        self._graph_of(made)
        compiled = await self._on_device(made, given)
        return HeldCall(
            self, made, given, compiled, lambda: self._on_device(made, given)
        )

    # --- a call, step by step -----------------------------------------------------

    def given(self, args: Any, kwargs: Any) -> Given:
        """The arguments of a call, taken apart. Errors  UsageError, ShapeError."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        found: list[tuple[str, Any]] = []
        parts = []
        for name, value in bound.arguments.items():
            if name in self._asked.static_argnames:
                part = Tree("static", by_content(value, name), value=value)
            else:
                part = flattened(value, name, found, by_value)
            parts.append(part)
        tree = Tree("dict", (dict, tuple(bound.arguments)), tuple(parts))
        if any(isinstance(one, Traced) for _, one in found):
            return Given(tree, (), [one for _, one in found])
        dims = self._asked.dims
        both = [leaf_of(path, one, dims.get(path)) for path, one in found]
        return Given(tree, tuple(leaf for leaf, _ in both), [one for _, one in both])

    def _made(self, given: Given) -> Made:
        """What was made for a signature, or is made now."""
        with self._turn:
            made = self._kept.get(given.key)
            if made is not None and made.program.is_fresh:
                self._kept.move_to_end(given.key)
                self._hits += 1
                return made
            self._misses += 1
            made = Made(self._traced(given))
            self._kept[given.key] = made
            while len(self._kept) > self._asked.maxsize:
                self._kept.popitem(last=False)
            return made

    def _traced(self, given: Given) -> Program:
        def call(arguments: dict[str, Any]) -> Any:
            return call_without_defaults(self._function, self._signature, arguments)

        narrow = self._asked.is_narrow
        return traced(
            self._function, self._name, given.tree, given.leaves, narrow, call
        )

    def _graph_of(self, made: Made) -> Graph:
        if made.program.graph is None:
            raise UsageError(
                self._doing, "none of its results is computed from its arrays"
            )
        return made.program.graph.copy()

    async def _run(self, given: Given) -> Any:
        made = self._made(given)
        if made.program.graph is None:
            return made.program.built([])
        compiled = await self._on_device(made, given)
        feeds = made.program.feeds(given.arrays)
        keep, strict = self._asked.keep, self._asked.strict
        return made.program.built(await compiled.computed(feeds, strict, keep))

    async def _on_device(self, made: Made, given: Given) -> CompiledGraph:
        """The graph where it runs, with what is around the function as it is now."""
        program = made.program
        compiled = made.compiled
        if compiled is None:
            compiled = await self._compiled(program, given)
            with made.turn:
                compiled = made.compiled = made.compiled or compiled
        changed = [one for one in program.captured if one.param and one.changed]
        for one in changed:
            one.seen = one.array.copy(order="C")
            await compiled.param_set(one.param, program.params()[one.param])
        return compiled

    async def _compiled(self, program: Program, given: Given) -> CompiledGraph:
        assert program.graph is not None
        asked = self._asked
        session = Session(
            "auto" if asked.device is None else asked.device.label,
            adapter=asked.adapter,
            strict=asked.strict,
        )
        feeds = program.feeds(given.arrays)
        there = {n: one for n, one in feeds.items() if isinstance(one, DeviceArray)}
        try:
            compiled = await session.compiled(program.graph, there or None)
        except (DTypeError, Unsupported) as error:
            raise _with_way_out(error, program, asked) from error.__cause__
        for name, array in program.params().items():
            await compiled.param_set(name, array)
        return compiled


def _with_way_out(error: Any, program: Program, asked: Asked) -> Any:
    """A device's refusal of float64, which is often nobody's wish."""
    assert program.graph is not None
    wide = any(n.type.dtype is DType.F64 for n in program.graph.nodes())
    if wide and not asked.is_narrow:
        error.hint = (
            f"rlxweb.function(..., precision='f32') counts float64 as float32, "
            f"device='cpu' computes it; {error.hint}"
        ).rstrip("; ")
    return error


class Within(Function[..., Any]):
    """A function made of another that is traced with what calls it.

    The arrays around the other may be traced ones, so that within a tracing it is never
    compiled by itself, be its arguments what they may.
    """

    def __init__(self, of: Callable[..., Any]) -> None:
        super().__init__(of, Asked(None, "", None, (), None, 32, False, False))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if running() is not None:
            return self._function(*args, **kwargs)
        return super().__call__(*args, **kwargs)


class Bound:
    """A traced function as a method of an object."""

    def __init__(self, function: Function[Any, Any], instance: Any) -> None:
        self.__func__, self.__self__ = function, instance
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__func__, name)
        if name in ("run_async", "graph", "compiled", "explain"):
            return lambda *args, **kwargs: found(self.__self__, *args, **kwargs)
        return found

    def __repr__(self) -> str:
        return f"<bound {self.__func__!r} of {named(self.__self__)}>"


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
    """A function on NumPy arrays, compiled: `@rlxweb.function`, or with arguments.

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
    where = device, adapter, precision
    asked = Asked(*where, static_argnames, dims, maxsize, keep, strict)

    def wrapped(fn: Callable[..., Any]) -> Function[..., Any]:
        if isinstance(fn, staticmethod | classmethod):
            raise UsageError("function", f"{named(fn)} was given", "decorate below it")
        return Function(fn, asked)

    return wrapped if fn is None else wrapped(fn)
