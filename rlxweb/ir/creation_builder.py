"""Builder methods for arrays that follow a rule, and for triangles and one-hot rows.

They have the names of NumPy and PyTorch. What repeats is a view of one number, and what
depends on the place is computed of the places along the axes, so that none of it takes
room in the graph; sequences are constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.errors import AttributeRefused
from rlxweb.ir.dtype import DType, DTypeLike, as_dtype
from rlxweb.ir.math_builder import Given, MathBuilder
from rlxweb.ir.moves_builder import Axes, integers
from rlxweb.ir.shape import as_integer, bad_shape, normal_axis
from rlxweb.ir.tensor import Tensor, working

MOST = 1 << 31
"""Elements of a sequence, at most."""


class CreationBuilder(MathBuilder):
    """Arrays that follow a rule; mixed into Graph."""

    def full(self, shape: Axes, value: Any, dtype: DTypeLike | None = None) -> Tensor:
        """One number everywhere, a tensor's too; a view of it.

        dtype   None: the number's own, f32 for a Python float and i32 for an int
        Errors  ShapeError for more than one number, DTypeError.
        """
        dims = integers(shape, "a dimension")
        if isinstance(value, Tensor):
            one = value if dtype is None else value.cast(dtype)
        else:
            one = self.constant(value, dtype)
        if one.rank:
            raise bad_shape(f"full of {one!r}", "one number is wanted")
        return self.apply("expand", one, shape=dims)

    def zeros(self, shape: Axes, dtype: DTypeLike = "f32") -> Tensor:
        """0 everywhere."""
        return self.full(shape, 0, dtype)

    def ones(self, shape: Axes, dtype: DTypeLike = "f32") -> Tensor:
        """1 everywhere."""
        return self.full(shape, 1, dtype)

    def full_like(
        self, x: Tensor, value: Any, dtype: DTypeLike | None = None
    ) -> Tensor:
        """One number in the shape of x, and in its dtype unless another is named."""
        with working("full_like", x):
            return self.full(x.shape, value, x.dtype if dtype is None else dtype)

    def zeros_like(self, x: Tensor, dtype: DTypeLike | None = None) -> Tensor:
        """0 in the shape of x, and in its dtype unless another is named."""
        return self.full_like(x, 0, dtype)

    def ones_like(self, x: Tensor, dtype: DTypeLike | None = None) -> Tensor:
        """1 in the shape of x, and in its dtype unless another is named."""
        return self.full_like(x, 1, dtype)

    def arange(
        self,
        start: float,
        stop: float | None = None,
        step: float = 1,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """The numbers from start on to before stop, as numpy.arange.

        One number is the stop, and the start is 0 then.
        dtype   None: i32 of ints, f32 where one is a float
        Errors  AttributeRefused for a step of 0; DTypeError for numbers the type has
        not.
        """
        first, last = (0, start) if stop is None else (start, stop)
        given = (first, last, step)
        doing = f"arange{tuple(given)}"
        if not all(isinstance(v, int | float | np.number) for v in given):
            raise AttributeRefused(doing, "its bounds and step are numbers")
        if step == 0 or not all(np.isfinite(given)):
            raise AttributeRefused(
                doing, "it would never end", "finite bounds, step not 0"
            )
        if abs(last - first) / abs(step) > MOST:
            raise AttributeRefused(
                doing, f"more than {MOST:,} numbers", "a sequence is a constant"
            )
        whole = not any(isinstance(v, float | np.floating) for v in given)
        own = DType.I32 if whole else DType.F32
        kind = np.int64 if whole else np.float64
        numbers = np.arange(first, last, step, dtype=kind)
        return self.constant(numbers, own if dtype is None else dtype)

    def linspace(
        self,
        start: float,
        stop: float,
        num: int = 50,
        endpoint: bool = True,
        dtype: DTypeLike = "f32",
    ) -> Tensor:
        """So many numbers from start to stop, evenly apart, as numpy.linspace."""
        count = as_integer(num, "num")
        if not 0 <= count <= MOST:
            raise bad_shape(f"linspace of {count} numbers", f"0 to {MOST:,}")
        numbers = np.linspace(float(start), float(stop), count, endpoint)
        return self.constant(numbers, dtype)

    def eye(
        self, n: int, m: int | None = None, k: int = 0, dtype: DTypeLike = "f32"
    ) -> Tensor:
        """1 on the k-th diagonal of n rows and m columns, 0 elsewhere, as numpy.eye."""
        rows = as_integer(n, "n")
        columns = rows if m is None else as_integer(m, "m")
        behind = self._behind(rows, columns)
        return self.apply("eq", behind, self._offset(k)).cast(as_dtype(dtype))

    def tril(self, x: Tensor, k: Any = 0) -> Tensor:
        """The last two axes with 0 above the k-th diagonal, as numpy.tril.

        k   an integer, or a tensor of one
        Errors   ShapeError below two axes; DTypeError.
        """
        return self._triangle("tril", "le", x, k)

    def triu(self, x: Tensor, k: Any = 0) -> Tensor:
        """The last two axes with 0 below the k-th diagonal; see `tril`."""
        return self._triangle("triu", "ge", x, k)

    def _triangle(self, name: str, kept: str, x: Tensor, k: Any) -> Tensor:
        with working(name, x):
            if x.rank < 2:
                raise bad_shape(f"rank {x.rank}", "matrices have two axes or more")
            keep = self.apply(kept, self._behind(*x.shape[-2:]), self._offset(k))
            return self.where(keep, x, self.constant(0, x.dtype))

    def _behind(self, rows: int, columns: int) -> Tensor:
        """How far each element of a matrix is to the right of the diagonal (i32)."""
        row = self.arange(rows).reshape(rows, 1)
        return self.arange(columns).reshape(1, columns) - row

    def _offset(self, k: Any) -> Tensor:
        """The number of a diagonal, as i32 of one element."""
        if not isinstance(k, Tensor):
            bound = MOST - 1
            return self.constant(min(max(as_integer(k, "k"), -bound), bound), DType.I32)
        if k.dtype is DType.BOOL or k.dtype.is_float or k.shape not in ((), (1,)):
            raise bad_shape(f"k is {k!r}", "k is one integer")
        return k.cast(DType.I32).reshape(())

    def one_hot(
        self,
        indices: Tensor,
        num_classes: int,
        on_value: Given = 1,
        off_value: Given = 0,
        axis: int = -1,
        dtype: DTypeLike = "f32",
    ) -> Tensor:
        """A new axis with `on_value` where an index names the place, else `off_value`.

        axis        where the new axis stands in the result
        on_value, off_value   numbers, or tensors of one each, which say the dtype

        A negative index counts from the end; of one outside no place is named, as in
        ONNX. Errors  DTypeError unless the indices are integers; ShapeError.
        """
        with working("one_hot", indices):
            depth = as_integer(num_classes, "num_classes")
            if not indices.dtype.is_integer or depth < 0:
                raise bad_shape(
                    f"{depth} classes by indices of {indices.dtype}",
                    "0 classes or more, and indices are integers",
                )
            at = normal_axis(axis, indices.rank + 1)
            shape = (*indices.shape[:at], 1, *indices.shape[at:])
            named = indices.reshape(shape)
            if not indices.dtype.is_unsigned:
                named = self.where(named < 0, named + depth, named)
            places = self.arange(depth, dtype=indices.dtype)
            hit = named.eq(places.reshape((depth, *(1,) * (indices.rank - at))))
            on, off = (self._single(v, dtype) for v in (on_value, off_value))
        return self.where(hit, on, off)

    def _single(self, value: Given, dtype: DTypeLike) -> Tensor:
        if not isinstance(value, Tensor):
            return self.constant(value, dtype)
        if value.shape not in ((), (1,)):
            raise bad_shape(f"{value!r} as one number", "it has one element")
        return value.reshape(())
