"""The kinds of work: one record says all there is to know about each.

What a size of it is, which sizes a calibration measures and by which graph, what the
points of a calibration say of other sizes, and what is assumed while there are none.
Adding a kind is adding a record to the table. Knows points, and no device; the measured
graphs are made in `probes.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from rlxweb.cost import probes
from rlxweb.cost.curve import Curve, Interpolated, interpolated
from rlxweb.cost.probes import Probe, Size
from rlxweb.cost.record import Calibration, Point
from rlxweb.cost.welch_model import How, WelchModel, WelchSize, transform_work
from rlxweb.cost.work import Item
from rlxweb.errors import InputError
from rlxweb.recipes.fft_plan import bluestein_flops

Assumed = Literal["cpu", "tab", "gpu"]
Times = Mapping[tuple[int, ...], float]
"""ns of sizes; each size is its numbers in the order of the kind's fields."""
Price = Callable[[Item], float]
"""ns of computing an item, the moving of its bytes included."""

US = 1e3
# Nothing does more than a petaflop or moves more than a petabyte a second: a figure
# above this, per ns, holds FLOP/s where GFLOP/s were meant.
MOST = 1e6


def _bytes(size: Size) -> float:
    return float(size["bytes"])


@dataclass(frozen=True, slots=True)
class WorkKind:
    """One kind of work, or of trip to a device.

    name     of its points in a calibration, and of the items of a Work
    fields   of its size, each with the least it can be; "bytes" are bytes moved
    flops    operations of a size; None where nobody counts them
    over     what of a size its rate depends on
    probes   what a calibration measures of it, on a CPU or not; None: the calibration
             or a higher room times it in a way of its own
    price    (record, kind) → what an item costs, None where the record does not say.
             Without it an item is priced by its bytes and operations
    assumed  of a desktop's CPU, of a CPU in a browser tab and of a small GPU
    """

    name: str
    fields: Mapping[str, int] = field(default_factory=dict)
    flops: Callable[[Size], float] | None = None
    over: Callable[[Size], float] = _bytes
    probes: Callable[[bool], Iterable[Probe]] | None = None
    price: Callable[[Calibration, WorkKind], Price | None] | None = None
    assumed: Mapping[Assumed, Times] = field(default_factory=dict)


def rate_of(point: Point) -> tuple[float, str]:
    """Operations or bytes per ns, whichever its size tells, and the unit; else 0."""
    kind = KINDS.get(point.what)
    if kind is None or kind.flops is None:
        return point.size.get("bytes", 0) / point.ns, "GB/s"
    return kind.flops(point.size) / point.ns, "GFLOP/s"


def rates(record: Calibration, what: str) -> Interpolated | None:
    """The rates of a kind over its size; None without points of it.

    Errors   InputError for a rate that cannot be.
    """
    points = record.of(what)
    if not points:
        return None
    rate, unit = max(rate_of(p) for p in points)
    if rate > MOST:
        raise InputError(
            "reading a calibration",
            f"{what} at {rate:.3g} {unit}",
            f"nothing passes {MOST:.0g}",
            "run `rlxweb calibrate` to measure anew",
        )
    over = KINDS[what].over
    return interpolated((over(p.size), rate_of(p)[0]) for p in points)


def by_rate(record: Calibration, kind: WorkKind) -> Price | None:
    """Operations at the rate measured near the item's size."""
    rate = rates(record, kind.name)

    def price(item: Item) -> float:
        at = kind.over(item.size)
        return item.flops / rate.at(at) if rate is not None and at else 0.0

    return None if rate is None else price


def _product_price(record: Calibration, kind: WorkKind) -> Price | None:
    """Its operations, or where that takes longer the reading of its operands or the
    writing of its result, half of which a copy is.

    A device works on all matrices of a batch at a time, NumPy on one after the other.
    """
    by_size, reading = by_rate(record, kind), rates(record, "matvec")
    copying = rates(record, "copy")
    is_host = not record.of("submit")

    def price(item: Item) -> float:
        if by_size is None:
            return 0.0
        size = {n: v for n, v in item.size.items() if n != "batch" or not is_host}
        ns = by_size(replace(item, size=size))
        made = 8.0 * item.size.get("batch", 1) * item.size["m"] * item.size["n"]
        if copying is not None and made:
            ns = max(ns, made / copying.at(made))
        return ns if reading is None else max(ns, item.nbytes / reading.at(1.0))

    return None if by_size is None else price


def _recurrence_price(record: Calibration, kind: WorkKind) -> Price | None:
    """One step after the other: a product each, and on a host calls to go with it.

    No step is faster than what it reads anew, its weights, takes. A device's launches
    are counted beside this.
    """
    product = _product_price(record, KINDS["matmul"])
    call_ns = record.ns_of("call") if record.of("call") else 0.0

    def price(item: Item) -> float:
        size = item.size
        each = {name: size[name] for name in ("m", "k", "n")}
        flops = 2.0 * size["m"] * size["k"] * size["n"]
        step = replace(item, size=each, flops=flops, nbytes=size["read"])
        ns = 0.0 if product is None else product(step)
        return size["steps"] * (ns + size["calls"] * call_ns)

    return None if product is None else price


def measured_step(points: Sequence[Point], moving: Callable[[float], float]) -> Price:
    """The price of an op that a calibration timed at these sizes, smallest first.

    The smallest is what it costs to call it; the largest says what its elements take
    beyond the moving of their bytes, or how much less than that, and one between them,
    of many short rows, what each row takes besides.
    moving   ns of so many bytes through memory
    """
    small, large = points[0], points[-1]
    fixed = small.ns if len(points) > 1 else 0.0
    ns, moved = max(large.ns - fixed, 0.02 * large.ns), moving(large.size["bytes"])
    share = min(1.0, ns / moved) if moved else 0.0
    each = max(0.0, ns - moved) / large.size["cells"]

    def alone(nbytes: float, size: Size) -> float:
        return fixed + share * moving(nbytes) + each * size.get("cells", 0)

    row = 0.0
    for short in points[1:-1]:
        besides = short.ns - alone(short.size["bytes"], short.size)
        row = max(row, besides / max(1, short.size.get("rows", 1)))

    def price(item: Item) -> float:
        return alone(item.nbytes, item.size) + row * item.size.get("rows", 0)

    return price


def _by_welch_model(record: Calibration, kind: WorkKind) -> Price | None:
    how: How = "welch_fused" if record.of("welch_fused") else "welch_host"
    model = WelchModel(record, how)

    def price(item: Item) -> float:
        terms = model.terms(WelchSize.of(item.size))
        return terms.compute_ns + terms.traffic_ns

    return price if model.points else None


# The CPU's times were measured with NumPy 2.4 on two cores of a 2020s server. In a tab
# there is one thread and no BLAS: products suffer most, copies least. The GPU's are
# what a small discrete one does, careful rather than keen: a device that is worth more
# shows it once it is measured. Software adapters share the CPU's cores and are not
# guessed at.
_TRANSFERS: Times = {(65_536,): 60 * US, (16_777_216,): 3_400 * US}
# (n, segments) → microseconds for 1, 32 and 1024 rows, k = 16.
_HOST_US = {
    (64, 2): (55, 126, 1_250),
    (64, 8): (48, 114, 2_400),
    (512, 2): (89, 217, 4_900),
    (512, 8): (70, 605, 13_700),
    (4096, 2): (105, 1_830, 37_000),
    (4096, 8): (235, 3_900, 112_000),
}
_WELCH_HOST: Times = {
    (*length, rows, 16): us * US
    for length, times in _HOST_US.items()
    for rows, us in zip((1, 32, 1024), times, strict=True)
}
_WELCH_TAB = {size: 5.0 * ns for size, ns in _WELCH_HOST.items()}


def _fused_ns(n: int, segments: int, rows: int, k: int) -> float:
    size = WelchSize.of({"n": n, "segments": segments, "rows": rows, "k": k})
    trip = Curve(tuple((float(nbytes), ns) for (nbytes,), ns in _TRANSFERS.items()))
    chain = segments * transform_work(n)
    ns = 155 * US + trip.at(size.input_bytes) + trip.at(size.output_bytes)
    return ns + (1.0 * chain + 0.01 * rows * chain)


_WELCH_FUSED = {size: _fused_ns(*size) for size in _WELCH_HOST}


_BYTES = {"bytes": 1}
_WELCH = {"n": 1, "segments": 1, "rows": 1, "k": 0}
_TABLE = (
    # Open the device and run once; compile one shader; run next to nothing; one more
    # call of NumPy's; an empty submit and wait; one more kernel.
    *(WorkKind(name) for name in ("cold_start", "compile", "run")),
    WorkKind("call", assumed={"cpu": {(): 1.5 * US}, "tab": {(): 8 * US}}),
    WorkKind("submit", assumed={"gpu": {(): 150 * US}}),
    WorkKind("dispatch", assumed={"gpu": {(): 5 * US}}),
    WorkKind("upload", _BYTES, assumed={"gpu": _TRANSFERS}),
    WorkKind("readback", _BYTES, assumed={"gpu": _TRANSFERS}),
    # In the order in which a calibration measures those of one turn.
    WorkKind(
        "matmul",
        {"m": 1, "k": 1, "n": 1},
        flops=lambda s: 2.0 * s["m"] * s["k"] * s["n"],
        over=lambda s: float(s["m"] * s.get("batch", 1) * s["k"] * s["n"]),
        probes=probes.products,
        price=_product_price,
        assumed={
            "cpu": {(64, 64, 64): 18 * US, (512, 512, 512): 3_300 * US},
            "tab": {(64, 64, 64): 40 * US, (512, 512, 512): 5_000 * US},
            "gpu": {(256, 256, 256): 60 * US, (1024, 1024, 1024): 1_500 * US},
        },
    ),
    # Of integers: NumPy has no library for them.
    WorkKind(
        "whole_matmul",
        {"m": 1, "k": 1, "n": 1},
        flops=lambda s: 2.0 * s["m"] * s.get("batch", 1) * s["k"] * s["n"],
        over=lambda s: float(s["m"] * s["k"] * s["n"]),
        probes=probes.whole_products,
        price=by_rate,
        assumed={
            "cpu": {(128, 128, 128): 1_800 * US},
            "tab": {(128, 128, 128): 8_000 * US},
            "gpu": {(256, 256, 256): 60 * US},
        },
    ),
    # Products that wait for each other.
    WorkKind(
        "recurrence",
        {"steps": 0, "m": 0, "k": 0, "n": 0, "calls": 0, "read": 0},
        price=_recurrence_price,
    ),
    WorkKind(
        "fft",
        {"n": 1, "rows": 1},
        flops=lambda s: 5.0 * s["rows"] * s["n"] * math.log2(max(2, s["n"])),
        over=lambda s: float(max(2, s["n"])),
        probes=probes.transforms,
        price=by_rate,
        assumed={
            "cpu": {(128, 256): 190 * US, (2048, 64): 900 * US},
            "tab": {(128, 256): 800 * US, (2048, 64): 4_000 * US},
            "gpu": {(128, 256): 20 * US, (2048, 256): 60 * US},
        },
    ),
    # Transforms of a length that butterflies cannot do.
    WorkKind(
        "bluestein",
        {"n": 1, "rows": 1},
        flops=lambda s: s["rows"] * bluestein_flops(s["n"]),
        over=lambda s: float(s["n"]),
        probes=probes.prime_transforms,
        price=by_rate,
        assumed={
            "cpu": {(1021, 64): 1_200 * US},
            "tab": {(1021, 64): 5_000 * US},
            "gpu": {(1021, 256): 150 * US},
        },
    ),
    # A matrix that is read once; what is read across its rows, besides the rest.
    WorkKind(
        "matvec",
        _BYTES,
        probes=probes.readings,
        assumed={
            "cpu": {(16_793_600,): 400 * US},
            "tab": {(16_793_600,): 700 * US},
            "gpu": {(16_793_600,): 120 * US},
        },
    ),
    WorkKind(
        "turned",
        _BYTES,
        probes=probes.turnings,
        assumed={
            "cpu": {(4_000_000,): 2_500 * US},
            "tab": {(4_000_000,): 8_000 * US},
            "gpu": {(4_000_000,): 200 * US},
        },
    ),
    # The bytes of anything are priced by copies, other operations by elementwise; an op
    # whose own points there are, by these.
    WorkKind(
        "copy",
        _BYTES,
        probes=probes.copies,
        assumed={
            "cpu": {(65_536,): 4 * US, (134_217_728,): 17_000 * US},
            "tab": {(65_536,): 5 * US, (134_217_728,): 25_000 * US},
            "gpu": {(134_217_728,): 1_300 * US},
        },
    ),
    WorkKind(
        "elementwise",
        {"bytes": 1, "flops": 1},
        flops=lambda s: float(s["flops"]),
        probes=probes.arithmetic,
        assumed={
            "cpu": {(1_048_576, 7_864_320): 3_000 * US},
            "tab": {(1_048_576, 7_864_320): 700 * US},
            "gpu": {(8_388_608, 33_554_432): 120 * US},
        },
    ),
    # What an op asks for, and the points of the ways to do it.
    WorkKind("welch", _WELCH, price=_by_welch_model),
    WorkKind("welch_host", _WELCH, assumed={"cpu": _WELCH_HOST, "tab": _WELCH_TAB}),
    WorkKind("welch_compiled", _WELCH),
    WorkKind("welch_fused", _WELCH, assumed={"gpu": _WELCH_FUSED}),
)
KINDS: Mapping[str, WorkKind] = {kind.name: kind for kind in _TABLE}


@cache
def assumed_cpu(in_a_tab: bool = False) -> Calibration:
    """NumPy on an ordinary machine; or what a browser has on the same one, where
    products of floats and what is elementwise are WebAssembly of our own.
    """
    return _assumed("cpu", "NumPy", "tab" if in_a_tab else "cpu")


@cache
def assumed_gpu() -> Calibration:
    """A small GPU of its own hardware."""
    return _assumed("gpu", "a GPU", "gpu")


def _assumed(device: str, engine: str, which: Assumed) -> Calibration:
    points = tuple(
        Point(kind.name, dict(zip(kind.fields, size, strict=True)), ns)
        for kind in KINDS.values()
        for size, ns in kind.assumed.get(which, {}).items()
    )
    return Calibration(device, engine, "assumed", "", "", "", points)
