"""Decorator for methods over a device and inputs: (device, inputs), as RLX has it.

An argument that is neither a name nor a list of names is the inputs, so pyrlx's calls,
with the inputs alone or in front, mean the same. "auto" leaves the device open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Protocol, TypeVar, overload

from rlxweb.device import DeviceLike, unless_open
from rlxweb.names import formerly

R = TypeVar("R", covariant=True)

Inputs = Mapping[str, Any]
Where = DeviceLike | Sequence[DeviceLike] | None


class DeviceFirst(Protocol[R]):
    """A method over a device and inputs, either of which may be left out."""

    @overload
    def __call__(
        self, device: Where = None, inputs: Inputs | None = None, **more: Any
    ) -> R: ...

    @overload
    def __call__(self, inputs: Inputs, device: Where = None, **more: Any) -> R: ...


def device_first(method: Callable[Concatenate[Any, ...], R]) -> DeviceFirst[R]:
    """Take (device, inputs), (inputs, device) or either alone."""
    may_be_open = signature(method).parameters["device"].default is None

    @formerly(hint="device", chain="device")
    @wraps(method)
    def call(*given: Any, **more: Any) -> R:
        this, *arguments = given
        if may_be_open:
            arguments = [unless_open(value) for value in arguments]
            more = {name: unless_open(value) for name, value in more.items()}
        if _inputs_are_first(arguments):
            named = dict(zip(("inputs", "device"), arguments, strict=False))
            return method(this, **named, **more)
        return method(this, *arguments, **more)

    return call


def _inputs_are_first(arguments: Sequence[Any]) -> bool:
    """Is the first argument neither None, a name nor a list of names?"""
    if not 1 <= len(arguments) <= 2:
        return False
    first, *rest = arguments
    if first is None or isinstance(first, str):
        return False
    if rest and isinstance(rest[0], Mapping):
        return False
    is_list = isinstance(first, list | tuple) and len(first) > 0
    return not (is_list and all(isinstance(one, str) for one in first))
