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

from rlxweb.errors import RlxError, UsageError, shown
from rlxweb.given import named
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import show
from rlxweb.ir.tensor import Tensor
from rlxweb.tracing.callables import name_of_callable, signature_of
from rlxweb.tracing.function import Given, Within
from rlxweb.tracing.of_graphs import gradient_graph, tangent_graph
from rlxweb.tracing.place import placed, refused
from rlxweb.tracing.trace import Trace, running
from rlxweb.tracing.traced import Traced
from rlxweb.tracing.trees import Same, Tree, flattened

Arguments = int | Sequence[int]
Names = str | Sequence[str] | None


def grad(
    fn: Callable[..., Any] | Graph,
    argnums: Arguments = 0,
    has_aux: bool = False,
    *,
    wrt: Names = None,
) -> Any:
    """The gradient of a function on arrays, or of a graph, whose result is one float.

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
    return Derivative(_Reverse(fn, argnums, has_aux, with_value=False))


def value_and_grad(
    fn: Callable[..., Any] | Graph,
    argnums: Arguments = 0,
    has_aux: bool = False,
    *,
    wrt: Names = None,
) -> Any:
    """As `grad`, with the function's result: (result, gradients).

    Of a graph, the output comes before the gradients.
    """
    if isinstance(fn, Graph):
        return gradient_graph(fn, wrt, True, f"value_and_grad of graph '{fn.name}'")
    return Derivative(_Reverse(fn, argnums, has_aux, with_value=True))


def jvp(
    fn: Callable[..., Any] | Graph,
    primals: Sequence[Any] = (),
    tangents: Sequence[Any] = (),
    *,
    wrt: Names = None,
) -> Any:
    """A function's result, and how it moves when its arguments move along tangents.

    primals   the arguments
    tangents  built as they are, of the same shapes
    wrt       of a graph: as `grad` has it. The result is a graph then, of the outputs
              and their tangents; it has an input d_NAME for each of them
    Errors    as `grad`
    """
    if isinstance(fn, Graph):
        return tangent_graph(fn, wrt, f"jvp of graph '{fn.name}'")
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        given = f"{named(primals)} and {named(tangents)} were given"
        raise UsageError("jvp", given, "tuples of arguments and tangents are wanted")
    if len(primals) != len(tangents):
        raise UsageError(
            "jvp", f"{len(primals)} arguments, {len(tangents)} tangents", "one for each"
        )
    return Derivative(_Forward(fn, len(primals)))(*primals, *tangents)


class Derivative(Within):
    """A derivative of a function."""

    def __init__(self, of: _Reverse | _Forward) -> None:
        super().__init__(of)
        self._of = of

    def given(self, args: Any, kwargs: Any) -> Given:
        bound = self._signature.bind(*args, **kwargs)
        by = set(self._of.by(len(bound.args)))
        every = (_lifted(a) if n in by else a for n, a in enumerate(bound.args))
        return super().given(tuple(every), bound.kwargs)


def _lifted(value: Any) -> Any:
    """Python's floats as arrays, wherever they lie: they are what moves."""
    leaves: list[tuple[str, Any]] = []
    tree = flattened(value, "", leaves, lambda one, path: Same(one))
    lifted = _with_numbers(tree, (float,), np.float64)
    return lifted.built(iter([one for _, one in leaves]))


def _with_numbers(
    tree: Tree, kinds: tuple[type, ...], change: Callable[[Any], Any]
) -> Tree:
    """Return a structure with its Python numbers of some types changed."""
    if tree.kind == "static" and type(tree.value) in kinds:
        return Tree("static", tree.told, value=change(tree.value))
    parts = tuple(_with_numbers(part, kinds, change) for part in tree.parts)
    return Tree(tree.kind, tree.told, parts, tree.value)


def _zero(number: Any) -> Any:
    return type(number)(0)


class _Inside:
    """A derivative within a tracing: called with traced arguments."""

    def __init__(self, fn: Any, what: str) -> None:
        self._shape = signature_of(fn, what)
        update_wrapper(cast(Any, self), fn, updated=())
        self._fn, self._what = fn, what
        self._doing = f"{what} of '{name_of_callable(fn)}'"

    def _moving(self, values: Sequence[Any]) -> tuple[Tree, list[Traced]]:
        """The arrays in these arguments, as values of their own to differentiate by.

        Errors   UsageError for what is no float.
        """
        found: list[tuple[str, Any]] = []
        tree = flattened(tuple(values), "argument", found, lambda v, path: Same(v))
        trace = running()
        if trace is None or not found:
            raise refused(self._doing, "it was given no array")
        return tree, [self._alone(trace, path, x) for path, x in found]

    def _alone(self, trace: Trace, path: str, x: Any) -> Traced:
        lifted: Traced = trace.lifted(x)
        if lifted.dtype.kind != "f":
            hint = "leave it out of argnums, or pass it as floats"
            if lifted.dtype.kind == "c":
                hint = "pass x.real and x.imag, and put them together inside"
            problem = f"{path} is {lifted.dtype} {show(lifted.shape)}"
            raise refused(self._doing, problem, "a derivative is by real floats", hint)
        return Traced(trace, trace.graph.identity(lifted.re), None, lifted.dtype)


class _Reverse(_Inside):
    """The gradient of one float, in reverse mode."""

    def __init__(
        self,
        fn: Callable[..., Any],
        argnums: Arguments,
        has_aux: bool,
        with_value: bool,
        what: str = "",
    ) -> None:
        super().__init__(fn, what or ("value_and_grad" if with_value else "grad"))
        self._argnums, self._has_aux = argnums, has_aux
        self._with_value = with_value
        every = argnums if isinstance(argnums, tuple | list) else (argnums,)
        if not every or not all(type(n) is int for n in every):
            rule = "a position of an argument, or several"
            raise UsageError(self._doing, f"argnums is {shown(argnums)}", rule)
        self._positions = tuple(every)
        self.__signature__ = self._shape

    def by(self, count: int) -> list[int]:
        """The positions among so many arguments. Errors  UsageError."""
        for n in self._positions:
            if not -count <= n < count:
                problem = f"argnums names {n}"
                raise UsageError(
                    self._doing, problem, f"{count} arguments were given by position"
                )
        return [n % count for n in self._positions]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        by = self.by(len(args))
        tree, moving = self._moving([args[n] for n in by])
        given = list(args)
        for n, one in zip(by, tree.built(iter(moving)), strict=True):
            given[n] = one
        result = self._fn(*given, **kwargs)
        value, aux = self._parted(result)
        grads = self._gradients(moving[0].trace, value, moving)
        made = tree.built(iter(grads))
        made = made if isinstance(self._argnums, tuple | list) else made[0]
        if self._with_value:
            return ((value, aux) if self._has_aux else value), made
        return (made, aux) if self._has_aux else made

    def _parted(self, result: Any) -> tuple[Any, Any]:
        if not self._has_aux:
            return result, None
        if not isinstance(result, tuple) or len(result) != 2:
            raise refused(
                self._doing,
                f"it returned {named(result)}",
                "with has_aux=True a function returns (result, what else there is)",
            )
        return result

    def _gradients(
        self, trace: Trace, value: Any, moving: Sequence[Traced]
    ) -> list[Traced]:
        result = trace.lifted(value)
        if result.ndim or result.dtype.kind != "f":
            raise refused(
                self._doing,
                f"the function returned {show(result.shape)} {result.dtype}",
                "a gradient is that of one float",
                "take the sum or the mean of it, or see rlxweb.jvp",
            )
        try:
            grads = trace.graph.gradients([result.re], [x.re for x in moving])
        except RlxError as error:
            raise placed(error, self._doing) from None
        both = zip(grads, moving, strict=True)
        return [Traced(trace, grad, None, x.dtype) for grad, x in both]


class _Forward(_Inside):
    """A result and its tangent, in forward mode: of arguments, then tangents."""

    def __init__(self, fn: Callable[..., Any], count: int) -> None:
        super().__init__(fn, "jvp")
        self._count = count
        self.__signature__ = signature(lambda *both: None)

    def by(self, count: int) -> list[int]:
        return list(range(count))

    def __call__(self, *both: Any) -> Any:
        args, along = both[: self._count], both[self._count :]
        tree, moving = self._moving(args)
        trace = moving[0].trace
        tangents = self._tangents(trace, moving, along)
        result = self._fn(*tree.built(iter(moving)))
        found: list[tuple[str, Any]] = []
        of_result = flattened(result, "result", found, lambda v, path: Same(v))
        outs = [trace.lifted(one) for _, one in found]
        parts = [p for out in outs for p in (out.re, out.im) if p is not None]
        floats = [p for p in parts if p.dtype.is_float]
        try:
            moved = trace.graph.tangents(floats, [x.re for x in moving], tangents)
        except RlxError as error:
            raise placed(error, self._doing) from None
        by_id = {p.id: t for p, t in zip(floats, moved, strict=True)}
        every = [_tangent_of(trace, out, by_id) for out in outs]
        # A Python number in the result is a constant: it does not move.
        moves = _with_numbers(of_result, (bool, int, float, complex), _zero)
        return result, moves.built(iter(every))

    def _tangents(
        self, trace: Trace, moving: Sequence[Traced], along: Sequence[Any]
    ) -> list[Tensor]:
        found: list[tuple[str, Any]] = []
        flattened(tuple(along), "tangent", found, lambda v, path: Same(v))
        if len(found) != len(moving):
            raise refused(
                self._doing,
                f"{len(moving)} arrays are given, {len(found)} tangents",
                "one tangent for each",
            )
        made = []
        for x, (path, given) in zip(moving, found, strict=True):
            tangent = trace.lifted(given, x.dtype)
            if tuple(tangent.shape) != tuple(x.shape):
                problem = f"{path} is {show(tangent.shape)}"
                raise refused(self._doing, problem, f"its array is {show(x.shape)}")
            made.append(tangent.re)
        return made


def _tangent_of(trace: Trace, out: Traced, by_id: dict[int, Tensor]) -> Traced:
    """The tangent of a result: of one that is no float, zeros of its kind."""
    if not out.re.dtype.is_float:
        g = trace.graph
        zero = g.expand(g.constant(0, out.re.dtype), out.re.shape)
        return Traced(trace, zero, None, out.dtype)
    im = None if out.im is None else by_id[out.im.id]
    return Traced(trace, by_id[out.re.id], im, out.dtype)
