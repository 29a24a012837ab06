"""Derivatives of functions on arrays: grad, value_and_grad, jvp.

A derivative is a function again, traced and compiled as `rlxweb.function` does; within
a function that is traced it becomes part of its graph. So derivatives of derivatives,
and derivatives within a training step, are one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from inspect import signature
from typing import Any, cast

import numpy as np

from rlxweb.core.argument_validation import bind_call
from rlxweb.core.array_coercion import describe_type
from rlxweb.core.errors import RlxError, UsageError, shown
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.trace.callable_signatures import callable_name, callable_signature
from rlxweb.trace.function import FlattenedArguments, InlineFunction
from rlxweb.trace.graph_grad_and_vmap import gradient_graph, tangent_graph
from rlxweb.trace.pytrees import IdentityKey, PyTree, flatten_tree
from rlxweb.trace.trace import Trace, current_trace
from rlxweb.trace.trace_errors import add_user_location, trace_error
from rlxweb.trace.traced_array import TracedArray

ArgumentPositions = int | Sequence[int]
NamesLike = str | Sequence[str] | None


def grad(
    fn: Callable[..., Any] | Graph,
    argnums: ArgumentPositions = 0,
    has_aux: bool = False,
    *,
    wrt: NamesLike = None,
) -> Any:
    """Return the gradient of a function on arrays, or of a graph, whose result is one
    float.

    >>> rlx.grad(lambda w, x: np.sum(np.tanh(x @ w)))(w, x)   # of w's shape

    argnums   by which arguments: one, or several, then the gradients are a tuple.
              An argument may be a tuple, list, dict or dataclass of arrays; its
              gradient is built alike
    has_aux   the function returns (result, what else there is); so does this
    wrt       of a graph: by which inputs and params, by name; None: by its params, or
              its float inputs where it has none. The result is a graph then, its
              outputs the gradients in that order

    It is called as the function is, computes where `rlxweb.function(…, device=…)` says,
    and may be used within other traced functions. A Python float is taken as float64.
    Errors    UsageError for what is no function of floats; GradientRefused for an op
    without a derivative, with its place; those of `rlxweb.function`.
    """
    if isinstance(fn, Graph):
        return gradient_graph(fn, wrt, False, f"grad of graph '{fn.name}'")
    return DerivativeFunction(
        _ReverseDerivative(fn, argnums, has_aux, with_value=False)
    )


def value_and_grad(
    fn: Callable[..., Any] | Graph,
    argnums: ArgumentPositions = 0,
    has_aux: bool = False,
    *,
    wrt: NamesLike = None,
) -> Any:
    """Return the function that gives a function's result and its gradients: (result,
    gradients). See `grad`.

    Of a graph, the output comes before the gradients.
    """
    if isinstance(fn, Graph):
        return gradient_graph(fn, wrt, True, f"value_and_grad of graph '{fn.name}'")
    return DerivativeFunction(_ReverseDerivative(fn, argnums, has_aux, with_value=True))


def jvp(
    fn: Callable[..., Any] | Graph,
    primals: Sequence[Any] = (),
    tangents: Sequence[Any] = (),
    *,
    wrt: NamesLike = None,
) -> Any:
    """Return a function's result and its tangent: its directional derivative along
    `tangents`.

    primals   the arguments
    tangents  built as they are, of the same shapes
    wrt       of a graph: as `grad` has it. The result is a graph then, of the outputs
              and their tangents; it has an input d_NAME for each of them
    Errors    as `grad`
    """
    if isinstance(fn, Graph):
        return tangent_graph(fn, wrt, f"jvp of graph '{fn.name}'")
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        problem = f"got {describe_type(primals)} and {describe_type(tangents)}"
        rule = "expected a tuple of arguments and a tuple of tangents"
        raise UsageError("jvp", problem, rule)
    if len(primals) != len(tangents):
        raise UsageError(
            "jvp",
            f"got {len(primals)} arguments and {len(tangents)} tangents",
            "expected one tangent per argument",
        )
    return DerivativeFunction(_ForwardDerivative(fn, len(primals)))(*primals, *tangents)


class DerivativeFunction(InlineFunction):
    """Callable derivative of a function, traced and compiled like any other
    function.
    """

    def __init__(self, derivative: _ReverseDerivative | _ForwardDerivative) -> None:
        super().__init__(derivative)
        self._derivative = derivative

    def given(self, args: Any, kwargs: Any) -> FlattenedArguments:
        bound = bind_call(self._signature, self._name, args, kwargs)
        positions = set(self._derivative.argument_positions(len(bound.args)))
        positional = (
            _floats_to_arrays(a) if n in positions else a
            for n, a in enumerate(bound.args)
        )
        return super().given(tuple(positional), bound.kwargs)


def _floats_to_arrays(value: Any) -> Any:
    """Convert the Python floats of a structure to arrays, so that they can be
    differentiated.
    """
    leaves: list[tuple[str, Any]] = []
    tree = flatten_tree(value, "", leaves, lambda leaf, path: IdentityKey(leaf))
    converted_tree = _map_numbers(tree, (float,), np.float64)
    return converted_tree.unflatten(iter([leaf for _, leaf in leaves]))


def _map_numbers(
    tree: PyTree, number_types: tuple[type, ...], convert: Callable[[Any], Any]
) -> PyTree:
    """Return a structure with its Python numbers of some types converted."""
    if tree.kind == "static" and type(tree.value) in number_types:
        return PyTree("static", tree.key, value=convert(tree.value))
    children = tuple(
        _map_numbers(child, number_types, convert) for child in tree.children
    )
    return PyTree(tree.kind, tree.key, children, tree.value)


def _zero_like_number(number: Any) -> Any:
    return type(number)(0)


class _TracedDerivative:
    """Derivative as it runs within a trace: called with traced arguments."""

    def __init__(self, fn: Any, operation: str) -> None:
        self._signature = callable_signature(fn, operation)
        update_wrapper(cast(Any, self), fn, updated=())
        self._fn, self._operation = fn, operation
        self._context = f"{operation} of '{callable_name(fn)}'"

    def _make_variables(
        self, values: Sequence[Any]
    ) -> tuple[PyTree, list[TracedArray]]:
        """Return the structure of the arguments, and an own variable for each array to
        differentiate by.

        Errors   UsageError for what is no float.
        """
        leaves: list[tuple[str, Any]] = []
        tree = flatten_tree(
            tuple(values), "argument", leaves, lambda leaf, path: IdentityKey(leaf)
        )
        trace = current_trace()
        if trace is None or not leaves:
            raise trace_error(
                self._context, "none of the differentiated arguments is an array"
            )
        return tree, [self._make_variable(trace, path, x) for path, x in leaves]

    def _make_variable(self, trace: Trace, path: str, x: Any) -> TracedArray:
        array: TracedArray = trace.as_traced(x)
        if array.dtype.kind != "f":
            hint = "pass a floating-point array, or remove the argument from argnums"
            if array.dtype.kind == "c":
                hint = (
                    "pass x.real and x.imag as separate arguments, and combine them "
                    "inside the function"
                )
            problem = f"{path} is {array.dtype} {format_shape(array.shape)}"
            raise trace_error(
                self._context,
                problem,
                "derivatives require a real floating-point dtype",
                hint,
            )
        return TracedArray(trace, trace.graph.identity(array.re), None, array.dtype)


class _ReverseDerivative(_TracedDerivative):
    """Gradient of one float, in reverse mode."""

    def __init__(
        self,
        fn: Callable[..., Any],
        argnums: ArgumentPositions,
        has_aux: bool,
        with_value: bool,
        operation: str = "",
    ) -> None:
        super().__init__(fn, operation or ("value_and_grad" if with_value else "grad"))
        self._argnums, self._has_aux = argnums, has_aux
        self._with_value = with_value
        positions = argnums if isinstance(argnums, tuple | list) else (argnums,)
        if not positions or not all(type(n) is int for n in positions):
            rule = (
                "argnums must be an integer or a non-empty tuple of integers (argument "
                "positions)"
            )
            raise UsageError(self._context, f"argnums is {shown(argnums)}", rule)
        self._positions = tuple(positions)
        self.__signature__ = self._signature

    def argument_positions(self, count: int) -> list[int]:
        """Return the positions of the differentiated arguments among `count`. Errors
        UsageError.
        """
        for n in self._positions:
            if not -count <= n < count:
                problem = f"argnums contains {n}"
                raise UsageError(
                    self._context,
                    problem,
                    f"the number of positional arguments is {count}",
                )
        return [n % count for n in self._positions]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        positions = self.argument_positions(len(args))
        tree, variables = self._make_variables([args[n] for n in positions])
        call_args = list(args)
        for n, argument in zip(positions, tree.unflatten(iter(variables)), strict=True):
            call_args[n] = argument
        result = self._fn(*call_args, **kwargs)
        value, aux = self._split_aux(result)
        grads = self._gradients(variables[0].trace, value, variables)
        gradients = tree.unflatten(iter(grads))
        gradients = (
            gradients if isinstance(self._argnums, tuple | list) else gradients[0]
        )
        if self._with_value:
            return ((value, aux) if self._has_aux else value), gradients
        return (gradients, aux) if self._has_aux else gradients

    def _split_aux(self, result: Any) -> tuple[Any, Any]:
        if not self._has_aux:
            return result, None
        if not isinstance(result, tuple) or len(result) != 2:
            raise trace_error(
                self._context,
                f"the function returned {describe_type(result)}",
                "with has_aux=True the function must return (result, other data)",
            )
        return result

    def _gradients(
        self, trace: Trace, value: Any, variables: Sequence[TracedArray]
    ) -> list[TracedArray]:
        result = trace.as_traced(value)
        if result.ndim or result.dtype.kind != "f":
            raise trace_error(
                self._context,
                f"the function returned {format_shape(result.shape)} {result.dtype}",
                "a gradient requires a scalar result (shape []) of a floating-point "
                "dtype",
                "return the sum or mean of the result, or use rlxweb.jvp",
            )
        try:
            grads = trace.graph.gradients([result.re], [x.re for x in variables])
        except RlxError as error:
            raise add_user_location(error, self._context) from None
        pairs = zip(grads, variables, strict=True)
        return [TracedArray(trace, grad, None, x.dtype) for grad, x in pairs]


class _ForwardDerivative(_TracedDerivative):
    """Result and its tangent, in forward mode; called with the arguments, then their
    tangents.
    """

    def __init__(self, fn: Callable[..., Any], count: int) -> None:
        super().__init__(fn, "jvp")
        self._count = count
        self.__signature__ = signature(lambda *primals_and_tangents: None)

    def argument_positions(self, count: int) -> list[int]:
        return list(range(count))

    def __call__(self, *primals_and_tangents: Any) -> Any:
        args = primals_and_tangents[: self._count]
        directions = primals_and_tangents[self._count :]
        tree, variables = self._make_variables(args)
        trace = variables[0].trace
        tangents = self._coerce_tangents(trace, variables, directions)
        result = self._fn(*tree.unflatten(iter(variables)))
        result_leaves: list[tuple[str, Any]] = []
        result_tree = flatten_tree(
            result,
            "result",
            result_leaves,
            lambda leaf_value, path: IdentityKey(leaf_value),
        )
        outs = [trace.as_traced(leaf) for _, leaf in result_leaves]
        parts = [p for out in outs for p in (out.re, out.im) if p is not None]
        floats = [p for p in parts if p.dtype.is_float]
        try:
            float_tangents = trace.graph.tangents(
                floats, [x.re for x in variables], tangents
            )
        except RlxError as error:
            raise add_user_location(error, self._context) from None
        tangents_by_id = {p.id: t for p, t in zip(floats, float_tangents, strict=True)}
        result_tangents = [_result_tangent(trace, out, tangents_by_id) for out in outs]
        # A Python number in the result is a constant: it does not move.
        tangent_tree = _map_numbers(
            result_tree, (bool, int, float, complex), _zero_like_number
        )
        return result, tangent_tree.unflatten(iter(result_tangents))

    def _coerce_tangents(
        self, trace: Trace, variables: Sequence[TracedArray], directions: Sequence[Any]
    ) -> list[Tensor]:
        leaves: list[tuple[str, Any]] = []
        flatten_tree(
            tuple(directions),
            "tangent",
            leaves,
            lambda leaf_value, path: IdentityKey(leaf_value),
        )
        if len(leaves) != len(variables):
            raise trace_error(
                self._context,
                f"got {len(variables)} arrays and {len(leaves)} tangents",
                "expected one tangent per array",
            )
        tangents = []
        for x, (path, leaf) in zip(variables, leaves, strict=True):
            tangent = trace.as_traced(leaf, x.dtype)
            if tuple(tangent.shape) != tuple(x.shape):
                problem = f"{path} has shape {format_shape(tangent.shape)}"
                raise trace_error(
                    self._context,
                    problem,
                    f"the corresponding array has shape {format_shape(x.shape)}",
                )
            tangents.append(tangent.re)
        return tangents


def _result_tangent(
    trace: Trace, out: TracedArray, tangents_by_id: dict[int, Tensor]
) -> TracedArray:
    """Return the tangent of a result; for a result that is no float, zeros of its
    dtype.
    """
    if not out.re.dtype.is_float:
        g = trace.graph
        zero = g.expand(g.constant(0, out.re.dtype), out.re.shape)
        return TracedArray(trace, zero, None, out.dtype)
    im = None if out.im is None else tangents_by_id[out.im.id]
    return TracedArray(trace, tangents_by_id[out.re.id], im, out.dtype)
