"""Explain the choice of a device: terms of the prediction, cost models, crossovers."""

import numpy as np
from playground import plot

import rlxweb as rlx
from rlxweb.cost import (
    CpuCostModel,
    WgpuCostModel,
    estimate_graph_cost,
    pick_best_device,
)
from rlxweb.cost.decision import explain_decision


def product(n):
    """A graph of one n × n matrix product."""
    graph = rlx.Graph(f"product {n}")
    graph.set_outputs([graph.input("a", (n, n)) @ graph.input("b", (n, n))])
    return graph


# The published constants of the project that rlxweb descends from: no measurement.
cpu, gpu = CpuCostModel.seed(), WgpuCostModel.seed()
sizes = [16, 32, 64, 128, 256, 512, 1024]
models = [cpu, gpu]
costs = {}
print("   n        CPU        GPU   pick, by the seed models (µs)")
for n in sizes:
    costs[n] = [estimate_graph_cost(product(n), model) / 1e3 for model in models]
    best = pick_best_device(product(n), models)
    print(f"{n:4} {costs[n][0]:10.1f} {costs[n][1]:10.1f}   {best.label}")
plot(
    sizes,
    np.array(list(costs.values())).T,
    title="One matrix product, by the seed models",
    xlabel="n",
    ylabel="µs",
    labels=["CPU", "GPU"],
    log="xy",
)

# What decides on this machine: every way there is, term by term.
rows = np.random.default_rng(0).standard_normal((512, 4096)).astype(np.float32)
peaks = await rlx.welch_peaks_async(rows, fs=256, nperseg=256, k=4)
print("\nWelch peaks of 512 rows:", peaks.explain(), "\n")
print(explain_decision(peaks.decision))
