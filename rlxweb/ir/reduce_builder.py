"""Builder methods that take axes together, by NumPy's and PyTorch's names.

Some add the op of their name; others are put together of sums, extremes and functions
such that they hold at infinity and for nothing. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from rlxweb.errors import AttributeRefused
from rlxweb.ir.adding import adding
from rlxweb.ir.creation_builder import CreationBuilder
from rlxweb.ir.dtype import DType
from rlxweb.ir.math_builder import MathBuilder
from rlxweb.ir.p_norm import absolute_power, norm_root
from rlxweb.ir.shape import Shape, as_integer, many, normal_axes, normal_axis
from rlxweb.ir.tensor import Tensor, working

Axes = int | Sequence[int] | None


def _over(x: Tensor, axes: Axes) -> tuple[int, ...]:
    """The axes, all of them where none are named. Errors  ShapeError."""
    if axes is None:
        return tuple(range(x.rank))
    return normal_axes([as_integer(a, "an axis") for a in many(axes) or ()], x.rank)


def _reduction(
    self: MathBuilder, op: str, x: Tensor, axes: Axes = None, keep_dim: bool = False
) -> Tensor:
    every = tuple(range(x.rank)) if axes is None else axes
    return self.apply(op, x, axes=every, keep_dim=keep_dim)


def _softmax(self: MathBuilder, op: str, x: Tensor, axis: int = -1) -> Tensor:
    return self.apply(op, x, axis=axis)


class ReduceBuilder(CreationBuilder):
    """What takes axes together, over `apply`; mixed into Graph."""

    sum = adding("sum", _reduction)
    mean = adding("mean", _reduction)
    max = adding("max", _reduction)
    min = adding("min", _reduction)
    prod = adding("prod", _reduction)
    softmax = adding("softmax", _softmax)
    log_softmax = adding("log_softmax", _softmax)

    def hardmax(self, x: Tensor, axis: int = -1) -> Tensor:
        """1 where an axis has its largest element, the first of equal ones, else 0."""
        top = self.argmax(x, axis, keepdims=True)
        return self._places(x, axis).eq(top).cast(x.dtype)

    def any(self, x: Tensor, axes: Axes = None, keep_dim: bool = False) -> Tensor:
        """Whether any element holds, of numbers whether any is not 0; of none False."""
        return self._truths("max", x, axes, keep_dim)

    def all(self, x: Tensor, axes: Axes = None, keep_dim: bool = False) -> Tensor:
        """Whether all elements hold, of numbers whether none is 0; of none True."""
        return self._truths("min", x, axes, keep_dim)

    def _truths(self, op: str, x: Tensor, axes: Axes, keep_dim: bool) -> Tensor:
        with working({"max": "any", "min": "all"}[op], x):
            over, truth = _over(x, axes), self._truth(x)
        if prod(x.shape[a] for a in over):
            return self.apply(op, truth, axes=over, keep_dim=keep_dim)
        return self.full(_reduced(x.shape, over, keep_dim), op == "min", "bool")

    def count_nonzero(
        self, x: Tensor, axes: Axes = None, keep_dim: bool = False
    ) -> Tensor:
        """How many elements are not 0 (i32), as numpy.count_nonzero."""
        with working("count_nonzero", x):
            ones = self._truth(x).cast(DType.I32)
        return self.sum(ones, axes, keep_dim)

    def var(
        self,
        x: Tensor,
        axes: Axes = None,
        correction: float = 0.0,
        keep_dim: bool = False,
    ) -> Tensor:
        """The sum of squares around the mean / (n - correction).

        correction  NumPy's ddof, and 0 as there; PyTorch's is 1 when left out. Where it
                    is n or more the division is by 0, as in both

        Errors   ShapeError for no elements; DTypeError unless they are floats.
        """
        with working("var", x):
            over = _over(x, axes)
            wide = _wide(x)
            far = wide - self.mean(wide, over, keep_dim=True)
            sums = self.sum(far * far, over, keep_dim)
            by = prod(x.shape[a] for a in over) - float(correction)
            made = sums / by if by > 0 else sums * self.constant(inf, sums.dtype)
        return _narrow(made, x)

    def std(
        self,
        x: Tensor,
        axes: Axes = None,
        correction: float = 0.0,
        keep_dim: bool = False,
    ) -> Tensor:
        """Return the square root of `var`, with slope 0 where all elements are equal.

        PyTorch has the same slope there; that of `sqrt` itself is infinite at 0.
        """
        with working("std", x):
            made = norm_root(self, self.var(_wide(x), axes, correction, keep_dim))
        return _narrow(made, x)

    def logsumexp(self, x: Tensor, axes: Axes = None, keep_dim: bool = False) -> Tensor:
        """log(sum(exp(x))), which neither overflows nor vanishes; of nothing -infinity.

        Errors   DTypeError unless they are floats; ShapeError.
        """
        with working("logsumexp", x):
            over = _over(x, axes)
            if not prod(x.shape[a] for a in over):
                return x.exp().sum(over, keep_dim).log()
            wide = _wide(x)
            top = self.max(wide, over, keep_dim=True)
            # From infinity nothing can be taken, and from a NaN nothing need be. Any
            # shift gives the same result, so derivatives take it for a constant.
            top = self.where(self.isfinite(top), top, 0)
            top = self.apply("stop_gradient", top)
            sums = (wide - top).exp().sum(over, keep_dim=True)
            made = _narrow(sums.log() + top, x)
        return made if keep_dim else made.reshape(_reduced(x.shape, over, False))

    def norm(
        self, x: Tensor, p: float = 2.0, axes: Axes = None, keep_dim: bool = False
    ) -> Tensor:
        """The p-norm (sum of |x|^p)^(1 / p) of the elements over axes.

        p   any number: of 0 how many are not 0, of infinity the largest |x|, of
            -infinity the least; PyTorch's linalg.vector_norm

        The slope is 0 where all elements are 0, as in PyTorch, and |x|^p has slope 0
        at 0 for every p.

        Errors   AttributeRefused for NaN; ShapeError; DTypeError unless of floats.
        """
        with working("norm", x):
            if p != p:
                raise AttributeRefused("", f"p={p}", "p is a number")
            over = _over(x, axes)
            return _narrow(self._norm(_wide(x), float(p), over, keep_dim), x)

    def _norm(self, x: Tensor, p: float, over: Shape, keep_dim: bool) -> Tensor:
        how: dict[str, Any] = {"axes": over, "keep_dim": keep_dim}
        if p == 2:
            return norm_root(self, self.apply("sum", x * x, **how))
        if p == 0:
            return self.apply("sum", x.ne(0).cast(x.dtype), **how)
        if p in (inf, -inf):
            size = self.apply("abs", x)
            return self.apply("max" if p > 0 else "min", size, **how)
        return norm_root(self, self.apply("sum", absolute_power(self, x, p), **how), p)

    def argmax(
        self,
        x: Tensor,
        axis: int | None = None,
        keepdims: bool = False,
        select_last_index: bool = False,
    ) -> Tensor:
        """Where the largest element is (i32), as numpy.argmax: the first of equal ones,
        and of NaN.

        axis               None: of all elements in their order
        keepdims           the axis stays, with one element
        select_last_index  the last of equal ones, as ONNX may ask
        Errors   ShapeError for an axis of no elements.
        """
        return self._extreme("argmax", x, axis, keepdims, select_last_index)

    def argmin(
        self,
        x: Tensor,
        axis: int | None = None,
        keepdims: bool = False,
        select_last_index: bool = False,
    ) -> Tensor:
        """Where the smallest element is (i32); see `argmax`."""
        return self._extreme("argmin", x, axis, keepdims, select_last_index)

    def _extreme(
        self, op: str, x: Tensor, axis: int | None, keepdims: bool, last: bool
    ) -> Tensor:
        if axis is not None:
            return self.apply(op, x, axis=axis, keep_dim=keepdims, last=last)
        with working(op, x):
            flat = x.reshape(-1)
            found = self.apply(op, flat, axis=0, last=last)
        return found.reshape((1,) * x.rank) if keepdims else found

    def _places(self, x: Tensor, axis: int) -> Tensor:
        """The numbers 0, 1 … along an axis of x, beside which others broadcast."""
        at, shape = normal_axis(axis, x.rank), [1] * x.rank
        shape[at] = x.shape[at]
        return self.arange(x.shape[at]).reshape(shape)


def _wide(x: Tensor) -> Tensor:
    """f16 as f32: its squares and sums may be beyond what it holds."""
    return x.cast(DType.F32) if x.dtype is DType.F16 else x


def _narrow(made: Tensor, like: Tensor) -> Tensor:
    return made if made.dtype is like.dtype else made.cast(like.dtype)


def _reduced(shape: Shape, over: Shape, keep_dim: bool) -> Shape:
    if keep_dim:
        return tuple(1 if a in over else d for a, d in enumerate(shape))
    return tuple(d for a, d in enumerate(shape) if a not in over)
