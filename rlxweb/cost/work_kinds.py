"""Kinds of work: one record per kind with its sizes, probes, prices and assumed times.

What a size of it is, which sizes a calibration measures and by which graph, what the
points of a calibration say of other sizes, and what is assumed while there are none.
Adding a kind is adding a record to the table. Knows points, and no device; the measured
graphs are made in `calibration_probes.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from rlxweb.codegen.fft_arithmetic import bluestein_flops
from rlxweb.core.errors import InputError
from rlxweb.cost import calibration_probes
from rlxweb.cost.calibration_probes import CalibrationProbe, WorkSize
from rlxweb.cost.calibration_record import Calibration, MeasuredPoint
from rlxweb.cost.interpolation import CostCurve, RateCurve, fit_rate_curve
from rlxweb.cost.welch_model import (
    WelchModel,
    WelchPointKind,
    WelchSize,
    transform_work,
)
from rlxweb.cost.workload import WorkItem

AssumedMachine = Literal["cpu", "tab", "gpu"]
TimesBySize = Mapping[tuple[int, ...], float]
"""Times in ns by size; each size is its numbers in the order of the kind's fields."""
PriceFunction = Callable[[WorkItem], float]
"""Function from a work item to its time in ns, memory traffic included."""

NS_PER_US = 1e3
# Nothing does more than a petaflop or moves more than a petabyte a second: a figure
# above this, per ns, holds FLOP/s where GFLOP/s were meant.
MAX_RATE = 1e6


def _size_bytes(size: WorkSize) -> float:
    return float(size["bytes"])


@dataclass(frozen=True, slots=True)
class WorkKind:
    """Kind of work, or of latency of a device.

    name     of its points in a calibration, and of the items of a Work
    min_sizes  of its size, each with the least it can be; "bytes" are bytes moved
    flops    operations of a size; None where nobody counts them
    rate_size  what of a size its rate depends on
    calibration_probes  what a calibration measures of it, on a CPU or not; None: the
                        calibration or a higher room times it in a way of its own
    make_price  (record, kind) → what an item costs, None where the record does not say.
             Without it an item is priced by its bytes and operations
    assumed_times  of a desktop's CPU, of a CPU in a browser tab and of a small GPU
    """

    name: str
    min_sizes: Mapping[str, int] = field(default_factory=dict)
    flops: Callable[[WorkSize], float] | None = None
    rate_size: Callable[[WorkSize], float] = _size_bytes
    probes: Callable[[bool], Iterable[CalibrationProbe]] | None = None
    make_price: Callable[[Calibration, WorkKind], PriceFunction | None] | None = None
    assumed_times: Mapping[AssumedMachine, TimesBySize] = field(default_factory=dict)


def point_rate(point: MeasuredPoint) -> tuple[float, str]:
    """Return operations or bytes per ns, whichever the point's size tells, and the
    unit; else 0.
    """
    kind = KINDS.get(point.what)
    if kind is None or kind.flops is None:
        return point.size.get("bytes", 0) / point.ns, "GB/s"
    return kind.flops(point.size) / point.ns, "GFLOP/s"


def measured_rates(record: Calibration, kind_name: str) -> RateCurve | None:
    """Return the rates of a kind over its size; None without points of it.

    Errors   InputError for a rate that cannot be.
    """
    points = record.points_of_kind(kind_name)
    if not points:
        return None
    rate, unit = max(point_rate(p) for p in points)
    if rate > MAX_RATE:
        raise InputError(
            "read a calibration",
            f"{kind_name} has a rate of {rate:.3g} {unit}",
            f"the rate must be at most {MAX_RATE:.0g} {unit}",
            "run `rlxweb calibrate` to measure again",
        )
    rate_size = KINDS[kind_name].rate_size
    return fit_rate_curve((rate_size(p.size), point_rate(p)[0]) for p in points)


def price_by_rate(record: Calibration, kind: WorkKind) -> PriceFunction | None:
    """Return the price function of a kind: operations at the rate measured near the
    item's size.
    """
    rate = measured_rates(record, kind.name)

    def price(item: WorkItem) -> float:
        size = kind.rate_size(item.size)
        return item.flops / rate.rate_at(size) if rate is not None and size else 0.0

    return None if rate is None else price


def _matmul_price(record: Calibration, kind: WorkKind) -> PriceFunction | None:
    """Return the price function of matrix products: the longest of the arithmetic,
    reading the operands, and writing the result, which takes half the time of a copy.

    A device works on all matrices of a batch at a time, NumPy on one after the other.
    """
    arithmetic_ns = price_by_rate(record, kind)
    read_rates = measured_rates(record, "matvec")
    copy_rates = measured_rates(record, "copy")
    is_host = not record.points_of_kind("submit")

    def price(item: WorkItem) -> float:
        if arithmetic_ns is None:
            return 0.0
        size = {n: v for n, v in item.size.items() if n != "batch" or not is_host}
        ns = arithmetic_ns(replace(item, size=size))
        copied_bytes = 8.0 * item.size.get("batch", 1) * item.size["m"] * item.size["n"]
        if copy_rates is not None and copied_bytes:
            ns = max(ns, copied_bytes / copy_rates.rate_at(copied_bytes))
        return (
            ns if read_rates is None else max(ns, item.nbytes / read_rates.rate_at(1.0))
        )

    return None if arithmetic_ns is None else price


def _recurrence_price(record: Calibration, kind: WorkKind) -> PriceFunction | None:
    """Return the price function of sequential steps: one product each, and on a host
    the calls that go with it.

    No step is faster than what it reads anew, its weights, takes. A device's launches
    are counted beside this.
    """
    matmul_price = _matmul_price(record, KINDS["matmul"])
    call_ns = record.first_ns("call") if record.points_of_kind("call") else 0.0

    def price(item: WorkItem) -> float:
        size = item.size
        step_size = {name: size[name] for name in ("m", "k", "n")}
        flops = 2.0 * size["m"] * size["k"] * size["n"]
        step = replace(item, size=step_size, flops=flops, nbytes=size["read"])
        ns = 0.0 if matmul_price is None else matmul_price(step)
        return size["steps"] * (ns + size["calls"] * call_ns)

    return None if matmul_price is None else price


def price_from_points(
    points: Sequence[MeasuredPoint], memory_ns: Callable[[float], float]
) -> PriceFunction:
    """Return the price function of an op that a calibration timed at these sizes,
    smallest first.

    The smallest is what it costs to call it; the largest says what its elements take
    beyond the moving of their bytes, or how much less than that, and one between them,
    of many short rows, what each row takes besides.
    memory_ns  ns of so many bytes through memory
    """
    small, large = points[0], points[-1]
    fixed = small.ns if len(points) > 1 else 0.0
    ns = max(large.ns - fixed, 0.02 * large.ns)
    moved_ns = memory_ns(large.size["bytes"])
    share = min(1.0, ns / moved_ns) if moved_ns else 0.0
    cell_ns = max(0.0, ns - moved_ns) / large.size["cells"]

    def ns_without_rows(nbytes: float, size: WorkSize) -> float:
        return fixed + share * memory_ns(nbytes) + cell_ns * size.get("cells", 0)

    row_ns = 0.0
    for point in points[1:-1]:
        extra_ns = point.ns - ns_without_rows(point.size["bytes"], point.size)
        row_ns = max(row_ns, extra_ns / max(1, point.size.get("rows", 1)))

    def price(item: WorkItem) -> float:
        return ns_without_rows(item.nbytes, item.size) + row_ns * item.size.get(
            "rows", 0
        )

    return price


def _welch_price(record: Calibration, kind: WorkKind) -> PriceFunction | None:
    """Return the price function of a Welch estimate, by the model fitted to the
    record.
    """
    point_kind: WelchPointKind = (
        "welch_fused" if record.points_of_kind("welch_fused") else "welch_host"
    )
    model = WelchModel(record, point_kind)

    def price(item: WorkItem) -> float:
        terms = model.terms(WelchSize.from_mapping(item.size))
        return terms.compute_ns + terms.traffic_ns

    return price if model.points else None


# The CPU's times were measured with NumPy 2.4 on two cores of a 2020s server. In a tab
# there is one thread and no BLAS: products suffer most, copies least. The GPU's are
# what a small discrete one does, careful rather than keen: a device that is worth more
# shows it once it is measured. Software adapters share the CPU's cores and are not
# guessed at.
_TRANSFER_TIMES: TimesBySize = {
    (65_536,): 60 * NS_PER_US,
    (16_777_216,): 3_400 * NS_PER_US,
}
# (n, segments) → microseconds for 1, 32 and 1024 rows, k = 16.
_WELCH_HOST_US = {
    (64, 2): (55, 126, 1_250),
    (64, 8): (48, 114, 2_400),
    (512, 2): (89, 217, 4_900),
    (512, 8): (70, 605, 13_700),
    (4096, 2): (105, 1_830, 37_000),
    (4096, 8): (235, 3_900, 112_000),
}
_WELCH_HOST_TIMES: TimesBySize = {
    (*length, rows, 16): us * NS_PER_US
    for length, times in _WELCH_HOST_US.items()
    for rows, us in zip((1, 32, 1024), times, strict=True)
}
_WELCH_TAB_TIMES = {size: 5.0 * ns for size, ns in _WELCH_HOST_TIMES.items()}


def _fused_ns(n: int, segments: int, rows: int, k: int) -> float:
    size = WelchSize.from_mapping({"n": n, "segments": segments, "rows": rows, "k": k})
    transfer = CostCurve(
        tuple((float(nbytes), ns) for (nbytes,), ns in _TRANSFER_TIMES.items())
    )
    chain = segments * transform_work(n)
    ns = (
        155 * NS_PER_US
        + transfer.ns_at(size.input_bytes)
        + transfer.ns_at(size.output_bytes)
    )
    return ns + (1.0 * chain + 0.01 * rows * chain)


_WELCH_FUSED_TIMES = {size: _fused_ns(*size) for size in _WELCH_HOST_TIMES}


_BYTE_SIZES = {"bytes": 1}
_WELCH_SIZES = {"n": 1, "segments": 1, "rows": 1, "k": 0}
_TABLE = (
    # Open the device and run once; compile one shader; run next to nothing; one more
    # call of NumPy's; an empty submit and wait; one more kernel.
    *(WorkKind(name) for name in ("cold_start", "compile", "run")),
    WorkKind(
        "call", assumed_times={"cpu": {(): 1.5 * NS_PER_US}, "tab": {(): 8 * NS_PER_US}}
    ),
    WorkKind("submit", assumed_times={"gpu": {(): 150 * NS_PER_US}}),
    WorkKind("dispatch", assumed_times={"gpu": {(): 5 * NS_PER_US}}),
    WorkKind("upload", _BYTE_SIZES, assumed_times={"gpu": _TRANSFER_TIMES}),
    WorkKind("readback", _BYTE_SIZES, assumed_times={"gpu": _TRANSFER_TIMES}),
    # In the order in which a calibration measures those of one turn.
    WorkKind(
        "matmul",
        {"m": 1, "k": 1, "n": 1},
        flops=lambda s: 2.0 * s["m"] * s["k"] * s["n"],
        rate_size=lambda s: float(s["m"] * s.get("batch", 1) * s["k"] * s["n"]),
        probes=calibration_probes.matmul_probes,
        make_price=_matmul_price,
        assumed_times={
            "cpu": {(64, 64, 64): 18 * NS_PER_US, (512, 512, 512): 3_300 * NS_PER_US},
            "tab": {(64, 64, 64): 40 * NS_PER_US, (512, 512, 512): 5_000 * NS_PER_US},
            "gpu": {
                (256, 256, 256): 60 * NS_PER_US,
                (1024, 1024, 1024): 1_500 * NS_PER_US,
            },
        },
    ),
    # Of integers: NumPy has no library for them.
    WorkKind(
        "whole_matmul",
        {"m": 1, "k": 1, "n": 1},
        flops=lambda s: 2.0 * s["m"] * s.get("batch", 1) * s["k"] * s["n"],
        rate_size=lambda s: float(s["m"] * s["k"] * s["n"]),
        probes=calibration_probes.integer_matmul_probes,
        make_price=price_by_rate,
        assumed_times={
            "cpu": {(128, 128, 128): 1_800 * NS_PER_US},
            "tab": {(128, 128, 128): 8_000 * NS_PER_US},
            "gpu": {(256, 256, 256): 60 * NS_PER_US},
        },
    ),
    # Products that wait for each other.
    WorkKind(
        "recurrence",
        {"steps": 0, "m": 0, "k": 0, "n": 0, "calls": 0, "read": 0},
        make_price=_recurrence_price,
    ),
    WorkKind(
        "fft",
        {"n": 1, "rows": 1},
        flops=lambda s: 5.0 * s["rows"] * s["n"] * math.log2(max(2, s["n"])),
        rate_size=lambda s: float(max(2, s["n"])),
        probes=calibration_probes.fft_probes,
        make_price=price_by_rate,
        assumed_times={
            "cpu": {(128, 256): 190 * NS_PER_US, (2048, 64): 900 * NS_PER_US},
            "tab": {(128, 256): 800 * NS_PER_US, (2048, 64): 4_000 * NS_PER_US},
            "gpu": {(128, 256): 20 * NS_PER_US, (2048, 256): 60 * NS_PER_US},
        },
    ),
    # Transforms of a length that butterflies cannot do.
    WorkKind(
        "bluestein",
        {"n": 1, "rows": 1},
        flops=lambda s: s["rows"] * bluestein_flops(s["n"]),
        rate_size=lambda s: float(s["n"]),
        probes=calibration_probes.prime_fft_probes,
        make_price=price_by_rate,
        assumed_times={
            "cpu": {(1021, 64): 1_200 * NS_PER_US},
            "tab": {(1021, 64): 5_000 * NS_PER_US},
            "gpu": {(1021, 256): 150 * NS_PER_US},
        },
    ),
    # A matrix that is read once; what is read across its rows, besides the rest.
    WorkKind(
        "matvec",
        _BYTE_SIZES,
        probes=calibration_probes.matvec_probes,
        assumed_times={
            "cpu": {(16_793_600,): 400 * NS_PER_US},
            "tab": {(16_793_600,): 700 * NS_PER_US},
            "gpu": {(16_793_600,): 120 * NS_PER_US},
        },
    ),
    WorkKind(
        "turned",
        _BYTE_SIZES,
        probes=calibration_probes.transposed_read_probes,
        assumed_times={
            "cpu": {(4_000_000,): 2_500 * NS_PER_US},
            "tab": {(4_000_000,): 8_000 * NS_PER_US},
            "gpu": {(4_000_000,): 200 * NS_PER_US},
        },
    ),
    # The bytes of anything are priced by copies, other operations by elementwise; an op
    # whose own points there are, by these.
    WorkKind(
        "copy",
        _BYTE_SIZES,
        probes=calibration_probes.copy_probes,
        assumed_times={
            "cpu": {(65_536,): 4 * NS_PER_US, (134_217_728,): 17_000 * NS_PER_US},
            "tab": {(65_536,): 5 * NS_PER_US, (134_217_728,): 25_000 * NS_PER_US},
            "gpu": {(134_217_728,): 1_300 * NS_PER_US},
        },
    ),
    WorkKind(
        "elementwise",
        {"bytes": 1, "flops": 1},
        flops=lambda s: float(s["flops"]),
        probes=calibration_probes.elementwise_probes,
        assumed_times={
            "cpu": {(1_048_576, 7_864_320): 3_000 * NS_PER_US},
            "tab": {(1_048_576, 7_864_320): 700 * NS_PER_US},
            "gpu": {(8_388_608, 33_554_432): 120 * NS_PER_US},
        },
    ),
    # What an op asks for, and the points of the ways to do it.
    WorkKind("welch", _WELCH_SIZES, make_price=_welch_price),
    WorkKind(
        "welch_host",
        _WELCH_SIZES,
        assumed_times={"cpu": _WELCH_HOST_TIMES, "tab": _WELCH_TAB_TIMES},
    ),
    WorkKind("welch_compiled", _WELCH_SIZES),
    WorkKind("welch_fused", _WELCH_SIZES, assumed_times={"gpu": _WELCH_FUSED_TIMES}),
)
KINDS: Mapping[str, WorkKind] = {kind.name: kind for kind in _TABLE}


@cache
def assumed_cpu(in_a_tab: bool = False) -> Calibration:
    """Return the assumed calibration of NumPy on an ordinary machine, or of a browser
    tab on the same machine, where float products and elementwise ops are rlxweb's
    WebAssembly.
    """
    return _assumed_calibration("cpu", "NumPy", "tab" if in_a_tab else "cpu")


@cache
def assumed_gpu() -> Calibration:
    """Return the assumed calibration of a small hardware GPU."""
    return _assumed_calibration("gpu", "a GPU", "gpu")


def _assumed_calibration(
    device: str, engine: str, machine: AssumedMachine
) -> Calibration:
    points = tuple(
        MeasuredPoint(kind.name, dict(zip(kind.min_sizes, size, strict=True)), ns)
        for kind in KINDS.values()
        for size, ns in kind.assumed_times.get(machine, {}).items()
    )
    return Calibration(device, engine, "assumed", "", "", "", points)
