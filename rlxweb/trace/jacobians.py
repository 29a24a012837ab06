"""Jacobians and Hessian-vector products: jacfwd, jacrev, hvp.

All are composed of `jvp`, `grad` and `vmap`: a Jacobian is the tangents along every
element of an argument, or the gradients of every element of a result, all together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlxweb.core.array_coercion import describe_type
from rlxweb.core.errors import UsageError
from rlxweb.ir.graph import Graph
from rlxweb.trace.derivatives import (
    ArgumentPositions,
    DerivativeFunction,
    NamesLike,
    _floats_to_arrays,
    _ReverseDerivative,
    grad,
    jvp,
)
from rlxweb.trace.graph_grad_and_vmap import hessian_product_graph
from rlxweb.trace.pytrees import IdentityKey, PyTree, flatten_tree
from rlxweb.trace.trace_errors import trace_error
from rlxweb.trace.vmap import vmap


def jacfwd(
    fn: Callable[..., Any], argnums: ArgumentPositions = 0, has_aux: bool = False
) -> Any:
    """Return the function that computes a function's Jacobian, in forward mode.

    One tangent is computed for every element of the arguments, all together: the mode
    for functions with more results than arguments.

    Parameters
    ----------
    fn
        A function on arrays.
    argnums
        By which arguments, as `rlxweb.grad` has it.
    has_aux
        The function returns (result, anything); the Jacobian then comes as
        (Jacobian, anything).

    Returns
    -------
    Function
        Called as `fn` is. For every array of the result it gives an array of shape
        result.shape + argument.shape; results and arguments that are built of several
        arrays give such arrays built like the result, and in each place like the
        arguments.

    Raises
    ------
    UsageError
        For what is no function, or arguments that are no real floats.
    GradientRefused
        For an op without a derivative.

    Examples
    --------
    >>> rlx.jacfwd(lambda x: np.tanh(w @ x))(x)  # [len(w), len(x)]
    """
    return DerivativeFunction(_Jacobian(fn, argnums, has_aux, "jacfwd"))


def jacrev(
    fn: Callable[..., Any], argnums: ArgumentPositions = 0, has_aux: bool = False
) -> Any:
    """Return the function that computes a function's Jacobian, in reverse mode.

    One gradient is computed for every element of the result, all together: the mode for
    functions with fewer results than arguments. Parameters, results and errors are
    those of `jacfwd`; a complex result is refused.
    """
    return DerivativeFunction(_Jacobian(fn, argnums, has_aux, "jacrev"))


def hvp(
    fn: Callable[..., Any] | Graph,
    primals: Sequence[Any] = (),
    tangents: Sequence[Any] = (),
    *,
    wrt: NamesLike = None,
) -> Any:
    """Return the product of a function's second derivatives with a direction.

    The Hessian itself is never computed: it is the tangent of the gradient.

    Parameters
    ----------
    fn
        A function whose result is one float, or a graph with one such output.
    primals
        The arguments, at which the derivatives are taken.
    tangents
        The direction: built as the arguments are, of the same shapes.
    wrt
        Of a graph: by which inputs and params, as `rlxweb.grad` has it.

    Returns
    -------
    array or tuple
        The product, built like the argument, or of several arguments a tuple. Of a
        graph: a graph whose outputs are the value, the gradients, and the tangents of
        both; it has an input d_NAME for the direction along each of `wrt`.

    Raises
    ------
    UsageError
        As `rlxweb.jvp` and `rlxweb.grad` raise it.

    Examples
    --------
    >>> rlx.hvp(lambda x: np.sum(x**3), (x,), (v,))  # 6 x v
    """
    if isinstance(fn, Graph):
        return hessian_product_graph(fn, wrt, f"hvp of graph '{fn.name}'")
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        problem = f"got {describe_type(primals)} and {describe_type(tangents)}"
        rule = "expected a tuple of arguments and a tuple of tangents"
        raise UsageError("hvp", problem, rule)
    if not primals:
        raise UsageError("hvp", "got no arguments", "expected at least one")
    argnums = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return jvp(grad(fn, argnums), primals, tangents)[1]


class _Jacobian(_ReverseDerivative):
    """Jacobian as it runs within a trace: called with traced arguments."""

    def __init__(
        self,
        fn: Callable[..., Any],
        argnums: ArgumentPositions,
        has_aux: bool,
        operation: str,
    ) -> None:
        super().__init__(fn, argnums, has_aux, with_value=False, operation=operation)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        positions = self.argument_positions(len(args))
        tree, variables = self._make_variables([args[n] for n in positions])

        def flat_function(*leaves: Any) -> Any:
            call_args = list(args)
            for n, argument in zip(
                positions, tree.unflatten(iter(leaves)), strict=True
            ):
                call_args[n] = argument
            result, aux = self._split_aux(self._fn(*call_args, **kwargs))
            return _floats_to_arrays(result), aux

        def flat_results(*leaves: Any) -> tuple[Any, ...]:
            return tuple(
                variables[0].trace.as_traced(y)
                for y in _array_leaves(flat_function(*leaves)[0])
            )

        result, aux = flat_function(*variables)
        outputs = [variables[0].trace.as_traced(y) for y in _array_leaves(result)]
        self._check_floats(_tree_structure(result), outputs)
        blocks = self._jacobian_blocks(flat_results, variables, outputs)
        per_output = iter([self._build_like_arguments(tree, row) for row in blocks])
        jacobian = _tree_structure(result).unflatten(per_output)
        return (jacobian, aux) if self._has_aux else jacobian

    def _check_floats(self, tree: PyTree, outputs: Sequence[Any]) -> None:
        """Check that all results have derivatives. Errors  TraceError for one that by
        its type has none.
        """
        allowed_kinds = "f" if self._operation == "jacrev" else "fc"
        wrong = [str(y.dtype) for y in outputs if y.dtype.kind not in allowed_kinds]
        wrong += [
            type(static_value).__name__
            for static_value in _static_values(tree)
            if isinstance(static_value, int)
        ]
        if wrong:
            real_or_complex = (
                "real" if self._operation == "jacrev" else "real or complex"
            )
            rule = f"a Jacobian requires a {real_or_complex} floating-point dtype"
            raise trace_error(self._context, f"the function returned {wrong[0]}", rule)

    def _jacobian_blocks(
        self,
        flat_results: Callable[..., tuple[Any, ...]],
        variables: Sequence[Any],
        outputs: Sequence[Any],
    ) -> list[list[Any]]:
        """Return, for every array of the result, its Jacobian by every argument
        array.
        """
        if self._operation == "jacrev":
            return [
                _jacobian_rows(flat_results, variables, position, out)
                for position, out in enumerate(outputs)
            ]
        columns = [
            _jacobian_columns(flat_results, variables, position, outputs)
            for position in range(len(variables))
        ]
        return [list(row) for row in zip(*columns, strict=True)]

    def _build_like_arguments(self, tree: PyTree, row: Sequence[Any]) -> Any:
        blocks = tree.unflatten(iter(row))
        return blocks if isinstance(self._argnums, tuple | list) else blocks[0]


def _jacobian_columns(
    flat_results: Callable[..., tuple[Any, ...]],
    variables: Sequence[Any],
    position: int,
    outputs: Sequence[Any],
) -> list[Any]:
    """Return the Jacobian of every result by one array; its columns are tangents."""
    x = variables[position]
    if not x.size:
        return [np.zeros((*y.shape, *x.shape), y.dtype) for y in outputs]

    def function_of_one(variable: Any) -> tuple[Any, ...]:
        return flat_results(*variables[:position], variable, *variables[position + 1 :])

    def column(direction: Any) -> Any:
        return jvp(function_of_one, (x,), (direction,))[1]

    columns = vmap(column, out_axes=-1)(_unit_vectors(x))
    return [np.reshape(c, (*c.shape[:-1], *x.shape)) for c in columns]


def _jacobian_rows(
    flat_results: Callable[..., tuple[Any, ...]],
    variables: Sequence[Any],
    position: int,
    output: Any,
) -> list[Any]:
    """Return the Jacobian of one result by every array; its rows are gradients."""
    if not output.size:
        return [np.zeros((*output.shape, *x.shape), x.dtype) for x in variables]
    argnums = tuple(range(len(variables)))

    def row(weights: Any) -> Any:
        def weighted_sum(*leaves: Any) -> Any:
            return np.sum(flat_results(*leaves)[position] * weights)

        return grad(weighted_sum, argnums)(*variables)

    rows = vmap(row)(_unit_vectors(output))
    return [
        np.reshape(r, (*output.shape, *x.shape))
        for r, x in zip(rows, variables, strict=True)
    ]


def _unit_vectors(x: Any) -> Any:
    """Return all unit vectors of an array's shape, along a new first axis."""
    dtype = np.dtype(x.dtype)
    real_dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
    return np.eye(x.size, dtype=real_dtype).reshape(x.size, *x.shape)


def _array_leaves(value: Any) -> list[Any]:
    leaves: list[tuple[str, Any]] = []
    flatten_tree(value, "result", leaves, lambda leaf, path: IdentityKey(leaf))
    return [leaf for _, leaf in leaves]


def _tree_structure(value: Any) -> PyTree:
    leaves: list[tuple[str, Any]] = []
    return flatten_tree(value, "result", leaves, lambda leaf, path: IdentityKey(leaf))


def _static_values(tree: PyTree) -> Iterator[Any]:
    if tree.kind == "static":
        yield tree.value
    for child in tree.children:
        yield from _static_values(child)
