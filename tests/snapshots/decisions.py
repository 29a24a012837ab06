"""Record where graphs and Welch jobs run, what each way is priced at, and why.

`decisions-seed.txt` has RLX's published arithmetic for every device it knows. The other
two have a machine that is made up, a CPU and a GPU without hardware: before anything is
measured, and with calibrations whose times are simple sums. `decisions-compiled.txt`
adds the CPU's compiled code, which needs llvmlite.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple
from typing import Any

import numpy as np

from rlxweb import Graph
from rlxweb.backends.registry import ROWS, Row
from rlxweb.calibration.store import store
from rlxweb.calibration.worth import Worth
from rlxweb.choose.chooser import decide
from rlxweb.choose.graphs import GraphJob
from rlxweb.choose.seed import MODEL_ORDER, seed_candidates, seed_pick
from rlxweb.cost.estimate import estimate_graph_cost, estimate_graph_cost_with_io
from rlxweb.cost.fusion_gate import (
    FusionTarget,
    fusion_benefit,
    io_fusion_gate_for_target,
    should_fuse_with_target,
)
from rlxweb.cost.io_profile import GraphIoOptions, profile_graph_io
from rlxweb.cost.kinds import KINDS
from rlxweb.cost.record import Point
from rlxweb.cost.seed_welch import SeedCosts
from rlxweb.decision.candidate import Candidate, candidate_name
from rlxweb.decision.explain import explain_decision
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place
from rlxweb.errors import RlxError
from rlxweb.host.welch_graph import welch_graph
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.compiled_engine import COMPILED
from rlxweb.signal.crossover import crossover
from rlxweb.signal.engine import NUMPY
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.presets import from_preset
from tests.unit.signal.pretend_gpu import (
    BOTH,
    LABEL,
    PLACE,
    QUICK,
    SLOW,
    PretendGpu,
    Speed,
    job_of,
)

COMPILED_SPEED = Speed(5e3, 0.12)


def _chain(g: Graph) -> Any:
    x = g.input("x", (64, 1024))
    return g.tanh(x * 2.0 + 1.0) - g.exp(-x)


def _tiny(g: Graph) -> Any:
    return g.relu(g.input("x", (4,)))


def _huge(g: Graph) -> Any:
    return g.relu(g.input("x", (1 << 26,)) * 0.5)


def _matmul(g: Graph) -> Any:
    return g.input("a", (512, 256)) @ g.param("b", (256, 1024))


def _mlp(g: Graph) -> Any:
    x = g.input("x", (128, 784))
    for layer, (m, n) in enumerate(((784, 512), (512, 512), (512, 10))):
        w, b = g.param(f"w{layer}", (m, n)), g.param(f"b{layer}", (n,))
        x = g.relu(x @ w + b)
    return g.softmax(x)


def _convolution(g: Graph) -> Any:
    x, w = g.input("x", (8, 16, 64, 64)), g.param("w", (32, 16, 3, 3))
    return g.relu(g.conv(x, w, padding=1))


def _attention(g: Graph) -> Any:
    q, k, v = (g.input(name, (4, 8, 128, 64)) for name in "qkv")
    return g.scaled_dot_product_attention(q, k, v)


def _transform(g: Graph) -> Any:
    return g.rfft(g.input("x", (64, 1024)))[0]


def _odd_transform(g: Graph) -> Any:
    return g.rfft(g.input("x", (64, 1021)))[0]


def _softmax(g: Graph) -> Any:
    return g.softmax(g.input("x", (256, 4096)))


def _reduction(g: Graph) -> Any:
    return g.mean(g.input("x", (512, 8192)), 0)


def _moved(g: Graph) -> Any:
    return g.transpose(g.input("x", (256, 512)), (1, 0)) + 1.0


def _recurrence(g: Graph) -> Any:
    return g.cumsum(g.sort(g.input("x", (32, 4096))))


def _float64(g: Graph) -> Any:
    return g.exp(g.input("x", (1024,), "f64"))


GRAPHS: dict[str, Callable[[Graph], Any]] = {
    "tiny": _tiny,
    "elementwise chain": _chain,
    "huge": _huge,
    "matmul": _matmul,
    "MLP": _mlp,
    "convolution": _convolution,
    "attention": _attention,
    "FFT": _transform,
    "FFT of a prime length": _odd_transform,
    "softmax": _softmax,
    "reduction": _reduction,
    "transpose": _moved,
    "sort and cumulative sum": _recurrence,
    "float64": _float64,
}
WELCH = "Welch"
NAMES = (*GRAPHS, WELCH)


def _graph(name: str) -> Graph:
    if name == WELCH:
        spec = from_preset("rlx", 4096, nperseg=256, dtype=np.float32)
        return welch_graph((32, 4096), spec, 16)
    graph = Graph(name)
    graph.set_outputs([GRAPHS[name](graph)])
    return graph


ALL_SIZES = (1, 32, 1000, 20_000), (64, 256, 1000, 4096), (0, 16)
FEW_SIZES = (1, 1000), (256, 1000), (16,)
"""Rows, samples of a segment, and peaks."""


def _jobs(sizes: Sequence[tuple[int, ...]]) -> Iterator[tuple[str, WelchJob]]:
    """Yield Welch jobs of several sizes, and of what blocks one way or another."""
    for rows in sizes[0]:
        for n in sizes[1]:
            for k in sizes[2]:
                yield f"{rows} rows, 8 × {n}, k {k}", job_of(rows, n, k)
    yield "64 rows, k 1", job_of(64, 256, 1)
    yield "500 rows, one segment allowed", job_of(500, min_segments=1)
    yield "64 rows, local maxima", job_of(64, mode="peaks")
    yield "64 rows, a band", job_of(64, 1024, 4, band=Band(10, 50))
    for dtype in (np.float64, np.complex64):
        spec = from_preset("scipy", 4096, nperseg=256, dtype=dtype)
        yield f"64 rows of {dtype.__name__}", WelchJob(spec, 64, 4096, 16)
    spec = from_preset("rlx", 65_536, nperseg=65_536, dtype=np.float32)
    yield "8 rows, one long segment", WelchJob(spec, 8, 65_536, 16)


def record() -> dict[str, str]:
    """Return the decisions that need no compiler."""
    return {
        "decisions-seed.txt": _text(_seed()),
        "decisions-assumed.txt": _text(_on_the_made_up_machine(FEW_SIZES, False)),
        "decisions-calibrated.txt": _text(_on_the_made_up_machine(ALL_SIZES)),
    }


def record_compiled() -> dict[str, str]:
    """Return those of a machine whose CPU has compiled code as well."""
    os.environ["RLX_FAST"] = "wait"
    return {"decisions-compiled.txt": _text(_on_the_made_up_machine(FEW_SIZES))}


def _text(lines: Iterator[str]) -> str:
    """Return the lines without versions, and without the width that these had."""
    text = "\n".join(lines) + "\n"
    text = text.replace(COMPILED.name, "LLVM").replace(NUMPY.name, "NumPy")
    return re.sub(r"(?<=\S) {2,}", "  ", text)


def _seed() -> Iterator[str]:
    models = {device: cls.seed() for device, cls in MODEL_ORDER.items()}
    for name in NAMES:
        graph = _graph(name)
        profile = profile_graph_io(graph)
        waiting = profile_graph_io(graph, GraphIoOptions(fft_host_sync=True))
        yield from (f"== {name}", f"profile: {_fields(profile.as_json())}")
        if waiting != profile:
            yield f"where transforms wait: {_fields(waiting.as_json())}"
        for device, model in models.items():
            own = estimate_graph_cost(graph, model)
            with_io = estimate_graph_cost_with_io(graph, model, profile)
            yield f"{device.label}: {own:.5g} ns, with IO {with_io:.5g} ns"
        yield f"pick: {seed_pick(graph, list(models)).label}"
        for device in models:
            if device is not Device.CPU:
                yield f"CPU or {device.label}: {_pick_of_two(graph, device)}"
        yield ""
    yield from _seed_gates()
    yield from _seed_welch()


def _pick_of_two(graph: Graph, device: Device) -> str:
    return seed_pick(graph, [device, Device.CPU]).label


def _seed_gates() -> Iterator[str]:
    """Yield RLX's gates of fusion, and what they say of a graph against its parts."""
    before, after = (profile_graph_io(_graph(name)) for name in ("MLP", "matmul"))
    benefit = fusion_benefit(before, after)
    yield f"== gates; from the MLP to the product: {_fields(asdict(benefit))}"
    for target in FusionTarget:
        fused = should_fuse_with_target(target, before, after)
        yield f"{target.name}: {_fields(asdict(io_fusion_gate_for_target(target)))}"
        yield f"    fused: {fused}"
    yield ""


def _seed_welch() -> Iterator[str]:
    """Yield RLX's four estimates of each device, and its gate."""
    devices = [*MODEL_ORDER, Device.VULKAN, Device.ANE, Device.TPU]
    for rows in (1, 32, 1000):
        for n_fft in (64, 256, 4096):
            yield f"== Welch, {rows} rows × {n_fft}, k 16"
            found = seed_candidates([Place(d) for d in devices], rows, n_fft, 16)
            yield from map(_candidate, found)
            for device in devices:
                gate = SeedCosts().gate(device, rows, n_fft, 16)
                told = ", ".join(_number(one) for one in astuple(gate))
                yield f"gate of {device.label}: {told}"
            yield ""


def _on_the_made_up_machine(
    sizes: Sequence[tuple[int, ...]], is_calibrated: bool = True
) -> Iterator[str]:
    with _machine(is_calibrated):
        for name, job in _jobs(sizes):
            yield from (f"== Welch: {name}", *_decided(job))
            yield from (f"crossover: {crossover(job, BOTH)}", "")
        for name in NAMES:
            yield from (f"== graph: {name}", *_decided(GraphJob(_graph(name))), "")
            if name in ("tiny", "MLP", "huge"):
                alone = decide(GraphJob(_graph(name)), worthwhile=Worth())
                yield from (f"left open: {explain_decision(alone.decision)}", "")


def _decided(job: Any) -> Iterator[str]:
    try:
        pick = decide(job, places=BOTH)
    except RlxError as error:
        yield f"refused: {error}"
        return
    yield f"taken: {candidate_name(pick.candidate)}"
    yield from map(_candidate, pick.decision.candidates)
    yield from ("explained:", explain_decision(pick.decision))


def _candidate(way: Candidate) -> str:
    """Return a candidate on one line: name, price and its parts, or what blocks it."""
    name = f"{way.device.label}: {candidate_name(way)}"
    if way.blocker or way.terms is None:
        return f"{name}: blocked: {way.blocker or 'no terms'}"
    parts = {key: value for key, value in asdict(way.terms).items() if value}
    return f"{name}: {way.predicted_ns:.5g} ns, {way.source}; {_fields(parts)}"


def _fields(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_number(value)}" for key, value in values.items())


def _number(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


@contextmanager
def _machine(is_calibrated: bool) -> Iterator[None]:
    """Open a machine with a CPU and a GPU that is made up, and no other device."""
    gpu, rows = PretendGpu(), dict(ROWS)
    store.forget()
    try:
        for label in rows:
            if label != "cpu":
                del ROWS[label]
        ROWS[LABEL] = Row(gpu.open)
        if is_calibrated:
            SLOW.give_to(CPU, *_points(True))
            QUICK.give_to(PLACE, *_points(False))
        yield
    finally:
        ROWS.clear()
        ROWS.update(rows)
        gpu.forget()


def _points(is_cpu: bool) -> Sequence[Point]:
    """Return points of every kind that a calibration measures, at two plain rates."""
    rate, bandwidth, start = (20.0, 10.0, 1e3) if is_cpu else (2000.0, 400.0, 5e3)
    points = [
        Point(
            kind.name,
            probe.size,
            start
            + (kind.flops(probe.size) / rate if kind.flops else 0.0)
            + probe.size.get("bytes", 0) / bandwidth,
        )
        for kind in KINDS.values()
        if kind.probes is not None
        for probe in kind.probes(is_cpu)
    ]
    if is_cpu:
        points += [Point("call", {}, 1e3), Point("run", {}, 5e3)]
        return points + [
            Point(
                "welch_compiled",
                {"n": n, "segments": segments, "rows": rows, "k": 16},
                COMPILED_SPEED.ns(n, segments, rows),
            )
            for n in (64, 256, 1024)
            for segments in (1, 2, 8)
            for rows in (1, 32, 500)
        ]
    points += [Point("submit", {}, 5e4), Point("dispatch", {}, 2e3)]
    for way in ("upload", "readback"):
        points += [Point(way, {"bytes": n}, 1e4 + n / 10) for n in (1 << 16, 1 << 24)]
    return points
