"""NumPy products of traced arrays: matmul, dot, einsum, norms, convolutions.

All of them are the graph's matmul of arrays whose axes are put in order, its
transforms, or sums of products. Complex products are four real ones.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlxweb.ir.shape_arithmetic import normalize_axis, numel
from rlxweb.trace.complex_ufuncs import make_complex, real_and_imag, square_of_abs
from rlxweb.trace.creation_and_diagonals import diagonal
from rlxweb.trace.numpy_dispatch import existing_functions, implements
from rlxweb.trace.reductions import norm_from_squares, reduction_axes, sum_array
from rlxweb.trace.reshaping_and_joining import moveaxis, to_common_dtype
from rlxweb.trace.trace import Trace
from rlxweb.trace.trace_errors import trace_error
from rlxweb.trace.traced_array import TracedArray


def multiply_matrices(t: Trace, x: TracedArray, y: TracedArray) -> Any:
    """Multiply matrices of one dtype: [..., n, k] by [..., k, m]."""
    if x.im is not None:
        (a, b), (c, d) = real_and_imag(x), real_and_imag(y)
        re: Any = multiply_matrices(t, a, c) - multiply_matrices(t, b, d)
        im: Any = multiply_matrices(t, a, d) + multiply_matrices(t, b, c)
        return make_complex(re, im)
    result_dtype = x.dtype
    if result_dtype == np.bool_:
        result = t.graph.matmul(
            *(t.real_tensor(operand, np.dtype(np.int32)) for operand in (x, y))
        )
        return TracedArray(t, t.graph.ne(result, 0), None, result_dtype)
    return TracedArray(
        t,
        t.graph.matmul(t.real_tensor(x, result_dtype), t.real_tensor(y, result_dtype)),
        None,
        result_dtype,
    )


@implements(np.matmul)
def matmul(t: Trace, x1: Any, x2: Any, /) -> Any:
    """Implement `numpy.matmul` for traced arrays."""
    x, y = to_common_dtype(t, (x1, x2))
    if not x.ndim or not y.ndim:
        problem = "one of the operands is a scalar"
        raise trace_error("np.matmul", problem, hint="use x * y")
    left = x.reshape((1, -1)) if x.ndim == 1 else x
    right = y.reshape((-1, 1)) if y.ndim == 1 else y
    result = multiply_matrices(t, left, right)
    if y.ndim == 1:
        result = result[..., 0]
    if x.ndim == 1:
        result = result[..., 0] if y.ndim == 1 else result[..., 0, :]
    result.is_view = False
    return result


@implements(np.dot)
def dot(t: Trace, a: Any, b: Any, out: Any = None) -> Any:
    """Implement `numpy.dot` for traced arrays."""
    x, y = to_common_dtype(t, (a, b))
    if not x.ndim or not y.ndim:
        return x * y
    if y.ndim <= 2 and x.ndim <= 2:
        return matmul(t, x, y)
    return tensordot(t, x, y, ((-1,), (-2 if y.ndim > 1 else -1,)))


@implements(np.inner)
def _inner(t: Trace, a: Any, b: Any, /) -> Any:
    x, y = to_common_dtype(t, (a, b))
    return tensordot(t, x, y, ((-1,), (-1,))) if x.ndim and y.ndim else x * y


@implements(np.outer)
def _outer(t: Trace, a: Any, b: Any, out: Any = None) -> Any:
    x, y = (t.as_traced(v).reshape(-1) for v in (a, b))
    return x.reshape((-1, 1)) * y


@implements(np.vdot)
def _vdot(t: Trace, a: Any, b: Any, /) -> Any:
    x, y = (t.as_traced(v).reshape(-1) for v in (a, b))
    return matmul(t, np.conjugate(x), y)


def _vecdot(t: Trace, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    x, y = to_common_dtype(t, (x1, x2))
    return _sum_same_dtype(t, np.conjugate(x) * y, axis)


implements(*existing_functions("vecdot"))(_vecdot)
implements(np.linalg.vecdot)(_vecdot)
implements(np.linalg.matmul)(matmul)


def _sum_same_dtype(t: Trace, x: Any, axis: Any) -> Any:
    """Sum and keep the dtype, where np.sum would widen integers."""
    return sum_array(t, x, axis, x.dtype)


@implements(np.tensordot)
def tensordot(t: Trace, a: Any, b: Any, axes: Any = 2) -> Any:
    """Implement `numpy.tensordot` for traced arrays."""
    x, y = to_common_dtype(t, (a, b))
    if isinstance(axes, int | np.integer):
        first: Sequence[int] = range(x.ndim - axes, x.ndim)
        second: Sequence[int] = range(axes)
    else:
        x_axes, y_axes = axes
        first = x_axes if isinstance(x_axes, Sequence) else (x_axes,)
        second = y_axes if isinstance(y_axes, Sequence) else (y_axes,)
    contracted_x = [normalize_axis(n, x.ndim) for n in first]
    contracted_y = [normalize_axis(n, y.ndim) for n in second]
    letters = iter(string.ascii_letters)
    x_labels = [next(letters) for _ in range(x.ndim)]
    y_labels = [next(letters) for _ in range(y.ndim)]
    for n, m in zip(contracted_x, contracted_y, strict=True):
        y_labels[m] = x_labels[n]
    out_labels = [c for c in x_labels if c not in y_labels] + [
        c for c in y_labels if c not in x_labels
    ]
    return _contract_pair(
        t, x, "".join(x_labels), y, "".join(y_labels), "".join(out_labels)
    )


def _contract_pair(
    t: Trace,
    x: TracedArray,
    x_labels: str,
    y: TracedArray,
    y_labels: str,
    out_labels: str,
) -> Any:
    """Contract two arrays with labelled axes over the labels that are not in
    `out_labels`.
    """
    x, x_labels = _reduce_labels(t, x, x_labels, y_labels + out_labels)
    y, y_labels = _reduce_labels(t, y, y_labels, x_labels + out_labels)
    shared_labels = [c for c in x_labels if c in y_labels]
    batch = [c for c in shared_labels if c in out_labels]
    contracted = [c for c in shared_labels if c not in out_labels]
    rows, columns = (
        [c for c in labels if c not in shared_labels] for labels in (x_labels, y_labels)
    )
    label_sizes = dict(zip(x_labels, x.shape, strict=True))
    for letter, count in zip(y_labels, y.shape, strict=True):
        if label_sizes.setdefault(letter, count) not in (count, 1) and count != 1:
            raise trace_error(
                "np.einsum",
                f"label '{letter}' names axes of {label_sizes[letter]} and {count} "
                f"elements",
            )
        label_sizes[letter] = max(label_sizes[letter], count)

    def arrange_axes(
        array: TracedArray, labels: str, order: list[str], shape: list[int]
    ) -> Any:
        transposed = array.transpose([labels.index(c) for c in order])
        broadcast: Any = np.broadcast_to(transposed, [label_sizes[c] for c in order])
        return broadcast.reshape(shape)

    batch_shape = [label_sizes[c] for c in batch]
    n, m, k = (
        numel([label_sizes[c] for c in labels])
        for labels in (rows, columns, contracted)
    )
    left = arrange_axes(x, x_labels, batch + rows + contracted, [*batch_shape, n, k])
    right = arrange_axes(
        y, y_labels, batch + contracted + columns, [*batch_shape, k, m]
    )
    product = multiply_matrices(t, left, right) if contracted else left * right
    product_labels = batch + rows + columns
    shaped = product.reshape([label_sizes[c] for c in product_labels])
    result = shaped.transpose([product_labels.index(c) for c in out_labels])
    result.is_view = False
    return result


def _reduce_labels(
    t: Trace, x: Any, labels: str, kept_labels: str
) -> tuple[TracedArray, str]:
    """Take the diagonal of repeated labels, and sum over the labels that are not
    kept.
    """
    for letter in dict.fromkeys(labels):
        while labels.count(letter) > 1:
            first = labels.index(letter)
            second = labels.index(letter, first + 1)
            x = diagonal(t, x, 0, first, second)
            labels = (
                labels[:first]
                + labels[first + 1 : second]
                + labels[second + 1 :]
                + letter
            )
    summed_axes = [n for n, letter in enumerate(labels) if letter not in kept_labels]
    if summed_axes:
        x = _sum_same_dtype(t, x, tuple(summed_axes))
        labels = "".join(c for c in labels if c in kept_labels)
    return x, labels


@implements(np.einsum)
def einsum(
    t: Trace,
    *operands: Any,
    out: Any = None,
    dtype: Any = None,
    order: str = "K",
    casting: Any = None,
    optimize: Any = False,
) -> Any:
    """Implement `numpy.einsum` for traced arrays."""
    if not operands or not isinstance(operands[0], str):
        raise trace_error(
            "np.einsum",
            "the subscripts are not a string",
            hint="pass the subscripts as a string",
        )
    subscripts, *arrays = operands
    tensors = to_common_dtype(t, arrays, dtype)
    terms, out_labels = _expand_subscripts(subscripts, [x.ndim for x in tensors])
    x, labels = tensors[0], terms[0]
    for n, (y, y_labels) in enumerate(zip(tensors[1:], terms[1:], strict=True), 2):
        later_labels = "".join(terms[n:]) + out_labels
        kept_labels = "".join(
            dict.fromkeys(c for c in labels + y_labels if c in later_labels)
        )
        x, labels = _contract_pair(t, x, labels, y, y_labels, kept_labels), kept_labels
    x, labels = _reduce_labels(t, x, labels, out_labels)
    return x.transpose([labels.index(c) for c in out_labels])


def _expand_subscripts(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the labels of each operand and of the result, with `...` expanded."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise trace_error(
            "np.einsum",
            f"'{subscripts}' names {len(terms)} operands",
            f"got {len(ranks)} operands",
        )
    unused_labels = [c for c in string.ascii_letters if c not in subscripts]
    ellipsis_ranks = [
        rank - len(term.replace("...", "")) if "..." in term else 0
        for term, rank in zip(terms, ranks, strict=True)
    ]
    max_ellipsis_rank = max(ellipsis_ranks)
    ellipsis_labels = "".join(unused_labels[:max_ellipsis_rank])
    if not arrow:
        explicit_labels = left.replace("...", "").replace(",", "")
        right = ("..." if max_ellipsis_rank else "") + "".join(
            sorted(c for c in set(explicit_labels) if explicit_labels.count(c) == 1)
        )
    terms = [
        term.replace(
            "...",
            ellipsis_labels[max_ellipsis_rank - ellipsis_rank :]
            if ellipsis_rank
            else "",
        )
        for term, ellipsis_rank in zip(terms, ellipsis_ranks, strict=True)
    ]
    for term, rank in zip(terms, ranks, strict=True):
        if len(term) != rank:
            problem = (
                f"'{subscripts}' names {len(term)} axes of an operand of rank {rank}"
            )
            raise trace_error("np.einsum", problem)
    return terms, right.replace("...", ellipsis_labels)


@implements(np.kron)
def _kron(t: Trace, a: Any, b: Any) -> Any:
    x, y = to_common_dtype(t, (a, b))
    rank = max(x.ndim, y.ndim)
    x = x.reshape((*(1,) * (rank - x.ndim), *x.shape))
    y = y.reshape((*(1,) * (rank - y.ndim), *y.shape))
    # The axes of both beside each other would be more than an array may have.
    sizes = list(zip(x.shape, y.shape, strict=True))
    for axis, (n, m) in enumerate(sizes):
        x = _repeat_into_axis(x, axis, (n, 1), (n, m))
        y = _repeat_into_axis(y, axis, (1, m), (n, m))
    return x * y


def _repeat_into_axis(x: Any, axis: int, unit_pair: Any, pair: Any) -> Any:
    """Split an axis of x into a pair, broadcast the pair to `pair` sizes, and merge
    it.
    """
    leading_shape, trailing_shape = x.shape[:axis], x.shape[axis + 1 :]
    split_axis = x.reshape((numel(leading_shape), *unit_pair, numel(trailing_shape)))
    broadcast: Any = np.broadcast_to(
        split_axis, (numel(leading_shape), *pair, numel(trailing_shape))
    )
    return broadcast.reshape((*leading_shape, pair[0] * pair[1], *trailing_shape))


@implements(np.cross)
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
    x, y = to_common_dtype(t, (a, b))
    x, y = moveaxis(t, x, axisa, -1), moveaxis(t, y, axisb, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        problem = f"the vectors have {x.shape[-1]} and {y.shape[-1]} elements"
        raise trace_error("np.cross", problem, "expected 3 elements each")
    result = np.stack(
        [
            x[..., m] * y[..., n] - x[..., n] * y[..., m]
            for m, n in ((1, 2), (2, 0), (0, 1))
        ],
        axis=-1,
    )
    return moveaxis(t, result, -1, axisc)


@implements(np.linalg.norm)
def _norm(
    t: Trace, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False
) -> Any:
    array: Any = t.as_traced(x)
    if array.dtype.kind in "biu":
        array = t.cast(array, np.float64)
    axes = reduction_axes(axis, array.ndim)
    is_elementwise = axis is None or len(axes) < 3
    if is_elementwise and (ord is None or (len(axes), ord) in ((1, 2), (2, "fro"))):
        return norm_from_squares(
            t, np.sum(square_of_abs(array), axes, keepdims=keepdims)
        )
    magnitudes = np.abs(array)
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        inner, outer = axes if abs(ord) == 1 else axes[::-1]
        result = (np.max if ord > 0 else np.min)(
            np.sum(magnitudes, inner, keepdims=True), outer, keepdims=True
        )
        return result if keepdims else np.squeeze(result, axes)
    if len(axes) != 1 or isinstance(ord, str):
        problem = (
            f"ord={ord!r} over {len(axes)} axes is not supported in a traced function"
        )
        raise trace_error("np.linalg.norm", problem)
    result = t.graph.norm(
        (magnitudes if array.im is not None else array).re, ord, axes, keepdims
    )
    return TracedArray(t, result, None, magnitudes.dtype)


# --- convolution ----------------------------------------------------------------------


def _correlate_vectors(t: Trace, a: Any, v: Any, mode: str, name: str) -> Any:
    """Correlate two vectors: sums of products of v with a at every offset."""
    x, y = to_common_dtype(t, (a, v))
    if x.ndim != 1 or y.ndim != 1 or not x.size or not y.size:
        raise trace_error(
            name,
            f"got shapes {x.shape} and {y.shape}",
            "expected two non-empty vectors",
        )
    n, m = x.shape[0], y.shape[0]
    widths = {"full": (m - 1, m - 1), "same": (m // 2, (m - 1) // 2), "valid": (0, 0)}
    if mode not in widths:
        raise trace_error(name, f"mode={mode!r}", "expected 'full', 'same' or 'valid'")
    if mode != "full" and m > n:
        problem = f"the vectors have {n} and {m} elements"
        rule = f"mode={mode!r} requires the longer vector first"
        raise trace_error(name, problem, rule, "swap the two arguments")
    padded: Any = np.pad(x, widths[mode])
    windows = np.lib.stride_tricks.sliding_window_view(padded, m)
    return matmul(t, windows, np.conjugate(y))


@implements(np.correlate, accepted="mode")
def _correlate(t: Trace, a: Any, v: Any, mode: str = "valid") -> Any:
    return _correlate_vectors(t, a, v, mode, "np.correlate")


@implements(np.convolve, accepted="mode")
def _convolve(t: Trace, a: Any, v: Any, mode: str = "full") -> Any:
    x, y = t.as_traced(a), t.as_traced(v)
    if y.size > x.size:
        x, y = y, x
    return _correlate_vectors(t, x, np.conjugate(np.flip(y)), mode, "np.convolve")
