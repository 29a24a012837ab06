"""Trace of a function: the graph it builds, the arrays it captures, and the conversion
of values to traced arrays.

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

from rlxweb.core.array_coercion import as_array
from rlxweb.core.errors import DTypeError, RlxError
from rlxweb.ir.dtype import DType, as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.ir.sym_int import SymInt
from rlxweb.ir.tensor import Tensor
from rlxweb.runtime.input_validation import is_mutable
from rlxweb.trace.numpy_dispatch import call_numpy_function
from rlxweb.trace.trace_errors import add_user_location, trace_error
from rlxweb.trace.traced_array import NumpyDtype, TracedArray
from rlxweb.trace.ufuncs import call_ufunc

Array = npt.NDArray[Any]

WEAK_TYPES = (int, float, complex)
"""Python's number types, which have no dtype of their own (NEP 50); subclasses have
one.
"""
_INT32_LIMIT = 1 << 31
_DEMOTED_DTYPES = {"float64": "float32", "complex128": "complex64"}


# This object's two references to an array, and that of the call which counts them.
_OWN_REFERENCES = 3


class CapturedArray:
    """Array captured from outside the function, with a copy of the values it had when
    it was captured.

    source  the object it is of, held so that its identity is no other's
    param   the name under which the graph has it; "" where its values were built in
    """

    __slots__ = ("array", "param", "seen_values", "source")

    def __init__(self, source: Any, array: Array, param: str) -> None:
        self.source, self.array, self.param = source, array, param
        self.seen_values = array.copy(order="C")

    def needs_tracking(self) -> bool:
        """Return whether the array can still change, now that the function has ended.

        An array that the function made, and nobody holds, does not change any more.
        """
        owns_memory = self.source is self.array and self.array.base is None
        if owns_memory and getrefcount(self.array) <= _OWN_REFERENCES:
            self.seen_values.setflags(write=False)
            self.source = self.array = self.seen_values
        return bool(self.param) or is_mutable(self.array)

    @property
    def has_changed(self) -> bool:
        """Return whether the array's values differ from those captured."""
        current, seen_values = self.array, self.seen_values
        if not is_mutable(current) or not current.size:
            return False
        if current.shape != seen_values.shape or not current.flags.c_contiguous:
            return (
                current.shape != seen_values.shape
                or current.tobytes() != seen_values.tobytes()
            )
        return current.data.cast("B") != seen_values.data.cast("B")


class _ActiveTraces(local):
    """Traces of a thread that have not ended, the innermost last."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []


_ACTIVE_TRACES = _ActiveTraces()


def current_trace() -> Trace | None:
    """Return the innermost active trace of this thread, or None."""
    return _ACTIVE_TRACES.traces[-1] if _ACTIVE_TRACES.traces else None


@contextmanager
def activate_trace(trace: Trace) -> Iterator[None]:
    """Make a trace the current one for the block, and close it at the end."""
    _ACTIVE_TRACES.traces.append(trace)
    try:
        yield
    finally:
        _ACTIVE_TRACES.traces.remove(trace)
        trace.is_open = False


class Trace:
    """Trace of one function: its graph, captured arrays and dtype rules.

    float64_as_float32  are float64 and complex128 counted as float32 and complex64?
    captured  arrays from around the function, by identity
    is_open   does the function still run?
    """

    def __init__(self, name: str, float64_as_float32: bool) -> None:
        self.graph = Graph(name)
        self.float64_as_float32 = float64_as_float32
        self.captured: dict[int, CapturedArray] = {}
        self.params: dict[int, Tensor] = {}
        self.is_open = True

    # --- dtypes -------------------------------------------------------------------

    def effective_dtype(self, dtype: Any) -> NumpyDtype:
        """Return a NumPy dtype as the trace computes it: float64 becomes float32 if so
        requested.
        """
        numpy_dtype: NumpyDtype = np.dtype(dtype)
        if self.float64_as_float32 and numpy_dtype.name in _DEMOTED_DTYPES:
            return np.dtype(_DEMOTED_DTYPES[numpy_dtype.name])
        return numpy_dtype

    def element_dtype(self, dtype: NumpyDtype) -> DType:
        """Return the element dtype of one real or imaginary part. Errors
        DTypeError.
        """
        return as_dtype(np.empty(0, dtype).real.dtype if dtype.kind == "c" else dtype)

    def common_dtype(self, values: Iterable[Any], weak: bool = False) -> NumpyDtype:
        """Return the dtype that NumPy gives several values together.

        weak   do Python's numbers take that of the others?
        """
        dtypes = [
            value if weak and type(value) in WEAK_TYPES else self._value_dtype(value)
            for value in values
        ]
        return self.effective_dtype(np.result_type(*dtypes))

    def _value_dtype(self, value: Any) -> NumpyDtype:
        if not isinstance(value, TracedArray | np.ndarray | np.generic):
            value = self.as_traced(value)
        dtype: NumpyDtype = value.dtype.newbyteorder("=")
        return dtype

    # --- values -------------------------------------------------------------------

    def require_current(self, value: TracedArray) -> TracedArray:
        """Return the array if it belongs to this trace, which is open. Errors
        TraceError.
        """
        if value.trace is self and self.is_open:
            return value
        raise trace_error(
            "use of a traced array",
            "the array belongs to another call, which has ended",
            "a traced array is valid only during the call that created it",
            "return the array from the function that created it, and pass the result "
            "as an argument",
        )

    def as_traced(self, value: Any, dtype: NumpyDtype | None = None) -> Any:
        """Convert a value to a traced array, in its own dtype or the one requested."""
        if isinstance(value, TracedArray):
            own_array = self.require_current(value)
            return own_array if dtype is None else self.cast(own_array, dtype)
        if isinstance(value, list | tuple) and _contains_traced(value):
            arrays = [self.as_traced(item) for item in value]
            stacked: Any = call_numpy_function(self, np.stack, (arrays,), {})
            return stacked if dtype is None else self.cast(stacked, dtype)
        if isinstance(value, SymInt):
            return self._size_value(
                value, np.dtype(np.int64) if dtype is None else dtype
            )
        if dtype is not None and type(value) in WEAK_TYPES:
            return self.number_constant(value, dtype)
        array = as_array(value, "an array in a traced function")
        array_dtype = self.effective_dtype(array.dtype.newbyteorder("="))
        target_dtype = array_dtype if dtype is None else self.effective_dtype(dtype)
        traced_array = self._param_or_constant(array, array_dtype, value)
        return (
            traced_array
            if target_dtype == array_dtype
            else self.cast(traced_array, target_dtype)
        )

    def _size_value(self, size: SymInt, dtype: NumpyDtype) -> TracedArray:
        """Return a symbolic size as a traced number."""
        size_tensor = cast_tensor(self.graph.constant(cast(Any, size)), DType.I32)
        as_int64 = TracedArray(self, size_tensor, None, np.dtype(np.int64))
        result: TracedArray = self.cast(as_int64, dtype)
        return result

    def number_constant(self, value: complex, dtype: NumpyDtype) -> TracedArray:
        """Return a Python number as a constant of a dtype."""
        element_dtype = self.element_dtype(dtype)
        if dtype.kind == "c":
            complex_value = complex(value)
            re, im = (
                self.graph.constant(p, element_dtype)
                for p in (complex_value.real, complex_value.imag)
            )
            return TracedArray(self, re, im, dtype)
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                return self.array_constant(np.asarray(value).astype(dtype), dtype)
        fits_in_int32 = dtype == np.int64 and abs(value) < _INT32_LIMIT
        tensor = self.graph.constant(
            value, DType.I32 if fits_in_int32 else element_dtype
        )
        return TracedArray(self, tensor, None, dtype)

    def array_constant(self, array: Array, dtype: NumpyDtype) -> TracedArray:
        """Return an array as a constant of the graph; int64 values that fit are stored
        as int32.
        """
        if dtype.kind == "c":
            part_dtype = self.element_dtype(dtype).numpy
            parts = (
                np.ascontiguousarray(p, part_dtype) for p in (array.real, array.imag)
            )
            re, im = (self.graph.constant(p) for p in parts)
            return TracedArray(self, re, im, dtype)
        values = array.astype(dtype, copy=False)
        if dtype == np.int64 and fits_int32(values):
            values = values.astype(np.int32)
        return TracedArray(self, self.graph.constant(values), None, dtype)

    def _param_or_constant(
        self, array: Array, dtype: NumpyDtype, source: Any
    ) -> TracedArray:
        """Return an array of floats as a param, which may change between calls; others
        as a constant.
        """
        if dtype.kind != "f" or array.size < 2:
            if not isinstance(source, (np.generic, *WEAK_TYPES)):
                self.capture(source, array, "")
            return self.array_constant(array, dtype)
        if id(source) not in self.params:
            name = f"w{len(self.params)}"
            self.capture(source, array, name)
            element_dtype = self.element_dtype(dtype)
            self.params[id(source)] = self.graph.param(name, array.shape, element_dtype)
        return TracedArray(self, self.params[id(source)], None, dtype)

    def capture(self, source: Any, array: Array, param: str = "") -> None:
        """Register an array captured from outside the function."""
        if id(source) not in self.captured:
            self.captured[id(source)] = CapturedArray(source, array, param)

    # --- casts --------------------------------------------------------------------

    def cast(self, x: TracedArray, dtype: Any) -> Any:
        """Cast an array to another dtype, as astype does. Errors  DTypeError."""
        try:
            target_dtype = self.effective_dtype(dtype)
            if target_dtype == x.dtype:
                return x.copy()
            element_dtype = self.element_dtype(target_dtype)
        except RlxError as error:
            raise add_user_location(error, f"a cast to {dtype}") from None
        if target_dtype.kind == "c":
            im = (
                _zeros_like_tensor(x.re, element_dtype)
                if x.im is None
                else cast_tensor(x.im, element_dtype)
            )
            return TracedArray(self, cast_tensor(x.re, element_dtype), im, target_dtype)
        if x.im is not None and element_dtype is DType.BOOL:
            return self.ufunc(np.not_equal, "__call__", (x, 0), {})
        if x.im is not None:
            raise trace_error(
                f"a cast of {x.dtype} to {target_dtype}",
                "the imaginary part would be lost",
                hint="use np.abs(x) or x.real",
            )
        if target_dtype == np.int64 and x.re.dtype in (DType.I32, DType.BOOL):
            return TracedArray(self, cast_tensor(x.re, DType.I32), None, target_dtype)
        return TracedArray(self, cast_tensor(x.re, element_dtype), None, target_dtype)

    def real_tensor(self, x: Any, dtype: NumpyDtype) -> Tensor:
        """Return the tensor of a real value, in the element dtype of this dtype."""
        traced_array = self.as_traced(x, dtype)
        return cast_tensor(traced_array.re, self.element_dtype(traced_array.dtype))

    # --- what NumPy calls ---------------------------------------------------------

    def ufunc(self, ufunc: np.ufunc, method: str, inputs: Any, options: Any) -> Any:
        """Apply a ufunc, a ufunc method or an operator, as NumPy would."""
        return call_ufunc(self, ufunc, method, inputs, options)

    def getitem(self, x: TracedArray, key: Any) -> Any:
        """Return `x[key]`, with indices and masks as in NumPy. Errors  IndexError …"""
        self.require_current(x)
        keys = key if isinstance(key, tuple) else (key,)
        for index in keys:
            if isinstance(index, TracedArray) and index.dtype == np.bool_:
                raise trace_error(
                    "x[mask] with a computed mask",
                    "the number of selected elements depends on the values",
                    hint="keep the shape with np.where(mask, x, 0)",
                )
        graph_keys = tuple(
            self._index_tensor(index) if isinstance(index, TracedArray) else index
            for index in keys
        )
        for index in keys:
            if isinstance(index, np.ndarray):
                self.capture(index, index)
        try:
            re = self.graph.getitem(x.re, graph_keys)
            im = None if x.im is None else self.graph.getitem(x.im, graph_keys)
        except RlxError as error:
            raise add_user_location(error, "x[...]") from None
        x.is_view = True
        result = TracedArray(self, re, im, x.dtype, is_view=True)
        make_square = x.make_square
        if make_square is not None:
            result.make_square = lambda: self.graph.getitem(make_square(), graph_keys)
        return result

    def _index_tensor(self, index: TracedArray) -> Tensor:
        """Return computed indices as the graph takes them. Errors  IndexError."""
        if self.require_current(index).dtype.kind not in "iu":
            problem = f"the indices have dtype {index.dtype}"
            raise trace_error("x[indices]", problem, "indices must be integers")
        return index.re


def cast_tensor(x: Tensor, dtype: DType) -> Tensor:
    """Return a tensor in another element dtype; the tensor itself if it has it
    already.
    """
    return x if x.dtype is dtype else x.graph.cast(x, dtype)


def fits_int32(array: Array) -> bool:
    """Return whether all values fit into 32 bits."""
    if not array.size:
        return True
    int32_limits = np.iinfo(np.int32)
    return bool(int32_limits.min <= array.min() and array.max() <= int32_limits.max)


def _zeros_like_tensor(like: Tensor, dtype: DType) -> Tensor:
    g = like.graph
    return g.expand(g.constant(0, dtype), like.shape)


def _contains_traced(values: Sequence[Any]) -> bool:
    return any(
        isinstance(value, TracedArray)
        or (isinstance(value, list | tuple) and _contains_traced(value))
        for value in values
    )


__all__ = [
    "WEAK_TYPES",
    "Array",
    "DTypeError",
    "Trace",
    "activate_trace",
    "cast_tensor",
    "current_trace",
]
