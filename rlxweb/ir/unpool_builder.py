"""Builder methods that put windows back where they were taken: fold and max_unpool.

Both are scatters into zeros, under PyTorch's names and arguments. Nothing is computed
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.errors import AttributeRefused, ShapeError
from rlxweb.ir.op_builder import OpBuilder
from rlxweb.ir.shape import many, short, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.window_builder import Sizes


class UnpoolBuilder(OpBuilder):
    """What undoes windows, over `apply`; mixed into Graph."""

    def fold(
        self,
        x: Tensor,
        output_size: Sizes,
        kernel_size: Sizes,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        stride: Sizes = 1,
    ) -> Tensor:
        """Windows [N, C · window, windows] added up where they lie in images
        [N, C, …], as torch.nn.functional.fold; ONNX calls it Col2Im.

        output_size  of an image, a number for each spatial axis
        padding      what windows reach beyond an image at both ends of each axis: one
                     number for all, one each, or the fronts' and then the ends'
        Errors   ShapeError, AttributeRefused, DTypeError.
        """
        doing = f"fold of {show(x.shape)}"
        size = _each(doing, "output_size", output_size, 0)
        rank = len(size)
        kernel = _each(doing, "kernel_size", kernel_size, rank, least=1)
        dilations = _each(doing, "dilation", dilation, rank, least=1)
        strides = _each(doing, "stride", stride, rank, least=1)
        both = len(many(padding) or ()) == 2 * rank
        pads = _each(doing, "padding", padding, 2 * rank if both else rank)
        pads = pads if both else (*pads, *pads)
        padded = [n + a + b for n, a, b in zip(size, pads, pads[rank:], strict=False)]
        at = _places(padded, kernel, dilations, strides)
        if x.rank != 3 or x.shape[1] % len(at) or x.shape[2] != at.shape[1]:
            raise ShapeError(
                doing,
                f"images of {show(size)} have {at.shape[1]} windows of {len(at)} each",
                "x is [N, C · window, windows]",
            )
        n, channels = x.shape[0], x.shape[1] // len(at)
        g: Any = self
        rows = g.reshape(x, (n * channels, at.size))
        flat = self._scattered(rows, at.reshape(1, -1), prod(padded), "add")
        made: Tensor = g.reshape(flat, (n, channels, *padded))
        for axis, (front, wide) in enumerate(zip(pads[:rank], size, strict=True), 2):
            made = g.narrow(made, axis, front, wide)
        return made

    def max_unpool(
        self,
        x: Tensor,
        indices: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        output_size: Sizes | None = None,
    ) -> Tensor:
        """What a max_pool kept, back at the `indices` that max_pool_indices gives, and
        zeros elsewhere, as torch.nn.functional.max_unpool2d. Of several at one place
        it is the last.

        Shapes   x and indices [N, C, …] → [N, C, *output_size]; that is the least size
                 that the windows reach over unless told
        Errors   IndexRefused when it is run; ShapeError, AttributeRefused, DTypeError.
        """
        doing, rank = f"max_unpool of {show(x.shape)}", x.rank - 2
        if rank < 1 or indices.shape != x.shape:
            raise ShapeError(
                doing, f"indices {show(indices.shape)}", "both are [N, C, …]"
            )
        kernel = _each(doing, "kernel_size", kernel_size, rank, least=1)
        steps = kernel_size if stride is None else stride
        strides = _each(doing, "stride", steps, rank, least=1)
        pads = _each(doing, "padding", padding, rank)
        if output_size is None:
            every = zip(x.shape[2:], strides, kernel, pads, strict=True)
            size = tuple((n - 1) * s + k - 2 * p for n, s, k, p in every)
        else:
            size = _each(doing, "output_size", output_size, rank)
        g: Any = self
        lines, flat = x.shape[0] * x.shape[1], prod(x.shape[2:])
        rows, at = (g.reshape(one, (lines, flat)) for one in (x, indices))
        found = self._scattered(rows, at, prod(size), "none")
        made: Tensor = g.reshape(found, (*x.shape[:2], *size))
        return made

    def _scattered(self, rows: Tensor, at: Any, size: Any, reduction: str) -> Tensor:
        """Rows [R, n] at places of rows of zeros [R, size]."""
        g: Any = self
        nothing = self.constant(np.zeros((), rows.dtype.numpy))
        empty = g.expand(nothing, (rows.shape[0], size))
        if not isinstance(at, Tensor):
            at = g.expand(self.constant(at.astype(np.int32)), rows.shape)
        made: Tensor = g.scatter_elements(empty, at, rows, 1, reduction)
        return made


def _each(
    doing: str, what: str, given: Any, rank: int, least: int = 0
) -> tuple[Any, ...]:
    """A number for each of the spatial axes; rank 0: as many as there are."""
    numbers = many(given)
    if numbers is None or not numbers or any(n < least for n in numbers):
        raise AttributeRefused(
            doing, f"{what}={short(given)}", f"whole numbers from {least} on"
        )
    numbers = numbers * rank if len(numbers) == 1 and rank else numbers
    if rank and len(numbers) != rank:
        raise AttributeRefused(
            doing,
            f"{what}={short(given)}",
            f"one number, or one for each of {rank} spatial axes",
        )
    return numbers


def _places(
    size: Sequence[int],
    kernel: Sequence[int],
    dilations: Sequence[int],
    strides: Sequence[int],
) -> npt.NDArray[np.int64]:
    """[elements of a window, windows]: where each lies in the flat padded image."""
    total = np.zeros((1, 1), np.int64)
    for n, k, d, s in zip(size, kernel, dilations, strides, strict=True):
        count = max((n - d * (k - 1) - 1) // s + 1, 0)
        along = np.arange(k)[:, None] * d + np.arange(count)[None, :] * s
        total = total[:, None, :, None] * n + along[None, :, None, :]
        total = total.reshape(total.shape[0] * k, -1)
    return total
