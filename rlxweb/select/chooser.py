"""Device choice for one job, shared by graphs and Welch estimates.

A job offers candidates at a place, each priced or blocked with a reason. The first case
that applies decides:

1. The caller named a device or an adapter: its best candidate, or the error that says
   why not. Never swapped for another.
2. RLX_DEVICE names one: the same, but what it cannot run is warned about and passed on.
   RLX_FORCE_DEVICE names one: the same as 1, whatever the policy says.
3. The very job was settled lately, under the same policy and with nothing measured
   since: that pick, for some uses.
4. It is too small to pay for opening other devices: the CPU's best candidate.
5. All candidates at every place the policy allows: the fastest by prediction, or a
   preferred device that is nearly as fast. Engines nobody measured are measured when
   work is large enough to win that back.

The Decision of a pick names all candidates. Knows no graph and no estimate.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

from rlxweb.core.device import Device, DeviceLike, is_auto, parse_device
from rlxweb.core.environment import variable_text
from rlxweb.core.errors import (
    DeviceError,
    DTypeError,
    EnvironmentWarning,
    RlxError,
    UsageError,
)
from rlxweb.core.fork_safety import cached_property
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.cost.decision import (
    Candidate,
    Decision,
    candidate_name,
    comparison_text,
    rank_candidates,
)
from rlxweb.gpu.coroutine_runner import assume_awaited, can_block
from rlxweb.gpu.driver_fork_guard import driver_fork_guard
from rlxweb.select.availability import open_async, probe
from rlxweb.select.calibration.engine_calibration_lookup import (
    UNMEASURED_REASON,
    measure_if_profitable,
)
from rlxweb.select.calibration.observed_run_corrections import Bucket, corrections
from rlxweb.select.calibration.profitability import (
    ProfitabilityPolicy,
    profitability_policy,
)
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace, available_places
from rlxweb.select.device_pick_cache import (
    CachedPick,
    present_circumstances,
    recent_picks,
)
from rlxweb.select.policy import (
    DevicePolicy,
    device_from_env,
    forced_device_from_env,
)

# A preferred device is taken when it is predicted to be at most this much slower.
PREFER_WITHIN = 1.10
# What may be wrong with a job on one device and right on the next.
REFUSAL_ERRORS = (DeviceError, DTypeError, UsageError)

AllowedDevices = Literal["anywhere", "cpu", "devices"]


class PlaceableJob(Protocol):
    """Protocol of a job that can run in several places."""

    @property
    def title(self) -> str:
        """Name of the job in an error or a warning, such as "graph 'mlp'"."""

    @property
    def key(self) -> Hashable:
        """Cache key of the job's picks; the job itself by default, None where picks are
        not cached.
        """
        return self  # type: ignore[return-value]  # frozen, or it says otherwise

    @property
    def allowed_devices(self) -> AllowedDevices:
        """Devices that can run any candidate of the job at all."""

    def cpu_ns(self) -> float:
        """Return the predicted time on the CPU; infinite where the CPU cannot run the
        job.
        """

    def candidates(self, place: DevicePlace) -> Iterable[Candidate]:
        """Return the job's candidates at a place, each priced or blocked with the
        reason. Blocked candidates never raise.
        """

    def requested_candidates(self, place: DevicePlace) -> Sequence[Candidate]:
        """Return the candidates at a place that the caller named. Raises the reason why
        the place cannot be used.
        """

    def point_kinds(self, place: DevicePlace) -> tuple[str, ...]:
        """Return the kinds of calibration points that a price at a place rests on; any
        one of them suffices.
        """

    def bucket(self, candidate: Candidate) -> Bucket | None:
        """Return the correction bucket of the candidate's observed runs, None where
        runs are not recorded.
        """

    def decision_numbers(self, candidate: Candidate) -> dict[str, Any]:
        """Return the facts about the job that its decision carries."""

    def no_device_error(self, reasons: str, places: Sequence[DevicePlace]) -> RlxError:
        """Return the error for a job whose candidates are all blocked; `reasons` joins
        their blockers.
        """


J = TypeVar("J", bound=PlaceableJob)


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """Request of a caller: device, adapter and policy.

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
    why: str = "it was requested"

    def named_place(self) -> tuple[DevicePlace | None, str]:
        """Return the named place and why it is named; None when the caller left it
        open.
        """
        if self.device is not None and not is_auto(self.device):
            return DevicePlace(parse_device(self.device), self.adapter), self.why
        if not isinstance(self.adapter, str) or self.adapter:
            why = "its adapter was requested by name"
            return DevicePlace(Device.GPU, self.adapter), why
        return None, ""


ANY_PLACE = PlaceRequest()


@dataclass(frozen=True, eq=False)
class DevicePick(Generic[J]):
    """Picked candidate of a job, with what is needed to learn from its runs.

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
        """Engine of the picked candidate in words, as results name it."""
        return self.candidate.engine

    @cached_property
    def _expected_run(self) -> tuple[Bucket | None, float]:
        """Correction bucket of the picked candidate and its predicted time."""
        bucket, terms = self.job.bucket(self.candidate), self.candidate.terms
        return (None, 0.0) if terms is None else (bucket, terms.total_ns)

    def observe(self, took_ns: float, device: Device | None = None) -> None:
        """Correct the cost model of the candidate that ran by the time of a warm run.

        device   where it ran, if not where the pick says; all its candidates count then
        """
        if profitability_policy.is_trivial(took_ns):
            return
        picks = [self]
        if device not in (None, self.device):
            candidates = (c for c in self.decision.candidates if c.device is device)
            picks = [replace(self, candidate=candidate) for candidate in candidates]
        for bucket, predicted_ns in (pick._expected_run for pick in picks):
            # Of jobs that are too short to be noted only those that were disturbed
            # would be.
            if bucket is not None and not profitability_policy.is_trivial(predicted_ns):
                corrections.record_run(bucket, predicted_ns, took_ns)


def choose_place(job: J, request: PlaceRequest = ANY_PLACE) -> DevicePick[J]:
    """Choose where and how a job runs, by cases 1 to 5 of the module.

    Errors   UnknownDevice; those of the job's `requested_candidates` for a place that
    was named, and its `no_device_error` when nothing may run it.
    """
    return choose_reusable(job, request).pick


def choose_reusable(job: J, request: PlaceRequest = ANY_PLACE) -> CachedPick:
    """Choose as `choose_place`, for a caller who knows when the very same call comes
    again.

    Such a caller asks `is_current` and `use` of it first, instead of all this again.
    """
    place, why = request.named_place()
    if place is None and device_from_env() is not None:  # 2, warned of at each call
        policy = request.policy or DevicePolicy.from_env()
        named_pick = choose_by_environment(job, policy, request)
        return CachedPick(
            named_pick or choose_by_prediction(job, policy, request.adapters)
        )
    context = (
        place,
        why,
        request.policy,
        *request.adapters.items(),
    )

    def compute_pick() -> DevicePick[J]:
        if place is not None:  # 1
            return _choose_at_place(job, place, why)
        policy = request.policy or DevicePolicy.from_env()
        return choose_by_prediction(job, policy, request.adapters)

    entry = _cached_pick(job, context, compute_pick)
    if place is None and variable_text("RLX_DEVICE"):  # nonsense, warned of each time
        return CachedPick(entry.pick)
    return entry


def choose_by_prediction(
    job: J, policy: DevicePolicy, adapters: Mapping[Device, str] | None = None
) -> DevicePick[J]:
    """Choose the candidate predicted to be fastest (cases 4 and 5), whatever RLX_DEVICE
    says.

    RLX_FORCE_DEVICE is followed.

    adapters   part of an adapter's name by device
    Errors     the job's `no_device_error`.
    """
    forced = choose_forced(job, adapters or {})
    if forced is not None:
        return forced
    places, allowed = None, list[DevicePlace]()
    if policy != DevicePolicy.all() or adapters:
        places = available_places(policy.candidates, adapters)
        names = adapters or {}
        allowed = [DevicePlace(d, names.get(d, "")) for d in policy.candidates]
    return choose_fastest(job, places=places, prefer=policy.prefer, allowed=allowed)


async def choose_place_async(
    job: J, request: PlaceRequest = ANY_PLACE
) -> DevicePick[J]:
    """Choose like `choose_place` where opening a device must be awaited: a browser
    without JSPI.
    """
    if not can_block():
        # Choosing opens devices and cannot wait for them.
        await open_async("webgpu")
    with assume_awaited():
        return choose_place(job, request)


# --- 1 and 2: somebody named a place ----------------------------------------------


def _choose_at_place(job: J, place: DevicePlace, why: str) -> DevicePick[J]:
    """Pick the best candidate at a named place. Unmeasured candidates stay open because
    the place was requested.
    """
    return fastest_of(job, job.requested_candidates(place), why)


def fastest_of(job: J, candidates: Sequence[Candidate], why: str) -> DevicePick[J]:
    """Pick the fastest candidate at a place that was named.

    Errors   the job's `no_device_error`.
    """
    unblocked = _unblock_unmeasured(candidates)
    is_measured = any(c.terms is not None for c in unblocked)
    pick = _pick_first(job, rank_candidates(unblocked) if is_measured else unblocked)
    if is_measured and pick.decision.why:
        why = f"{why}; {pick.decision.why}" if why else pick.decision.why
    return replace(pick, decision=replace(pick.decision, why=why))


def is_device_named_by_env() -> bool:
    """Tell whether an environment variable names a device."""
    return device_from_env() is not None or forced_device_from_env() is not None


def choose_forced(job: J, adapters: Mapping[Device, str]) -> DevicePick[J] | None:
    """Pick for RLX_FORCE_DEVICE, None if that is not set. Raises why the job cannot run
    there.
    """
    device = forced_device_from_env()
    if device is None:
        return None
    place = DevicePlace(device, adapters.get(device, ""))
    return _choose_at_place(job, place, f"RLX_FORCE_DEVICE={device.label}")


def choose_by_environment(
    job: J, policy: DevicePolicy, request: PlaceRequest
) -> DevicePick[J] | None:
    """Pick the device that an environment variable names, if one does and it can run
    the job.

    RLX_DEVICE comes first. What it cannot run is warned about and passed on; where
    RLX_FORCE_DEVICE cannot, that is an error.
    """
    device = device_from_env()
    if device is None:
        return choose_forced(job, request.adapters)
    allowed = ", ".join(d.label for d in policy.candidates)
    why_not: str | RlxError = f"the policy allows {allowed or 'no device'}"
    if request.policy is None:
        why_not = "RLX_DEVICES or RLX_DENY_DEVICES excludes this device"
    if policy.permits(device):
        place = DevicePlace(device, request.adapters.get(device, ""))
        why = f"RLX_DEVICE={device.label}"
        try:
            return _cached_pick(
                job, (place, why), lambda: _choose_at_place(job, place, why)
            ).pick
        except REFUSAL_ERRORS as error:
            why_not = error
    message = f"RLX_DEVICE={device.label} cannot run {job.title} and is ignored"
    warnings.warn(EnvironmentWarning(message, why_not), stacklevel=caller_stacklevel())
    return choose_forced(job, request.adapters)


# --- 3: it was settled lately -----------------------------------------------------


def _cached_pick(
    job: J, context: tuple[Hashable, ...], compute_pick: Callable[[], DevicePick[J]]
) -> CachedPick:
    """Return the cached pick of a job under the same circumstances, or compute and
    cache a new one.
    """
    job_key = job.key  # a walk over all nodes of a graph
    if job_key is None:
        return CachedPick(compute_pick())
    circumstances = present_circumstances()  # they may change while the pick is made
    key = (job_key, context, circumstances)
    entry = recent_picks.get(key)
    if entry is not None:
        return entry
    return recent_picks.add(key, compute_pick(), circumstances)


# --- 4 and 5: nobody did ----------------------------------------------------------


def choose_fastest(
    job: J,
    *,
    places: Sequence[DevicePlace] | None = None,
    prefer: Sequence[Device] = (),
    profitability: ProfitabilityPolicy = profitability_policy,
    allowed: Sequence[DevicePlace] = (),
) -> DevicePick[J]:
    """Pick the candidate with the shortest predicted time and record all others in its
    decision.

    places    where it may run; None: the CPU, and the other engines of the machine if
              they are worth opening for it
    prefer    devices taken instead when predicted to be at most 10 % slower
    allowed   where the policy lets it run; an error also says what is missing of those
    Errors    the job's `no_device_error`.
    """
    cpu_ns = job.cpu_ns()
    spent_ns = cpu_ns if cpu_ns < float("inf") else 0.0
    profitability.add_job(spent_ns)
    note = ""
    if places is None:
        places, note = _profitable_places(job, cpu_ns, profitability)
    if tuple(places) == (CPU_PLACE,):
        note = note or driver_fork_guard.unusable_reason
    else:
        measure_if_profitable(places, job.point_kinds, cpu_ns, profitability)
    candidates = rank_candidates(
        candidate for place in places for candidate in job.candidates(place)
    )
    if all(c.blocker for c in candidates):
        candidates = (
            *_unblock_unmeasured(candidates),
            *_unavailable_candidates(allowed),
        )
    pick = _pick_first(job, candidates, prefer, note, places)
    return replace(pick, cpu_ns=spent_ns)


def _profitable_places(
    job: PlaceableJob, cpu_ns: float, profitability: ProfitabilityPolicy
) -> tuple[tuple[DevicePlace, ...], str]:
    """Return the places that are worth opening for a job, and a note that says why
    others are not.
    """
    if job.allowed_devices == "cpu":
        return (CPU_PLACE,), ""
    if job.allowed_devices == "anywhere" and profitability.is_trivial(cpu_ns):
        return (CPU_PLACE,), "the job is too small to benefit from another device"
    if job.allowed_devices == "anywhere" and not profitability.should_open(cpu_ns):
        return (CPU_PLACE,), profitability.rule
    return available_places(), ""


def _unavailable_candidates(places: Sequence[DevicePlace]) -> list[Candidate]:
    """Return the places that do not open, each blocked with the reason."""
    rows = [(place, probe(place.device, place.adapter)) for place in places]
    return [
        Candidate(
            missing_place.device,
            missing_place.label,
            adapter=missing_place.adapter,
            blocker=row.blocker,
        )
        for missing_place, row in rows
        if not row.available
    ]


def _unblock_unmeasured(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Unblock candidates that were neither measured nor estimated, without a price:
    better than none.
    """
    return [
        replace(c, blocker="", terms=None) if c.blocker == UNMEASURED_REASON else c
        for c in candidates
    ]


def _pick_first(
    job: J,
    candidates: Sequence[Candidate],
    prefer: Sequence[Device] = (),
    note: str = "",
    places: Sequence[DevicePlace] = (),
) -> DevicePick[J]:
    """Pick the first unblocked candidate, or a preferred one nearly as fast, and say
    why.
    """
    unblocked = [c for c in candidates if not c.blocker]
    if not unblocked:
        blocked = (
            f"{candidate_name(c, with_how=False)}: {c.blocker}" for c in candidates
        )
        raise job.no_device_error("; ".join(blocked), places)
    near_best = [
        c
        for c in unblocked
        if c.predicted_ns <= PREFER_WITHIN * unblocked[0].predicted_ns
    ]
    preferred = (c for device in prefer for c in near_best if c.device is device)
    picked = next(preferred, unblocked[0])
    reasons = [comparison_text(picked, candidates)]
    if picked is not unblocked[0]:
        reasons.append(
            f"preferred because its time is within {PREFER_WITHIN - 1:.0%} of the best"
        )
    numbers = job.decision_numbers(picked)
    if picked.terms is not None:
        numbers["predicted_ms"] = round(picked.predicted_ns / 1e6, 4)
        numbers["source"] = picked.source
    kind = "device " if picked.strategy == "graph" else ""
    what = kind + candidate_name(picked, with_how=False)
    explanation = "; ".join([*reasons, *([note] if note else [])])
    return DevicePick(
        job, picked, Decision(what, explanation, numbers, tuple(candidates))
    )
