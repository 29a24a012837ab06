"""Data movement methods equal the NumPy and ONNX functions of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import (
    AttributeRefused,
    DTypeError,
    GraphError,
    IndexRefused,
    RlxError,
    ShapeError,
)
from rlxweb.engines.evaluate import evaluate
from rlxweb.ir.graph import Graph

X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
GATHER_INDICES = np.array([[[0, -1, 3], [2, 2, -4], [1, 0, 0]]] * 2, np.int64)


def check_result(make: Callable[[Any, Any], Any], want: Any) -> None:
    g = Graph()
    g.set_outputs([make(g, g.input("x", X.shape))])
    (got,) = evaluate(g, {"x": X})
    np.testing.assert_array_equal(got, want, strict=True)


DATA_MOVEMENTS: list[tuple[Callable[[Any, Any], Any], Any]] = [
    (lambda g, x: g.slice(x, 2, None, 2, -1), X[:, :, 2::-1]),
    (lambda g, x: g.slice(x, (1, 0), (9, 1)), X[1:9, 0:1]),
    (lambda g, x: g.flip(x), X[::-1, ::-1, ::-1]),
    (lambda g, x: x.flip(-1), X[..., ::-1]),
    (lambda g, x: g.windows(x, 2), np.lib.stride_tricks.sliding_window_view(X, 2, -1)),
    (
        lambda g, x: g.windows(x, (2, 2), (1, 2), (1, 2)),
        np.stack(
            [np.stack([X[:, i : i + 2, j : j + 2] for j in (0, 2)], 1) for i in (0, 1)],
            1,
        ),
    ),
    (lambda g, x: g.broadcast_to(x, (5, 2, 3, 4)), np.broadcast_to(X, (5, 2, 3, 4))),
    (lambda g, x: g.expand(x, (1, -1, 1)), X),
    (lambda g, x: g.squeeze(g.unsqueeze(x, (0, -1))), X),
    (lambda g, x: g.unsqueeze(x, (0, 2)), X[None, :, None]),
    (lambda g, x: g.flatten(x, 1), X.reshape(2, 12)),
    (lambda g, x: g.moveaxis(x, 0, -1), np.moveaxis(X, 0, -1)),
    (lambda g, x: g.swapaxes(x, 0, 2), np.swapaxes(X, 0, 2)),
    (lambda g, x: g.concat(g.split(x, (1, 3), 2)[::-1], 2), np.roll(X, -1, 2)),
    (lambda g, x: g.split(x, 3, 1)[2], X[:, 2:]),
    (lambda g, x: g.stack([x, x], 1), np.stack([X, X], 1)),
    (lambda g, x: g.take(x, [[0, -1]], 1), np.take(X, [[0, -1]], 1)),
    (lambda g, x: g.take(x, -1), X[1, 2, 3]),
    (
        lambda g, x: g.pad(x, ((0, 1), (2, 0), (1, 1)), value=7),
        np.pad(X, ((0, 1), (2, 0), (1, 1)), constant_values=7),
    ),
    *(
        ((lambda g, x, m=mode: g.pad(x, 5, m)), np.pad(X, 5, mode))
        for mode in ("reflect", "symmetric", "edge", "wrap")
    ),
    (
        lambda g, x: g.pad(x, ((0, 0), (-1, 0), (1, -2))),
        np.pad(X[:, 1:, :2], ((0, 0), (0, 0), (1, 0))),
    ),
    *(
        (
            lambda g, x, w=width: g.pad(x, w, value=7),
            np.pad(X, width, constant_values=7),
        )
        for width in (np.array([[1, 2], [0, 1], [3, 0]]), np.array([1, 2]), ((1, 2),))
    ),
    (lambda g, x: g.pad(x, ((9, -7), (-5, 9), (0, 0))), np.zeros((4, 7, 4), X.dtype)),
    (lambda g, x: g.split(x, np.int64(3), 1)[2], X[:, 2:]),
    (lambda g, x: g.tile(x, (1, 17, 0)), np.tile(X, (1, 17, 0))),
    (lambda g, x: g.tile(x, (17, 1, 1)), np.tile(X, (17, 1, 1))),
    (lambda g, x: g.center_crop_pad(x, (1, 4), (1, 2)), X[:, 1:2]),
    (lambda g, x: g.tile(x, (2, 1, 1, 2)), np.tile(X, (2, 1, 1, 2))),
    (lambda g, x: g.repeat(x, (1, 0, 2), 1), np.repeat(X, (1, 0, 2), 1)),
    (lambda g, x: g.repeat(x, 2), np.repeat(X, 2)),
    (lambda g, x: g.roll(x, (1, -5), (0, 2)), np.roll(X, (1, -5), (0, 2))),
    (lambda g, x: g.roll(x, 5), np.roll(X, 5)),
    (lambda g, x: g.roll(x, (1, 2), 1), np.roll(X, (1, 2), 1)),
    (lambda g, x: g.roll(x, (3,), ()), X),
    (
        lambda g, x: g.gather_elements(x, g.constant(GATHER_INDICES), 2),
        np.take_along_axis(X, GATHER_INDICES, 2),
    ),
    (
        lambda g, x: g.gather_elements(x, g.constant(GATHER_INDICES[:1, :2]), 2),
        np.take_along_axis(X[:1, :2], GATHER_INDICES[:1, :2], 2),
    ),
    (
        lambda g, x: g.take_along_axis(x, g.constant(GATHER_INDICES[:1]), 2),
        np.take_along_axis(X, GATHER_INDICES[:1], 2),
    ),
    (lambda g, x: g.gather_nd(x, g.constant([[1, -1], [0, 0]])), X[[1, 0], [-1, 0]]),
]


@pytest.mark.parametrize(
    ("make", "want"), DATA_MOVEMENTS, ids=range(len(DATA_MOVEMENTS))
)
def test_data_movement_equals_numpy(make: Callable[[Any, Any], Any], want: Any) -> None:
    check_result(make, want)


def test_reverse_cumulative_sums() -> None:
    """Cumulative sums run from the end as in ONNX's CumSum with reverse, also
    exclusive.
    """
    want = np.cumsum(X[..., ::-1], -1)[..., ::-1]
    check_result(lambda g, x: g.cumsum(x, reverse=True), want)
    check_result(lambda g, x: g.cumsum(x, exclusive=True, reverse=True), want - X)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "int64"])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_gives_indices_and_values(dtype: str, largest: bool) -> None:
    """Equal values are ordered by index, smaller first, at both ends of a type's
    range.
    """
    lowest, highest = (0, 1) if dtype == "float32" else _integer_limits(dtype)
    x = np.array([[3, lowest, 7], [highest, 3, 7], [3, highest, lowest]]).astype(dtype)
    order = np.argsort(x if not largest else -x.astype(object), 0, kind="stable")[:2]
    g = Graph()
    t = g.input("x", x.shape, dtype)
    g.set_outputs([g.topk(t, 2, 0, largest), g.topk_values(t, 2, 0, largest)])
    indices, values = evaluate(g, {"x": x})
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 0), strict=True)


def _integer_limits(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters_equal_numpy(reduction: str) -> None:
    """Values of repeated indices are applied one after the other."""
    indices = np.array([1, 0, 1, -1, 1], np.int64)
    values = np.arange(1, 6, dtype=np.float32)
    want = np.ones(4, np.float32)
    if reduction == "none":
        want[indices] = values
    else:
        name = {"mul": "multiply", "max": "maximum", "min": "minimum"}.get(
            reduction, reduction
        )
        getattr(np, name).at(want, indices, values)
    g = Graph()
    x, v = g.input("x", (4,)), g.constant(values)
    by_elements = g.scatter_elements(x, g.constant(indices), v, reduction=reduction)
    by_nd = g.scatter_nd(x, g.constant(indices[:, None]), v, reduction)
    g.set_outputs([by_elements, by_nd])
    for got in evaluate(g, {"x": np.ones(4, np.float32)}):
        np.testing.assert_array_equal(got, want)


def test_a_partial_scatter_leaves_the_rest() -> None:
    """Indices may be shorter along the other axes."""
    g = Graph()
    indices, values = g.constant([[2], [0]]), g.constant([[9.0], [8.0]])
    g.set_outputs([g.scatter_elements(g.input("x", (3, 4)), indices, values, 1)])
    want = X[0].copy()
    want[[0, 1], [2, 0]] = 9, 8
    np.testing.assert_array_equal(evaluate(g, {"x": X[0]})[0], want)


def test_depth_to_space_and_back() -> None:
    x = np.arange(2 * 8 * 2 * 3, dtype=np.float32).reshape(2, 8, 2, 3)
    g = Graph()
    t = g.input("x", x.shape)
    back = g.space_to_depth(g.depth_to_space(t, 2), 2)
    crd = g.depth_to_space(t, 2, "CRD")
    g.set_outputs([back, crd])
    got, crd_result = evaluate(g, {"x": x})
    np.testing.assert_array_equal(got, x)
    want = x.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6)
    np.testing.assert_array_equal(crd_result, want)


def test_a_scalar_has_no_axis_to_pad() -> None:
    g = Graph()
    x = g.input("x", ())
    assert g.pad(x, []).shape == g.pad(x, ()).shape == ()


def test_invalid_data_movements_are_refused() -> None:
    g = Graph()
    x = g.input("x", X.shape)
    integer_tensor = g.input("i", (3,), "i32")
    refused: list[tuple[Callable[[], Any], type[RlxError], str]] = [
        (lambda: g.squeeze(x, 1), ShapeError, "has 3 elements"),
        (lambda: g.split(x, 2, 1), ShapeError, "cannot be split into 2"),
        (lambda: g.split(x, (1, 1), 1), ShapeError, "add up to 3, got a sum of 2"),
        (lambda: g.broadcast_to(x, (2, 3, 1)), ShapeError, "cannot broadcast"),
        (lambda: g.expand(x, (-1, 2, 3, 4)), ShapeError, "-1 keeps an existing dim"),
        (lambda: g.slice(x, 0, 1, (0, 1)), ShapeError, "1 stops, 1 steps and 2 axes"),
        (lambda: g.windows(x, 5), ShapeError, "spans 5 elements"),
        (lambda: g.pad(x, (-2, -2)), ShapeError, "must be at least 0"),
        (
            lambda: g.pad(integer_tensor, 1, value=0.5),
            DTypeError,
            "must be an integer from",
        ),
        (lambda: g.pad(x, 1, value=1e300), DTypeError, "at most 3.40282e"),
        (lambda: g.repeat(x, (1, -2), 0), AttributeRefused, "-2 repeats"),
        (lambda: g.windows(x, "ab"), AttributeRefused, "windows .* sizes='ab'"),
        (lambda: g.split(x, None), AttributeRefused, "parts=None"),
        (lambda: g.broadcast_to(x, "ab"), ShapeError, "broadcast_to of .* a dimension"),
        (lambda: g.flatten(x, "a"), AttributeRefused, "start_axis='a'"),
        (lambda: g.roll(x, (1, 2), (0, 1, 2)), ShapeError, "2 shifts for 3 axes"),
        (lambda: g.flip([1, 2]), GraphError, "got a list; expected a tensor"),
        (lambda: g.gather_elements(x, [[0]]), GraphError, "got a list"),
        (lambda: g.topk([1, 2], 1), GraphError, "got a list"),
        (lambda: g.cumsum([1, 2], reverse=True), GraphError, "got a list"),
        (lambda: g.space_to_depth(x, "a"), AttributeRefused, "blocksize='a'"),
        (lambda: g.take(x, [9], 0), IndexRefused, r"index 9 at position \[0\]"),
        (lambda: g.gather_elements(x, integer_tensor), ShapeError, "same rank"),
    ]
    for make, error, message in refused:
        with pytest.raises(error, match=message):
            make()


@pytest.mark.parametrize("count", [1 << 31, 1 << 40])
def test_an_axis_too_long_is_refused_immediately(count: int) -> None:
    """The length is refused before anything of that length is allocated."""
    g = Graph()
    x = g.input("x", X.shape)
    for make in (
        lambda: g.pad(x, count),
        lambda: g.pad(x, count, "wrap"),
        lambda: g.tile(x, count),
        lambda: g.repeat(x, count, 0),
        lambda: g.dilate(x, count),
    ):
        with pytest.raises(ShapeError, match="at most 2,147,483,647"):
            make()


def test_an_index_out_of_range_is_refused_with_its_position() -> None:
    g = Graph()
    indices = g.input("at", (2, 2), "i32")
    g.set_outputs([g.gather_nd(g.input("x", X.shape), indices)])
    feeds = {"x": X, "at": np.array([[0, 0], [1, 3]], np.int32)}
    with pytest.raises(
        IndexRefused, match=r"index 3 at position \[1, 1\]; expected -3 <= ind"
    ):
        evaluate(g, feeds)
