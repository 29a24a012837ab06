"""Builder methods that order elements and find them: sorts, searches, running products.

They have the names of NumPy and PyTorch; where the two differ the docstring says whose
meaning a name has. Nothing is computed here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.errors import Unsupported
from rlxweb.given import array_of
from rlxweb.ir.dtype import DType
from rlxweb.ir.moves_builder import MovesBuilder
from rlxweb.ir.shape import bad_dtype, bad_shape, normal_axis, show
from rlxweb.ir.tensor import Operand, Tensor, working


class OrderBuilder(MovesBuilder):
    """Builder methods over `apply` that order and find; mixed into Graph."""

    def argsort(
        self, x: Tensor, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Tensor:
        """The places (i32) of the elements along an axis in sorted order.

        Equal values keep their order whether or not `stable` asks for it, and NaN comes
        after every number, both ways. False is below True. Errors  ShapeError.
        """
        with working("argsort", x):
            x = self.apply("cast", x, to=DType.I32) if x.dtype is DType.BOOL else x
        return self.apply("argsort", x, axis=axis, descending=descending)

    def sort(
        self, x: Tensor, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Tensor:
        """The elements in sorted order along an axis; see `argsort`.

        PyTorch's returns the places, too: `argsort` gives those.
        """
        with working("sort", x):
            is_mask = x.dtype is DType.BOOL
            x = self.apply("cast", x, to=DType.I32) if is_mask else x
        made = self.apply("sort", x, axis=axis, descending=descending)
        return self.apply("cast", made, to=DType.BOOL) if is_mask else made

    def searchsorted(
        self, a: Tensor, v: Tensor | Operand, side: str = "left"
    ) -> Tensor:
        """Where `v` goes into sorted rows `a` (i32), as NumPy's and PyTorch's.

        a      [n] for values of any shape, or [..., n] for values [..., m]
        side   "left": before its equals, "right": behind them

        NaN is above every number. Rows that are not sorted give any places.
        Errors   ShapeError, DTypeError.
        """
        with working("searchsorted", a):
            if not isinstance(v, Tensor):
                v = self.constant(array_of(v, "the values"), a.dtype)
        if a.rank == 1 and v.rank != 1:
            flat = self.apply("reshape", v, shape=(-1,))
            found = self.apply("searchsorted", a, flat, side=side)
            return self.apply("reshape", found, shape=v.shape)
        return self.apply("searchsorted", a, v, side=side)

    def bucketize(self, x: Tensor, boundaries: Tensor, right: bool = False) -> Tensor:
        """The bucket (i32) between sorted boundaries [n] that each element is in.

        As PyTorch's: a boundary is in the bucket that it ends, with `right` in the one
        that it begins. NumPy's digitize has it the other way round.
        """
        return self.searchsorted(boundaries, x, "right" if right else "left")

    def cumprod(
        self,
        x: Tensor,
        axis: int = -1,
        exclusive: bool = False,
        reverse: bool = False,
    ) -> Tensor:
        """Running products; `exclusive` without each one's own value, `reverse` from
        the end of the axis on.
        """
        if not reverse:
            return self.apply("cumprod", x, axis=axis, exclusive=exclusive)
        with working("cumprod", x):
            back = self.flip(x, axis) if x.rank else x
        made = self.apply("cumprod", back, axis=axis, exclusive=exclusive)
        return self.flip(made, axis)

    def nonzero(
        self, x: Tensor, size: int | None = None, fill_value: int = -1
    ) -> tuple[Tensor, Tensor]:
        """Where elements are not zero, and how many there are.

        size   of how many the places are given; None: of all that there could be

        [...] → places [rank, size] and a count, both i32. The places are those of
        numpy.nonzero, an axis a row, in the order of the elements; behind the last
        stands `fill_value`. Where there are more than `size`, the first are given and
        the count, which is of all of them, says so.
        Errors   ShapeError, AttributeRefused.
        """
        with working("nonzero", x):
            most = self.node(x.id).type.numel if size is None else size
        found = self.apply("nonzero", x, size=most, fill=fill_value)
        return found, self.count_nonzero(x)

    def compress(
        self, condition: Tensor | Operand, x: Tensor, axis: int | None = None
    ) -> Tensor:
        """The elements of an axis for which a condition [n] holds, as numpy.compress.

        axis   None: of the elements in their order. One that is shorter takes none of
               the rest.

        Errors   Unsupported for a condition that is computed: how many elements that
        are shows when the graph is run. ShapeError, DTypeError.
        """
        with working("compress", x):
            known = self._known(condition, "compress", "the condition")
            if axis is None:
                x, axis = self.apply("reshape", x, shape=(-1,)), 0
            axis = normal_axis(axis, x.rank)
            if known.ndim != 1 or known.size > x.shape[axis]:
                raise bad_shape(
                    f"a condition {show(known.shape)} for axis {axis} of "
                    f"{show(x.shape)}",
                    "it has one axis, and at most as many elements",
                )
        places = np.flatnonzero(known).astype(np.int32)
        return self.apply("gather", x, self.constant(places), axis=axis)

    def unique(
        self, x: Tensor, size: int | None = None, fill_value: Any = 0
    ) -> tuple[Tensor, Tensor]:
        """The different values in sorted order, and how many there are.

        size   of how many they are given; None: of as many as there could be

        [...] → values [size] and a count (i32). Behind the last value stands
        `fill_value`. Where there are more than `size`, the first are given and the
        count, which is of all of them, says so. All NaN are one value.
        Errors   DTypeError, AttributeRefused.
        """
        with working("unique", x):
            if x.dtype is DType.BOOL:
                raise bad_dtype("the values are bool", "numbers", "cast them")
            flat = self.apply("reshape", x, shape=(-1,))
        n = flat.shape[0]
        line = self.apply("sort", flat, axis=0, descending=False)
        is_new = self.constant(np.ones(min(n, 1), np.bool_))
        if n > 1:
            one = self.apply("narrow", line, axis=0, start=1, length=n - 1)
            before = self.apply("narrow", line, axis=0, start=0, length=n - 1)
            other = self.apply("ne", one, before)
            if x.dtype.is_float:
                was_number = self.apply("eq", before, before)
                number = self.apply("eq", one, one)
                both = self.apply("logical_or", was_number, number)
                other = self.apply("logical_and", other, both)
            is_new = self.apply("concat", is_new, other, axis=0)
        places, count = self.nonzero(is_new, size, -1)
        at = self.apply("reshape", places, shape=(-1,))
        if not n:
            return self.constant(np.full(at.shape, fill_value, x.dtype.numpy)), count
        zero = self.constant(np.zeros((), np.int32))
        values = self.apply("gather", line, self.apply("maximum", at, zero), axis=0)
        there = self.apply("ge", at, zero)
        fill = self.constant(np.asarray(fill_value), x.dtype)
        return self.apply("where", there, values, fill), count

    def reverse_sequence(
        self, x: Tensor, lengths: Tensor, axis: int = 0, batch_axis: int = 1
    ) -> Tensor:
        """Of every item of a batch the first `lengths[item]` elements turned round.

        As ONNX's and TensorFlow's. Lengths over the axis are refused when it is run,
        since they take elements from outside. Errors  IndexRefused; ShapeError.
        """
        with working("reverse_sequence", x, lengths):
            along, batch = normal_axis(axis, x.rank), normal_axis(batch_axis, x.rank)
            if along == batch or lengths.shape != (x.shape[batch],):
                raise bad_shape(
                    f"lengths {show(lengths.shape)} for axes {along} and {batch} of "
                    f"{show(x.shape)}",
                    "a length for each item of the batch, on another axis",
                )
        steps = np.arange(x.shape[along], dtype=lengths.dtype.numpy)
        at = self.constant(
            steps.reshape([-1 if a == along else 1 for a in range(x.rank)])
        )
        shape = [-1 if a == batch else 1 for a in range(x.rank)]
        last = self.apply("reshape", lengths, shape=shape)
        one = self.constant(np.ones((), lengths.dtype.numpy))
        turned = self.apply("sub", self.apply("sub", last, one), at)
        is_in = self.apply("lt", at, last)
        places = self.apply("where", is_in, turned, at)
        rest = tuple(1 if a == along else d for a, d in enumerate(x.shape))
        places = self.apply("expand", places, shape=rest)
        return self.apply("gather_elements", x, places, axis=along)

    def _known(self, value: Any, doing: str, what: str) -> npt.NDArray[Any]:
        """The numbers of what is given, or of a constant. Errors  Unsupported."""
        if not isinstance(value, Tensor):
            return array_of(value, doing)
        node = self.node(value.id)
        if node.op == "constant":
            array: npt.NDArray[Any] = node.attrs["value"].array
            return array
        raise Unsupported(
            "",
            f"{what} is computed: how many elements it takes shows when the graph runs",
            "a graph's shapes are known before",
            "g.nonzero(condition, size=…) gives places with a bound, and their count",
        )
