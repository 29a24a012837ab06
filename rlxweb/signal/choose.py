"""Settles where a Welch call runs: what the caller asked for, else the environment's
word, else the picker's.

A device, an adapter or a strategy that was asked for is used or refused, never swapped.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from rlxweb.backends.pool import pool
from rlxweb.calibration.worth import worth
from rlxweb.decision.strategy import WelchPeaksStrategy, parse_welch_peaks_strategy
from rlxweb.device import Device, DeviceLike, parse_device
from rlxweb.devices.availability import open_async
from rlxweb.devices.place import Place, available_places
from rlxweb.devices.policy import DevicePolicy, device_from_env
from rlxweb.errors import (
    DeviceError,
    DTypeError,
    EnvironmentWarning,
    Unsupported,
    UsageError,
)
from rlxweb.gpu.drive import awaited, can_block
from rlxweb.signal.engine import WelchJob, refusal
from rlxweb.signal.picker import Pick, decide, first_of
from rlxweb.signal.prices import NO_MODEL, candidates_at

Strategy = str | WelchPeaksStrategy

_OURS = {
    WelchPeaksStrategy.AUTO: "auto",
    WelchPeaksStrategy.ULTRA_FAST: "ultra",
    WelchPeaksStrategy.FAST_STREAMING: "fast",
    WelchPeaksStrategy.RLX_COMPILED: "fused",
    WelchPeaksStrategy.LEARNED_COMPILED: "learned",
}


def choose_engine(
    job: WelchJob,
    device: DeviceLike | None = None,
    adapter: str = "",
    strategy: Strategy = "auto",
) -> Pick:
    """The engine for a job, what it will compute and why there.

    Errors   UnknownDevice; AdapterMissing; DTypeError when a device is asked to compute
    what it would have to narrow; Unsupported for an estimate it has no kernel for and
    for the strategy "learned"; UsageError for a strategy the device cannot follow.
    """
    how = _OURS[parse_welch_peaks_strategy(strategy)]
    if how == "learned":
        raise Unsupported(
            "welch_peaks with strategy='learned'", NO_MODEL, hint="use strategy='fused'"
        )
    least = job.min_segments or 1
    if how == "ultra" and least > 1:
        raise UsageError(
            "welch_peaks with strategy='ultra'",
            "it averages 1 segment",
            f"min_segments is {least}",
            "leave min_segments out, or use strategy='fast'",
        )
    if device is None or device == "auto":
        if adapter:
            return _asked(job, Place(Device.GPU, adapter), how, "asked for by name")
        return _left_open(job, how)
    return _asked(job, Place(parse_device(device), adapter), how, "it was asked for")


async def choose_engine_async(
    job: WelchJob,
    device: DeviceLike | None = None,
    adapter: str = "",
    strategy: Strategy = "auto",
) -> Pick:
    """`choose_engine` where opening a device must be awaited: a browser without JSPI.

    Errors   those of `choose_engine`
    """
    if not can_block():
        # Choosing opens devices and cannot wait for them.
        await open_async("webgpu")
    with awaited():
        return choose_engine(job, device, adapter, strategy)


def _left_open(job: WelchJob, strategy: str) -> Pick:
    policy = DevicePolicy.from_env()
    named = _named_by_environment(job, strategy, policy)
    if named is not None:
        return named
    known = recent.get((job, strategy, policy))
    if known is not None:
        return known
    places = None
    if policy != DevicePolicy.all():
        places = available_places(policy.apply(tuple(Device)))
    pick = decide(job, places=places, strategy=strategy, prefer=policy.prefer)
    recent.keep((job, strategy, policy), pick)
    return pick


@dataclass(slots=True)
class RecentPicks:
    """Picks of jobs that come again and again, so that small ones stay quick.

    Each is used `uses` times and then made anew, with what runs have taught meanwhile.
    """

    uses: int = 64
    capacity: int = 256
    _left: OrderedDict[Hashable, tuple[Pick, int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Hashable) -> Pick | None:
        """The pick, if it was made lately."""
        with self._lock:
            found = self._left.pop(key, None)
            if found is None or found[1] < 1:
                return None
            self._left[key] = (found[0], found[1] - 1)
        worth.add(found[0].cpu_ns)
        return found[0]

    def keep(self, key: Hashable, pick: Pick) -> None:
        with self._lock:
            self._left[key] = (pick, self.uses)
            while len(self._left) > self.capacity:
                self._left.popitem(last=False)

    def forget(self) -> None:
        """Decide anew from here on."""
        with self._lock:
            self._left.clear()


recent = RecentPicks()


def _named_by_environment(
    job: WelchJob, strategy: str, policy: DevicePolicy
) -> Pick | None:
    device = device_from_env()
    if device is None:
        return None
    why_not = "RLX_DEVICES or RLX_DENY_DEVICES exclude it"
    if policy.permits(device):
        try:
            return _asked(job, Place(device), strategy, f"RLX_DEVICE={device.label}")
        except (DeviceError, DTypeError, UsageError) as error:
            why_not = str(error)
    warnings.warn(
        f"RLX_DEVICE={device.label} cannot run this job and is not followed: {why_not}",
        EnvironmentWarning,
        stacklevel=5,
    )
    return None


def _asked(job: WelchJob, place: Place, strategy: str, why: str) -> Pick:
    """The place, by the strategy asked for or the best there is on it."""
    is_cpu = place.device is Device.CPU
    if is_cpu and place.adapter:
        raise UsageError(
            "welch_peaks on CPU",
            f"adapter {place.adapter!r} was asked for",
            "the CPU has none",
            "leave the adapter out, or name a GPU",
        )
    if not is_cpu:
        _refuse(job, place)
    wanted = ("ultra", "fast") if is_cpu else ("fused",)
    if strategy != "auto" and strategy not in wanted:
        raise UsageError(
            f"welch_peaks on {place.device.display}",
            f"strategy {strategy!r} does not run there",
            f"it has {' and '.join(wanted)}",
            "leave the device or the strategy open",
        )
    if strategy == "auto" and job.min_segments != 1:
        wanted = wanted[-1:]
    key = (job, strategy, place, why)
    pick = recent.get(key)
    if pick is None:
        found = [
            c
            for c in candidates_at(job, [place])
            if c.strategy in ((strategy,) if strategy != "auto" else wanted)
        ]
        pick = first_of(job, found, why)
        recent.keep(key, pick)
    return pick


def _refuse(job: WelchJob, place: Place) -> None:
    pool.backend(place.device.label, place.adapter)
    reason = refusal(job.spec)
    where = f"welch on {place.device.display}"
    if reason and job.spec.dtype == "float64":
        raise DTypeError(
            where,
            reason,
            "nothing is narrowed unasked",
            "pass precision='f32', give float32 samples, or use device='cpu'",
        )
    if reason:
        raise Unsupported(where, reason, hint="use device='cpu'")
