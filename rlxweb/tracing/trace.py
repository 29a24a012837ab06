"""Trace: one tracing of a function, from its first node to its outputs.

Owns the graph that grows, what came in from around the function, and how values of
Python and NumPy become traced ones: dtypes are NumPy's, of what the graph can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from sys import getrefcount
from threading import local
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rlxweb.errors import DTypeError, RlxError
from rlxweb.given import array_of
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.ir.size import Size
from rlxweb.ir.tensor import Tensor
from rlxweb.runtime.feeds import may_change
from rlxweb.tracing.place import placed, refused
from rlxweb.tracing.table import call_function
from rlxweb.tracing.traced import DT, Traced
from rlxweb.tracing.ufuncs import called

Array = npt.NDArray[Any]

WEAK = (int, float, complex)
"""Python's numbers have no dtype of their own (NEP 50); a subclass of them has."""
_SMALL = 1 << 31
_HALVED = {"float64": "float32", "complex128": "complex64"}


# This object's two references to an array, and that of the call which counts them.
_OURS = 3


class Captured:
    """An array from around the function, and what it held when it was seen.

    given   the object it is of, held so that its identity is no other's
    param   the name under which the graph has it; "" where its values were built in
    """

    __slots__ = ("array", "given", "param", "seen")

    def __init__(self, given: Any, array: Array, param: str) -> None:
        self.given, self.array, self.param = given, array, param
        self.seen = array.copy(order="C")

    def settle(self) -> bool:
        """Is it still of interest, now that the function has ended?

        An array that the function made, and nobody holds, does not change any more.
        """
        alone = self.given is self.array and self.array.base is None
        if alone and getrefcount(self.array) <= _OURS:
            self.seen.setflags(write=False)
            self.given = self.array = self.seen
        return bool(self.param) or may_change(self.array)

    @property
    def changed(self) -> bool:
        """Does it hold other numbers than it did?"""
        now, before = self.array, self.seen
        if not may_change(now) or not now.size:
            return False
        if now.shape != before.shape or not now.flags.c_contiguous:
            return now.shape != before.shape or now.tobytes() != before.tobytes()
        return now.data.cast("B") != before.data.cast("B")


class _Running(local):
    """The tracings of a thread that have not ended, the innermost last."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []


_RUNNING = _Running()


def running() -> Trace | None:
    """The tracing that this thread is in."""
    return _RUNNING.traces[-1] if _RUNNING.traces else None


@contextmanager
def in_trace(trace: Trace) -> Iterator[None]:
    """The block is part of a tracing, which ends with it."""
    _RUNNING.traces.append(trace)
    try:
        yield
    finally:
        _RUNNING.traces.remove(trace)
        trace.is_open = False


class Trace:
    """One tracing.

    narrow    are float64 and complex128 counted as float32 and complex64?
    captured  arrays from around the function, by identity
    is_open   does the function still run?
    """

    def __init__(self, name: str, narrow: bool) -> None:
        self.graph = Graph(name)
        self.narrow = narrow
        self.captured: dict[int, Captured] = {}
        self.params: dict[int, Tensor] = {}
        self.is_open = True

    # --- dtypes -------------------------------------------------------------------

    def settled(self, dtype: Any) -> DT:
        """A dtype of NumPy's as it is counted here."""
        found: DT = np.dtype(dtype)
        if self.narrow and found.name in _HALVED:
            return np.dtype(_HALVED[found.name])
        return found

    def part(self, dtype: DT) -> DType:
        """The element type that holds one part of it. Errors  DTypeError."""
        return as_dtype(np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype)

    def common(self, values: Iterable[Any], weak: bool = False) -> DT:
        """The dtype that NumPy gives several together.

        weak   do Python's numbers take that of the others?
        """
        kinds = [v if weak and type(v) in WEAK else self._kind(v) for v in values]
        return self.settled(np.result_type(*kinds))

    def _kind(self, value: Any) -> DT:
        if not isinstance(value, Traced | np.ndarray | np.generic):
            value = self.lifted(value)
        found: DT = value.dtype.newbyteorder("=")
        return found

    # --- values -------------------------------------------------------------------

    def check(self, value: Traced) -> Traced:
        """Errors  TraceError for one of another tracing."""
        if value.trace is self and self.is_open:
            return value
        raise refused(
            "an array of a function that was traced",
            "it was kept from another call, which has ended",
            "what a function computes is what it returns",
            "return it, and pass it on as an argument",
        )

    def lifted(self, value: Any, dtype: DT | None = None) -> Any:
        """A value as a traced array of its dtype, or of the one that is asked for."""
        if isinstance(value, Traced):
            found = self.check(value)
            return found if dtype is None else self.cast(found, dtype)
        if isinstance(value, list | tuple) and _holds_traced(value):
            every = [self.lifted(one) for one in value]
            stacked: Any = call_function(self, np.stack, (every,), {})
            return stacked if dtype is None else self.cast(stacked, dtype)
        if isinstance(value, Size):
            return self._size(value, np.dtype(np.int64) if dtype is None else dtype)
        if dtype is not None and type(value) in WEAK:
            return self.number(value, dtype)
        array = array_of(value, "an array in a traced function")
        kind = self.settled(array.dtype.newbyteorder("="))
        wanted = kind if dtype is None else self.settled(dtype)
        made = self._of_array(array, kind, value)
        return made if wanted == kind else self.cast(made, wanted)

    def _size(self, size: Size, dtype: DT) -> Traced:
        """A size that a run binds, as a number."""
        made = as_kind(self.graph.constant(cast(Any, size)), DType.I32)
        whole = Traced(self, made, None, np.dtype(np.int64))
        found: Traced = self.cast(whole, dtype)
        return found

    def number(self, value: complex, dtype: DT) -> Traced:
        """A number of Python's in a dtype; it takes that of what it stands beside."""
        kind = self.part(dtype)
        if dtype.kind == "c":
            whole = complex(value)
            re, im = (self.graph.constant(p, kind) for p in (whole.real, whole.imag))
            return Traced(self, re, im, dtype)
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                return self.constant(np.asarray(value).astype(dtype), dtype)
        narrow = dtype == np.int64 and abs(value) < _SMALL
        made = self.graph.constant(value, DType.I32 if narrow else kind)
        return Traced(self, made, None, dtype)

    def constant(self, array: Array, dtype: DT) -> Traced:
        """An array built into the graph: wide integers that are small, narrow."""
        if dtype.kind == "c":
            kind = self.part(dtype).numpy
            parts = (np.ascontiguousarray(p, kind) for p in (array.real, array.imag))
            re, im = (self.graph.constant(p) for p in parts)
            return Traced(self, re, im, dtype)
        kept = array.astype(dtype, copy=False)
        if dtype == np.int64 and fits(kept):
            kept = kept.astype(np.int32)
        return Traced(self, self.graph.constant(kept), None, dtype)

    def _of_array(self, array: Array, dtype: DT, given: Any) -> Traced:
        """Of floats a param, which may change between calls; else a constant."""
        if dtype.kind != "f" or array.size < 2:
            if not isinstance(given, (np.generic, *WEAK)):
                self.seen(given, array, "")
            return self.constant(array, dtype)
        if id(given) not in self.params:
            name = f"w{len(self.params)}"
            self.seen(given, array, name)
            kind = self.part(dtype)
            self.params[id(given)] = self.graph.param(name, array.shape, kind)
        return Traced(self, self.params[id(given)], None, dtype)

    def seen(self, given: Any, array: Array, param: str = "") -> None:
        """Hold on to an array from around the function."""
        if id(given) not in self.captured:
            self.captured[id(given)] = Captured(given, array, param)

    # --- casts --------------------------------------------------------------------

    def cast(self, x: Traced, dtype: Any) -> Any:
        """The values in another dtype, as astype. Errors  DTypeError."""
        try:
            to = self.settled(dtype)
            if to == x.dtype:
                return x.copy()
            kind = self.part(to)
        except RlxError as error:
            raise placed(error, f"a cast to {dtype}") from None
        if to.kind == "c":
            im = _zeros(x.re, kind) if x.im is None else as_kind(x.im, kind)
            return Traced(self, as_kind(x.re, kind), im, to)
        if x.im is not None and kind is DType.BOOL:
            return self.ufunc(np.not_equal, "__call__", (x, 0), {})
        if x.im is not None:
            raise refused(
                f"a cast of {x.dtype} to {to}",
                "the imaginary part would be lost",
                hint="take np.abs(x) or x.real",
            )
        if to == np.int64 and x.re.dtype in (DType.I32, DType.BOOL):
            return Traced(self, as_kind(x.re, DType.I32), None, to)
        return Traced(self, as_kind(x.re, kind), None, to)

    def real(self, x: Any, dtype: DT) -> Tensor:
        """The tensor of a real value, of the element type of this dtype."""
        made = self.lifted(x, dtype)
        return as_kind(made.re, self.part(made.dtype))

    # --- what NumPy calls ---------------------------------------------------------

    def ufunc(self, ufunc: np.ufunc, method: str, inputs: Any, how: Any) -> Any:
        """What NumPy does with a ufunc, a method of one, and an operator."""
        return called(self, ufunc, method, inputs, how)

    def item(self, x: Traced, key: Any) -> Any:
        """`x[key]`, with indices and masks as NumPy has them. Errors  IndexError …"""
        self.check(x)
        keys = key if isinstance(key, tuple) else (key,)
        for one in keys:
            if isinstance(one, Traced) and one.dtype == np.bool_:
                raise refused(
                    "x[mask] of a mask that is computed",
                    "how many elements that is shows only in the values",
                    hint="keep the shape: np.where(mask, x, 0)",
                )
        plain = tuple(
            self._places(one) if isinstance(one, Traced) else one for one in keys
        )
        for one in keys:
            if isinstance(one, np.ndarray):
                self.seen(one, one)
        try:
            re = self.graph.getitem(x.re, plain)
            im = None if x.im is None else self.graph.getitem(x.im, plain)
        except RlxError as error:
            raise placed(error, "x[...]") from None
        x.viewed = True
        made = Traced(self, re, im, x.dtype, viewed=True)
        squared = x.squared
        if squared is not None:
            made.squared = lambda: self.graph.getitem(squared(), plain)
        return made

    def _places(self, index: Traced) -> Tensor:
        """Computed indices, as the graph takes them. Errors  IndexError."""
        if self.check(index).dtype.kind not in "iu":
            problem = f"indices of dtype {index.dtype}"
            raise refused("x[indices]", problem, "indices are integers")
        return index.re


def as_kind(x: Tensor, kind: DType) -> Tensor:
    """A tensor in another element type; itself where it has it."""
    return x if x.dtype is kind else x.graph.cast(x, kind)


def fits(array: Array) -> bool:
    """Do all the values have 32 bits?"""
    if not array.size:
        return True
    bounds = np.iinfo(np.int32)
    return bool(bounds.min <= array.min() and array.max() <= bounds.max)


def _zeros(like: Tensor, kind: DType) -> Tensor:
    g = like.graph
    return g.expand(g.constant(0, kind), like.shape)


def _holds_traced(values: Sequence[Any]) -> bool:
    return any(
        isinstance(one, Traced)
        or (isinstance(one, list | tuple) and _holds_traced(one))
        for one in values
    )


__all__ = ["WEAK", "Array", "DTypeError", "Trace", "as_kind", "in_trace", "running"]
