"""Cost models: the few numbers that describe a device's speed.

`seed()` gives RLX's published constants, `calibrated(device)` what was measured on this
machine; the formulas are in `graph_time_estimate.py` and `work_pricing.py`. Any
attribute can be overridden by a keyword of the constructor. Knows devices by name only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from rlxweb.core.device import Device, DeviceLike, parse_device
from rlxweb.core.errors import UsageError
from rlxweb.core.lazy_names import alias_init_keywords, load_provider
from rlxweb.cost.calibration_record import Calibration
from rlxweb.cost.interpolation import RateCurve
from rlxweb.cost.work_kinds import measured_rates

Rate = Callable[[int, int, int], float]


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """Matmul rate: one GFLOP/s figure for every product, an empty one among them."""

    gflops: float

    def __call__(self, m: int, k: int, n: int) -> float:
        return self.gflops


@dataclass(frozen=True, slots=True)
class CpuMatmulRate(ConstantRate):
    """Matmul rate of the CPU by RLX's rule: 0 for an empty product."""

    def __call__(self, m: int, k: int, n: int) -> float:
        return self.gflops if m * k * n else 0.0


@dataclass(frozen=True, slots=True)
class SmallLargeRate:
    """Matmul rate of MLX by RLX's rule: one figure below 32,768 multiply-adds, another
    from there on.
    """

    small: float
    large: float
    limit: int = 32_768

    def __call__(self, m: int, k: int, n: int) -> float:
        return self.small if m * k * n < self.limit else self.large


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """Matmul rate in GFLOP/s by the product's volume m k n; 0 for an empty one."""

    curve: RateCurve

    def __call__(self, m: int, k: int, n: int) -> float:
        volume = m * k * n
        return self.curve.rate_at(volume) if volume else 0.0


_FROM_SEED: Any = ...
"""Default that takes the value of the class's seed."""


@alias_init_keywords(roundtrip_overhead_ns="round_trip_overhead_ns")
@dataclass(frozen=True)
class BackendCostModel:
    """Cost model of one device: how fast it is.

    device                  which one
    sgemm_gflops(m, k, n)   sustained rate of a matrix product, GFLOP/s = flop/ns
    dispatch_overhead_ns    starting one kernel
    round_trip_overhead_ns  submit and wait, once per forward
    memory_bw               GB/s = bytes/ns
    host_readback_bw        GB/s; memory_bw where a device has no figure of its own
    unified_memory          the host reads results where they lie
    num_threads             on the host's side
    calibration             the record these come from; None: RLX's constants
    assumed                 attributes a calibration did not have, taken from the seed

    Every attribute but the last two is a keyword that overrides the class's seed. RLX's
    `roundtrip_overhead_ns` is `round_trip_overhead_ns`.

    Source   RLX's cost table.
    Errors   UsageError for a number that is negative or not finite.
    """

    SEED: ClassVar[dict[str, Any]] = {}
    RATE: ClassVar[type[ConstantRate]] = ConstantRate
    """Reading of one figure for all matrix products."""

    device: Device = _FROM_SEED
    sgemm_gflops: Rate = _FROM_SEED
    dispatch_overhead_ns: float = _FROM_SEED
    round_trip_overhead_ns: float = _FROM_SEED
    memory_bw: float = _FROM_SEED
    host_readback_bw: float = _FROM_SEED
    unified_memory: bool = _FROM_SEED
    num_threads: int = _FROM_SEED
    calibration: Calibration | None = field(default=None, repr=False)
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for attribute in fields(self):
            name, value = attribute.name, getattr(self, attribute.name)
            if value is _FROM_SEED:
                value = self.SEED.get(name, _FROM_SEED)
            if value is _FROM_SEED and name == "host_readback_bw":
                value = self.memory_bw
            if value is _FROM_SEED:
                raise UsageError(
                    type(self).__name__,
                    f"{name} is missing",
                    hint=f"pass {name}=…, or use a model class with a default "
                    "value, such as CpuCostModel",
                )
            if name == "sgemm_gflops" and isinstance(value, int | float):
                value = self.RATE(_check_number(name, value))
            elif name == "device":
                value = parse_device(value)
            elif name.endswith(("_ns", "_bw")):
                value = _check_number(name, value)
            object.__setattr__(self, name, value)

    @property
    def roundtrip_overhead_ns(self) -> float:
        return self.round_trip_overhead_ns

    @property
    def mode(self) -> str:
        """Mode of the constants: "calibrated" or "seed"."""
        return "seed" if self.calibration is None else "calibrated"

    @classmethod
    def seed(cls) -> Self:
        """Return the model with RLX's published constants."""
        return cls()

    @classmethod
    def calibrated(cls, device: DeviceLike | None = None, adapter: str = "") -> Self:
        """Return the model measured on this machine; the device is measured now if it
        never was.

        Errors   DeviceError when the device cannot be opened or may not be measured.
        """
        parsed_device = cls.SEED["device"] if device is None else parse_device(device)
        record_for = load_provider("record_for")
        return cls.from_record(record_for(parsed_device, adapter), parsed_device)

    @classmethod
    def from_record(cls, record: Calibration, device: Device) -> Self:
        """Return the model of a calibration; attributes that it lacks are the seed's
        and are listed in `assumed`.

        Errors   InputError for a record whose numbers cannot be.
        """
        values = _measured_attributes(record, is_cpu=device is Device.CPU)
        missing = tuple(n for n in _MEASURED_NAMES if n not in values)
        return cls(device=device, calibration=record, assumed=missing, **values)


_MEASURED_NAMES = (
    "sgemm_gflops",
    "dispatch_overhead_ns",
    "round_trip_overhead_ns",
    "memory_bw",
    "host_readback_bw",
)


def _measured_attributes(record: Calibration, *, is_cpu: bool) -> dict[str, Any]:
    rate, bandwidth = measured_rates(record, "matmul"), measured_rates(record, "copy")
    values: dict[str, Any] = {
        "sgemm_gflops": rate and MeasuredRate(rate),
        "dispatch_overhead_ns": record.first_ns("call" if is_cpu else "dispatch"),
        "round_trip_overhead_ns": record.first_ns("submit"),
        "memory_bw": bandwidth and bandwidth.points[-1][1],
        "host_readback_bw": _readback_rate(record),
    }
    if is_cpu:
        values["host_readback_bw"] = values["memory_bw"]
    known = {name: value for name, value in values.items() if value}
    if is_cpu:
        # Nothing is submitted and nothing moves: results lie where they are read.
        known |= {"round_trip_overhead_ns": 0.0, "unified_memory": True}
    return known


def _readback_rate(record: Calibration) -> float | None:
    """Return the bytes/ns of large results: the slope from the smallest to the
    largest.
    """
    points = sorted(record.points_of_kind("readback"), key=lambda p: p.size["bytes"])
    if len(points) < 2:
        return None
    small, large = points[0], points[-1]
    nbytes, ns = large.size["bytes"] - small.size["bytes"], large.ns - small.ns
    # Where a large one was no slower than a small one, all of it is fixed cost.
    return nbytes / ns if ns > 0 else large.size["bytes"] / large.ns


def _check_number(name: str, value: float) -> float:
    if isinstance(value, bool) or not 0 <= value < math.inf:
        raise UsageError(
            "cost model",
            f"{name} is {value!r}",
            f"{name} must be a finite number >= 0",
        )
    return float(value)


def rlx_pool_threads() -> int:
    """Return the threads of RLX's worker pool and the caller: half the cores, 1 to 15,
    plus 1.
    """
    return min(15, max(1, (os.cpu_count() or 2) // 2)) + 1


def _seed_row(
    device: Device, *figures: float | Rate, **overrides: Any
) -> dict[str, Any]:
    """Return a row of RLX's table: GFLOP/s, ns a kernel, ns a round trip, GB/s, GB/s
    back.
    """
    common = {"device": device, "unified_memory": False, "num_threads": 1}
    return common | dict(zip(_MEASURED_NAMES, figures, strict=False)) | overrides


class CpuCostModel(BackendCostModel):
    """Cost model of the host. RLX has one row for Apple silicon and one for everything
    else.
    """

    SEED = _seed_row(
        Device.CPU, 200.0, 300.0, 3_000.0, 30.0, num_threads=rlx_pool_threads()
    )
    RATE = CpuMatmulRate
    APPLE = _seed_row(
        Device.CPU, 1_000.0, 500.0, 5_000.0, 50.0, num_threads=rlx_pool_threads()
    )

    @classmethod
    def seed(cls, apple: bool = False) -> Self:
        """Return the model with RLX's constants, of Apple silicon on request."""
        return cls(**(cls.APPLE if apple else cls.SEED))


class MetalCostModel(BackendCostModel):
    """Cost model of Metal. RLX publishes dispatch, bandwidth, unified memory; it
    measures the rest.

    The rate of products (1,000 GFLOP/s) and the round trip (150 µs) are assumptions of
    rlxweb, in the place of RLX's measurement.
    """

    # Not RLX's: the first and the third figure, 1,000 GFLOP/s and 150,000 ns.
    SEED = _seed_row(
        Device.METAL, 1_000.0, 2_000.0, 150_000.0, 200.0, unified_memory=True
    )

    @classmethod
    def seed(
        cls, roundtrip_ns: float = 150_000.0, sgemm_gflops: float = 1_000.0
    ) -> Self:
        """Return the model with RLX's constants; the figures that RLX measures are
        keywords.

        The defaults of both keywords are assumptions of rlxweb.
        """
        rate: Any = sgemm_gflops
        return cls(round_trip_overhead_ns=roundtrip_ns, sgemm_gflops=rate)


class MlxCostModel(BackendCostModel):
    """Cost model of MLX. The defaults are the values that RLX falls back to when its
    calibration fails.
    """

    SEED = _seed_row(
        Device.MLX, SmallLargeRate(50.0, 1_000.0), 2_000.0, 200_000.0, 200.0
    )

    @classmethod
    def seed(
        cls,
        roundtrip_ns: float = 200_000.0,
        memory_bw: float = 200.0,
        small_gflops: float = 50.0,
        large_gflops: float = 1_000.0,
    ) -> Self:
        """Return the model with RLX's constants; the figures that RLX measures are
        keywords.
        """
        return cls(
            round_trip_overhead_ns=roundtrip_ns,
            memory_bw=memory_bw,
            sgemm_gflops=SmallLargeRate(small_gflops, large_gflops),
        )


class CudaCostModel(BackendCostModel):
    """Cost model of CUDA, with RLX's defaults."""

    SEED = _seed_row(Device.CUDA, 12_000.0, 3_000.0, 35_000.0, 900.0)


class RocmCostModel(BackendCostModel):
    """Cost model of ROCm, with RLX's defaults."""

    SEED = _seed_row(Device.ROCM, 10_000.0, 3_000.0, 40_000.0, 800.0)


class WgpuCostModel(BackendCostModel):
    """Cost model of the five devices that run WGSL, with RLX's defaults."""

    SEED = _seed_row(Device.GPU, 2_500.0, 5_000.0, 80_000.0, 120.0)

    @classmethod
    def seed(cls, device: DeviceLike = Device.GPU) -> Self:
        """Return the model with RLX's constants, for any of the five devices."""
        return cls(device=parse_device(device))


class DiscreteGpuCostModel(BackendCostModel):
    """Cost model that RLX's Welch costs assume for a GPU without a model of its own."""

    SEED = _seed_row(Device.GPU, 800.0, 2_000.0, 20_000.0, 800.0, 50.0)
