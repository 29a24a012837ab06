"""A GPU made up for tests, and calibrations whose times are known sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlxweb.backends.pool import pool
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.calibration.store import store
from rlxweb.choose.chooser import Pick
from rlxweb.cost.record import Calibration, Point
from rlxweb.decision.candidate import Candidate
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place, identity_of
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import DeviceFacts, Want
from rlxweb.signal.engine import Engine
from rlxweb.signal.offers import WelchJob, engine_for
from rlxweb.signal.presets import from_preset
from tests.fake_port import Failure, FakePort

LABEL = "tpu"
PLACE = Place(Device.TPU)
NAME = "fake (fake)"


class HardwarePort(FakePort):
    """A fake port that says it is no software; its kernels compute nothing."""

    @property
    def facts(self) -> DeviceFacts:
        return replace(super().facts, software=False)


@dataclass
class PretendGpu:
    """Opens fake ports under the label of a device that no machine has.

    fail   what goes wrong on the next port that is opened
    ports  those opened so far
    """

    fail: Sequence[Failure] = ()
    ports: list[FakePort] = field(default_factory=list)

    async def open(self, adapter: str) -> WebGpuBackend:
        port = HardwarePort(self.fail)
        self.fail = ()
        self.ports.append(port)
        await port.open(Want())
        return WebGpuBackend(port)

    def forget(self) -> None:
        """Close it, and leave nothing of it to the next test."""
        for key in [k for k in pool._open if k[0] == LABEL]:
            drive(pool._open.pop(key).close())
        for failed in [k for k in pool._failed if k[0] == LABEL]:
            del pool._failed[failed]


@dataclass(frozen=True)
class Speed:
    """An engine that takes `call` ns a call and `work` ns for a unit of transforms."""

    call: float
    work: float

    def ns(self, n: int, segments: int, rows: int) -> float:
        """The time of a job whose length is a power of two."""
        return self.call + self.work * rows * segments * n * math.log2(n)

    def give_to(self, place: Place, *more: Point) -> Calibration:
        """Let a place be calibrated as if it had been measured at this speed."""
        what = "welch_host" if place.device is Device.CPU else "welch_fused"
        points = [
            Point(
                what,
                {"n": n, "segments": segments, "rows": rows, "k": 16},
                self.ns(n, segments, rows),
            )
            for n in (64, 256, 1024)
            for segments in (1, 2, 8)
            for rows in (1, 32, 500)
        ]
        record = Calibration(
            place.device.label, *identity_of(place), points=(*points, *more)
        )
        store.save(record)
        return record


# The CPU starts at once; the GPU takes a millisecond to start and is quick then.
SLOW, QUICK = Speed(10e3, 0.5), Speed(1e6, 0.01)
BOTH = (CPU, PLACE)


def job_of(rows: int = 1, n: int = 256, k: int = 16, **other: Any) -> WelchJob:
    """Rows of 8 segments of float32."""
    n_samples = n + 7 * (n // 2)
    spec = from_preset("rlx", n_samples, nperseg=n, dtype=np.float32)
    return WelchJob(spec, rows, n_samples, k, **other)


def engine_of(pick: Pick[WelchJob]) -> Engine:
    """What runs a pick."""
    return engine_for(pick.candidate)


def by_name(found: Sequence[Candidate]) -> dict[str, Candidate]:
    """Candidates of one engine of each kind: "fused fused_op", "fast host" …"""
    return {f"{c.strategy} {c.how}".strip(): c for c in found}
