"""Decorator for methods that take (device, inputs) in that order, as RLX does, or the
inputs first.

An argument that is neither a name nor a list of names is the inputs, so pyrlx's calls,
with the inputs alone or in front, mean the same. "auto" leaves the device open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Protocol, TypeVar, overload

from rlxweb.core.device import DeviceLike, none_if_auto
from rlxweb.core.lazy_names import accept_deprecated_keywords

R = TypeVar("R", covariant=True)

Inputs = Mapping[str, Any]
DeviceArgument = DeviceLike | Sequence[DeviceLike] | None


class DeviceFirst(Protocol[R]):
    """Method over a device and inputs, either of which may be left out."""

    @overload
    def __call__(
        self, device: DeviceArgument = None, inputs: Inputs | None = None, **kwargs: Any
    ) -> R: ...

    @overload
    def __call__(
        self, inputs: Inputs, device: DeviceArgument = None, **kwargs: Any
    ) -> R: ...


def device_first(method: Callable[Concatenate[Any, ...], R]) -> DeviceFirst[R]:
    """Decorate a method so that it takes (device, inputs), (inputs, device) or either
    alone.
    """
    accepts_auto = signature(method).parameters["device"].default is None

    @accept_deprecated_keywords(hint="device", chain="device")
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> R:
        instance, *arguments = args
        if accepts_auto:
            arguments = [none_if_auto(value) for value in arguments]
            kwargs = {name: none_if_auto(value) for name, value in kwargs.items()}
        if _inputs_are_first(arguments):
            named_args = dict(zip(("inputs", "device"), arguments, strict=False))
            return method(instance, **named_args, **kwargs)
        return method(instance, *arguments, **kwargs)

    return call


def _inputs_are_first(arguments: Sequence[Any]) -> bool:
    """Return whether the first argument is neither None, a name nor a list of names."""
    if not 1 <= len(arguments) <= 2:
        return False
    first, *rest = arguments
    if first is None or isinstance(first, str):
        return False
    if rest and isinstance(rest[0], Mapping):
        return False
    is_list = isinstance(first, list | tuple) and len(first) > 0
    return not (is_list and all(isinstance(name, str) for name in first))
