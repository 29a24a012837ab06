"""Graph ops as functions on arrays, for ops that have no NumPy name: the `rlxweb.nn`
namespace.

`rlx.nn.conv(x, w)` is `Graph.conv` of the graph that is traced; called with plain
arrays it is computed at once. Convolutions, pooling, norms, attention, transforms of
signals: every method of `Graph` that adds to it and takes tensors.
"""

from __future__ import annotations

from functools import cache
from inspect import Signature, signature
from typing import Any

from rlxweb.core.errors import RlxError, did_you_mean
from rlxweb.ir.builder import Builder
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.trace.function import InlineFunction
from rlxweb.trace.pytrees import is_array
from rlxweb.trace.trace import Trace, current_trace
from rlxweb.trace.trace_errors import add_user_location, trace_error
from rlxweb.trace.traced_array import TracedArray

_EXCLUDED_METHODS = frozenset(
    """input param constant apply operand gradients tangents vectorized segment_in
    segment_out output set_output set_outputs""".split()
)


class _GraphOpFunction:
    """Graph method as a function on arrays, within a trace."""

    def __init__(self, name: str) -> None:
        method = getattr(Graph, name)
        self._name = self.__name__ = name
        self.__qualname__ = f"nn.{name}"
        self.__module__ = "rlxweb.nn"
        self.__doc__ = method.__doc__
        _, *method_parameters = signature(method).parameters.values()
        parameters = [p.replace(annotation=p.empty) for p in method_parameters]
        self.__signature__ = Signature(parameters)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        trace = current_trace()
        if trace is None:
            raise trace_error(f"nn.{self._name}", "no argument is an array")
        tensor_args = [self._to_tensor(trace, argument) for argument in args]
        tensor_keywords = {
            key: self._to_tensor(trace, argument) for key, argument in keywords.items()
        }
        try:
            outputs = getattr(trace.graph, self._name)(*tensor_args, **tensor_keywords)
        except RlxError as error:
            raise add_user_location(error, f"nn.{self._name}") from None
        return _wrap_tensors(trace, outputs)

    def _to_tensor(self, trace: Trace, value: Any) -> Any:
        """Convert arrays to tensors, also within lists; other values pass through."""
        if isinstance(value, tuple | list) and any(map(is_array, value)):
            return [self._to_tensor(trace, item) for item in value]
        if not is_array(value):
            return value
        array: TracedArray = trace.as_traced(value)
        if array.im is not None:
            raise trace_error(
                f"nn.{self._name}",
                f"an argument has dtype {array.dtype}",
                "graph ops require real arrays",
                "pass a real array, such as x.real or x.imag",
            )
        return array.re


def _wrap_tensors(trace: Trace, outputs: Any) -> Any:
    if isinstance(outputs, Tensor):
        return TracedArray(trace, outputs)
    if isinstance(outputs, tuple | list):
        return tuple(_wrap_tensors(trace, output) for output in outputs)
    return outputs


class NnNamespace:
    """Namespace of graph ops as functions on arrays; see `rlxweb.nn`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in _op_names():
            hint = did_you_mean(name, _op_names())
            raise AttributeError(f"rlxweb.nn has no op {name!r}; {hint}".rstrip("; "))
        return _op_function(name)

    def __dir__(self) -> list[str]:
        return sorted(_op_names())

    def __repr__(self) -> str:
        return f"<rlxweb.nn: {len(_op_names())} graph ops as functions of arrays>"


@cache
def _op_names() -> frozenset[str]:
    builder_names = {n for n in dir(Builder) if not n.startswith("_")} & Graph.BUILDS
    return frozenset(builder_names - _EXCLUDED_METHODS)


@cache
def _op_function(name: str) -> InlineFunction:
    return InlineFunction(_GraphOpFunction(name))


nn = NnNamespace()
"""Namespace of the graph's ops as functions on arrays: `nn.softmax(x, axis=-1)`."""
