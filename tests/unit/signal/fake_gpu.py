"""Fake GPU for tests, and calibrations whose times follow a known formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlxweb.core.device import Device
from rlxweb.cost.calibration_record import Calibration, MeasuredPoint
from rlxweb.cost.decision import Candidate
from rlxweb.engines.pool import pool
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest, DeviceFacts
from rlxweb.select.calibration.calibration_store import calibration_store
from rlxweb.select.chooser import DevicePick
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace, engine_identity
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_candidates import WelchJob, engine_for_candidate
from rlxweb.signal.welch_engine import WelchEngine
from tests.fake_gpu_port import FakePort, InjectedFailure

DEVICE_LABEL = "tpu"
GPU_PLACE = DevicePlace(Device.TPU)
ENGINE_NAME = "fake (fake)"


class FakeHardwarePort(FakePort):
    """Fake port that reports hardware, not software; its kernels compute nothing."""

    @property
    def facts(self) -> DeviceFacts:
        return replace(super().facts, software=False)


@dataclass
class FakeGpu:
    """Opener of fake ports under the label of a device that no machine has.

    failures  what goes wrong on the next port that is opened
    ports  those opened so far
    """

    failures: Sequence[InjectedFailure] = ()
    ports: list[FakePort] = field(default_factory=list)

    async def open(self, adapter: str) -> WebGpuEngine:
        port = FakeHardwarePort(self.failures)
        self.failures = ()
        self.ports.append(port)
        await port.open(AdapterRequest())
        return WebGpuEngine(port)

    def reset(self) -> None:
        """Close the engine, and leave no trace of it to the next test."""
        for key in [k for k in pool._engines if k[0] == DEVICE_LABEL]:
            run_blocking(pool._engines.pop(key).close())
        for failed in [k for k in pool._failures if k[0] == DEVICE_LABEL]:
            del pool._failures[failed]


@dataclass(frozen=True)
class EngineSpeed:
    """Engine speed: `call_ns` per call and `unit_ns` per unit of transform work."""

    call_ns: float
    unit_ns: float

    def duration_ns(self, n: int, segments: int, rows: int) -> float:
        """Return the time of a job whose length is a power of two."""
        return self.call_ns + self.unit_ns * rows * segments * n * math.log2(n)

    def save_calibration(
        self, place: DevicePlace, *extra_points: MeasuredPoint
    ) -> Calibration:
        """Save a calibration of a place as if it had been measured at this speed."""
        what = "welch_host" if place.device is Device.CPU else "welch_fused"
        points = [
            MeasuredPoint(
                what,
                {"n": n, "segments": segments, "rows": rows, "k": 16},
                self.duration_ns(n, segments, rows),
            )
            for n in (64, 256, 1024)
            for segments in (1, 2, 8)
            for rows in (1, 32, 500)
        ]
        record = Calibration(
            place.device.label, *engine_identity(place), points=(*points, *extra_points)
        )
        calibration_store.save(record)
        return record


# The CPU starts at once; the GPU takes a millisecond to start and is quick then.
CPU_SPEED, GPU_SPEED = EngineSpeed(10e3, 0.5), EngineSpeed(1e6, 0.01)
CPU_AND_GPU = (CPU_PLACE, GPU_PLACE)


def make_job(rows: int = 1, n: int = 256, k: int = 16, **options: Any) -> WelchJob:
    """Return a Welch job on float32 rows of 8 segments."""
    n_samples = n + 7 * (n // 2)
    spec = spec_from_preset("rlx", n_samples, nperseg=n, dtype=np.float32)
    return WelchJob(spec, rows, n_samples, k, **options)


def engine_for_pick(pick: DevicePick[WelchJob]) -> WelchEngine:
    """Return the engine that runs a pick."""
    return engine_for_candidate(pick.candidate)


def candidates_by_name(candidates: Sequence[Candidate]) -> dict[str, Candidate]:
    """Return candidates by strategy and execution, for one engine of each kind: "fused
    fused_op", "fast host" …
    """
    return {f"{c.strategy} {c.how}".strip(): c for c in candidates}
