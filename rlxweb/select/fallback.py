"""Run on the first device of a list that succeeds and record every failure.

Any exception is a failed attempt, also one that is not an `RlxError`: a driver's crash
must not keep the next device from being tried. Ctrl-C is not a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rlxweb.core.argument_validation import coerce_bool
from rlxweb.core.device import Device, DeviceLike, parse_devices
from rlxweb.core.errors import DeviceFallbackError
from rlxweb.cost.decision import Attempt
from rlxweb.ir.graph import Graph
from rlxweb.select.policy import DevicePolicy, check_policy
from rlxweb.select.resolve import (
    NOT_DETECTED,
    add_named_devices,
    devices_for,
    refusal_reason,
)

T = TypeVar("T")

EMPTY_CHAIN = "empty fallback chain"


def first_success(
    context: str,
    chain: Sequence[Device],
    viable: Sequence[Device],
    fn: Callable[[Device], T],
    attempts: list[Attempt],
    strict: bool,
    why_not: Callable[[Device], str],
) -> tuple[Device, T]:
    """Return the first device of a chain on which `fn` succeeds, and its result.

    viable    the devices that can run the job; others fail without being tried
    attempts  gets one entry for every device that was tried
    strict    only the first device is tried
    why_not   says why a device is not viable
    Errors    DeviceFallbackError with the attempts.
    """
    for device in chain:
        if device not in viable:
            attempts.append(Attempt(device, why_not(device) or NOT_DETECTED))
        else:
            try:
                result = fn(device)
            except Exception as error:
                message = str(error) or type(error).__name__
                attempts.append(Attempt(device, message, error))
            else:
                attempts.append(Attempt(device, ""))
                return device, result
        if strict:
            break
    causes = [a.cause for a in attempts if a.cause is not None]
    tried = [(a.device, a.error) for a in attempts]
    cause = causes[-1] if causes else None
    raise DeviceFallbackError(context, tried, EMPTY_CHAIN) from cause


def run_with_fallback(
    graph: Graph,
    chain: DeviceLike | Sequence[DeviceLike],
    fn: Callable[[Device], T],
    policy: DevicePolicy | None = None,
    *,
    strict: bool = False,
) -> tuple[Device, T]:
    """Call `fn(device)` along a chain until it succeeds.

    Devices that cannot run the graph under the policy count as tried and failed.
    Errors   DeviceFallbackError with every attempt; UnknownDevice.
    """
    devices = parse_devices(chain)
    policy = check_policy(policy)
    viable = add_named_devices(devices_for(graph, policy), devices, graph, policy, {})
    context = f"run '{graph.name}' with fallback"
    strict = coerce_bool("strict", strict, context)

    def why_not(device: Device) -> str:
        return refusal_reason(device, graph, policy)

    return first_success(context, devices, viable, fn, [], strict, why_not)
