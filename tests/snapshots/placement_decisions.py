"""Record where graphs and Welch jobs run, the price of each candidate, and why.

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
from rlxweb.core.device import Device
from rlxweb.core.errors import RlxError
from rlxweb.cost.calibration_record import MeasuredPoint
from rlxweb.cost.decision import Candidate, candidate_name, explain_decision
from rlxweb.cost.fusion_gate import (
    FusionTarget,
    fusion_benefit,
    io_fusion_gate_for_target,
    should_fuse_with_target,
)
from rlxweb.cost.graph_time_estimate import (
    estimate_graph_cost,
    estimate_graph_cost_with_io,
)
from rlxweb.cost.graph_traffic_counts import GraphIoOptions, profile_graph_io
from rlxweb.cost.rlx_welch_costs import SeedWelchCosts
from rlxweb.cost.work_kinds import KINDS
from rlxweb.engines.registry import ROWS, Row
from rlxweb.ops.welch.graph import welch_graph
from rlxweb.select.calibration.calibration_store import calibration_store
from rlxweb.select.calibration.profitability import ProfitabilityPolicy
from rlxweb.select.choice_by_rlx_constants import (
    MODEL_ORDER,
    seed_candidates,
    seed_pick,
)
from rlxweb.select.chooser import choose_fastest
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace
from rlxweb.select.graph_job import GraphJob
from rlxweb.signal.batch_size_crossover import crossover_text
from rlxweb.signal.compiled_welch_engine import COMPILED_ENGINE
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_candidates import WelchJob
from rlxweb.signal.welch_engine import NUMPY_ENGINE
from tests.unit.signal.fake_gpu import (
    CPU_AND_GPU,
    CPU_SPEED,
    DEVICE_LABEL,
    GPU_PLACE,
    GPU_SPEED,
    EngineSpeed,
    FakeGpu,
    make_job,
)

COMPILED_SPEED = EngineSpeed(5e3, 0.12)


def _chain(g: Graph) -> Any:
    x = g.input("x", (64, 1024))
    return g.tanh(x * 2.0 + 1.0) - g.exp(-x)


def _tiny(g: Graph) -> Any:
    return g.relu(g.input("x", (4,)))


def _huge_elementwise(g: Graph) -> Any:
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


def _fft(g: Graph) -> Any:
    return g.rfft(g.input("x", (64, 1024)))[0]


def _prime_length_fft(g: Graph) -> Any:
    return g.rfft(g.input("x", (64, 1021)))[0]


def _softmax(g: Graph) -> Any:
    return g.softmax(g.input("x", (256, 4096)))


def _reduction(g: Graph) -> Any:
    return g.mean(g.input("x", (512, 8192)), 0)


def _transpose(g: Graph) -> Any:
    return g.transpose(g.input("x", (256, 512)), (1, 0)) + 1.0


def _sort_and_cumsum(g: Graph) -> Any:
    return g.cumsum(g.sort(g.input("x", (32, 4096))))


def _float64(g: Graph) -> Any:
    return g.exp(g.input("x", (1024,), "f64"))


GRAPHS: dict[str, Callable[[Graph], Any]] = {
    "tiny": _tiny,
    "elementwise chain": _chain,
    "huge": _huge_elementwise,
    "matmul": _matmul,
    "MLP": _mlp,
    "convolution": _convolution,
    "attention": _attention,
    "FFT": _fft,
    "FFT of a prime length": _prime_length_fft,
    "softmax": _softmax,
    "reduction": _reduction,
    "transpose": _transpose,
    "sort and cumulative sum": _sort_and_cumsum,
    "float64": _float64,
}
WELCH = "Welch"
NAMES = (*GRAPHS, WELCH)


def _build_graph(name: str) -> Graph:
    if name == WELCH:
        spec = spec_from_preset("rlx", 4096, nperseg=256, dtype=np.float32)
        return welch_graph((32, 4096), spec, 16)
    graph = Graph(name)
    graph.set_outputs([GRAPHS[name](graph)])
    return graph


ALL_SIZES = (1, 32, 1000, 20_000), (64, 256, 1000, 4096), (0, 16)
FEW_SIZES = (1, 1000), (256, 1000), (16,)
"""Rows, samples of a segment, and peaks."""


def _welch_jobs(sizes: Sequence[tuple[int, ...]]) -> Iterator[tuple[str, WelchJob]]:
    """Yield Welch jobs of several sizes, and jobs that block some candidates."""
    for rows in sizes[0]:
        for n in sizes[1]:
            for k in sizes[2]:
                yield f"{rows} rows, 8 × {n}, k {k}", make_job(rows, n, k)
    yield "64 rows, k 1", make_job(64, 256, 1)
    yield "500 rows, one segment allowed", make_job(500, min_segments=1)
    yield "64 rows, local maxima", make_job(64, mode="peaks")
    yield "64 rows, a band", make_job(64, 1024, 4, band=BinRange(10, 50))
    for dtype in (np.float64, np.complex64):
        spec = spec_from_preset("scipy", 4096, nperseg=256, dtype=dtype)
        yield f"64 rows of {dtype.__name__}", WelchJob(spec, 64, 4096, 16)
    spec = spec_from_preset("rlx", 65_536, nperseg=65_536, dtype=np.float32)
    yield "8 rows, one long segment", WelchJob(spec, 8, 65_536, 16)


def record() -> dict[str, str]:
    """Return the decisions that need no compiler."""
    return {
        "decisions-seed.txt": _joined_text(_seed_decisions()),
        "decisions-assumed.txt": _joined_text(
            _fake_machine_decisions(FEW_SIZES, False)
        ),
        "decisions-calibrated.txt": _joined_text(_fake_machine_decisions(ALL_SIZES)),
    }


def record_compiled() -> dict[str, str]:
    """Return the decisions on a machine whose CPU has compiled code as well."""
    os.environ["RLX_FAST"] = "wait"
    return {"decisions-compiled.txt": _joined_text(_fake_machine_decisions(FEW_SIZES))}


def _joined_text(lines: Iterator[str]) -> str:
    """Join the lines, without versions and without the padding that depends on them."""
    text = "\n".join(lines) + "\n"
    text = text.replace(COMPILED_ENGINE.name, "LLVM").replace(
        NUMPY_ENGINE.name, "NumPy"
    )
    return re.sub(r"(?<=\S) {2,}", "  ", text)


def _seed_decisions() -> Iterator[str]:
    models = {device: cls.seed() for device, cls in MODEL_ORDER.items()}
    for name in NAMES:
        graph = _build_graph(name)
        profile = profile_graph_io(graph)
        sync_profile = profile_graph_io(graph, GraphIoOptions(fft_host_sync=True))
        yield from (f"== {name}", f"profile: {_format_fields(profile.as_json())}")
        if sync_profile != profile:
            yield f"where transforms wait: {_format_fields(sync_profile.as_json())}"
        for device, model in models.items():
            without_io = estimate_graph_cost(graph, model)
            with_io = estimate_graph_cost_with_io(graph, model, profile)
            yield f"{device.label}: {without_io:.5g} ns, with IO {with_io:.5g} ns"
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
    """Yield RLX's fusion gates, and what they decide for a graph against its parts."""
    before, after = (profile_graph_io(_build_graph(name)) for name in ("MLP", "matmul"))
    benefit = fusion_benefit(before, after)
    yield f"== gates; from the MLP to the product: {_format_fields(asdict(benefit))}"
    for target in FusionTarget:
        fused = should_fuse_with_target(target, before, after)
        yield (
            f"{target.name}: "
            f"{_format_fields(asdict(io_fusion_gate_for_target(target)))}"
        )
        yield f"    fused: {fused}"
    yield ""


def _seed_welch() -> Iterator[str]:
    """Yield RLX's four estimates for each device, and its gate."""
    devices = [*MODEL_ORDER, Device.VULKAN, Device.ANE, Device.TPU]
    for rows in (1, 32, 1000):
        for n_fft in (64, 256, 4096):
            yield f"== Welch, {rows} rows × {n_fft}, k 16"
            candidates = seed_candidates(
                [DevicePlace(d) for d in devices], rows, n_fft, 16
            )
            yield from map(_candidate_line, candidates)
            for device in devices:
                gate = SeedWelchCosts().gate_breakdown(device, rows, n_fft, 16)
                fields = ", ".join(_format_value(value) for value in astuple(gate))
                yield f"gate of {device.label}: {fields}"
            yield ""


def _fake_machine_decisions(
    sizes: Sequence[tuple[int, ...]], is_calibrated: bool = True
) -> Iterator[str]:
    with _fake_machine(is_calibrated):
        for name, job in _welch_jobs(sizes):
            yield from (f"== Welch: {name}", *_decision_lines(job))
            yield from (f"crossover: {crossover_text(job, CPU_AND_GPU)}", "")
        for name in NAMES:
            yield from (
                f"== graph: {name}",
                *_decision_lines(GraphJob(_build_graph(name))),
                "",
            )
            if name in ("tiny", "MLP", "huge"):
                unrestricted = choose_fastest(
                    GraphJob(_build_graph(name)), profitability=ProfitabilityPolicy()
                )
                yield from (f"left open: {explain_decision(unrestricted.decision)}", "")


def _decision_lines(job: Any) -> Iterator[str]:
    try:
        pick = choose_fastest(job, places=CPU_AND_GPU)
    except RlxError as error:
        yield f"refused: {error}"
        return
    yield f"taken: {candidate_name(pick.candidate)}"
    yield from map(_candidate_line, pick.decision.candidates)
    yield from ("explained:", explain_decision(pick.decision))


def _candidate_line(candidate: Candidate) -> str:
    """Return a candidate on one line: name, price and its terms, or what blocks it."""
    name = f"{candidate.device.label}: {candidate_name(candidate)}"
    if candidate.blocker or candidate.terms is None:
        return f"{name}: blocked: {candidate.blocker or 'no terms'}"
    terms = {key: value for key, value in asdict(candidate.terms).items() if value}
    return (
        f"{name}: {candidate.predicted_ns:.5g} ns, {candidate.source}; "
        f"{_format_fields(terms)}"
    )


def _format_fields(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_format_value(value)}" for key, value in values.items())


def _format_value(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


@contextmanager
def _fake_machine(is_calibrated: bool) -> Iterator[None]:
    """Provide a machine with a CPU and a simulated GPU, and no other device."""
    gpu, rows = FakeGpu(), dict(ROWS)
    calibration_store.clear()
    try:
        for label in rows:
            if label != "cpu":
                del ROWS[label]
        ROWS[DEVICE_LABEL] = Row(gpu.open)
        if is_calibrated:
            CPU_SPEED.save_calibration(CPU_PLACE, *_calibration_points(True))
            GPU_SPEED.save_calibration(GPU_PLACE, *_calibration_points(False))
        yield
    finally:
        ROWS.clear()
        ROWS.update(rows)
        gpu.reset()


def _calibration_points(is_cpu: bool) -> Sequence[MeasuredPoint]:
    """Return points of every kind that a calibration measures, at two simple rates."""
    rate, bandwidth, overhead_ns = (20.0, 10.0, 1e3) if is_cpu else (2000.0, 400.0, 5e3)
    points = [
        MeasuredPoint(
            kind.name,
            probe.size,
            overhead_ns
            + (kind.flops(probe.size) / rate if kind.flops else 0.0)
            + probe.size.get("bytes", 0) / bandwidth,
        )
        for kind in KINDS.values()
        if kind.probes is not None
        for probe in kind.probes(is_cpu)
    ]
    if is_cpu:
        points += [MeasuredPoint("call", {}, 1e3), MeasuredPoint("run", {}, 5e3)]
        return points + [
            MeasuredPoint(
                "welch_compiled",
                {"n": n, "segments": segments, "rows": rows, "k": 16},
                COMPILED_SPEED.duration_ns(n, segments, rows),
            )
            for n in (64, 256, 1024)
            for segments in (1, 2, 8)
            for rows in (1, 32, 500)
        ]
    points += [MeasuredPoint("submit", {}, 5e4), MeasuredPoint("dispatch", {}, 2e3)]
    for direction in ("upload", "readback"):
        points += [
            MeasuredPoint(direction, {"bytes": n}, 1e4 + n / 10)
            for n in (1 << 16, 1 << 24)
        ]
    return points
