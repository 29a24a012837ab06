"""Traced array: the stand-in for an array while a function is traced.

It looks like NumPy's array (shape, dtype, operators, methods) and holds none of its
values: what NumPy would compute becomes nodes of a graph, by the tables of `table`. A
complex array is two tensors. What needs values is refused with the place of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from rlxweb.ir.shape_arithmetic import format_shape, numel
from rlxweb.ir.sym_int import SymInt
from rlxweb.ir.tensor import Tensor
from rlxweb.trace.numpy_dispatch import call_numpy_function
from rlxweb.trace.trace_errors import trace_error

NumpyDtype = np.dtype[Any]

MAX_LOOP_ROWS = 1000
"""Maximum rows of an array in a Python loop; its body becomes nodes for each row."""
_VALUES_HINT = (
    "use np.where(condition, a, b); if the value determines the graph, pass it as a "
    "Python number or list its argument in static_argnames"
)

_INDEX_HINT = (
    "if this array is an index into another array, pass the other array as an argument "
    "of the traced function"
)


def _method_from_function(name: str, namespace: Any = np) -> Any:
    """Return the array method that calls the NumPy function of the same name."""
    function = getattr(namespace, name)

    def method(self: TracedArray, *args: Any, **kwargs: Any) -> Any:
        return call_numpy_function(self.trace, function, (self, *args), kwargs)

    method.__name__ = name
    method.__doc__ = f"`numpy.{name}` of this array."
    return method


def _refused_method(name: str) -> Any:
    def method(self: TracedArray, *args: Any, **kwargs: Any) -> NoReturn:
        raise mutation_error(
            f"x.{name}()", f"use np.{name}(x), which returns its result"
        )

    return method


def mutation_error(operation: str, hint: str) -> Any:
    """Return the error for an operation that would change an array in place."""
    return trace_error(
        operation, "arrays in a traced function cannot be changed in place", hint=hint
    )


def _size_aware_operator(name: str, ufunc: np.ufunc, is_reflected: bool = False) -> Any:
    """Return NumPy's operator, extended to take a symbolic size as it takes a
    number.
    """
    numpy_operator = getattr(np.lib.mixins.NDArrayOperatorsMixin, name)

    def operator(self: TracedArray, other: Any) -> Any:
        if not isinstance(other, SymInt):
            return numpy_operator(self, other)
        operands = (other, self) if is_reflected else (self, other)
        return self.trace.ufunc(ufunc, "__call__", operands, {})

    operator.__name__ = name
    return operator


class TracedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Stand-in for an array within a traced function; see `rlxweb.function`.

    trace   the tracing it belongs to
    re, im  its tensors; im is None for a real one
    dtype   NumPy's dtype of it
    is_view  may it share memory with another array, were it one of NumPy's?
    make_square  of a magnitude or norm: adds its square, which is smooth where it is 0
    """

    __slots__ = ("dtype", "im", "is_view", "make_square", "re", "trace")
    __hash__ = None  # type: ignore[assignment]
    trace: Any
    re: Tensor
    im: Tensor | None
    dtype: NumpyDtype
    make_square: Callable[[], Tensor] | None

    def __init__(
        self,
        trace: Any,
        re: Tensor,
        im: Tensor | None = None,
        dtype: NumpyDtype | None = None,
        is_view: bool = False,
    ) -> None:
        self.trace, self.re, self.im, self.is_view = trace, re, im, is_view
        self.make_square = None
        if dtype is None:
            dtype = re.dtype.numpy
            if im is not None:
                dtype = np.result_type(dtype, np.complex64)
        self.dtype = dtype

    # --- what is known ------------------------------------------------------------

    @property
    def shape(self) -> tuple[Any, ...]:
        """Dimensions; a symbolic size stands for each one that varies."""
        return self.re.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return numel(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        if isinstance(self.shape[0], SymInt):
            self._raise_varying_length("len()")
        return int(self.shape[0])

    def __repr__(self) -> str:
        return f"Traced({self.re!r}, {self.dtype})"

    # --- what needs values --------------------------------------------------------

    def _raise_needs_values(self, operation: str, hint: str = _VALUES_HINT) -> NoReturn:
        raise trace_error(
            f"{operation} of an array {format_shape(self.shape)} {self.dtype}",
            "the values are not known while the function is traced",
            hint=hint,
        )

    def _raise_varying_length(self, operation: str) -> NoReturn:
        raise trace_error(
            f"{operation} of an array {format_shape(self.shape)} {self.dtype}",
            "the length is known only when the function runs",
            hint="use the size x.shape[0] in computations",
        )

    def __bool__(self) -> bool:
        self._raise_needs_values("the truth value")

    def __int__(self) -> int:
        self._raise_needs_values(
            "int()",
            f"to convert the array, use x.astype(int); otherwise {_VALUES_HINT}",
        )

    def __float__(self) -> float:
        self._raise_needs_values(
            "float()",
            f"to convert the array, use x.astype(float); otherwise {_VALUES_HINT}",
        )

    def __complex__(self) -> complex:
        self._raise_needs_values("complex()")

    def __index__(self) -> int:
        self._raise_needs_values(
            "integer conversion (index, shape, range())",
            f"{_INDEX_HINT}; if the value is part of a shape, pass it as a Python "
            "number or list its argument in static_argnames",
        )

    def item(self, *args: Any) -> NoReturn:
        self._raise_needs_values("item()")

    def tolist(self) -> NoReturn:
        self._raise_needs_values("tolist()")

    def tobytes(self, order: str = "C") -> NoReturn:
        self._raise_needs_values("tobytes()")

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        self._raise_needs_values("format()", "print outside the traced function")

    def __contains__(self, value: object) -> bool:
        self._raise_needs_values("`in`", "use (x == value).any()")

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        hint = (
            "omit np.asarray (x is already an array); cast with x.astype(dtype); join "
            "arrays with np.stack([a, b]); call other libraries outside the traced "
            "function"
        )
        if self.dtype.kind in "iub":
            hint = f"{_INDEX_HINT}; {hint}"
        operation = "NumPy conversion (np.asarray, np.array, another library)"
        self._raise_needs_values(operation, hint)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            problem = "this attribute is not supported in a traced function"
            raise AttributeError(str(trace_error(f"x.{name}", problem)))
        raise AttributeError(f"an array has no attribute {name!r}")

    def nonzero(self) -> Any:
        return call_numpy_function(self.trace, np.nonzero, (self,), {})

    # --- NumPy's own ways in ------------------------------------------------------

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        return self.trace.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(
        self, function: Any, types: object, args: Any, kwargs: Any
    ) -> Any:
        return call_numpy_function(self.trace, function, args, kwargs)

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        if isinstance(self.shape[0], SymInt):
            self._raise_varying_length("a loop over the rows")
        if self.shape[0] > MAX_LOOP_ROWS:
            raise trace_error(
                f"a loop over an array {list(self.shape)}",
                f"each of the {self.shape[0]:,} iterations would add nodes to the "
                "graph",
                f"at most {MAX_LOOP_ROWS:,} iterations are allowed",
                "compute all rows with array operations",
            )
        return (self[row] for row in range(self.shape[0]))

    def __getitem__(self, key: Any) -> Any:
        return self.trace.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise mutation_error(
            "x[...] = value",
            "use np.where(condition, value, x), or join the parts with np.concatenate",
        )

    def __delitem__(self, key: Any) -> None:
        raise mutation_error("del x[...]", "use np.delete(x, index, axis)")

    # --- operators beside sizes ---------------------------------------------------

    __add__ = _size_aware_operator("__add__", np.add)
    __radd__ = _size_aware_operator("__radd__", np.add, True)
    __sub__ = _size_aware_operator("__sub__", np.subtract)
    __rsub__ = _size_aware_operator("__rsub__", np.subtract, True)
    __mul__ = _size_aware_operator("__mul__", np.multiply)
    __rmul__ = _size_aware_operator("__rmul__", np.multiply, True)
    __truediv__ = _size_aware_operator("__truediv__", np.true_divide)
    __rtruediv__ = _size_aware_operator("__rtruediv__", np.true_divide, True)
    __floordiv__ = _size_aware_operator("__floordiv__", np.floor_divide)
    __mod__ = _size_aware_operator("__mod__", np.remainder)
    __pow__ = _size_aware_operator("__pow__", np.power)
    __lt__ = _size_aware_operator("__lt__", np.less)
    __le__ = _size_aware_operator("__le__", np.less_equal)
    __gt__ = _size_aware_operator("__gt__", np.greater)
    __ge__ = _size_aware_operator("__ge__", np.greater_equal)

    # --- methods ------------------------------------------------------------------

    def astype(self, dtype: Any, **options: Any) -> Any:
        """Cast the values to another dtype, as numpy.ndarray.astype."""
        return self.trace.cast(self, dtype)

    def copy(self, order: str = "C") -> TracedArray:
        """Return an array with the same values and no shared memory."""
        result = TracedArray(self.trace, self.re, self.im, self.dtype)
        result.make_square = self.make_square
        return result

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> TracedArray:
        return self.copy()

    def flatten(self, order: str = "C") -> Any:
        return call_numpy_function(self.trace, np.ravel, (self, order), {}).copy()

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """Reshape; the dims come one by one, or as one sequence."""
        dims = shape[0] if len(shape) == 1 else shape
        positional = (self, dims) if shape else (self,)
        return call_numpy_function(self.trace, np.reshape, positional, options)

    def transpose(self, *axes: Any) -> Any:
        """Permute the axes; the order comes one by one or as a sequence, and none
        reverses.
        """
        order = axes[0] if len(axes) == 1 else axes or None
        return call_numpy_function(self.trace, np.transpose, (self, order), {})

    @property
    def T(self) -> Any:  # noqa: N802  NumPy's name
        return self.transpose()

    @property
    def mT(self) -> Any:  # noqa: N802  NumPy's name
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> Any:
        return call_numpy_function(self.trace, np.real, (self,), {})

    @property
    def imag(self) -> Any:
        return call_numpy_function(self.trace, np.imag, (self,), {})

    @property
    def flat(self) -> Iterator[TracedArray]:
        return iter(self.flatten())

    def conj(self) -> Any:
        return np.conjugate(self)

    conjugate = conj
    sum, mean, prod = map(_method_from_function, ("sum", "mean", "prod"))
    min, max, any, all = map(_method_from_function, ("min", "max", "any", "all"))
    var, std, ptp = map(_method_from_function, ("var", "std", "ptp"))
    argmin, argmax, argsort = map(
        _method_from_function, ("argmin", "argmax", "argsort")
    )
    cumsum, cumprod = map(_method_from_function, ("cumsum", "cumprod"))
    ravel, squeeze, swapaxes = map(
        _method_from_function, ("ravel", "squeeze", "swapaxes")
    )
    take, repeat, clip = map(_method_from_function, ("take", "repeat", "clip"))
    dot, round, diagonal = map(_method_from_function, ("dot", "round", "diagonal"))
    searchsorted, compress = map(_method_from_function, ("searchsorted", "compress"))
    sort, fill, put, resize, itemset, partition = map(
        _refused_method, ("sort", "fill", "put", "resize", "itemset", "partition")
    )
