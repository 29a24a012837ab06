"""Independent implementation of RLX's Welch cost formulas, used as the reference in
tests.

Written from the published formulas alone: nothing of rlxweb is imported, no graph is
built, devices are their labels.
"""

from __future__ import annotations

import math

APPLE = ("metal", "mlx", "ane")
NVIDIA_AMD = ("cuda", "rocm")
WGPU = ("gpu", "vulkan", "opengl", "directx", "webgpu")
DEVICES = ("cpu", *APPLE, *NVIDIA_AMD, "tpu", *WGPU)

# dispatch, round trip, bandwidth, read-back, unified
DEFAULT_CPU_MODEL = (300.0, 3000.0, 30.0, 30.0, False)
APPLE_CPU_MODEL = (500.0, 5000.0, 50.0, 50.0, False)
DEVICE_MODELS = {
    **dict.fromkeys(WGPU, (5000.0, 80000.0, 120.0, 120.0, False)),
    "cuda": (3000.0, 35000.0, 900.0, 900.0, False),
    "rocm": (3000.0, 40000.0, 800.0, 800.0, False),
}
FUSED_SCALES = (
    dict.fromkeys(APPLE, 7.5)
    | dict.fromkeys(NVIDIA_AMD, 0.43)
    | dict.fromkeys(WGPU, 2.2)
)
HOST_ADJUSTMENTS = {
    **dict.fromkeys(APPLE, (0.22, 1.15)),
    **dict.fromkeys(NVIDIA_AMD, (0.15, 0.85)),
    **dict.fromkeys(WGPU, (0.12, 0.0)),
}
DISCRETE_MODEL = (2000.0, 20000.0, 800.0, 50.0, False)
# dispatch, round trip, bandwidth, read-back, unified, penalty, least gain
FUSION_GATES = {
    **dict.fromkeys(APPLE, (500.0, 5e3, 200.0, 200.0, True, 2e6, 1e3)),
    **dict.fromkeys(NVIDIA_AMD, (2000.0, 2e4, 800.0, 50.0, False, 15e6, 5e3)),
    **dict.fromkeys((*WGPU, "tpu"), (3000.0, 3e4, 100.0, 40.0, False, 25e6, 1e4)),
    "cpu": (50.0, 0.0, 50.0, 50.0, True, 0.0, 0.0),
}


def readback_bytes(host: int, traffic: int, unified: bool) -> int:
    """Return the bytes that are read back to the host."""
    return host if unified else host + traffic // 4


def launch_model_ns(
    launches: int, sync: int, host: int, traffic: int, model: tuple
) -> float:
    """Return the time of launches, syncs, traffic and read-back in nanoseconds."""
    dispatch, round_trip, bandwidth, readback_bandwidth, unified = model
    total = (
        round_trip
        + launches * dispatch
        + sync * round_trip
        + traffic / max(bandwidth, 1)
    )
    return total + readback_bytes(host, traffic, unified) / max(readback_bandwidth, 1)


def host_ns(batch: int, n: int, k: int, segments: int, cpu_model: tuple) -> float:
    """Return the time of the host's Welch peaks in nanoseconds."""
    k = max(k, 1)
    traffic = batch * segments * n * 12 + batch * k * 8
    launches = batch * segments + batch
    return launch_model_ns(launches, 0, batch * k * 8, traffic, cpu_model)


def fft_only_counts(
    batch: int, n: int, segments: int
) -> tuple[int, int, int, int, list]:
    """Return launches, syncs, host bytes, traffic and the elements each kernel
    writes.
    """
    cells = batch * segments * n
    # segs - segs reads segs twice and writes it once; concat reads two, writes double.
    traffic = 4 * (cells * 3 + cells * 4 + cells * 4)
    return 3, 0, 4 * 2 * cells, traffic, [cells, 2 * cells, 2 * cells]


def fused_counts(
    batch: int, n: int, segments: int, k: int
) -> tuple[int, int, int, int, list]:
    """Return the same counts for the fused graph of transforms and peaks."""
    launches, _, _, traffic, writes = fft_only_counts(batch, n, segments)
    pairs = 2 * batch * max(k, 1)
    spectrum = batch * segments * 2 * n
    traffic += 4 * (spectrum + pairs)
    return launches + 1, 1, 4 * pairs, traffic, [*writes, pairs]


def counts_ns(counts: tuple, device: str, cpu_model: tuple) -> float:
    """Return the time of these counts on a device in nanoseconds."""
    launches, sync, host, traffic, writes = counts
    model = cpu_model if device == "cpu" else DEVICE_MODELS.get(device)
    if model is None:
        return (
            launch_model_ns(launches, sync, host, traffic, DISCRETE_MODEL)
            + len(writes) * 2000.0
        )
    dispatch, round_trip, bandwidth, readback_bandwidth, unified = model
    total = round_trip
    for w in writes:
        total += 4 * w / max(bandwidth, 1) + dispatch
    total += traffic / max(bandwidth, 1)
    return (
        total
        + readback_bytes(host, traffic, unified) / max(readback_bandwidth, 1)
        + sync * round_trip
    )


def fused_ns(
    batch: int,
    n: int,
    segments: int,
    k: int,
    device: str,
    compute_scale: float,
    cpu_model: tuple,
) -> float:
    """Return the time of the fused graph on a device in nanoseconds."""
    unscaled_ns = counts_ns(fused_counts(batch, n, segments, k), device, cpu_model)
    scale = FUSED_SCALES.get(device, 1.0) * min(max(compute_scale, 0.25), 1.0)
    floor = 400_000.0 if device != "cpu" and batch < 512 else 0.0
    if scale >= 1:
        return max(unscaled_ns * scale, unscaled_ns + floor)
    return max(unscaled_ns * scale, floor)


def block_ns(batch: int, n: int, k: int, device: str, cpu_model: tuple) -> float:
    """Return the time of the unfused block spectrum on a device in nanoseconds."""
    graph_ns = counts_ns(fft_only_counts(batch, n, 2), device, cpu_model)
    return graph_ns if device == "cpu" else graph_ns * 0.72 + batch * max(k, 1) * 80.0


def gate_score_ns(
    device: str, launches: int, waits: int, host: int, traffic: int
) -> float:
    """Return the score that a device's fusion gate gives these savings, in
    nanoseconds.
    """
    dispatch, round_trip, bandwidth, readback_bandwidth, unified, penalty, _ = (
        FUSION_GATES[device]
    )
    score = (
        launches * dispatch
        + waits * round_trip
        + traffic / bandwidth
        + host / (1 if unified else readback_bandwidth)
    )
    return score - max(0, -waits) * penalty


def io_gate_score(device: str, batch: int, n: int, k: int) -> tuple[float, int, int]:
    """Return the gate's score, the saved bytes and the saved waits."""
    l0, s0, h0, t0, _ = fft_only_counts(batch, n, 2)
    l1, s1, h1, t1, _ = fused_counts(batch, n, 2, k)
    if batch >= 2048 and device in (*WGPU, *NVIDIA_AMD):
        s1 = max(s1 - 1, 0)
    return gate_score_ns(device, l0 - l1, s0 - s1, h0 - h1, t0 - t1), h0 - h1, s0 - s1


def is_compute_floor_ok(
    device: str, batch: int, n: int, k: int, cpu_model: tuple
) -> bool:
    """Check that the fused graph is not much slower than the block spectrum."""
    if device in ("cpu", "tpu") or batch < 2048:
        return True
    slack = 1.15 if device in NVIDIA_AMD and batch >= 8192 else 1.10
    total_ns = fused_ns(batch, n, 2, k, device, 1.0, cpu_model)
    return total_ns <= block_ns(batch, n, k, device, cpu_model) * slack


def adjust_host_ns(ns: float, device: str, batch: int) -> float:
    """Scale a host estimate by the device's factors for large batches."""
    a, b = HOST_ADJUSTMENTS.get(device, (0.0, 0.0))
    if batch >= 512:
        ns *= 1 + a * math.log(batch / 512)
    if batch > 2048 and b > 0:
        ns *= 1 + b * math.log2(batch / 2048)
    return ns


def strategy_costs(
    device: str,
    batch: int,
    n: int,
    k: int,
    cpu_model: tuple = DEFAULT_CPU_MODEL,
    learned: tuple[bool, int | None, int] = (False, None, 0),
) -> tuple[float, float, float, float]:
    """Return the costs of the strategies ultra, fast, rlx and learned."""
    gpu = device != "cpu"
    ultra, fast = host_ns(batch, n, k, 1, cpu_model), host_ns(batch, n, k, 2, cpu_model)
    if gpu:
        ultra = adjust_host_ns(ultra, device, batch)
        fast = adjust_host_ns(fast, device, batch)
    if gpu and batch > 128:
        ultra = math.inf
    is_gate_open = io_gate_score(device, batch, n, k)[0] >= FUSION_GATES[device][6]
    is_gate_open = is_gate_open and is_compute_floor_ok(device, batch, n, k, cpu_model)
    rlx = learned_ns = math.inf
    if gpu and device != "tpu" and is_gate_open:
        rlx = fused_ns(batch, n, 2, k, device, 1.0, cpu_model)
        has_learned, active, total = learned
        if has_learned and active is not None and active * 4 < total:
            compute_scale = 0.30 + 0.70 * (active / total) if total else 1.0
            learned_ns = fused_ns(batch, n, 2, k, device, compute_scale, cpu_model)
    return ultra, fast, rlx, learned_ns
