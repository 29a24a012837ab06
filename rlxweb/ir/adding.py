"""A builder method for an op, made of the way in which ops like it are added."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature, signature
from typing import Any, Concatenate, ParamSpec

from rlxweb.ir.tensor import Tensor

P = ParamSpec("P")


def adding(
    op: str, how: Callable[Concatenate[Any, str, P], Tensor], doc: str | None = None
) -> Callable[Concatenate[Any, P], Tensor]:
    """The method that adds `op` in the way of `how`, under its name and parameters."""

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        return how(self, op, *args, **kwargs)

    own, _, *rest = signature(how).parameters.values()
    method.__dict__["__signature__"] = Signature(
        [own, *rest], return_annotation="Tensor"
    )
    method.__name__, method.__qualname__, method.__doc__ = op, f"Builder.{op}", doc
    return method
