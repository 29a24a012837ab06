"""Corner points of every differentiable op and every traced function of NumPy.

Zeros of both signs, ties, equal operands, constant rows, masked rows, the smallest and
the largest values: gradients, tangents and tangents of gradients in float64, against
those of JAX. A function without a case fails, so does an exception that JAX agrees to.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.errors import RlxError
from rlxweb.gpu.port import Want
from rlxweb.ir.op import Op, registry
from rlxweb.tracing import vocabulary
from rlxweb.tracing.table import COMPLEX
from tests.gradients import graph_corners, numpy_corners
from tests.gradients.corner_exceptions import EXCEPTIONS
from tests.gradients.corners import (
    Case,
    Wanted,
    compare,
    leaves,
    ours_of,
    theirs_of,
    uneven,
)
from tests.tiers import thinned


@pytest.fixture(scope="module")
def jax() -> Any:
    import jax

    with jax.enable_x64(True):
        yield jax


def judge(name: str, case: Case, wanted: Iterable[Wanted]) -> None:
    """Compare all derivatives of a case with JAX's."""
    made = compare(case, ours_of(case), wanted, EXCEPTIONS.get(name, ()))
    assert made.wrong == []
    assert made.compared + made.otherwise > 0


@cache
def of_numpy(jax: Any, name: str) -> tuple[Wanted, ...]:
    """Return JAX's derivatives of a function of NumPy's, for both precisions."""
    return tuple(theirs_of(jax, numpy_corners.CASES[name](jax)))


@pytest.mark.requires_jax
@pytest.mark.parametrize("name", thinned(numpy_corners.CASES, 6))
def test_functions_of_numpy(name: str, jax: Any) -> None:
    judge(name, numpy_corners.CASES[name](jax), of_numpy(jax, name))


@pytest.mark.requires_jax
@pytest.mark.parametrize("name", thinned(graph_corners.ELEMENTS, 2))
def test_functions_of_elements(name: str, jax: Any) -> None:
    case = graph_corners.of_elements(jax, name)
    judge(f"nn.{name}", case, theirs_of(jax, case))


@pytest.mark.requires_jax
@pytest.mark.parametrize("name", thinned(graph_corners.JOINED, 4))
def test_methods(name: str, jax: Any) -> None:
    case = graph_corners.of_joined(jax, name)
    judge(f"nn.{name}", case, theirs_of(jax, case))


SETTLED = (
    graph_corners.LINEAR
    | graph_corners.METHODS
    | graph_corners.MOVES.keys()
    | graph_corners.EXEMPT.keys()
)
JUDGED = [
    op
    for op in registry
    if graph_corners.is_differentiable(op)
    and not op.has("elementwise")
    and op.name not in SETTLED
]


@pytest.mark.requires_jax
@pytest.mark.parametrize("op", thinned(JUDGED, 5), ids=lambda op: op.name)
def test_records(op: Op, jax: Any) -> None:
    (sample,) = graph_corners.samples(op)
    case = graph_corners.of_record(jax, op, sample)
    judge(f"op {op.name}", case, theirs_of(jax, case))


def derivatives(case: Case) -> list[list[Any]]:
    """Return the derivatives at every point, without their names."""
    return [
        [np.asarray(one) for each in found.values() for one in each]
        for found in ours_of(case)
    ]


@pytest.mark.parametrize("name", sorted(graph_corners.LINEAR))
def test_linear_records(name: str) -> None:
    """The derivatives of a linear op are the same at every point."""
    op = registry.get(name)
    (sample,) = graph_corners.samples(op)
    every = derivatives(graph_corners.of_record(None, op, sample))
    for other in every[1:]:
        for one, same in zip(every[0], other, strict=True):
            np.testing.assert_array_equal(one, same)


LINEAR = {
    **numpy_corners.LINEAR,
    **{f"nn.{name}": f for name, f in graph_corners.MOVES.items()},
}


@pytest.mark.parametrize("name", thinned(LINEAR, 2))
def test_linear_functions(name: str) -> None:
    """The tangent is the function of the direction, the gradient its transpose."""
    points = numpy_corners.special(3, 4)
    case = Case(LINEAR[name], LINEAR[name], points)
    v = uneven((3, 4), 5.0)
    want = [np.asarray(one) for one in leaves(rlx.function(LINEAR[name])(v))]
    dot = sum((one * uneven(one.shape, n)).sum() for n, one in enumerate(want))
    for found in ours_of(case):
        for one, right in zip(found["tangent"], want, strict=True):
            np.testing.assert_allclose(one, right, atol=1e-13)
        np.testing.assert_allclose((found["grad 0"][0] * v).sum(), dot, atol=1e-12)
        np.testing.assert_array_equal(found["second 0"][0], 0.0)


@pytest.mark.parametrize("name", numpy_corners.WITHOUT)
def test_functions_without_floats(name: str) -> None:
    """Functions that give no floats leave nothing to differentiate."""
    x = numpy_corners.EVERY
    made = rlx.function(numpy_corners.WITHOUT[name])(x)
    assert list(leaves(made)) == []


@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (0,)], ids=str)
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    """A function that takes empty arrays without a warning has an empty gradient."""
    x, wrong, count = np.zeros(shape), {}, 0
    for name, f in {**EMPTY, **numpy_corners.LINEAR}.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if not list(leaves(f(x))):
                    continue
        except (ValueError, IndexError, RuntimeWarning, np.linalg.LinAlgError):
            continue
        count += 1
        try:
            made = rlx.grad(lambda x, f=f: sum(map(np.sum, leaves(f(x)))))(x)
        except RlxError as error:
            wrong[name] = str(error)
        else:
            if made.shape != shape:
                wrong[name] = f"a gradient of {made.shape}"
    assert wrong == {}
    assert count > 30


def last_axis(name: str) -> Any:
    return lambda x: getattr(np, name)(x, axis=-1)


EMPTY = {
    **{
        f"np.{name}": lambda x, n=name: getattr(np, n)(x)
        for name in numpy_corners.ONE.split()
    },
    **{
        f"np.{name}": lambda x, n=name: getattr(np, n)(x, x + 1.0)
        for name in numpy_corners.TWO.split()
    },
    **{
        f"np.{name}": last_axis(name)
        for name in """sum prod mean var std max min ptp median cumsum cumprod sort
        nansum nanprod nanmean nanvar nanstd nanmax nanmin diff""".split()
    },
    "np.linalg.norm": lambda x: np.linalg.norm(x),
    "np.matmul": lambda x: x @ np.swapaxes(x, 0, -1),
    "np.where": lambda x: np.where(x > 0, x, 1.0),
    "np.clip": lambda x: np.clip(x, 0.0, 1.0),
    "np.quantile": lambda x: np.quantile(x, 0.3, axis=-1),
    "np.interp": lambda x: np.interp(x, np.arange(3.0), np.ones(3)),
}


def test_every_function_has_a_case() -> None:
    """A new function or op does not join without one."""

    def first(names: Any) -> set[str]:
        return {name.split(" of ")[0].split(" ")[0].rstrip(",") for name in names}

    have = first(numpy_corners.CASES) | set(numpy_corners.LINEAR)
    assert have | set(numpy_corners.WITHOUT) == set(vocabulary.names())
    planes = {name for name in numpy_corners.CASES if name.endswith("complex numbers")}
    tests = {"equal", "not_equal", "isnan", "isinf", "isfinite"}
    wanted = {f"np.{ufunc.__name__} of complex numbers" for ufunc in COMPLEX}
    assert wanted - planes == {f"np.{name} of complex numbers" for name in tests}
    elements = set(graph_corners.ELEMENTS) | set(graph_corners.SAME)
    records = {op.name for op in registry if graph_corners.is_differentiable(op)}
    judged = {op.name for op in JUDGED} | SETTLED | elements
    assert records - judged == set()
    methods = judged | graph_corners.WITHOUT | set(graph_corners.NAMES)
    assert set(dir(rlx.nn)) - methods == set()
    assert {f"np.{name}" for name in graph_corners.SAME.values()} - have == set()
    known = set(numpy_corners.CASES) | {f"nn.{n}" for n in elements}
    assert set(EXCEPTIONS) - known == set()


def in_single(case: Case, wanted: Sequence[Wanted]) -> tuple[Case, list[Wanted]]:
    """Return what is moderate of a case, so that float32 has digits for it.

    Other values of elementwise functions become 1 and count as outside.
    """
    beyond = ("small", "large", "half turns")
    points = {k: x for k, x in case.points.items() if k not in beyond}
    kept = [w for k, w in zip(case.points, wanted, strict=True) if k in points]
    if case.each:
        ((derivatives, value),) = kept
        sizes = np.abs(np.array(case.points["values"]))
        moderate = ((sizes == 0) | ((sizes > 1e-3) & (sizes < 10))).all(axis=0)
        kept = [(derivatives, np.where(moderate, value, np.nan))]
        points = {"values": tuple(np.where(moderate, x, 1.0) for x in points["values"])}
    return replace(case, points=points), kept


SINGLES = 2e-4, 2e-5
"""Relative and absolute differences of second derivatives in float32."""
NOT_SINGLE = ("np.linalg.", "np.fft.", "np.unwrap of", "np.corrcoef")
"""Beginnings of names: of what cancels or has the conditions of systems."""
SINGLE = [name for name in numpy_corners.CASES if not name.startswith(NOT_SINGLE)]


@pytest.mark.requires_jax
@pytest.mark.parametrize("adapter", ["lavapipe"], indirect=True)
@pytest.mark.parametrize("name", thinned(SINGLE, 6))
def test_in_single_precision_on_vulkan(name: str, adapter: Want, jax: Any) -> None:
    case, wanted = in_single(numpy_corners.CASES[name](jax), of_numpy(jax, name))
    where = {"device": "vulkan", "adapter": adapter.name, "precision": "f32"}
    made = compare(
        case,
        ours_of(case, **where),
        wanted,
        EXCEPTIONS.get(name, ()),
        *SINGLES,
        every_exception=False,
    )
    assert made.wrong == []
    assert made.compared + made.otherwise > 0
