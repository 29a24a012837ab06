"""Factory of Graph's builder methods: one method for an op, with its name and
signature.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature, signature
from typing import Any, Concatenate, ParamSpec

from rlxweb.ir.tensor import Tensor

P = ParamSpec("P")


def builder_method(
    op: str, add_op: Callable[Concatenate[Any, str, P], Tensor], doc: str | None = None
) -> Callable[Concatenate[Any, P], Tensor]:
    """Return a builder method that calls `add_op` for `op`, with the op's name and the
    parameters of `add_op`.
    """

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        return add_op(self, op, *args, **kwargs)

    self_parameter, _, *parameters = signature(add_op).parameters.values()
    method.__dict__["__signature__"] = Signature(
        [self_parameter, *parameters], return_annotation="Tensor"
    )
    method.__name__, method.__qualname__, method.__doc__ = op, f"Builder.{op}", doc
    return method
