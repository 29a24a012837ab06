"""GraphDevices: one graph, compiled once per device, run wherever it is fastest."""

import numpy as np

import rlxweb as rlx

g = rlx.Graph("mlp")
x = g.input("x", (64, 256))
w1, b1 = g.param("w1", (256, 512)), g.param("b1", (512,))
w2, b2 = g.param("w2", (512, 10)), g.param("b2", (10,))
g.set_outputs([g.softmax(g.relu(x @ w1 + b1) @ w2 + b2)])

runner = rlx.GraphDevices(g, rlx.DevicePolicy.from_env())
rng = np.random.default_rng(0)
for name, shape in [
    ("w1", (256, 512)),
    ("b1", (512,)),
    ("w2", (512, 10)),
    ("b2", (10,)),
]:
    runner.set_param(name, 0.1 * rng.standard_normal(shape, dtype=np.float32))

X = rng.standard_normal((64, 256), dtype=np.float32)
(best,) = runner.run_resolved({"x": X})
print("ran on", runner.last_device.display)
print(runner.explain())

print("\nthe same graph with a chain: WebGPU first, NumPy if it fails")
device, (chained,) = runner.run_try(["webgpu", "cpu"], {"x": X})
for attempt in runner.attempts:
    print(" ", attempt)
print("  largest difference:", np.abs(best - chained).max())

print("\nwhich devices can run it")
for row in runner.report():
    status = "can run it" if row.supports_graph else row.blocker
    print(f"  {row.device.label:8} {status[:90]}")
