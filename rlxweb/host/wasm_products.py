"""Products of float32 in a browser's Python, by WebAssembly of our own.

NumPy has no BLAS there and takes 30 times as long as a processor needs. What cannot be
computed so, or where a browser refuses the module, is left to NumPy. Products with
weights are shared with Workers, where there are any (`wasm_shared.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.arrays import pool
from rlxweb.host.laid_out import LaidOut, Steady
from rlxweb.host.wasm_shared import LEAST as LEAST_SHARED
from rlxweb.host.wasm_shared import Done, SharedProduct
from rlxweb.host.workers import Place, Workers, workers
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.machine.making import fast_mode
from rlxweb.machine.wasm import IN_A_TAB, opened_fused
from rlxweb.machine.wasm_products import (
    ARGUMENTS,
    COLUMNS,
    laid_of,
    products_module,
    room_of,
)

LEAST: Final = 1 << 14
"""Multiplications from which it pays to leave NumPy."""
FEW_ROWS: Final = 96
"""Up to so many, laying the right matrix in panels is felt: weights are kept so."""
Array = NDArray[Any]
_F32 = np.dtype(np.float32)


class Functions(NamedTuple):
    """Those of the module; `machine/wasm_products.py` and `wasm_runs.py` say what they
    take.
    """

    product: Callable[..., None]
    laid: Callable[..., None]
    of_laid: Callable[..., None]
    of_windows: Callable[..., None]
    of_runs: Callable[..., None]


def functions() -> Functions | None:
    """Them; None where there is no WebAssembly, it is refused or unwanted."""
    return _functions() if IN_A_TAB and fast_mode() != "off" else None


@cache
def _functions() -> Functions | None:
    try:
        return Functions(*opened_fused(products_module, *ARGUMENTS))
    except OSError:  # a browser without SIMD
        return None


class _Room:
    """Memory that calls write over, as large as any of them needs."""

    def __init__(self) -> None:
        self._array = np.empty(0, np.float32)

    def of(self, floats: int) -> int:
        """Its address."""
        return self.array(floats).ctypes.data

    def array(self, floats: int) -> Array:
        """It itself, as large or larger."""
        if self._array.size < floats:
            self._array = np.empty(floats, np.float32)
        return self._array


ROOM: Final = _Room()
"""The process's: Python has one thread there, and nothing of a call is left in it."""


def matmul(x: Array, y: Array) -> Array:
    """`numpy.matmul` of at least two axes each."""
    out = np.empty(
        (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]),
        np.result_type(x, y),
    )
    return np.matmul(x, y, out=out) if not into(x, y, out) else out


def into(x: Array, y: Array, out: Array) -> bool:
    """The product into an array, if it is one for this: was it done?"""
    if not x.dtype == y.dtype == out.dtype == _F32:
        return False
    if out.size * x.shape[-1] < LEAST or out.strides[-1] != 4:
        return False
    known = functions()
    if known is None:
        return False
    terms, columns = x.shape[-1], y.shape[-1]
    if y.ndim == 2 and out.ndim > 2 and out.flags.c_contiguous and x.ndim == out.ndim:
        x, out = x.reshape(-1, terms), out.reshape(-1, columns)
    x, y = _in_rows(x), _in_rows(y)
    sizes = x.shape[-2], terms, columns
    room = ROOM.of(room_of(terms))
    steps = x.strides[-2], y.strides[-2], out.strides[-2], room
    a, b, c = x.ctypes.data, y.ctypes.data, out.ctypes.data
    count, own, starts = _batch(x, y, out)
    for i, j, k in starts:
        known.product(a + i, b + j, c + k, *sizes, *steps, count, *own)
    return True


def _batch(
    x: Array, y: Array, out: Array
) -> tuple[int, tuple[int, ...], Iterable[tuple[int, ...]]]:
    """How many matrices of each lie one after the other on the last axis of a batch,
    how far apart, and where each such line of them begins: all in bytes.
    """
    batch = out.shape[:-2]
    if not batch:
        return 1, (0, 0, 0), ((0, 0, 0),)
    if x.shape[:-2] != batch:
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
    if y.shape[:-2] != batch:
        y = np.broadcast_to(y, (*batch, *y.shape[-2:]))
    each = x, y, out
    own = tuple(one.strides[-3] for one in each)
    every: list[tuple[int, ...]] = [(0, 0, 0)]
    for at, size in enumerate(batch[:-1]):
        steps = [one.strides[at] for one in each]
        every = [
            tuple(start + i * step for start, step in zip(starts, steps, strict=True))
            for starts in every
            for i in range(size)
        ]
    return batch[-1], own, every


def _in_rows(x: Array) -> Array:
    """With elements of a row side by side, and rows that do not go backwards."""
    well = x.strides[-1] == 4 and x.strides[-2] >= 0 and x.strides[-2] % 4 == 0
    return x if well else np.ascontiguousarray(x)


def is_open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Of float32, and large enough."""
    x, y = inputs[:2]
    if min(x.rank, y.rank) < 2 or functions() is None:
        return False
    floats = all(one.dtype is DType.F32 for one in inputs)
    return floats and out.numel * x.shape[-1] >= LEAST


def may_share(inputs: Types, out: TensorType) -> bool:
    """Is it worth a second thread, where the right matrix is kept?"""
    x, y = inputs[:2]
    work = out.numel * x.shape[-1]
    return y.rank == 2 and work >= LEAST_SHARED and 4 * y.numel <= MOST_KEPT


class Laid:
    """A matrix in panels, for what is multiplied by it."""

    def __init__(self, known: Functions, y: Array) -> None:
        self._run, self._sizes = known.of_laid, y.shape
        terms, columns = y.shape
        self._panels, rows = np.empty(laid_of(terms, columns), np.float32), _in_rows(y)
        at = self._panels.ctypes.data
        known.laid(rows.ctypes.data, terms, columns, rows.strides[0], at)
        spare = at + 4 * (self._panels.size - COLUMNS)
        self._at, self._rest = at, (4 * terms, 4 * columns, spare)

    @property
    def panels(self) -> Array:
        """Them, without the spare room."""
        return self._panels[:-COLUMNS]

    def times(self, x: Array, out: Array, rows: int) -> None:
        """The product of so many rows, all contiguous."""
        ends = x.ctypes.data, self._at, out.ctypes.data
        self._run(*ends, rows, *self._sizes, *self._rest)


def times(y: Array) -> Callable[[Array, Array], object]:
    """(x, out) → the product of x with a matrix that many are multiplied by, into a
    contiguous array.
    """
    known = functions() if y.dtype == _F32 and y.size >= LEAST else None
    if known is None:
        return lambda x, out: np.matmul(x, y, out=out)
    laid = Laid(known, y)
    return lambda x, out: laid.times(np.ascontiguousarray(x), out, len(x))


PANELS: Final[LaidOut[Laid]] = LaidOut()
"""The process's."""


class Kept(NamedTuple):
    """A matrix in panels in the memory of Workers; None where that has no room."""

    place: Place | None


KEPT: Final[LaidOut[Kept]] = LaidOut()
"""The process's."""
MOST_KEPT: Final = 1 << 28
"""Bytes of such a matrix."""


class Product:
    """`matmul` of one node.

    is_weight  the right matrix is the same from run to run, until a param is set
    """

    is_weight = False
    _laid: Laid | None = None
    _shared: SharedProduct | None = None

    def __init__(self, inputs: Types, out: TensorType, attrs: Attrs) -> None:
        known = functions()
        assert known is not None  # the gate asked
        self._known, self._shape = known, out.shape
        self._steady, self._steady_for_all = Steady(), Steady()
        self._seen: Callable[[], Any] = lambda: None
        self._place: Place | None = None
        self._rows = out.numel // max(1, out.shape[-1])
        self._may_keep = inputs[1].rank == 2 and self._rows <= FEW_ROWS
        self._workers = workers() if may_share(inputs, out) else None
        if self._workers is not None:
            self._shared = SharedProduct(self._rows, *inputs[1].shape)

    def __call__(self, attrs: Attrs, x: Array, y: Array) -> Array:
        """The product."""
        made = self.by_all(x, y)
        if made is not None:
            return made
        laid = self._kept(y) if self._may_keep and self.is_weight else None
        if laid is None:
            return matmul(x, y)
        out = np.empty(self._shape, np.float32)
        laid.times(np.ascontiguousarray(x), out, self._rows)
        return out

    @property
    def is_shared(self) -> bool:
        """Are there Workers by now, for a weight?"""
        there = self._workers
        return self.is_weight and there is not None and there.are_there

    def by_all(self, x: Array, y: Array, done: Done | None = None) -> Array | None:
        """The product, or what is done with it, by Workers as well as this thread; None
        where there are none, or none yet, or the matrix is not kept.
        """
        shared, there = self._shared, self._workers
        if shared is None or there is None or not self.is_shared:
            return None
        if self._seen() is not y:
            root = self._steady_for_all.root(y)
            kept = None if root is None else self._kept_for_all(there, root, y)
            if kept is None or kept.place is None:
                return None
            self._seen, self._place = ref(y), kept.place
        assert self._place is not None  # of what was seen
        out = pool.empty(self._shape, np.float32)
        given = np.ascontiguousarray(x), self._place, out, done
        return out if shared.run(there, *given) else None

    def _kept_for_all(self, there: Workers, root: Any, y: Array) -> Kept | None:
        """Panels in the memory of Workers: no others are needed then."""
        key = y.ctypes.data, y.shape, y.strides

        def make() -> Kept:
            laid = PANELS.gone(root, key) or Laid(self._known, y)
            self._laid = None
            return Kept(there.kept(laid.panels))

        return KEPT.of(root, key, make)

    def _kept(self, y: Array) -> Laid | None:
        """The panels of weights that were there before."""
        root = self._steady.root(y)
        if root is None:
            self._laid = None
        elif self._laid is None:
            key = y.ctypes.data, y.shape, y.strides
            self._laid = PANELS.of(root, key, partial(Laid, self._known, y))
        return self._laid


class Dense(Product):
    """`fused_matmul_bias_act` of one node."""

    def __call__(self, attrs: Attrs, x: Array, y: Array, bias: Any = None) -> Array:
        """The product, what is added to it, and a function of the sum."""
        made = super().__call__(attrs, x, y)
        made += bias
        kind = attrs["activation"]
        if kind is None:
            return made
        done: Array = registry.get(kind).reference(np, {}, made)
        return done


ROWS: Final[dict[str, type[Product]]] = (
    {"matmul": Product, "fused_matmul_bias_act": Dense} if IN_A_TAB else {}
)
"""Op → its way, where there is one."""
