"""Convolution of floats on the CPU: machine code, or products with the windows.

Rows of the table of variants. The code for few channels wants lines of a vector's
length; where an image has shorter ones its lines are taken as one, and what stands
between them is left out after. Many channels are products, see `cpu_windows.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.backends.cpu_phases import PhasesCall
from rlxweb.backends.cpu_products import multiply, product_kernels
from rlxweb.backends.cpu_windows import MOST_PLACES, ConvCall, shares_of
from rlxweb.host.arrays import pool
from rlxweb.host.compiled import address
from rlxweb.host.convolution import Products
from rlxweb.host.phases import lengths_of, taps_of
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.host.shared_code import Shared
from rlxweb.host.variants import Variant
from rlxweb.host.wasm_windows import Windows
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ir.shape import Shape
from rlxweb.machine import library
from rlxweb.machine.jobs import packed
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.workshop import Workshop
from rlxweb.recipes.conv_calls import Convolution, convolution

Array = NDArray[Any]
Run = Callable[..., Array]

LEAST: Final = 1 << 12
"""Multiplications from which a call of ours is faster than several of NumPy's."""
_MANY: Final = 16
"""Channels from which a product with the windows is faster."""
_LEAST_OF_PRODUCTS: Final = 1 << 16
"""The same for windows of one element, which are one call of NumPy's."""
_THREADED: Final = 1 << 19
_TASKS: Final = 8
"""For each thread, so that none waits long for the last."""
_MOST_WEIGHTS: Final = 1 << 19
"""Weights of a group that stay in a core's cache while its lines are gone through."""
_MOST_PHASES: Final = 16
_WASTE: Final = 1.25
"""Of vectors, from which on the lines of an image are taken as one."""


def _made(about: object) -> Shared:
    from rlxweb.machine.convolution import Tile, convolution_text

    assert isinstance(about, Tile)
    return function_of(code_of(convolution_text(about, library.processor().nbytes)))


def function_of(code: library.Code) -> Shared:
    """What a module of convolution exports, as `machine/convolution.py` says."""
    return Shared.of(code, "convolution")


conv_kernels: Workshop[Shared] = Workshop(_made, fast_mode)
"""The compiled convolutions of this process, by their tiles."""


class Lines(NamedTuple):
    """Lines that the code goes through: how many, how long, and where they lie.

    image    lines of an image, and of its inner axis
    apart    elements of the result from one line to the next, outer and inner axis
    flat     the inner lines of an image are one, `between` elements from each other
    """

    image: tuple[int, int]
    length: int
    apart: tuple[int, int]
    flat: bool
    between: int


def _open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Floats, and something to sum."""
    wide = inputs[0].dtype in (DType.F32, DType.F64)
    return wide and inputs[1].numel > 0


def _compiled_open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    x, w = inputs
    fits = x.dtype is DType.F32 and _open(inputs, out, attrs)
    if not fits or not conv_kernels.is_open:
        return False
    one = convolution(x.shape, w.shape, attrs)
    windows, m = one.windows, one.channels[1]
    work = out.numel * prod(w.shape[1:])
    small = w.numel // one.groups <= _MOST_WEIGHTS
    few = prod(windows.strides) <= _MOST_PHASES
    few = few and prod(windows.size) <= MOST_PLACES
    is_product = prod(windows.kernel) == 1 and windows.out == windows.size
    least = _LEAST_OF_PRODUCTS if is_product else LEAST
    return m < _MANY and work >= least and small and few


def _by_products(inputs: Types, out: TensorType, attrs: Attrs) -> Run:
    """How a node is run by products: with windows that code gathers, or that NumPy
    laid side by side.
    """
    one = convolution(inputs[0].shape, inputs[1].shape, attrs)
    made = Products(one, multiply) if product_kernels.is_open else Products(one)
    slowly = partial(_multiplied, made, out.shape)
    if inputs[0].dtype is not DType.F32 or made.by_taps:
        return slowly
    if made.windows is not None:
        return partial(_gathered, made.windows, out.shape)
    shares = shares_of(one)
    if shares is None:
        return slowly
    return ConvCall(one, shares, out.shape, slowly)


def _multiplied(
    products: Products, shape: Shape, attrs: Attrs, x: Array, w: Array
) -> Array:
    made = products(_shaped(products.one, x), np.ascontiguousarray(w))
    return made.reshape(shape)


def _gathered(
    windows: Windows, shape: Shape, attrs: Attrs, x: Array, w: Array
) -> Array:
    return windows(x, w).reshape(shape)


def _shaped(one: Convolution, x: Array) -> Array:
    return x.reshape(*x.shape[:2], *one.windows.size)


def _compiled(inputs: Types, out: TensorType, attrs: Attrs) -> Run:
    """How a node is run by machine code; by BLAS where its lines are too short."""
    from rlxweb.machine.convolution import tiles

    one = convolution(inputs[0].shape, inputs[1].shape, attrs)
    by_numpy = _by_products(inputs, out, attrs)
    nbytes = library.processor().nbytes
    found = lines_of(one, lengths_of(one.windows), nbytes // 4)
    if found is None:
        return by_numpy
    tile = min(
        (t for t in tiles(nbytes) if t.rows <= one.channels[1]),
        key=lambda t: _cycles(one.channels[1], found, t, nbytes // 4),
    )
    return LinesCall(one, tile, found, out.shape, by_numpy)


def lines_of(one: Convolution, q: tuple[int, ...], lanes: int) -> Lines | None:
    """The lines of a result whose phases have these lengths; None: they are too short.

    As they are, or those of the inner axis as one where that wastes less.
    """
    o0, o1, o2 = one.windows.out
    whole = (o1 - 1) * q[2] + o2
    if whole < lanes:
        return None
    vectors = o1 * -(-o2 // lanes)
    if o2 >= lanes and vectors <= _WASTE * -(-whole // lanes):
        return Lines((o0 * o1, o1), o2, (o1 * o2, o2), False, o2)
    return Lines((o0, 1), whole, (o1 * q[2], 0), True, q[2])


def _cycles(m: int, lines: Lines, tile: tuple[int, int], lanes: int) -> float:
    """About how long a tap takes: products, loads, and the chain of one sum."""
    rows, vectors = tile
    turns = -(-lines.length // (vectors * lanes))
    each = max(rows * vectors / 2, (rows + vectors) / 2, 4.0)
    return -(-m // rows) * turns * each


class LinesCall:
    """A convolution of few channels, line by line, with all that its sizes tell worked
    out.

    by_numpy  (attributes, x, w) → the result, while there is no code
    """

    def __init__(
        self,
        one: Convolution,
        tile: tuple[int, int],
        lines: Lines,
        shape: Shape,
        by_numpy: Run,
    ) -> None:
        self.one, self.lines, self.shape = one, lines, shape
        self.by_numpy, self.tile = by_numpy, tile
        (c, m), windows = one.channels, one.windows
        batch, groups, (rows, vectors) = one.batch, one.groups, tile
        lanes = library.processor().nbytes // 4
        o0, o1, _ = windows.out
        self.phases = PhasesCall(batch, groups * c, windows)
        q1, q2 = self.phases.shape[-2:]
        every = prod(self.phases.shape[2:])
        own = taps_of(windows, lengths_of(windows))
        self.taps = (np.arange(c)[:, None] * every + own[None, :]).reshape(-1)
        self.made = batch, groups * m, o0, o1, lines.between
        self.threaded = prod(self.made) * self.taps.size >= _THREADED
        blocks, last = -(-m // rows), m - rows
        channel = o0 * o1 * lines.between
        count = batch * groups * lines.image[0]
        wanted = _TASKS * usable_cpus() if self.threaded else 1
        # Few lines are shared out by their channels.
        share = -(-blocks // min(blocks, -(-wanted // count)))
        shares = -(-blocks // share)
        tasks = count * shares
        each = max(1, tasks // wanted)
        self.job = np.array(
            [
                *(0, 0, 0, address(self.taps)),
                *(self.taps.size, tasks, each, groups, m, blocks, last, shares, share),
                *lines.image,
                *(lines.length, -(-lines.length // (vectors * lanes))),
                *(groups * c * every, c * every, q1 * q2, q2),
                *(groups * m * channel, m * channel, channel, *lines.apart),
            ],
            np.int64,
        )

    def __call__(self, attrs: Attrs, x: Array, w: Array) -> Array:
        """The result [N, M, …] of x [N, C, …] and w [M, C / groups, …], float32."""
        kernel = conv_kernels.ready(self.tile)
        if kernel is None:
            begun = perf_counter()
            made = self.by_numpy(attrs, x, w)
            conv_kernels.spent(self.tile, perf_counter() - begun)
            return made
        values, weights = self.phases(_shaped(self.one, x)), np.ascontiguousarray(w)
        out = pool.empty(self.made, np.float32)
        job, taken = self.job.copy(), np.zeros(1, np.int64)
        job[:3] = address(values), address(weights), address(out)
        kernel(packed(address(job), address(taken)), threaded=self.threaded)
        if self.lines.flat:
            out = np.ascontiguousarray(out[..., : self.one.windows.out[2]])
        return out.reshape(self.shape)


COMPILED: Final = (
    Variant("conv, compiled", "conv", _compiled_open, _compiled, planned=True),
    Variant("conv, windows in cache", "conv", _open, _by_products, planned=True),
)
"""The rows, before NumPy's."""
