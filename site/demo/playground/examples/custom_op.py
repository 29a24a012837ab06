"""An op of your own in one statement: NumPy says what it means, WGSL makes it fast."""

import numpy as np
from playground import plot

import rlxweb as rlx

rlx.register_custom(
    "squash",
    arity=1,
    reference=lambda xp, attrs, x: x / (1 + xp.abs(x)),
    wgsl="x / (F(1) + abs(x))",
    doc="x / (1 + |x|): from -1 to 1, slower than tanh.",
)

g = rlx.Graph("custom")
x = g.input("x", (301,))
y = g.custom_op("squash", x)
g.set_outputs([y, g.tanh(x), y * 2.0 + 1.0])  # it fuses with its neighbours

values = np.linspace(-6, 6, 301, dtype=np.float32)
results = {}
for device in ("cpu", "webgpu"):
    if not rlx.is_available(device):
        print(f"{device}: not available")
        continue
    compiled = await rlx.Session(device).compile_async(g)
    results[device] = await compiled.run_async({"x": values})
    print(f"{device}: {compiled.engine}, {len(compiled.plan.steps)} steps")

if len(results) == 2:
    difference = np.stack(results["cpu"]) - np.stack(results["webgpu"])
    print("largest difference between the two:", np.abs(difference).max())

squash, tanh, shifted = results["cpu"]
plot(
    values,
    squash,
    tanh,
    shifted,
    title="A custom op",
    labels=["squash", "tanh", "2y + 1"],
)
