"""RLX's Welch cost formulas once more, in plain numbers, for the tests to compare with.

Written from the published formulas alone: nothing of rlxweb is imported, no graph is
built, devices are their labels.
"""

from __future__ import annotations

import math

APPLE = ("metal", "mlx", "ane")
NVAMD = ("cuda", "rocm")
WGPU = ("gpu", "vulkan", "opengl", "directx", "webgpu")
DEVICES = ("cpu", *APPLE, *NVAMD, "tpu", *WGPU)

# dispatch, round trip, bandwidth, read-back, unified
CPU_OTHER = (300.0, 3000.0, 30.0, 30.0, False)
CPU_APPLE = (500.0, 5000.0, 50.0, 50.0, False)
MODELS = {
    **dict.fromkeys(WGPU, (5000.0, 80000.0, 120.0, 120.0, False)),
    "cuda": (3000.0, 35000.0, 900.0, 900.0, False),
    "rocm": (3000.0, 40000.0, 800.0, 800.0, False),
}
SCALE = (
    dict.fromkeys(APPLE, 7.5) | dict.fromkeys(NVAMD, 0.43) | dict.fromkeys(WGPU, 2.2)
)
ADJUST = {
    **dict.fromkeys(APPLE, (0.22, 1.15)),
    **dict.fromkeys(NVAMD, (0.15, 0.85)),
    **dict.fromkeys(WGPU, (0.12, 0.0)),
}
DISCRETE = (2000.0, 20000.0, 800.0, 50.0, False)
# dispatch, round trip, bandwidth, read-back, unified, penalty, least gain
GATES = {
    **dict.fromkeys(APPLE, (500.0, 5e3, 200.0, 200.0, True, 2e6, 1e3)),
    **dict.fromkeys(NVAMD, (2000.0, 2e4, 800.0, 50.0, False, 15e6, 5e3)),
    **dict.fromkeys((*WGPU, "tpu"), (3000.0, 3e4, 100.0, 40.0, False, 25e6, 1e4)),
    "cpu": (50.0, 0.0, 50.0, 50.0, True, 0.0, 0.0),
}


def back(host: int, traffic: int, unified: bool) -> int:
    return host if unified else host + traffic // 4


def ayala(launches: int, sync: int, host: int, traffic: int, model: tuple) -> float:
    disp, rt, bw, rb, unified = model
    total = rt + launches * disp + sync * rt + traffic / max(bw, 1)
    return total + back(host, traffic, unified) / max(rb, 1)


def host_ns(batch: int, n: int, k: int, segments: int, cpu: tuple) -> float:
    k = max(k, 1)
    traffic = batch * segments * n * 12 + batch * k * 8
    launches = batch * segments + batch
    return ayala(launches, 0, batch * k * 8, traffic, cpu)


def fft_only(batch: int, n: int, segments: int) -> tuple[int, int, int, int, list]:
    """launches, sync, host, traffic, elements each kernel writes."""
    cells = batch * segments * n
    # segs - segs reads segs twice and writes it once; concat reads two, writes double.
    traffic = 4 * (cells * 3 + cells * 4 + cells * 4)
    return 3, 0, 4 * 2 * cells, traffic, [cells, 2 * cells, 2 * cells]


def fused(batch: int, n: int, segments: int, k: int) -> tuple[int, int, int, int, list]:
    launches, _, _, traffic, writes = fft_only(batch, n, segments)
    pairs = 2 * batch * max(k, 1)
    spectrum = batch * segments * 2 * n
    traffic += 4 * (spectrum + pairs)
    return launches + 1, 1, 4 * pairs, traffic, [*writes, pairs]


def with_device(counts: tuple, device: str, cpu: tuple) -> float:
    launches, sync, host, traffic, writes = counts
    model = cpu if device == "cpu" else MODELS.get(device)
    if model is None:
        return ayala(launches, sync, host, traffic, DISCRETE) + len(writes) * 2000.0
    disp, rt, bw, rb, unified = model
    total = rt
    for w in writes:
        total += 4 * w / max(bw, 1) + disp
    total += traffic / max(bw, 1)
    return total + back(host, traffic, unified) / max(rb, 1) + sync * rt


def fused_ns(
    batch: int, n: int, segments: int, k: int, device: str, cs: float, cpu: tuple
) -> float:
    only = with_device(fused(batch, n, segments, k), device, cpu)
    scale = SCALE.get(device, 1.0) * min(max(cs, 0.25), 1.0)
    floor = 400_000.0 if device != "cpu" and batch < 512 else 0.0
    if scale >= 1:
        return max(only * scale, only + floor)
    return max(only * scale, floor)


def block_ns(batch: int, n: int, k: int, device: str, cpu: tuple) -> float:
    whole = with_device(fft_only(batch, n, 2), device, cpu)
    return whole if device == "cpu" else whole * 0.72 + batch * max(k, 1) * 80.0


def score_ns(device: str, launches: int, waits: int, host: int, traffic: int) -> float:
    """What saving so much is worth to a device's gate."""
    disp, rt, bw, rb, unified, penalty, _ = GATES[device]
    score = launches * disp + waits * rt + traffic / bw + host / (1 if unified else rb)
    return score - max(0, -waits) * penalty


def io_score(device: str, batch: int, n: int, k: int) -> tuple[float, int, int]:
    """score, bytes saved, waits saved."""
    l0, s0, h0, t0, _ = fft_only(batch, n, 2)
    l1, s1, h1, t1, _ = fused(batch, n, 2, k)
    if batch >= 2048 and device in (*WGPU, *NVAMD):
        s1 = max(s1 - 1, 0)
    return score_ns(device, l0 - l1, s0 - s1, h0 - h1, t0 - t1), h0 - h1, s0 - s1


def floor_ok(device: str, batch: int, n: int, k: int, cpu: tuple) -> bool:
    if device in ("cpu", "tpu") or batch < 2048:
        return True
    slack = 1.15 if device in NVAMD and batch >= 8192 else 1.10
    whole = fused_ns(batch, n, 2, k, device, 1.0, cpu)
    return whole <= block_ns(batch, n, k, device, cpu) * slack


def adjust(ns: float, device: str, batch: int) -> float:
    a, b = ADJUST.get(device, (0.0, 0.0))
    if batch >= 512:
        ns *= 1 + a * math.log(batch / 512)
    if batch > 2048 and b > 0:
        ns *= 1 + b * math.log2(batch / 2048)
    return ns


def costs(
    device: str,
    batch: int,
    n: int,
    k: int,
    cpu: tuple = CPU_OTHER,
    learned: tuple[bool, int | None, int] = (False, None, 0),
) -> tuple[float, float, float, float]:
    """ultra, fast, rlx, learned."""
    gpu = device != "cpu"
    ultra, fast = host_ns(batch, n, k, 1, cpu), host_ns(batch, n, k, 2, cpu)
    if gpu:
        ultra, fast = adjust(ultra, device, batch), adjust(fast, device, batch)
    if gpu and batch > 128:
        ultra = math.inf
    gate = io_score(device, batch, n, k)[0] >= GATES[device][6]
    gate = gate and floor_ok(device, batch, n, k, cpu)
    rlx = sparse = math.inf
    if gpu and device != "tpu" and gate:
        rlx = fused_ns(batch, n, 2, k, device, 1.0, cpu)
        there, active, total = learned
        if there and active is not None and active * 4 < total:
            cs = 0.30 + 0.70 * (active / total) if total else 1.0
            sparse = fused_ns(batch, n, 2, k, device, cs, cpu)
    return ultra, fast, rlx, sparse
