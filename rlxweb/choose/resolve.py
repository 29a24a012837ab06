"""What RLX's callers ask about a graph and devices: who can run it, who runs it best.

A device that is asked for is used or refused, never swapped. What the environment names
and cannot be used is warned about and passed over; RLX passes over it in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rlxweb.backends.pool import pool
from rlxweb.backends.registry import how_to_get, named_only
from rlxweb.choose.chooser import (
    Asked,
    Pick,
    a_device_is_named,
    by_environment,
    by_force,
    choose,
    predicted,
)
from rlxweb.choose.graphs import NOBODY, GraphJob, checked_mode
from rlxweb.choose.seed import seed_pick
from rlxweb.compile.pipeline import compile_graph
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.device import (
    Adapters,
    Device,
    DeviceLike,
    adapters_of,
    devices_named,
    parse_device,
    unless_open,
)
from rlxweb.devices.availability import is_available, probe
from rlxweb.devices.policy import (
    DevicePolicy,
    device_chain_from_env,
    device_from_env,
    forced_device_from_env,
    policy_of,
    why_not_permitted,
)
from rlxweb.errors import DeviceError, DTypeError, LimitExceeded, Unsupported
from rlxweb.ir.binding import sample_bound
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import must_be_graph
from rlxweb.names import formerly

_ID = re.compile(r"%\d+")
NOT_SEEN = "it could not run the graph when devices were looked for"
NOT_THERE = "not available on this host or in this build"


# --- who can run it ---------------------------------------------------------------


def lowering_blocker(device: Device, graph: Graph, adapter: str = "") -> str:
    """What of the graph the open device cannot run, as text; "" when nothing."""
    try:
        target = pool.backend(device.label, adapter).target
        compile_graph(sample_bound(graph), target)
    except LimitExceeded as error:
        return "" if graph.dims else str(error)  # other sizes may keep the limit
    except (DeviceError, DTypeError) as error:
        return str(error)
    return ""


def unsupported_node(device: Device, graph: Graph, adapter: str = "") -> str:
    """The blocker in RLX's words, "unsupported op at node 3: topk", and why."""
    whole = lowering_blocker(device, graph, adapter)
    for node in sample_bound(graph).nodes() if whole else ():
        # The compiler's errors begin with the node they stopped at, as it stands in the
        # rewritten graph, where nodes are counted anew.
        if _ID.sub("%", whole).startswith(_ID.sub("%", str(node))):
            return f"unsupported op at node {node.id}: {node.op} ({whole})"
    return whole


def supports_graph(device: DeviceLike, graph: Graph, adapter: str = "") -> bool:
    """Is the device there, and can it run every op of the graph?

    Ops it has no kernel for count when they can be built from others.
    Errors   UnknownDevice.
    """
    which = parse_device(device)
    return is_available(which) and not lowering_blocker(which, graph, adapter)


def why_refused(
    device: Device, graph: Graph, policy: DevicePolicy, adapter: str = ""
) -> str:
    """Return why a device does not run a graph, as a sentence; "" if it does.

    The first that applies: the policy, the device is missing, what of the graph it
    cannot run. A device that the policy does not permit is not opened.
    """
    barred = why_not_permitted(policy, device)
    if barred:
        return f"device {device} is {barred}"
    row = probe(device, adapter)
    if not row.available:
        named = f" with an adapter named {adapter!r}" if adapter else ""
        return f"device {device}{named} is not available: {row.blocker}"
    blocker = lowering_blocker(device, graph, adapter)
    return f"device {device} cannot run this graph: {blocker}" if blocker else ""


def refusal(
    doing: str,
    device: Device,
    graph: Graph,
    policy: DevicePolicy,
    adapter: str = "",
    viable: Sequence[Device] = (),
) -> Unsupported:
    """Return the error for a device that was named and does not run a graph.

    viable   the devices that do
    """
    why = why_refused(device, graph, policy, adapter)
    if not why:
        why = f"device {device} is refused: {NOT_SEEN}"
    is_missing = policy.permits(device) and not is_available(device)
    hint = how_to_get(device.label) if is_missing else ""
    return Unsupported(doing, why, f"viable backends are {_list(viable)}", hint)


def nobody(
    doing: str, graph: Graph, policy: DevicePolicy, adapters: Mapping[Device, str]
) -> Unsupported:
    """Return the error for a graph that no allowed device runs, with each's reason."""
    every = policy.candidates
    reasons = [why_refused(d, graph, policy, adapters.get(d, "")) for d in every]
    return Unsupported(doing, NOBODY, "; ".join(reasons) or "no device is allowed")


def devices_for(
    graph: Graph, policy: DevicePolicy | None = None, adapters: Adapters | None = None
) -> tuple[Device, ...]:
    """The available devices that can run a graph, as the policy orders them."""
    policy = policy_of(policy)
    names = adapters_of(adapters)
    allowed = policy.candidates  # a denied device is not even opened
    return tuple(d for d in allowed if supports_graph(d, graph, names.get(d, "")))


def and_named(
    found: Sequence[Device],
    named: Iterable[Device],
    graph: Graph,
    policy: DevicePolicy,
    adapters: Mapping[Device, str],
) -> tuple[Device, ...]:
    """Those found, and of the devices that somebody names the others that can run it.

    Others there are only where a device waits to be named (MLX on a CPU, say).
    """
    waiting = (d for d in dict.fromkeys(named) if d not in found and policy.permits(d))
    more = (
        d
        for d in waiting
        if named_only(d.label) and supports_graph(d, graph, adapters.get(d, ""))
    )
    return (*found, *more)


def named_by_environment() -> tuple[Device, ...]:
    """The devices that variables name, one by one or as a chain."""
    ones = device_from_env(), forced_device_from_env()
    return (*(d for d in ones if d is not None), *device_chain_from_env())


# --- who runs it ------------------------------------------------------------------


def fastest_device_for(
    graph: Graph,
    policy: DevicePolicy | None = None,
    *,
    cost_mode: str = "calibrated",
    adapters: Adapters | None = None,
) -> Device:
    """The device predicted to run a graph fastest.

    policy     allowed, denied and preferred devices; all of them when left out
    cost_mode  "calibrated" or RLX's "seed"
    Errors     Unsupported when no allowed device can run it.
    """
    return fastest(graph, policy, adapters, cost_mode).device


def fastest(
    graph: Graph,
    policy: DevicePolicy | None = None,
    adapters: Adapters | None = None,
    cost_mode: str = "calibrated",
) -> Pick[GraphJob]:
    """The prediction's pick, whatever RLX_DEVICE says; RLX_FORCE_DEVICE comes first.

    Errors   Unsupported; UsageError for an unknown cost_mode.
    """
    job, policy = GraphJob(graph, cost_mode=cost_mode), policy_of(policy)
    names = adapters_of(adapters)
    if checked_mode(cost_mode) == "calibrated":
        return predicted(job, policy, names)
    forced = by_force(job, names)
    if forced is not None:
        return forced
    found = devices_for(graph, policy, adapters)
    if not found:
        raise nobody(job.title, graph, policy, names)
    return _by_constants(job, found)


@formerly(hint="device")
def resolve_device(
    graph: Graph,
    device: DeviceLike | None = None,
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device] | None = None,
    adapters: Adapters | None = None,
    cost_mode: str = "calibrated",
) -> Device:
    """The device asked for if it is viable, else RLX_DEVICE, else the fastest.

    viable     the devices that can run the graph, where the caller knows them already
    cost_mode  what predicts the fastest: "calibrated" or RLX's "seed"
    Errors     Unsupported when nothing can run the graph or the device asked for is not
               viable; UnknownDevice.
    """
    pick = decide_device(
        graph, device, policy, viable=viable, adapters=adapters, cost_mode=cost_mode
    )
    return pick.device


def decide_device(
    graph: Graph,
    device: DeviceLike | None = None,
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device] | None = None,
    adapters: Adapters | None = None,
    cost_mode: str = "calibrated",
) -> Pick[GraphJob]:
    """`resolve_device` with the decision that says why."""
    must_be_graph(graph)
    policy, names = policy_of(policy), adapters_of(adapters)
    doing = f"resolve a device for '{graph.name}'"
    job = GraphJob(graph, cost_mode=checked_mode(cost_mode))
    found = devices_for(graph, policy, adapters) if viable is None else tuple(viable)
    device = unless_open(device)
    which = None if device is None else parse_device(device)
    named = named_by_environment() if which is None else (which,)
    found = and_named(found, named, graph, policy, names)
    if which is not None:
        if which not in found:
            adapter = names.get(which, "")
            raise refusal(doing, which, graph, policy, adapter, found)
        return _only(job, which, "it was asked for")
    if not found:
        raise nobody(doing, graph, policy, names)
    if len(found) == 1 and not a_device_is_named():
        return _only(job, found[0], "no other device can run it")
    pick = _chosen(job, found, _among(found, policy), names)
    if pick.device not in found and pick.device is not forced_device_from_env():
        # Where all are allowed, only those worth opening were asked; now the viable.
        only = replace(policy, allow=found)
        pick = _chosen(job, found, only, names)
    if pick.device is forced_device_from_env() and pick.device not in found:
        forced, why = pick.device, pick.decision.why
        error = refusal(doing, forced, graph, policy, names.get(forced, ""), found)
        raise Unsupported(doing, f"{why}: {error.problem}", error.rule, error.hint)
    return pick


def _chosen(
    job: GraphJob,
    found: Sequence[Device],
    policy: DevicePolicy,
    adapters: Mapping[Device, str],
) -> Pick[GraphJob]:
    asked = Asked(policy=policy, adapters=adapters)
    if job.cost_mode == "calibrated":
        return choose(job, asked)
    return by_environment(job, policy, asked) or _by_constants(job, found)


def decide_by_environment(
    graph: Graph,
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device],
    adapters: Adapters | None = None,
    cost_mode: str = "calibrated",
) -> Pick[GraphJob] | None:
    """The device a variable names, where one does and the graph can run on it."""
    job = GraphJob(graph, cost_mode=checked_mode(cost_mode))
    policy = replace(policy_of(policy), allow=tuple(viable))
    asked = Asked(policy=policy, adapters=adapters_of(adapters))
    return by_environment(job, policy, asked)


def _among(found: Sequence[Device], policy: DevicePolicy) -> DevicePolicy:
    """The policy, allowing those alone; one that allows all is left as it is."""
    if policy == DevicePolicy.all():
        return policy
    return replace(policy, allow=tuple(found))


def _only(job: GraphJob, device: Device, why: str) -> Pick[GraphJob]:
    """A device that no prediction of ours chose."""
    decision = Decision(f"device {device.label}", why)
    return Pick(job, Candidate(device, device.label), decision)


def _by_constants(job: GraphJob, found: Sequence[Device]) -> Pick[GraphJob]:
    """RLX's own pick among the devices that can run it, at least one."""
    return _only(job, seed_pick(job.graph, found), "by RLX's published constants")


def resolve_device_chain(
    graph: Graph,
    chain: DeviceLike | Sequence[DeviceLike],
    policy: DevicePolicy | None = None,
    *,
    viable: Sequence[Device] | None = None,
    adapters: Adapters | None = None,
) -> Device:
    """The first device of a chain that can run a graph.

    Errors   Unsupported with the reason of each device of the chain, and what is
             viable; UnknownDevice.
    """
    must_be_graph(graph)
    policy, names = policy_of(policy), adapters_of(adapters)
    found = devices_for(graph, policy, adapters) if viable is None else tuple(viable)
    wanted = devices_named(chain)
    found = and_named(found, wanted, graph, policy, names)
    for device in wanted:
        if device in found:
            return device
    raise Unsupported(
        f"resolve a device for '{graph.name}'",
        f"no device in chain {_list(wanted)} can run this graph — viable: "
        f"{_list(found)}",
        "; ".join(why_refused(d, graph, policy, names.get(d, "")) for d in wanted),
    )


def _list(devices: Sequence[Device]) -> str:
    return "[" + ", ".join(str(d) for d in devices) + "]"
