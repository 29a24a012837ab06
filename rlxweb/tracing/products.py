"""NumPy's products over traced arrays: matmul, dot, einsum, norms, convolutions, FFTs.

All of them are the graph's matmul of arrays whose axes are put in order, its
transforms, or sums of products. Complex products are four real ones.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlxweb.ir.shape import normal_axis, numel
from rlxweb.tracing.complex_ufuncs import joined, parts, square_of_abs
from rlxweb.tracing.creation import diagonal
from rlxweb.tracing.moves import alike, moveaxis
from rlxweb.tracing.place import refused
from rlxweb.tracing.reductions import axes_of, root_of, total
from rlxweb.tracing.table import numpys, there
from rlxweb.tracing.trace import Trace
from rlxweb.tracing.traced import Traced


def product(t: Trace, x: Traced, y: Traced) -> Any:
    """[..., n, k] by [..., k, m] of one dtype."""
    if x.im is not None:
        (a, b), (c, d) = parts(x), parts(y)
        re: Any = product(t, a, c) - product(t, b, d)
        im: Any = product(t, a, d) + product(t, b, c)
        return joined(re, im)
    kind = x.dtype
    if kind == np.bool_:
        made = t.graph.matmul(*(t.real(one, np.dtype(np.int32)) for one in (x, y)))
        return Traced(t, t.graph.ne(made, 0), None, kind)
    return Traced(t, t.graph.matmul(t.real(x, kind), t.real(y, kind)), None, kind)


@numpys(np.matmul)
def matmul(t: Trace, x1: Any, x2: Any, /) -> Any:
    """`numpy.matmul`."""
    x, y = alike(t, (x1, x2))
    if not x.ndim or not y.ndim:
        problem = "one of the operands is a number"
        raise refused("np.matmul", problem, hint="use x * y")
    left = x.reshape((1, -1)) if x.ndim == 1 else x
    right = y.reshape((-1, 1)) if y.ndim == 1 else y
    made = product(t, left, right)
    if y.ndim == 1:
        made = made[..., 0]
    if x.ndim == 1:
        made = made[..., 0] if y.ndim == 1 else made[..., 0, :]
    made.viewed = False
    return made


@numpys(np.dot)
def dot(t: Trace, a: Any, b: Any, out: Any = None) -> Any:
    """`numpy.dot`."""
    x, y = alike(t, (a, b))
    if not x.ndim or not y.ndim:
        return x * y
    if y.ndim <= 2 and x.ndim <= 2:
        return matmul(t, x, y)
    return tensordot(t, x, y, ((-1,), (-2 if y.ndim > 1 else -1,)))


@numpys(np.inner)
def _inner(t: Trace, a: Any, b: Any, /) -> Any:
    x, y = alike(t, (a, b))
    return tensordot(t, x, y, ((-1,), (-1,))) if x.ndim and y.ndim else x * y


@numpys(np.outer)
def _outer(t: Trace, a: Any, b: Any, out: Any = None) -> Any:
    x, y = (t.lifted(v).reshape(-1) for v in (a, b))
    return x.reshape((-1, 1)) * y


@numpys(np.vdot)
def _vdot(t: Trace, a: Any, b: Any, /) -> Any:
    x, y = (t.lifted(v).reshape(-1) for v in (a, b))
    return matmul(t, np.conjugate(x), y)


def _vecdot(t: Trace, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    x, y = alike(t, (x1, x2))
    return _summed(t, np.conjugate(x) * y, axis)


numpys(*there("vecdot"))(_vecdot)
numpys(np.linalg.vecdot)(_vecdot)
numpys(np.linalg.matmul)(matmul)


def _summed(t: Trace, x: Any, axis: Any) -> Any:
    """A sum that keeps the dtype, where np.sum would widen integers."""
    return total(t, x, axis, x.dtype)


@numpys(np.tensordot)
def tensordot(t: Trace, a: Any, b: Any, axes: Any = 2) -> Any:
    """`numpy.tensordot`."""
    x, y = alike(t, (a, b))
    if isinstance(axes, int | np.integer):
        first: Sequence[int] = range(x.ndim - axes, x.ndim)
        second: Sequence[int] = range(axes)
    else:
        one, other = axes
        first = one if isinstance(one, Sequence) else (one,)
        second = other if isinstance(other, Sequence) else (other,)
    gone_x = [normal_axis(n, x.ndim) for n in first]
    gone_y = [normal_axis(n, y.ndim) for n in second]
    letters = iter(string.ascii_letters)
    of_x = [next(letters) for _ in range(x.ndim)]
    of_y = [next(letters) for _ in range(y.ndim)]
    for n, m in zip(gone_x, gone_y, strict=True):
        of_y[m] = of_x[n]
    free = [c for c in of_x if c not in of_y] + [c for c in of_y if c not in of_x]
    return _contracted(t, x, "".join(of_x), y, "".join(of_y), "".join(free))


def _contracted(t: Trace, x: Traced, of_x: str, y: Traced, of_y: str, out: str) -> Any:
    """Two arrays whose axes have letters, over the letters that `out` has not."""
    x, of_x = _without(t, x, of_x, of_y + out)
    y, of_y = _without(t, y, of_y, of_x + out)
    both = [c for c in of_x if c in of_y]
    batch, over = [c for c in both if c in out], [c for c in both if c not in out]
    rows, columns = ([c for c in of if c not in both] for of in (of_x, of_y))
    size = dict(zip(of_x, x.shape, strict=True))
    for letter, count in zip(of_y, y.shape, strict=True):
        if size.setdefault(letter, count) not in (count, 1) and count != 1:
            problem = f"axis '{letter}' has {size[letter]} and {count} elements"
            raise refused("np.einsum", problem)
        size[letter] = max(size[letter], count)

    def arranged(of: Traced, letters: str, order: list[str], shape: list[int]) -> Any:
        turned = of.transpose([letters.index(c) for c in order])
        whole: Any = np.broadcast_to(turned, [size[c] for c in order])
        return whole.reshape(shape)

    lead = [size[c] for c in batch]
    n, m, k = (numel([size[c] for c in of]) for of in (rows, columns, over))
    left = arranged(x, of_x, batch + rows + over, [*lead, n, k])
    right = arranged(y, of_y, batch + over + columns, [*lead, k, m])
    made = product(t, left, right) if over else left * right
    have = batch + rows + columns
    shaped = made.reshape([size[c] for c in have])
    result = shaped.transpose([have.index(c) for c in out])
    result.viewed = False
    return result


def _without(t: Trace, x: Any, of: str, wanted: str) -> tuple[Traced, str]:
    """Letters that stand twice taken along the diagonal; those not wanted summed."""
    for letter in dict.fromkeys(of):
        while of.count(letter) > 1:
            first = of.index(letter)
            second = of.index(letter, first + 1)
            x = diagonal(t, x, 0, first, second)
            of = of[:first] + of[first + 1 : second] + of[second + 1 :] + letter
    gone = [n for n, letter in enumerate(of) if letter not in wanted]
    if gone:
        x = _summed(t, x, tuple(gone))
        of = "".join(c for c in of if c in wanted)
    return x, of


@numpys(np.einsum)
def einsum(
    t: Trace,
    *operands: Any,
    out: Any = None,
    dtype: Any = None,
    order: str = "K",
    casting: Any = None,
    optimize: Any = False,
) -> Any:
    """`numpy.einsum`."""
    if not operands or not isinstance(operands[0], str):
        raise refused("np.einsum", "its subscripts are given as lists", hint="as text")
    text, *given = operands
    every = alike(t, given, dtype)
    terms, result = _spelled(text, [x.ndim for x in every])
    x, of = every[0], terms[0]
    for n, (y, letters) in enumerate(zip(every[1:], terms[1:], strict=True), 2):
        later = "".join(terms[n:]) + result
        kept = "".join(dict.fromkeys(c for c in of + letters if c in later))
        x, of = _contracted(t, x, of, y, letters, kept), kept
    x, of = _without(t, x, of, result)
    return x.transpose([of.index(c) for c in result])


def _spelled(text: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, those of `...` spelled out."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        problem = f"{len(terms)} terms in '{text}' for {len(ranks)} operands"
        raise refused("np.einsum", problem)
    free = [c for c in string.ascii_letters if c not in text]
    rests = [
        rank - len(term.replace("...", "")) if "..." in term else 0
        for term, rank in zip(terms, ranks, strict=True)
    ]
    most = max(rests)
    dots = "".join(free[:most])
    if not arrow:
        plain = left.replace("...", "").replace(",", "")
        right = ("..." if most else "") + "".join(
            sorted(c for c in set(plain) if plain.count(c) == 1)
        )
    terms = [
        term.replace("...", dots[most - rest :] if rest else "")
        for term, rest in zip(terms, rests, strict=True)
    ]
    for term, rank in zip(terms, ranks, strict=True):
        if len(term) != rank:
            problem = f"'{text}': {len(term)} letters for an operand of rank {rank}"
            raise refused("np.einsum", problem)
    return terms, right.replace("...", dots)


@numpys(np.kron)
def _kron(t: Trace, a: Any, b: Any) -> Any:
    x, y = alike(t, (a, b))
    rank = max(x.ndim, y.ndim)
    x = x.reshape((*(1,) * (rank - x.ndim), *x.shape))
    y = y.reshape((*(1,) * (rank - y.ndim), *y.shape))
    # The axes of both beside each other would be more than an array may have.
    sizes = list(zip(x.shape, y.shape, strict=True))
    for axis, (n, m) in enumerate(sizes):
        x = _copied_along(x, axis, (n, 1), (n, m))
        y = _copied_along(y, axis, (1, m), (n, m))
    return x * y


def _copied_along(x: Any, axis: int, own: Any, pair: Any) -> Any:
    """Return x with an axis taken for two, broadcast to a pair of sizes, and joined."""
    lead, rest = x.shape[:axis], x.shape[axis + 1 :]
    apart = x.reshape((numel(lead), *own, numel(rest)))
    whole: Any = np.broadcast_to(apart, (numel(lead), *pair, numel(rest)))
    return whole.reshape((*lead, pair[0] * pair[1], *rest))


@numpys(np.cross)
def _cross(
    t: Trace,
    a: Any,
    b: Any,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: Any = None,
) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = alike(t, (a, b))
    x, y = moveaxis(t, x, axisa, -1), moveaxis(t, y, axisb, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        problem = f"{x.shape[-1]} and {y.shape[-1]} elements"
        raise refused("np.cross", problem, "vectors have 3")
    made = np.stack(
        [
            x[..., m] * y[..., n] - x[..., n] * y[..., m]
            for m, n in ((1, 2), (2, 0), (0, 1))
        ],
        axis=-1,
    )
    return moveaxis(t, made, -1, axisc)


@numpys(np.linalg.norm)
def _norm(
    t: Trace, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False
) -> Any:
    of: Any = t.lifted(x)
    if of.dtype.kind in "biu":
        of = t.cast(of, np.float64)
    axes = axes_of(axis, of.ndim)
    plain = axis is None or len(axes) < 3
    if plain and (ord is None or (len(axes), ord) in ((1, 2), (2, "fro"))):
        return root_of(t, np.sum(square_of_abs(of), axes, keepdims=keepdims))
    size = np.abs(of)
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        inner, outer = axes if abs(ord) == 1 else axes[::-1]
        made = (np.max if ord > 0 else np.min)(
            np.sum(size, inner, keepdims=True), outer, keepdims=True
        )
        return made if keepdims else np.squeeze(made, axes)
    if len(axes) != 1 or isinstance(ord, str):
        problem = f"ord={ord!r} over {len(axes)} axes has no graph form"
        raise refused("np.linalg.norm", problem)
    made = t.graph.norm((size if of.im is not None else of).re, ord, axes, keepdims)
    return Traced(t, made, None, size.dtype)


# --- convolution ----------------------------------------------------------------------


def _slid(t: Trace, a: Any, v: Any, mode: str, name: str) -> Any:
    """Sums of products of v with a at every place: a correlation, v as it is."""
    x, y = alike(t, (a, v))
    if x.ndim != 1 or y.ndim != 1 or not x.size or not y.size:
        raise refused(name, f"shapes {x.shape} and {y.shape}", "two vectors are wanted")
    n, m = x.shape[0], y.shape[0]
    widths = {"full": (m - 1, m - 1), "same": (m // 2, (m - 1) // 2), "valid": (0, 0)}
    if mode not in widths:
        raise refused(name, f"mode={mode!r}", "modes: full, same, valid")
    if mode != "full" and m > n:
        problem = f"mode={mode!r} of {n} values with {m}"
        raise refused(name, problem, hint="give the longer one first")
    wide: Any = np.pad(x, widths[mode])
    windows = np.lib.stride_tricks.sliding_window_view(wide, m)
    return matmul(t, windows, np.conjugate(y))


@numpys(np.correlate, means="mode")
def _correlate(t: Trace, a: Any, v: Any, mode: str = "valid") -> Any:
    return _slid(t, a, v, mode, "np.correlate")


@numpys(np.convolve, means="mode")
def _convolve(t: Trace, a: Any, v: Any, mode: str = "full") -> Any:
    x, y = t.lifted(a), t.lifted(v)
    if y.size > x.size:
        x, y = y, x
    return _slid(t, x, np.conjugate(np.flip(y)), mode, "np.convolve")
