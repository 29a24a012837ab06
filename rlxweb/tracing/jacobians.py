"""Jacobians and products with second derivatives: jacfwd, jacrev, hvp.

All are composed of `jvp`, `grad` and `vmap`: a Jacobian is the tangents along every
element of an argument, or the gradients of every element of a result, all together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlxweb.errors import UsageError
from rlxweb.given import named
from rlxweb.ir.graph import Graph
from rlxweb.tracing.derivatives import (
    Arguments,
    Derivative,
    Names,
    _lifted,
    _Reverse,
    grad,
    jvp,
)
from rlxweb.tracing.mapped import vmap
from rlxweb.tracing.of_graphs import hessian_product_graph
from rlxweb.tracing.place import refused
from rlxweb.tracing.trees import Same, Tree, flattened


def jacfwd(
    fn: Callable[..., Any], argnums: Arguments = 0, has_aux: bool = False
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
    return Derivative(_Jacobian(fn, argnums, has_aux, "jacfwd"))


def jacrev(
    fn: Callable[..., Any], argnums: Arguments = 0, has_aux: bool = False
) -> Any:
    """Return the function that computes a function's Jacobian, in reverse mode.

    One gradient is computed for every element of the result, all together: the mode for
    functions with fewer results than arguments. Parameters, results and errors are
    those of `jacfwd`; a complex result is refused.
    """
    return Derivative(_Jacobian(fn, argnums, has_aux, "jacrev"))


def hvp(
    fn: Callable[..., Any] | Graph,
    primals: Sequence[Any] = (),
    tangents: Sequence[Any] = (),
    *,
    wrt: Names = None,
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
        given = f"{named(primals)} and {named(tangents)} were given"
        raise UsageError("hvp", given, "tuples of arguments and tangents are wanted")
    if not primals:
        raise UsageError("hvp", "no argument was given", "one or several are wanted")
    by = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return jvp(grad(fn, by), primals, tangents)[1]


class _Jacobian(_Reverse):
    """A Jacobian within a tracing: called with traced arguments."""

    def __init__(
        self, fn: Callable[..., Any], argnums: Arguments, has_aux: bool, what: str
    ) -> None:
        super().__init__(fn, argnums, has_aux, with_value=False, what=what)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        by = self.by(len(args))
        tree, moving = self._moving([args[n] for n in by])

        def full(*leaves: Any) -> Any:
            given = list(args)
            for n, one in zip(by, tree.built(iter(leaves)), strict=True):
                given[n] = one
            result, aux = self._parted(self._fn(*given, **kwargs))
            return _lifted(result), aux

        def results(*leaves: Any) -> tuple[Any, ...]:
            return tuple(moving[0].trace.lifted(y) for y in _leaves(full(*leaves)[0]))

        result, aux = full(*moving)
        outs = [moving[0].trace.lifted(y) for y in _leaves(result)]
        self._check_floats(_tree(result), outs)
        blocks = self._blocks(results, moving, outs)
        per_out = iter([self._like_arguments(tree, row) for row in blocks])
        made = _tree(result).built(per_out)
        return (made, aux) if self._has_aux else made

    def _check_floats(self, tree: Tree, outs: Sequence[Any]) -> None:
        """Errors  TraceError for a result that has no derivative, by its type."""
        kinds = "f" if self._what == "jacrev" else "fc"
        wrong = [str(y.dtype) for y in outs if y.dtype.kind not in kinds]
        wrong += [type(one).__name__ for one in _statics(tree) if isinstance(one, int)]
        if wrong:
            rule = "a Jacobian is that of real floats"
            rule += "" if self._what == "jacrev" else " or complex numbers"
            raise refused(self._doing, f"the function returned {wrong[0]}", rule)

    def _blocks(
        self,
        results: Callable[..., tuple[Any, ...]],
        moving: Sequence[Any],
        outs: Sequence[Any],
    ) -> list[list[Any]]:
        """For every array of the result, the Jacobian by every array given."""
        if self._what == "jacrev":
            return [
                _by_gradients(results, moving, at, out) for at, out in enumerate(outs)
            ]
        columns = [_by_tangents(results, moving, at, outs) for at in range(len(moving))]
        return [list(row) for row in zip(*columns, strict=True)]

    def _like_arguments(self, tree: Tree, row: Sequence[Any]) -> Any:
        made = tree.built(iter(row))
        return made if isinstance(self._argnums, tuple | list) else made[0]


def _by_tangents(
    results: Callable[..., tuple[Any, ...]],
    moving: Sequence[Any],
    at: int,
    outs: Sequence[Any],
) -> list[Any]:
    """The Jacobian of every result by one array: its columns are tangents."""
    x = moving[at]
    if not x.size:
        return [np.zeros((*y.shape, *x.shape), y.dtype) for y in outs]

    def alone(one: Any) -> tuple[Any, ...]:
        return results(*moving[:at], one, *moving[at + 1 :])

    def column(along: Any) -> Any:
        return jvp(alone, (x,), (along,))[1]

    columns = vmap(column, out_axes=-1)(_basis(x))
    return [np.reshape(c, (*c.shape[:-1], *x.shape)) for c in columns]


def _by_gradients(
    results: Callable[..., tuple[Any, ...]], moving: Sequence[Any], at: int, out: Any
) -> list[Any]:
    """The Jacobian of one result by every array: its rows are gradients."""
    if not out.size:
        return [np.zeros((*out.shape, *x.shape), x.dtype) for x in moving]
    every = tuple(range(len(moving)))

    def row(weights: Any) -> Any:
        def weighted(*leaves: Any) -> Any:
            return np.sum(results(*leaves)[at] * weights)

        return grad(weighted, every)(*moving)

    rows = vmap(row)(_basis(out))
    return [
        np.reshape(r, (*out.shape, *x.shape)) for r, x in zip(rows, moving, strict=True)
    ]


def _basis(x: Any) -> Any:
    """Every unit vector of an array's shape, along a new first axis."""
    dtype = np.dtype(x.dtype)
    real = dtype if dtype.kind == "f" else np.dtype(np.float64)
    return np.eye(x.size, dtype=real).reshape(x.size, *x.shape)


def _leaves(value: Any) -> list[Any]:
    found: list[tuple[str, Any]] = []
    flattened(value, "result", found, lambda one, path: Same(one))
    return [one for _, one in found]


def _tree(value: Any) -> Tree:
    found: list[tuple[str, Any]] = []
    return flattened(value, "result", found, lambda one, path: Same(one))


def _statics(tree: Tree) -> Iterator[Any]:
    if tree.kind == "static":
        yield tree.value
    for part in tree.parts:
        yield from _statics(part)
