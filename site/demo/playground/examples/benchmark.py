"""NumPy against WebGPU: the same graph on both, median of five warm runs."""

from statistics import median
from time import perf_counter

import numpy as np
from playground import plot

import rlxweb as rlx

sizes = [32, 64, 128, 256, 384]
devices = [d for d in ("cpu", "webgpu") if rlx.is_available(d)]
times = {device: [] for device in devices}
rng = np.random.default_rng(0)

for n in sizes:
    g = rlx.Graph(f"chain of {n}")
    a, b = g.input("a", (n, n)), g.input("b", (n, n))
    g.set_outputs([g.softmax(g.gelu(a @ b) @ b)])
    feeds = {k: rng.standard_normal((n, n), dtype=np.float32) for k in "ab"}
    answers = []
    for device in devices:
        compiled = await rlx.Session(device).compile_async(g)
        answers += await compiled.run_async(feeds)  # the first run is not counted
        run_times = []
        for _ in range(5):
            start = perf_counter()
            await compiled.run_async(feeds)
            run_times.append(1e3 * (perf_counter() - start))
        times[device].append(median(run_times))
        compiled.close()
    spread = max(np.abs(one - answers[0]).max() for one in answers)
    summary = ", ".join(f"{d} {times[d][-1]:.2f} ms" for d in devices)
    print(f"n = {n:3}: {summary}; apart by {spread:.1e}")

plot(
    sizes,
    [times[device] for device in devices],
    title="softmax(gelu(a @ b) @ b), warm",
    xlabel="n",
    ylabel="ms",
    labels=["NumPy" if d == "cpu" else "WebGPU" for d in devices],
    log="xy",
)
