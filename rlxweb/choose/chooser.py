"""Who runs this job? One question for graphs and for Welch estimates, all in one file.

A job offers its ways at a place, each priced or blocked with a reason. Asked in turn:

1. The caller named a device or an adapter: its best way, or the error that says why
   not. Never swapped for another.
2. RLX_DEVICE names one: the same, but what it cannot run is warned about and passed on.
   RLX_FORCE_DEVICE names one: the same as 1, whatever the policy says.
3. The very job was settled lately, under the same policy and with nothing measured
   since: that pick, for some uses.
4. It is too small to pay for opening other devices: the CPU's best way.
5. Every way at every place the policy allows: the fastest by prediction, or a preferred
   device that is nearly as fast. Engines nobody measured are measured when work is
   large enough to win that back.

The Decision of a pick names every way there was. Knows no graph and no estimate.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

from rlxweb.calibration.corrections import Bucket, corrections
from rlxweb.calibration.known import UNMEASURED, measure_if_worth_it
from rlxweb.calibration.store import store
from rlxweb.calibration.worth import Worth, worth
from rlxweb.callers import outside
from rlxweb.choose.recent_picks import recent
from rlxweb.decision.candidate import Candidate, candidate_name, comparison, ranked
from rlxweb.decision.decision import Decision
from rlxweb.device import Device, DeviceLike, is_open, parse_device
from rlxweb.devices.availability import open_async, probe
from rlxweb.devices.place import CPU, Place, available_places
from rlxweb.devices.policy import (
    DevicePolicy,
    device_from_env,
    forced_device_from_env,
    spelled_by_env,
)
from rlxweb.errors import (
    DeviceError,
    DTypeError,
    EnvironmentWarning,
    RlxError,
    UsageError,
)
from rlxweb.forked import cached_property
from rlxweb.gpu.drive import awaited, can_block
from rlxweb.gpu.drivers import drivers

# A preferred device is taken when it is predicted to be at most this much slower.
PREFER_WITHIN = 1.10
# What may be wrong with a job on one device and right on the next.
REFUSALS = (DeviceError, DTypeError, UsageError)

Reach = Literal["anywhere", "cpu", "devices"]


class Job(Protocol):
    """What is to be run somewhere."""

    @property
    def title(self) -> str:
        """The job in an error or a warning: "graph 'mlp'"."""

    @property
    def key(self) -> Hashable:
        """What a pick is remembered under, the job itself; None where it is not."""
        return self  # type: ignore[return-value]  # frozen, or it says otherwise

    @property
    def reach(self) -> Reach:
        """Where any of its ways runs at all."""

    def cpu_ns(self) -> float:
        """What the CPU is predicted to take; infinite where it cannot run it."""

    def offers(self, place: Place) -> Iterable[Candidate]:
        """Its ways at a place, priced or blocked with the reason; none raises."""

    def asked(self, place: Place) -> Sequence[Candidate]:
        """The same at a place that was named. Errors  why it cannot be used."""

    def points(self, place: Place) -> tuple[str, ...]:
        """The kinds of measured points a price rests on there; any one will do."""

    def bucket(self, candidate: Candidate) -> Bucket | None:
        """Where observed runs of such a job by this way are kept."""

    def numbers(self, candidate: Candidate) -> dict[str, Any]:
        """What a decision says of the job itself."""

    def nobody(self, reasons: str, places: Sequence[Place]) -> RlxError:
        """The error where no way is open; `reasons` of all that are blocked."""


J = TypeVar("J", bound=Job)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the caller says of the place.

    device    one by name; None or "auto" leaves it open
    adapter   part of an adapter's name; alone it asks for a GPU
    policy    who may be used where it is left open; None: what the environment spells
    adapters  part of an adapter's name by device, for places that are looked for
    why       why the device is named, where it was not asked for
    """

    device: DeviceLike | None = None
    adapter: str = ""
    policy: DevicePolicy | None = None
    adapters: Mapping[Device, str] = field(default_factory=dict)
    why: str = "it was asked for"

    def place(self) -> tuple[Place | None, str]:
        """The place that is named, and why it is; None when it is left open."""
        if self.device is not None and not is_open(self.device):
            return Place(parse_device(self.device), self.adapter), self.why
        if not isinstance(self.adapter, str) or self.adapter:
            why = "its adapter was asked for by name"
            return Place(Device.GPU, self.adapter), why
        return None, ""


OPEN = Asked()


@dataclass(frozen=True, eq=False)
class Pick(Generic[J]):
    """What was picked for a job, and what is needed to learn from its runs.

    cpu_ns   what the CPU was predicted to take; 0 where it was not asked
    took_ns  what the run took; 0 before there was one
    """

    job: J
    candidate: Candidate
    decision: Decision
    cpu_ns: float = 0.0
    took_ns: float = 0.0

    @property
    def device(self) -> Device:
        return self.candidate.device

    @property
    def engine(self) -> str:
        """In words, as results name it."""
        return self.candidate.engine

    @cached_property
    def _expected(self) -> tuple[Bucket | None, float]:
        """Where runs by the way that was picked are kept, and their predicted time."""
        bucket, terms = self.job.bucket(self.candidate), self.candidate.terms
        return (None, 0.0) if terms is None else (bucket, terms.total_ns)

    def observe(self, took_ns: float, device: Device | None = None) -> None:
        """Let a warm run of this very job correct the model of the way that ran.

        device   where it ran, if not where the pick says; by its only way then
        """
        if worth.is_trivial(took_ns):
            return
        ran = [self]
        if device not in (None, self.device):
            ways = (c for c in self.decision.candidates if c.device is device)
            ran = [replace(self, candidate=way) for way in ways]
        for bucket, predicted_ns in (pick._expected for pick in ran):
            # Of jobs that are too short to be noted only those that were disturbed
            # would be.
            if bucket is not None and not worth.is_trivial(predicted_ns):
                corrections.note(bucket, predicted_ns, took_ns)


def choose(job: J, asked: Asked = OPEN) -> Pick[J]:
    """Where and how a job runs, and why: cases 1 to 5 above.

    Errors   UnknownDevice; those of `job.asked` for a place that was named; those of
    `job.nobody` when nothing may run it.
    """
    place, why = asked.place()
    if place is None and device_from_env() is not None:  # 2, warned of at each call
        policy = asked.policy or DevicePolicy.from_env()
        named = by_environment(job, policy, asked)
        return named or predicted(job, policy, asked.adapters)
    about = place, why, asked.policy, spelled_by_env(), *asked.adapters.items()

    def settled() -> Pick[J]:
        if place is not None:  # 1
            return _named(job, place, why)
        policy = asked.policy or DevicePolicy.from_env()
        return predicted(job, policy, asked.adapters)

    return _lately(job, about, settled)


def predicted(
    job: J, policy: DevicePolicy, adapters: Mapping[Device, str] | None = None
) -> Pick[J]:
    """Who is predicted to be fastest (4, 5), whatever RLX_DEVICE says.

    RLX_FORCE_DEVICE is followed.

    adapters   part of an adapter's name by device
    Errors     those of `job.nobody`.
    """
    forced = by_force(job, adapters or {})
    if forced is not None:
        return forced
    places, allowed = None, list[Place]()
    if policy != DevicePolicy.all() or adapters:
        places = available_places(policy.candidates, adapters)
        names = adapters or {}
        allowed = [Place(d, names.get(d, "")) for d in policy.candidates]
    return decide(job, places=places, prefer=policy.prefer, allowed=allowed)


async def choose_async(job: J, asked: Asked = OPEN) -> Pick[J]:
    """`choose` where opening a device must be awaited: a browser without JSPI."""
    if not can_block():
        # Choosing opens devices and cannot wait for them.
        await open_async("webgpu")
    with awaited():
        return choose(job, asked)


# --- 1 and 2: somebody named a place ----------------------------------------------


def _named(job: J, place: Place, why: str) -> Pick[J]:
    """The best way there. Unmeasured ones stay open: the place was asked for."""
    return best_of(job, job.asked(place), why)


def best_of(job: J, ways: Sequence[Candidate], why: str) -> Pick[J]:
    """The fastest of the ways at a place that was named.

    Errors   those of `job.nobody`.
    """
    found = _unmeasured(ways)
    measured = any(c.terms is not None for c in found)
    pick = _first(job, ranked(found) if measured else found)
    if measured and pick.decision.why:
        why = f"{why}; {pick.decision.why}" if why else pick.decision.why
    return replace(pick, decision=replace(pick.decision, why=why))


def a_device_is_named() -> bool:
    """Does the environment name a device?"""
    return device_from_env() is not None or forced_device_from_env() is not None


def by_force(job: J, adapters: Mapping[Device, str]) -> Pick[J] | None:
    """The job on RLX_FORCE_DEVICE, if that is set. Errors  why it cannot run there."""
    device = forced_device_from_env()
    if device is None:
        return None
    place = Place(device, adapters.get(device, ""))
    return _named(job, place, f"RLX_FORCE_DEVICE={device.label}")


def by_environment(job: J, policy: DevicePolicy, asked: Asked) -> Pick[J] | None:
    """The job on the device that a variable names, if one does and can run it.

    RLX_DEVICE comes first. What it cannot run is warned about and passed on; where
    RLX_FORCE_DEVICE cannot, that is an error.
    """
    device = device_from_env()
    if device is None:
        return by_force(job, asked.adapters)
    allowed = ", ".join(d.label for d in policy.candidates)
    why_not: str | RlxError = f"the policy allows {allowed or 'no device'}"
    if asked.policy is None:
        why_not = "RLX_DEVICES or RLX_DENY_DEVICES exclude it"
    if policy.permits(device):
        place = Place(device, asked.adapters.get(device, ""))
        why = f"RLX_DEVICE={device.label}"
        try:
            return _lately(job, (place, why), lambda: _named(job, place, why))
        except REFUSALS as error:
            why_not = error
    said = f"RLX_DEVICE={device.label} cannot run {job.title} and is not followed"
    warnings.warn(EnvironmentWarning(said, why_not), stacklevel=outside())
    return by_force(job, asked.adapters)


# --- 3: it was settled lately -----------------------------------------------------


def _lately(
    job: J, about: tuple[Hashable, ...], make: Callable[[], Pick[J]]
) -> Pick[J]:
    """The pick made lately for the job under the same circumstances, or a new one."""
    own = job.key  # a walk over all nodes of a graph
    if own is None:
        return make()
    key = (own, about, store.changes)
    pick = recent.get(key)
    if pick is None:
        pick = make()
        recent.keep(key, pick)
    return pick


# --- 4 and 5: nobody did ----------------------------------------------------------


def decide(
    job: J,
    *,
    places: Sequence[Place] | None = None,
    prefer: Sequence[Device] = (),
    worthwhile: Worth = worth,
    allowed: Sequence[Place] = (),
) -> Pick[J]:
    """The fastest way there is, by prediction, with every other way beside it.

    places    where it may run; None: the CPU, and the other engines of the machine if
              they are worth opening for it
    prefer    devices taken instead when predicted to be at most 10 % slower
    allowed   where the policy lets it run; an error also says what is missing of those
    Errors    those of `job.nobody`.
    """
    cpu_ns = job.cpu_ns()
    spent_ns = cpu_ns if cpu_ns < float("inf") else 0.0
    worthwhile.add(spent_ns)
    note = ""
    if places is None:
        places, note = _places_worth_it(job, cpu_ns, worthwhile)
    if tuple(places) == (CPU,):
        note = note or drivers.why_not
    else:
        measure_if_worth_it(places, job.points, cpu_ns, worthwhile)
    found = ranked(way for place in places for way in job.offers(place))
    if all(c.blocker for c in found):
        found = (*_unmeasured(found), *_missing(allowed))
    pick = _first(job, found, prefer, note, places)
    return replace(pick, cpu_ns=spent_ns)


def _places_worth_it(
    job: Job, cpu_ns: float, worthwhile: Worth
) -> tuple[tuple[Place, ...], str]:
    if job.reach == "cpu":
        return (CPU,), ""
    if job.reach == "anywhere" and worthwhile.is_trivial(cpu_ns):
        return (CPU,), "too small to pay for a trip to any device"
    if job.reach == "anywhere" and not worthwhile.opening(cpu_ns):
        return (CPU,), worthwhile.rule
    return available_places(), ""


def _missing(places: Sequence[Place]) -> list[Candidate]:
    """Return the places that do not open, each blocked with the reason."""
    rows = [(place, probe(place.device, place.adapter)) for place in places]
    return [
        Candidate(at.device, at.label, adapter=at.adapter, blocker=row.blocker)
        for at, row in rows
        if not row.available
    ]


def _unmeasured(found: Sequence[Candidate]) -> list[Candidate]:
    """Ways nobody has measured or can guess are better than none."""
    return [
        replace(c, blocker="", terms=None) if c.blocker == UNMEASURED else c
        for c in found
    ]


def _first(
    job: J,
    found: Sequence[Candidate],
    prefer: Sequence[Device] = (),
    note: str = "",
    places: Sequence[Place] = (),
) -> Pick[J]:
    """The first way that is open, or a preferred one near it, and why."""
    open_ = [c for c in found if not c.blocker]
    if not open_:
        blocked = (f"{candidate_name(c, with_how=False)}: {c.blocker}" for c in found)
        raise job.nobody("; ".join(blocked), places)
    near = [c for c in open_ if c.predicted_ns <= PREFER_WITHIN * open_[0].predicted_ns]
    wanted = (c for device in prefer for c in near if c.device is device)
    picked = next(wanted, open_[0])
    why = [comparison(picked, found)]
    if picked is not open_[0]:
        why.append(f"preferred, being within {PREFER_WITHIN - 1:.0%} of the best")
    numbers = job.numbers(picked)
    if picked.terms is not None:
        numbers["predicted_ms"] = round(picked.predicted_ns / 1e6, 4)
        numbers["source"] = picked.source
    kind = "device " if picked.strategy == "graph" else ""
    what = kind + candidate_name(picked, with_how=False)
    said = "; ".join([*why, *([note] if note else [])])
    return Pick(job, picked, Decision(what, said, numbers, tuple(found)))
