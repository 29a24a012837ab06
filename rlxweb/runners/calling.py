"""How whatever takes a device and inputs is called: (device, inputs), as RLX has it.

What is no name and no list of names is the inputs, so pyrlx's calls, with the inputs
alone or in front, mean the same. "auto" leaves the device open, as everywhere.
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
    """The method, called with (device, inputs), (inputs, device) or either alone."""
    may_be_open = signature(method).parameters["device"].default is None

    @formerly(hint="device", chain="device")
    @wraps(method)
    def call(*args: Any, **more: Any) -> R:
        this, *given = args
        if may_be_open:
            given = [unless_open(one) for one in given]
            more = {name: unless_open(one) for name, one in more.items()}
        if _inputs_are_first(given):
            named = dict(zip(("inputs", "device"), given, strict=False))
            return method(this, **named, **more)
        return method(this, *given, **more)

    return call


def _inputs_are_first(given: list[Any]) -> bool:
    """Is what stands first no name of a device, no list of names and not left open?"""
    if not 1 <= len(given) <= 2:
        return False
    first, *rest = given
    if (
        first is None
        or isinstance(first, str)
        or (rest and isinstance(rest[0], Mapping))
    ):
        return False
    listed = isinstance(first, list | tuple) and len(first) > 0
    return not (listed and all(isinstance(one, str) for one in first))
