"""Run on the first device of a list that succeeds; every failure is recorded.

Any exception is a failed attempt, also one that is not an `RlxError`: a driver's crash
must not keep the next device from being tried. Ctrl-C is not a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rlxweb.arguments import switch
from rlxweb.choose.resolve import NOT_SEEN, and_named, devices_for, why_refused
from rlxweb.decision.attempt import Attempt
from rlxweb.device import Device, DeviceLike, devices_named
from rlxweb.devices.policy import DevicePolicy, policy_of
from rlxweb.errors import DeviceFallbackError
from rlxweb.ir.graph import Graph

T = TypeVar("T")

EMPTY_CHAIN = "empty fallback chain"


def first_success(
    doing: str,
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
            attempts.append(Attempt(device, why_not(device) or NOT_SEEN))
        else:
            try:
                result = fn(device)
            except Exception as error:
                said = str(error) or type(error).__name__
                attempts.append(Attempt(device, said, error))
            else:
                attempts.append(Attempt(device, ""))
                return device, result
        if strict:
            break
    causes = [a.cause for a in attempts if a.cause is not None]
    tried = [(a.device, a.error) for a in attempts]
    cause = causes[-1] if causes else None
    raise DeviceFallbackError(doing, tried, EMPTY_CHAIN) from cause


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
    wanted = devices_named(chain)
    policy = policy_of(policy)
    viable = and_named(devices_for(graph, policy), wanted, graph, policy, {})
    doing = f"run '{graph.name}' with fallback"
    strict = switch("strict", strict, doing)

    def why_not(device: Device) -> str:
        return why_refused(device, graph, policy)

    return first_success(doing, wanted, viable, fn, [], strict, why_not)
