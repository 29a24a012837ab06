"""Builder methods for products of vectors, matrices and tensors, by NumPy's names.

All of them are the op `matmul`, or products and sums where that is less; vectors are
rows or columns as NumPy has them. Nothing is computed here.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from rlxweb.errors import AttributeRefused
from rlxweb.ir.einsum import einsum
from rlxweb.ir.math_builder import Given, MathBuilder
from rlxweb.ir.moves_builder import integers
from rlxweb.ir.shape import (
    as_integer,
    bad_shape,
    distinct_axes,
    short,
    show,
)
from rlxweb.ir.tensor import Tensor, working


class ProductBuilder(MathBuilder):
    """Products over `apply`; mixed into Graph."""

    def matmul(self, x: Given, y: Given) -> Tensor:
        """The product of matrices, of which there may be many, as numpy.matmul.

        A vector on the left is a row, one on the right a column, whose axis goes again.
        Errors   ShapeError, DTypeError.
        """
        x, y = self._pair(x, y)
        if not x.rank or not y.rank or (x.rank > 1 and y.rank > 1):
            return self.apply("matmul", x, y)
        with working("matmul", x, y):
            row, column = x.rank == 1, y.rank == 1
            left = x.reshape((1, *x.shape)) if row else x
            right = y.reshape((*y.shape, 1)) if column else y
            made = self.apply("matmul", left, right)
            shape = made.shape[:-2]
            shape += () if row else made.shape[-2:-1]
            return made.reshape(shape if column else (*shape, made.shape[-1]))

    def einsum(self, subscripts: str, *operands: Given) -> Tensor:
        """Sums of products by labels of axes, as numpy.einsum: "bij,bjk->bik".

        subscripts  letters for the axes of each operand, "..." for any number of them,
                    which broadcast; without "->" the result has the labels that stand
                    once, in alphabetical order, behind the "..."
        operands    tensors, and arrays beside them

        A label that an operand has twice is its diagonal; one that the result has not
        is summed, "..." too. Of many operands the cheapest order is taken.
        Errors   AttributeRefused, ShapeError, DTypeError.
        """
        tensors = [one for one in operands if isinstance(one, Tensor)]
        doing = f"einsum {short(subscripts)}"
        if not isinstance(subscripts, str) or not tensors:
            raise AttributeRefused(
                doing, "subscripts, then a tensor or more, are wanted"
            )
        given = [self._pair(one, tensors[0])[0] for one in operands]
        with working(f"einsum {subscripts!r}", *given):
            return einsum(self, subscripts, given)

    def diagonal(
        self, x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1
    ) -> Tensor:
        """The elements at [i, i + offset] of two axes as the last one: a view of a
        dense tensor, as numpy.diagonal. Errors  ShapeError.
        """
        with working("diagonal", x):
            first, second = distinct_axes((axis1, axis2), x.rank)
            off = as_integer(offset, "an offset")
        rest = tuple(a for a in range(x.rank) if a not in (first, second))
        m, n = x.shape[first], x.shape[second]
        count = max(0, min(m, n - off) if off >= 0 else min(m + off, n))
        perm = (*rest, first, second)
        if perm != tuple(range(x.rank)):
            x = self.apply("transpose", x, perm=perm)
        flat = self.apply("reshape", x, shape=(*x.shape[:-2], m * n))
        begin = off if off >= 0 else -off * n
        stop = begin + count * (n + 1)
        how: dict[str, Any] = {"axes": (len(rest),), "steps": (n + 1,)}
        if not count:
            begin = stop = 0
        return self.apply("slice", flat, starts=(begin,), stops=(stop,), **how)

    def trace(
        self, x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1
    ) -> Tensor:
        """The sum along a diagonal, as numpy.trace."""
        return self.diagonal(x, offset, axis1, axis2).sum(-1)

    def dot(self, x: Given, y: Given) -> Tensor:
        """Over the last axis of x and the last but one of y, or its only; numpy.dot.

        Of numbers it is their product. `matmul` is what pairs batches.
        """
        x, y = self._pair(x, y)
        if not x.rank or not y.rank:
            return self.apply("mul", x, y)
        return self.tensordot(x, y, ((-1,), (-2 if y.rank > 1 else -1,)))

    def inner(self, x: Given, y: Given) -> Tensor:
        """The sum over the last axis of both, as numpy.inner."""
        x, y = self._pair(x, y)
        if not x.rank or not y.rank:
            return self.apply("mul", x, y)
        return self.tensordot(x, y, ((-1,), (-1,)))

    def vdot(self, x: Given, y: Given) -> Tensor:
        """The sum of products of all elements in their order, as numpy.vdot."""
        x, y = self._pair(x, y)
        return self.inner(x.reshape(-1), y.reshape(-1))

    def outer(self, x: Given, y: Given) -> Tensor:
        """Each element of x times each of y, [size of x, size of y], as numpy.outer."""
        x, y = self._pair(x, y)
        return self.apply("mul", x.reshape(-1, 1), y.reshape(1, -1))

    def tensordot(self, x: Given, y: Given, axes: Any = 2) -> Tensor:
        """The sum over axes of x paired with axes of y, as numpy.tensordot.

        axes   how many of the last of x and the first of y, or those of x and those of
               y, in pairs

        Errors   ShapeError, DTypeError.
        """
        x, y = self._pair(x, y)
        with working("tensordot", x, y):
            of_x, of_y = _paired(axes, x.rank, y.rank)
            letters = iter(string.ascii_letters)
            first = [next(letters) for _ in range(x.rank)]
            second = [next(letters) for _ in range(y.rank)]
            for a, b in zip(of_x, of_y, strict=True):
                if x.shape[a] != y.shape[b]:
                    raise bad_shape(
                        f"axis {a} of {show(x.shape)} with axis {b} of {show(y.shape)}",
                        "axes in a pair have the same size",
                    )
                second[b] = first[a]
            out = [n for a, n in enumerate(first) if a not in of_x]
            out += [n for b, n in enumerate(second) if b not in of_y]
            text = f"{''.join(first)},{''.join(second)}->{''.join(out)}"
            return einsum(self, text, (x, y))


def _paired(axes: Any, left: int, right: int) -> tuple[tuple[int, ...], ...]:
    """Axes of either operand, counted from the front. Errors  ShapeError."""
    if isinstance(axes, Sequence) and len(axes) == 2:
        of_x, of_y = (integers(one, "an axis") for one in axes)
    else:
        count = as_integer(axes, "a number of axes")
        if not 0 <= count <= min(left, right):
            raise bad_shape(
                f"{count} axes of ranks {left} and {right}", "both have them"
            )
        of_x, of_y = tuple(range(left - count, left)), tuple(range(count))
    if len(of_x) != len(of_y):
        raise bad_shape(
            f"{len(of_x)} axes of one and {len(of_y)} of the other", "pairs"
        )
    return distinct_axes(of_x, left), distinct_axes(of_y, right)
