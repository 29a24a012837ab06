"""einsum against NumPy's, its contraction order, and products of vectors and
tensors.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import AttributeRefused, DTypeError, GraphError, ShapeError
from rlxweb.ir.graph import Graph
from tests.unit.ir.reference_graph_runner import run_graph

RNG = np.random.default_rng(11)
SIZES = {c: 2 + at % 4 for at, c in enumerate("abcdefghijklmnopqrstuvwxyzAC")}

ALL_SUBSCRIPTS = """
ij,jk->ik|bij,bjk->bik|ii->i|ii|iij->j|ij->ji|...ij,...jk->...ik|i,i|i,j->ij|i,j|ij,j
ij,jk,kl,lm->im|abc,cd,bde,ae->|...ii->...i|bhqd,bhkd->bhqk|ab,ab,ab->a|ij,kl->ijkl
ijk->k|a...,b...->ab...|ijj,jk->ik|zyx,xy->z|bi,bj,bk->bijk|ij,ij->|i...->...i|->|,i
ab,bc,cd,de,ef,fg,gh,hi->ai|aab,abc->c|AbC,CbA->A| i j , j k |...,...|i,->i|aaa->a
"""


def random_operands(rng: np.random.Generator, subscripts: str) -> list[Any]:
    arrays = []
    for part in subscripts.replace(" ", "").split("->")[0].split(","):
        head, dots, tail = part.partition("...")
        shape = [*(SIZES[c] for c in head), *((2, 3) if dots else ())]
        arrays.append(rng.normal(size=[*shape, *(SIZES[c] for c in tail)]))
    return arrays


@pytest.mark.parametrize(
    "subscripts", ALL_SUBSCRIPTS.replace("\n", "|").strip("|").split("|")
)
def test_einsum_equals_numpy(subscripts: str, rng: np.random.Generator) -> None:
    arrays = random_operands(rng, subscripts)
    got = run_graph(lambda g, *xs: g.einsum(subscripts, *xs), *arrays)
    want = np.einsum(subscripts, *arrays)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_axes_of_one_broadcast_and_integers_are_exact(
    rng: np.random.Generator,
) -> None:
    x, y = rng.integers(-99, 99, (1, 3)), rng.integers(-99, 99, (4, 3))
    for text in ("ij,ij->ij", "ij,ij->i", "ij,ij->j", "ij,ij", "ij,kj->ik"):
        got = run_graph(lambda g, a, b, t=text: g.einsum(t, a, b), x, y)
        np.testing.assert_array_equal(got, np.einsum(text, x, y))
    empty = run_graph(lambda g, a: g.einsum("ij,kj->ik", a, a), np.zeros((3, 0)))
    np.testing.assert_array_equal(empty, np.zeros((3, 3)))


def test_operands_are_contracted_in_the_cheapest_order() -> None:
    """A vector at the end of a chain is multiplied before the matrices are."""
    g = Graph()
    a, b, c = (g.input(name, (64, 64)) for name in "abc")
    product = g.einsum("ij,jk,kl,l->i", a, b, c, g.input("v", 64))
    shapes = [n.type.numel for n in product.graph.nodes() if n.op == "matmul"]
    assert max(shapes) == 64
    assert len(shapes) == 3


INVALID_SUBSCRIPTS = (
    ("ij,jk", "names 2 operands", AttributeRefused),
    ("ij->ik", "output label 'k'", AttributeRefused),
    ("ij->ii", "output label 'i'", AttributeRefused),
    ("i1->i", "letters and at most one ellipsis", AttributeRefused),
    ("......->", "letters and at most one ellipsis", AttributeRefused),
    ("ijk->i", "names 3 axes", ShapeError),
    ("i->i", "names 1 axes", ShapeError),
    ("ii->i", "label 'i' names axes of 3 and 4 elements", ShapeError),
)


@pytest.mark.parametrize(("text", "message", "kind"), INVALID_SUBSCRIPTS)
def test_invalid_subscripts_are_refused(
    text: str, message: str, kind: type[GraphError]
) -> None:
    with pytest.raises(kind, match=re.escape(message)) as caught:
        run_graph(lambda g, x: g.einsum(text, x), np.zeros((3, 4)))
    assert f"einsum {text!r}" in str(caught.value)


def test_mismatched_sizes_and_types_are_refused() -> None:
    with pytest.raises(ShapeError, match="label 'i' names axes of 3 and 4"):
        run_graph(lambda g, x, y: g.einsum("i,i", x, y), np.ones(3), np.ones(4))
    with pytest.raises(DTypeError, match="f64 and i64"):
        run_graph(
            lambda g, x, y: g.einsum("i,i", x, y), np.ones(3), np.ones(3, np.int64)
        )
    with pytest.raises(AttributeRefused, match="at least one tensor"):
        run_graph(lambda g, x: g.einsum("i", np.ones(3)), np.ones(3))


V, M, T = RNG.normal(size=4), RNG.normal(size=(3, 4)), RNG.normal(size=(2, 4, 5))


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        *(("matmul", a, b) for a, b in ((V, V), (M, V), (V, T), (T.swapaxes(1, 2), V))),
        *(("dot", a, b) for a, b in ((V, V), (M, V), (V, T), (M, T), (V, V[0]))),
        *((n, M, M) for n in ("inner", "outer", "vdot")),
    ],
)
def test_products_equal_numpy(name: str, x: Any, y: Any) -> None:
    got = run_graph(lambda g, a, b: getattr(g, name)(a, b), x, y)
    want = getattr(np, name)(x, y)
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_tensordot_pairs_axes(rng: np.random.Generator) -> None:
    for axes in (0, ([1], [1]), ((0, -1), (0, 1))):
        x = M if axes != ((0, -1), (0, 1)) else rng.normal(size=(2, 3, 4))
        got = run_graph(lambda g, a, b, on=axes: g.tensordot(a, b, on), x, T)
        np.testing.assert_allclose(got, np.tensordot(x, T, axes), atol=1e-12)
    with pytest.raises(ShapeError, match="axis 0 of"):
        run_graph(lambda g, a, b: g.tensordot(a, b, ([0], [0])), M, T)
    with pytest.raises(ShapeError, match="axes is 3, but the operands have ranks"):
        run_graph(lambda g, a, b: g.tensordot(a, b, 3), M, T)


def test_diagonals_and_traces_equal_numpy() -> None:
    x = np.arange(2 * 4 * 5.0).reshape(2, 4, 5)
    for offset in range(-5, 7):
        got = run_graph(
            lambda g, t, k=offset: [g.diagonal(t, k, 1, 2), g.trace(t, k, 0, 2)], x
        )
        np.testing.assert_array_equal(got[0], np.diagonal(x, offset, 1, 2))
        np.testing.assert_array_equal(got[1], np.trace(x, offset, 0, 2))
