"""Check every differentiable op and every traced NumPy function at corner points.

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
from rlxweb.core.errors import RlxError
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.op import Op, registry
from rlxweb.trace import supported_functions
from rlxweb.trace.numpy_dispatch import COMPLEX_UFUNCS
from tests.gradients import graph_op_cases, numpy_function_cases
from tests.gradients.derivative_comparison import (
    DerivativeCase,
    ExpectedDerivatives,
    compare_derivatives,
    distinct_values,
    float_leaves,
    jax_derivatives,
    our_derivatives,
)
from tests.gradients.jax_reference_overrides import REFERENCE_OVERRIDES
from tests.suite_tiers import thin_out_cases


@pytest.fixture(scope="module")
def jax() -> Any:
    import jax

    with jax.enable_x64(True):
        yield jax


def check_case(
    name: str, case: DerivativeCase, wanted: Iterable[ExpectedDerivatives]
) -> None:
    """Compare all derivatives of a case with JAX's."""
    comparison = compare_derivatives(
        case, our_derivatives(case), wanted, REFERENCE_OVERRIDES.get(name, ())
    )
    assert comparison.mismatches == []
    assert comparison.compared_count + comparison.overridden_count > 0


@cache
def numpy_case_derivatives(jax: Any, name: str) -> tuple[ExpectedDerivatives, ...]:
    """Return JAX's derivatives of a NumPy function, for both precisions."""
    return tuple(jax_derivatives(jax, numpy_function_cases.CASES[name](jax)))


@pytest.mark.requires_jax
@pytest.mark.parametrize("name", thin_out_cases(numpy_function_cases.CASES, 6))
def test_numpy_functions(name: str, jax: Any) -> None:
    check_case(
        name, numpy_function_cases.CASES[name](jax), numpy_case_derivatives(jax, name)
    )


@pytest.mark.requires_jax
@pytest.mark.parametrize("name", thin_out_cases(graph_op_cases.ELEMENTWISE, 2))
def test_elementwise_methods(name: str, jax: Any) -> None:
    case = graph_op_cases.elementwise_case(jax, name)
    check_case(f"nn.{name}", case, jax_derivatives(jax, case))


@pytest.mark.requires_jax
@pytest.mark.parametrize("name", thin_out_cases(graph_op_cases.COMPOSITES, 4))
def test_composite_methods(name: str, jax: Any) -> None:
    case = graph_op_cases.composite_case(jax, name)
    check_case(f"nn.{name}", case, jax_derivatives(jax, case))


COVERED_OPS = (
    graph_op_cases.LINEAR_OPS
    | graph_op_cases.COMPOSITE_METHODS
    | graph_op_cases.LINEAR_METHODS.keys()
    | graph_op_cases.EXEMPT_OPS.keys()
)
REMAINING_OPS = [
    op
    for op in registry
    if graph_op_cases.is_differentiable(op)
    and op.name not in COVERED_OPS | graph_op_cases.ELEMENTWISE_NAMES
]


@pytest.mark.requires_jax
@pytest.mark.parametrize("op", thin_out_cases(REMAINING_OPS, 5), ids=lambda op: op.name)
def test_ops(op: Op, jax: Any) -> None:
    (sample,) = graph_op_cases.smallest_samples(op)
    case = graph_op_cases.op_case(jax, op, sample)
    check_case(f"op {op.name}", case, jax_derivatives(jax, case))


def derivative_arrays(case: DerivativeCase) -> list[list[Any]]:
    """Return the derivatives at every point, without their names."""
    return [
        [np.asarray(array) for arrays in derivatives.values() for array in arrays]
        for derivatives in our_derivatives(case)
    ]


@pytest.mark.parametrize("name", sorted(graph_op_cases.LINEAR_OPS))
def test_linear_ops(name: str) -> None:
    """The derivatives of a linear op are the same at every point."""
    op = registry.get(name)
    (sample,) = graph_op_cases.smallest_samples(op)
    arrays_by_point = derivative_arrays(graph_op_cases.op_case(None, op, sample))
    for other in arrays_by_point[1:]:
        for first, array in zip(arrays_by_point[0], other, strict=True):
            np.testing.assert_array_equal(first, array)


LINEAR_CASES = {
    **numpy_function_cases.LINEAR_FUNCTIONS,
    **{f"nn.{name}": f for name, f in graph_op_cases.LINEAR_METHODS.items()},
}


@pytest.mark.parametrize("name", thin_out_cases(LINEAR_CASES, 2))
def test_linear_functions(name: str) -> None:
    """The tangent is the function of the direction, the gradient its transpose."""
    points = numpy_function_cases.special_points(3, 4)
    case = DerivativeCase(LINEAR_CASES[name], LINEAR_CASES[name], points)
    v = distinct_values((3, 4), 5.0)
    want = [
        np.asarray(array) for array in float_leaves(rlx.function(LINEAR_CASES[name])(v))
    ]
    dot = sum(
        (array * distinct_values(array.shape, n)).sum() for n, array in enumerate(want)
    )
    for derivatives in our_derivatives(case):
        for array, expected in zip(derivatives["tangent"], want, strict=True):
            np.testing.assert_allclose(array, expected, atol=1e-13)
        np.testing.assert_allclose(
            (derivatives["grad 0"][0] * v).sum(), dot, atol=1e-12
        )
        np.testing.assert_array_equal(derivatives["second 0"][0], 0.0)


@pytest.mark.parametrize("name", numpy_function_cases.NON_FLOAT_FUNCTIONS)
def test_functions_without_floats(name: str) -> None:
    """Functions that give no floats leave nothing to differentiate."""
    x = numpy_function_cases.ALL_VALUES
    result = rlx.function(numpy_function_cases.NON_FLOAT_FUNCTIONS[name])(x)
    assert list(float_leaves(result)) == []


@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (0,)], ids=str)
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    """A function that takes empty arrays without a warning has an empty gradient."""
    x, wrong, count = np.zeros(shape), {}, 0
    for name, f in {
        **EMPTY_ARRAY_FUNCTIONS,
        **numpy_function_cases.LINEAR_FUNCTIONS,
    }.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if not list(float_leaves(f(x))):
                    continue
        except (ValueError, IndexError, RuntimeWarning, np.linalg.LinAlgError):
            continue
        count += 1
        try:
            gradient = rlx.grad(lambda x, f=f: sum(map(np.sum, float_leaves(f(x)))))(x)
        except RlxError as error:
            wrong[name] = str(error)
        else:
            if gradient.shape != shape:
                wrong[name] = f"a gradient of {gradient.shape}"
    assert wrong == {}
    assert count > 30


def reduce_last_axis(name: str) -> Any:
    return lambda x: getattr(np, name)(x, axis=-1)


EMPTY_ARRAY_FUNCTIONS = {
    **{
        f"np.{name}": lambda x, n=name: getattr(np, n)(x)
        for name in numpy_function_cases.UNARY.split()
    },
    **{
        f"np.{name}": lambda x, n=name: getattr(np, n)(x, x + 1.0)
        for name in numpy_function_cases.BINARY.split()
    },
    **{
        f"np.{name}": reduce_last_axis(name)
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
    """A new function or op cannot be added without a case."""

    def base_names(names: Any) -> set[str]:
        return {name.split(" of ")[0].split(" ")[0].rstrip(",") for name in names}

    covered = base_names(numpy_function_cases.CASES) | set(
        numpy_function_cases.LINEAR_FUNCTIONS
    )
    assert covered | set(numpy_function_cases.NON_FLOAT_FUNCTIONS) == set(
        supported_functions.supported_function_names()
    )
    complex_cases = {
        name for name in numpy_function_cases.CASES if name.endswith("complex numbers")
    }
    predicates = {"equal", "not_equal", "isnan", "isinf", "isfinite"}
    wanted = {f"np.{ufunc.__name__} of complex numbers" for ufunc in COMPLEX_UFUNCS}
    assert wanted - complex_cases == {
        f"np.{name} of complex numbers" for name in predicates
    }
    elements = graph_op_cases.ELEMENTWISE_NAMES
    records = {op.name for op in registry if graph_op_cases.is_differentiable(op)}
    tested_ops = {op.name for op in REMAINING_OPS} | COVERED_OPS | elements
    assert records - tested_ops == set()
    methods = (
        tested_ops
        | graph_op_cases.NON_DIFFERENTIABLE_METHODS
        | set(graph_op_cases.METHOD_OPS)
    )
    assert set(dir(rlx.nn)) - methods == set()
    assert {
        f"np.{name}" for name in graph_op_cases.NUMPY_NAMES.values()
    } - covered == set()
    known = set(numpy_function_cases.CASES) | {f"nn.{n}" for n in elements}
    assert set(REFERENCE_OVERRIDES) - known == set()


def moderate_case(
    case: DerivativeCase, wanted: Sequence[ExpectedDerivatives]
) -> tuple[DerivativeCase, list[ExpectedDerivatives]]:
    """Return the moderate points of a case, for which float32 has enough digits.

    Other values of elementwise functions become 1 and count as outside.
    """
    extreme_labels = ("small", "large", "half turns")
    points = {k: x for k, x in case.points.items() if k not in extreme_labels}
    moderate_wanted = [
        w for k, w in zip(case.points, wanted, strict=True) if k in points
    ]
    if case.is_elementwise:
        ((derivatives, value),) = moderate_wanted
        sizes = np.abs(np.array(case.points["values"]))
        moderate = ((sizes == 0) | ((sizes > 1e-3) & (sizes < 10))).all(axis=0)
        moderate_wanted = [(derivatives, np.where(moderate, value, np.nan))]
        points = {"values": tuple(np.where(moderate, x, 1.0) for x in points["values"])}
    return replace(case, points=points), moderate_wanted


F32_TOLERANCES = 2e-4, 2e-5
"""Relative and absolute differences of second derivatives in float32."""
F32_EXCLUDED_PREFIXES = ("np.linalg.", "np.fft.", "np.unwrap of", "np.corrcoef")
"""Name prefixes of functions that cancel or depend on a system's condition."""
F32_NAMES = [
    name
    for name in numpy_function_cases.CASES
    if not name.startswith(F32_EXCLUDED_PREFIXES)
]


@pytest.mark.requires_jax
@pytest.mark.parametrize("adapter", ["lavapipe"], indirect=True)
@pytest.mark.parametrize("name", thin_out_cases(F32_NAMES, 6))
def test_in_single_precision_on_vulkan(
    name: str, adapter: AdapterRequest, jax: Any
) -> None:
    case, wanted = moderate_case(
        numpy_function_cases.CASES[name](jax), numpy_case_derivatives(jax, name)
    )
    placement = {"device": "vulkan", "adapter": adapter.name, "precision": "f32"}
    comparison = compare_derivatives(
        case,
        our_derivatives(case, **placement),
        wanted,
        REFERENCE_OVERRIDES.get(name, ()),
        *F32_TOLERANCES,
        requires_every_exception=False,
    )
    assert comparison.mismatches == []
    assert comparison.compared_count + comparison.overridden_count > 0
