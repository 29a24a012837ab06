"""Traced: what stands for an array while a function is traced.

It looks like NumPy's array (shape, dtype, operators, methods) and holds none of its
values: what NumPy would compute becomes nodes of a graph, by the tables of `table`. A
complex array is two tensors. What needs values is refused with the place of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from rlxweb.ir.shape import numel, show
from rlxweb.ir.size import Size
from rlxweb.ir.tensor import Tensor
from rlxweb.tracing.place import refused
from rlxweb.tracing.table import call_function

DT = np.dtype[Any]

MOST_ROWS = 1000
"""Rows a loop over an array may have: its body becomes nodes for each."""
_WAY_OUT = (
    "choose by np.where(condition, a, b); what decides about the graph itself is "
    "passed as a Python number or named in static_argnames"
)

_AS_INDEX = "an array that is indexed by it is passed as an argument, x[i] then works"


def _by_function(name: str, of: Any = np) -> Any:
    """The method that NumPy has as a function too."""
    function = getattr(of, name)

    def method(self: Traced, *args: Any, **kwargs: Any) -> Any:
        return call_function(self.trace, function, (self, *args), kwargs)

    method.__name__ = name
    method.__doc__ = f"`numpy.{name}` of this array."
    return method


def _in_place(name: str) -> Any:
    def method(self: Traced, *args: Any, **kwargs: Any) -> NoReturn:
        raise changed(f"x.{name}()", f"use np.{name}(x), which returns its result")

    return method


def changed(what: str, hint: str) -> Any:
    """The refusal of what would change an array in its place."""
    return refused(what, "arrays of a traced function are not changed", hint=hint)


def _operator(name: str, ufunc: np.ufunc, turned: bool = False) -> Any:
    """NumPy's operator, which takes a size that varies as it takes a number."""
    plain = getattr(np.lib.mixins.NDArrayOperatorsMixin, name)

    def operator(self: Traced, other: Any) -> Any:
        if not isinstance(other, Size):
            return plain(self, other)
        both = (other, self) if turned else (self, other)
        return self.trace.ufunc(ufunc, "__call__", both, {})

    operator.__name__ = name
    return operator


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """An array within a function that is traced; see `rlxweb.function`.

    trace   the tracing it belongs to
    re, im  its tensors; im is None for a real one
    dtype   NumPy's dtype of it
    viewed  may it share memory with another array, were it one of NumPy's?
    squared  of a magnitude or norm: adds its square, which is smooth where it is 0
    """

    __slots__ = ("dtype", "im", "re", "squared", "trace", "viewed")
    __hash__ = None  # type: ignore[assignment]
    trace: Any
    re: Tensor
    im: Tensor | None
    dtype: DT
    squared: Callable[[], Tensor] | None

    def __init__(
        self,
        trace: Any,
        re: Tensor,
        im: Tensor | None = None,
        dtype: DT | None = None,
        viewed: bool = False,
    ) -> None:
        self.trace, self.re, self.im, self.viewed = trace, re, im, viewed
        self.squared = None
        if dtype is None:
            dtype = re.dtype.numpy
            if im is not None:
                dtype = np.result_type(dtype, np.complex64)
        self.dtype = dtype

    # --- what is known ------------------------------------------------------------

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its dimensions; where they vary, a size stands for each that does."""
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
        if isinstance(self.shape[0], Size):
            self._varies("len()")
        return int(self.shape[0])

    def __repr__(self) -> str:
        return f"Traced({self.re!r}, {self.dtype})"

    # --- what needs values --------------------------------------------------------

    def _needs_values(self, what: str, hint: str = _WAY_OUT) -> NoReturn:
        raise refused(
            f"{what} of an array {show(self.shape)} {self.dtype}",
            "its values are not known while the function is traced",
            hint=hint,
        )

    def _varies(self, what: str) -> NoReturn:
        raise refused(
            f"{what} of an array {show(self.shape)} {self.dtype}",
            "its length varies and is bound when the function runs",
            hint="x.shape[0] is a size that can be computed with",
        )

    def __bool__(self) -> bool:
        self._needs_values("the truth value")

    def __int__(self) -> int:
        self._needs_values("int()", f"x.astype(int) is an array; else {_WAY_OUT}")

    def __float__(self) -> float:
        self._needs_values("float()", f"x.astype(float) is an array; else {_WAY_OUT}")

    def __complex__(self) -> complex:
        self._needs_values("complex()")

    def __index__(self) -> int:
        self._needs_values(
            "an integer (of an index, a shape, range())",
            f"{_AS_INDEX}; shapes are Python numbers: pass them so, or name them in "
            "static_argnames",
        )

    def item(self, *args: Any) -> NoReturn:
        self._needs_values("item()")

    def tolist(self) -> NoReturn:
        self._needs_values("tolist()")

    def tobytes(self, order: str = "C") -> NoReturn:
        self._needs_values("tobytes()")

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        self._needs_values("format()", "print where the function was called")

    def __contains__(self, value: object) -> bool:
        self._needs_values("`in`", "use (x == value).any()")

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        hint = (
            "leave np.asarray out, x is an array already, and x.astype(dtype) casts; "
            "a list of arrays is np.stack([a, b]); other libraries' functions are "
            "called outside of the function"
        )
        if self.dtype.kind in "iub":
            hint = f"{_AS_INDEX}; {hint}"
        what = "a NumPy array (np.asarray, np.array, a library that wants one)"
        self._needs_values(what, hint)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            problem = "this attribute of arrays has no graph form"
            raise AttributeError(str(refused(f"x.{name}", problem)))
        raise AttributeError(f"an array has no attribute {name!r}")

    def nonzero(self) -> Any:
        return call_function(self.trace, np.nonzero, (self,), {})

    # --- NumPy's own ways in ------------------------------------------------------

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        return self.trace.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(
        self, function: Any, types: object, args: Any, kwargs: Any
    ) -> Any:
        return call_function(self.trace, function, args, kwargs)

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        if isinstance(self.shape[0], Size):
            self._varies("a loop over the rows")
        if self.shape[0] > MOST_ROWS:
            raise refused(
                f"a loop over an array {list(self.shape)}",
                f"its {self.shape[0]:,} turns would each become nodes of the graph",
                f"{MOST_ROWS:,} at most",
                "compute all rows at once",
            )
        return (self[at] for at in range(self.shape[0]))

    def __getitem__(self, key: Any) -> Any:
        return self.trace.item(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise changed(
            "x[...] = value",
            "use np.where(condition, value, x), or np.concatenate of the parts",
        )

    def __delitem__(self, key: Any) -> None:
        raise changed("del x[...]", "use np.delete(x, index, axis)")

    # --- operators beside sizes ---------------------------------------------------

    __add__ = _operator("__add__", np.add)
    __radd__ = _operator("__radd__", np.add, True)
    __sub__ = _operator("__sub__", np.subtract)
    __rsub__ = _operator("__rsub__", np.subtract, True)
    __mul__ = _operator("__mul__", np.multiply)
    __rmul__ = _operator("__rmul__", np.multiply, True)
    __truediv__ = _operator("__truediv__", np.true_divide)
    __rtruediv__ = _operator("__rtruediv__", np.true_divide, True)
    __floordiv__ = _operator("__floordiv__", np.floor_divide)
    __mod__ = _operator("__mod__", np.remainder)
    __pow__ = _operator("__pow__", np.power)
    __lt__, __le__ = _operator("__lt__", np.less), _operator("__le__", np.less_equal)
    __gt__ = _operator("__gt__", np.greater)
    __ge__ = _operator("__ge__", np.greater_equal)

    # --- methods ------------------------------------------------------------------

    def astype(self, dtype: Any, **how: Any) -> Any:
        """The values in another dtype, as numpy.ndarray.astype."""
        return self.trace.cast(self, dtype)

    def copy(self, order: str = "C") -> Traced:
        """Return an array with the same values and no shared memory."""
        made = Traced(self.trace, self.re, self.im, self.dtype)
        made.squared = self.squared
        return made

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Traced:
        return self.copy()

    def flatten(self, order: str = "C") -> Any:
        return call_function(self.trace, np.ravel, (self, order), {}).copy()

    def reshape(self, *shape: Any, **how: Any) -> Any:
        """The dims one by one, or all of them as one sequence."""
        dims = shape[0] if len(shape) == 1 else shape
        given = (self, dims) if shape else (self,)
        return call_function(self.trace, np.reshape, given, how)

    def transpose(self, *axes: Any) -> Any:
        """The axes in their new order, one by one or as a sequence; none reverses."""
        order = axes[0] if len(axes) == 1 else axes or None
        return call_function(self.trace, np.transpose, (self, order), {})

    @property
    def T(self) -> Any:  # noqa: N802  NumPy's name
        return self.transpose()

    @property
    def mT(self) -> Any:  # noqa: N802  NumPy's name
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> Any:
        return call_function(self.trace, np.real, (self,), {})

    @property
    def imag(self) -> Any:
        return call_function(self.trace, np.imag, (self,), {})

    @property
    def flat(self) -> Iterator[Traced]:
        return iter(self.flatten())

    def conj(self) -> Any:
        return np.conjugate(self)

    conjugate = conj
    sum, mean, prod = map(_by_function, ("sum", "mean", "prod"))
    min, max, any, all = map(_by_function, ("min", "max", "any", "all"))
    var, std, ptp = map(_by_function, ("var", "std", "ptp"))
    argmin, argmax, argsort = map(_by_function, ("argmin", "argmax", "argsort"))
    cumsum, cumprod = map(_by_function, ("cumsum", "cumprod"))
    ravel, squeeze, swapaxes = map(_by_function, ("ravel", "squeeze", "swapaxes"))
    take, repeat, clip = map(_by_function, ("take", "repeat", "clip"))
    dot, round, diagonal = map(_by_function, ("dot", "round", "diagonal"))
    searchsorted, compress = map(_by_function, ("searchsorted", "compress"))
    sort, fill, put, resize, itemset, partition = map(
        _in_place, ("sort", "fill", "put", "resize", "itemset", "partition")
    )
