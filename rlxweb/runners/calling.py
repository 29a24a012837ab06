"""How whatever takes a device and inputs is called: (device, inputs), as RLX has it.

What is no name and no list of names is the inputs, so pyrlx's calls, with the inputs
alone or in front, mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, Protocol, TypeVar, overload

from rlxweb.device import DeviceLike
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

    @formerly(hint="device", chain="device")
    @wraps(method)
    def call(*args: Any, **more: Any) -> R:
        this, *given = args
        if given and len(given) <= 2 and not _names_devices(given[0]):
            named = dict(zip(("inputs", "device"), given, strict=False))
            return method(this, **named, **more)
        return method(*args, **more)

    return call


def _names_devices(value: Any) -> bool:
    return value is None or isinstance(value, str | list | tuple)
