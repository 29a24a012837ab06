"""Device resolution with RLX's functions: which devices can run a graph, and which runs
it best.

A device that is asked for is used or refused, never swapped. What the environment names
and cannot be used is warned about and passed over; RLX passes over it in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.device import (
    Adapters,
    Device,
    DeviceLike,
    none_if_auto,
    parse_adapters,
    parse_device,
    parse_devices,
)
from rlxweb.core.errors import DeviceError, DTypeError, LimitExceeded, Unsupported
from rlxweb.core.lazy_names import accept_deprecated_keywords
from rlxweb.cost.decision import Candidate, Decision
from rlxweb.engines.pool import pool
from rlxweb.engines.registry import hint_or_default, is_named_only
from rlxweb.ir.dim_binding import sample_graph
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import require_graph
from rlxweb.select.availability import is_available, probe
from rlxweb.select.choice_by_rlx_constants import seed_pick
from rlxweb.select.chooser import (
    DevicePick,
    PlaceRequest,
    choose_by_environment,
    choose_by_prediction,
    choose_forced,
    choose_place,
    is_device_named_by_env,
)
from rlxweb.select.graph_job import NO_DEVICE, GraphJob, check_cost_mode
from rlxweb.select.policy import (
    DevicePolicy,
    check_policy,
    denial_reason,
    device_chain_from_env,
    device_from_env,
    forced_device_from_env,
)

_NODE_ID = re.compile(r"%\d+")
NOT_DETECTED = "it could not run the graph when the devices were detected"
NOT_AVAILABLE = "not available on this host or in this build"


# --- who can run it ---------------------------------------------------------------


def lowering_blocker(device: Device, graph: Graph, adapter: str = "") -> str:
    """Return why the open device cannot run the graph; "" when it can."""
    try:
        target = pool.engine(device.label, adapter).target
        compile_graph(sample_graph(graph), target)
    except LimitExceeded as error:
        return "" if graph.dims else str(error)  # other sizes may keep the limit
    except (DeviceError, DTypeError) as error:
        return str(error)
    return ""


def unsupported_node(device: Device, graph: Graph, adapter: str = "") -> str:
    """Return the blocker in RLX's words, "unsupported op at node 3: topk", with the
    reason.
    """
    blocker = lowering_blocker(device, graph, adapter)
    for node in sample_graph(graph).nodes() if blocker else ():
        # The compiler's errors begin with the node they stopped at, as it stands in the
        # rewritten graph, where nodes are counted anew.
        if _NODE_ID.sub("%", blocker).startswith(_NODE_ID.sub("%", str(node))):
            return f"unsupported op at node {node.id}: {node.op} ({blocker})"
    return blocker


def supports_graph(device: DeviceLike, graph: Graph, adapter: str = "") -> bool:
    """Tell whether the device is available and can run every op of the graph.

    Ops it has no kernel for count when they can be built from others.
    Errors   UnknownDevice.
    """
    parsed_device = parse_device(device)
    return is_available(parsed_device) and not lowering_blocker(
        parsed_device, graph, adapter
    )


def refusal_reason(
    device: Device, graph: Graph, policy: DevicePolicy, adapter: str = ""
) -> str:
    """Return why a device does not run a graph, as a sentence; "" if it does.

    The first that applies: the policy, the device is missing, what of the graph it
    cannot run. A device that the policy does not permit is not opened.
    """
    denial = denial_reason(policy, device)
    if denial:
        return f"device {device} is {denial}"
    row = probe(device, adapter)
    if not row.available:
        adapter_note = f" with an adapter named {adapter!r}" if adapter else ""
        return f"device {device}{adapter_note} is not available: {row.blocker}"
    blocker = lowering_blocker(device, graph, adapter)
    return f"device {device} cannot run this graph: {blocker}" if blocker else ""


def refusal_error(
    context: str,
    device: Device,
    graph: Graph,
    policy: DevicePolicy,
    adapter: str = "",
    viable: Sequence[Device] = (),
) -> Unsupported:
    """Return the error for a device that was named and does not run a graph.

    viable   the devices that do
    """
    reason = refusal_reason(device, graph, policy, adapter)
    if not reason:
        reason = f"device {device} is not usable: {NOT_DETECTED}"
    is_missing = policy.permits(device) and not is_available(device)
    hint = hint_or_default(device.label) if is_missing else ""
    return Unsupported(
        context, reason, f"viable backends are {_device_list(viable)}", hint
    )


def no_device_error(
    context: str, graph: Graph, policy: DevicePolicy, adapters: Mapping[Device, str]
) -> Unsupported:
    """Return the error for a graph that no allowed device runs, with the reason of each
    device.
    """
    devices = policy.candidates
    reasons = [refusal_reason(d, graph, policy, adapters.get(d, "")) for d in devices]
    return Unsupported(context, NO_DEVICE, "; ".join(reasons) or "no device is allowed")


def devices_for(
    graph: Graph, policy: DevicePolicy | None = None, adapters: Adapters | None = None
) -> tuple[Device, ...]:
    """Return the available devices that can run a graph, in the policy's order."""
    policy = check_policy(policy)
    names = parse_adapters(adapters)
    allowed = policy.candidates  # a denied device is not even opened
    return tuple(d for d in allowed if supports_graph(d, graph, names.get(d, "")))


def add_named_devices(
    devices: Sequence[Device],
    named_devices: Iterable[Device],
    graph: Graph,
    policy: DevicePolicy,
    adapters: Mapping[Device, str],
) -> tuple[Device, ...]:
    """Add the named devices that can run the graph to those already found.

    Others there are only where a device waits to be named (MLX on a CPU, say).
    """
    missing = (
        d
        for d in dict.fromkeys(named_devices)
        if d not in devices and policy.permits(d)
    )
    additions = (
        d
        for d in missing
        if is_named_only(d.label) and supports_graph(d, graph, adapters.get(d, ""))
    )
    return (*devices, *additions)


def devices_named_by_env() -> tuple[Device, ...]:
    """Return the devices that environment variables name, one by one or as a chain."""
    devices = device_from_env(), forced_device_from_env()
    return (*(d for d in devices if d is not None), *device_chain_from_env())


# --- who runs it ------------------------------------------------------------------


def fastest_device_for(
    graph: Graph,
    policy: DevicePolicy | None = None,
    *,
    cost_mode: str = "calibrated",
    adapters: Adapters | None = None,
) -> Device:
    """Return the device predicted to run a graph fastest.

    policy     allowed, denied and preferred devices; all of them when left out
    cost_mode  "calibrated" or RLX's "seed"
    Errors     Unsupported when no allowed device can run it.
    """
    return pick_fastest(graph, policy, adapters, cost_mode).device


def pick_fastest(
    graph: Graph,
    policy: DevicePolicy | None = None,
    adapters: Adapters | None = None,
    cost_mode: str = "calibrated",
) -> DevicePick[GraphJob]:
    """Return the pick by prediction, whatever RLX_DEVICE says; RLX_FORCE_DEVICE comes
    first.

    Errors   Unsupported; UsageError for an unknown cost_mode.
    """
    job, policy = GraphJob(graph, cost_mode=cost_mode), check_policy(policy)
    names = parse_adapters(adapters)
    if check_cost_mode(cost_mode) == "calibrated":
        return choose_by_prediction(job, policy, names)
    forced = choose_forced(job, names)
    if forced is not None:
        return forced
    viable = devices_for(graph, policy, adapters)
    if not viable:
        raise no_device_error(job.title, graph, policy, names)
    return _pick_by_constants(job, viable)


@accept_deprecated_keywords(hint="device")
def resolve_device(
    graph: Graph,
    device: DeviceLike | None = None,
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device] | None = None,
    adapters: Adapters | None = None,
    cost_mode: str = "calibrated",
) -> Device:
    """Return the requested device if it is viable, else RLX_DEVICE, else the fastest.

    viable     the devices that can run the graph, where the caller knows them already
    cost_mode  what predicts the fastest: "calibrated" or RLX's "seed"
    Errors     Unsupported when nothing can run the graph or the device asked for is not
               viable; UnknownDevice.
    """
    pick = pick_device(
        graph, device, policy, viable=viable, adapters=adapters, cost_mode=cost_mode
    )
    return pick.device


def pick_device(
    graph: Graph,
    device: DeviceLike | None = None,
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device] | None = None,
    adapters: Adapters | None = None,
    cost_mode: str = "calibrated",
) -> DevicePick[GraphJob]:
    """Resolve a device like `resolve_device` and return the pick, whose decision says
    why.
    """
    require_graph(graph)
    policy, names = check_policy(policy), parse_adapters(adapters)
    context = f"resolve a device for '{graph.name}'"
    job = GraphJob(graph, cost_mode=check_cost_mode(cost_mode))
    viable_devices = (
        devices_for(graph, policy, adapters) if viable is None else tuple(viable)
    )
    device = none_if_auto(device)
    requested = None if device is None else parse_device(device)
    named_devices = devices_named_by_env() if requested is None else (requested,)
    viable_devices = add_named_devices(
        viable_devices, named_devices, graph, policy, names
    )
    if requested is not None:
        if requested not in viable_devices:
            adapter = names.get(requested, "")
            raise refusal_error(
                context, requested, graph, policy, adapter, viable_devices
            )
        return _unpriced_pick(job, requested, "it was requested")
    if not viable_devices:
        raise no_device_error(context, graph, policy, names)
    if len(viable_devices) == 1 and not is_device_named_by_env():
        return _unpriced_pick(
            job, viable_devices[0], "no other device can run the graph"
        )
    pick = _pick_by_mode(
        job, viable_devices, _restrict_policy(viable_devices, policy), names
    )
    if (
        pick.device not in viable_devices
        and pick.device is not forced_device_from_env()
    ):
        # Where all are allowed, only those worth opening were asked; now the viable.
        restricted_policy = replace(policy, allow=viable_devices)
        pick = _pick_by_mode(job, viable_devices, restricted_policy, names)
    if pick.device is forced_device_from_env() and pick.device not in viable_devices:
        forced, why = pick.device, pick.decision.why
        error = refusal_error(
            context, forced, graph, policy, names.get(forced, ""), viable_devices
        )
        raise Unsupported(context, f"{why}: {error.problem}", error.rule, error.hint)
    return pick


def _pick_by_mode(
    job: GraphJob,
    viable: Sequence[Device],
    policy: DevicePolicy,
    adapters: Mapping[Device, str],
) -> DevicePick[GraphJob]:
    """Pick among all devices that the policy allows, by the job's cost mode."""
    request = PlaceRequest(policy=policy, adapters=adapters)
    if job.cost_mode == "calibrated":
        return choose_place(job, request)
    return choose_by_environment(job, policy, request) or _pick_by_constants(
        job, viable
    )


def pick_by_environment(
    graph: Graph,
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device],
    adapters: Adapters | None = None,
    cost_mode: str = "calibrated",
) -> DevicePick[GraphJob] | None:
    """Return the pick of a device that a variable names; None where none does or it
    cannot run the graph.
    """
    job = GraphJob(graph, cost_mode=check_cost_mode(cost_mode))
    policy = replace(check_policy(policy), allow=tuple(viable))
    request = PlaceRequest(policy=policy, adapters=parse_adapters(adapters))
    return choose_by_environment(job, policy, request)


def _restrict_policy(devices: Sequence[Device], policy: DevicePolicy) -> DevicePolicy:
    """Return the policy restricted to these devices; a policy that allows all stays
    unchanged.
    """
    if policy == DevicePolicy.all():
        return policy
    return replace(policy, allow=tuple(devices))


def _unpriced_pick(job: GraphJob, device: Device, why: str) -> DevicePick[GraphJob]:
    """Return the pick of a device that was not chosen by a prediction."""
    decision = Decision(f"device {device.label}", why)
    return DevicePick(job, Candidate(device, device.label), decision)


def _pick_by_constants(
    job: GraphJob, devices: Sequence[Device]
) -> DevicePick[GraphJob]:
    """Return RLX's own pick among the devices that can run the graph, at least one."""
    return _unpriced_pick(
        job, seed_pick(job.graph, devices), "chosen by RLX's published constants"
    )


def resolve_device_chain(
    graph: Graph,
    chain: DeviceLike | Sequence[DeviceLike],
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device] | None = None,
    adapters: Adapters | None = None,
) -> Device:
    """Return the first device of a chain that can run a graph.

    Errors   Unsupported with the reason of each device of the chain, and what is
             viable; UnknownDevice.
    """
    require_graph(graph)
    policy, names = check_policy(policy), parse_adapters(adapters)
    viable_devices = (
        devices_for(graph, policy, adapters) if viable is None else tuple(viable)
    )
    chain_devices = parse_devices(chain)
    viable_devices = add_named_devices(
        viable_devices, chain_devices, graph, policy, names
    )
    for device in chain_devices:
        if device in viable_devices:
            return device
    raise Unsupported(
        f"resolve a device for '{graph.name}'",
        f"no device in chain {_device_list(chain_devices)} can run this graph — "
        f"viable: "
        f"{_device_list(viable_devices)}",
        "; ".join(
            refusal_reason(d, graph, policy, names.get(d, "")) for d in chain_devices
        ),
    )


def _device_list(devices: Sequence[Device]) -> str:
    return "[" + ", ".join(str(d) for d in devices) + "]"
