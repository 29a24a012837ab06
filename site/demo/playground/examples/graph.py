"""A graph is written once, compiled for a device, and run many times.

Press Run, or Ctrl+Enter. Two functions draw beside the editor:
  plot(x, y, …, title="", xlabel="", ylabel="", labels=[…], marks=(xs, ys), log="xy")
  heat(array, title="", xlabel="", ylabel="", x=(first, last), y=(first, last))
"""

import numpy as np
from playground import plot

import rlxweb as rlx

# One layer of a small network: gelu(x @ w + b). Shapes are checked on each line.
g = rlx.Graph("layer")
x = g.input("x", (201, 1))
w = g.param("w", (1, 3))
b = g.param("b", (3,))
g.set_outputs([g.gelu(x @ w + b)])

layer = rlx.Session("auto").compile(g)  # try "cpu" or "webgpu"
layer.set_param("w", np.array([[1.0, 2.0, -1.0]], np.float32))
layer.set_param("b", np.array([0.0, -1.0, 0.5], np.float32))

inputs = np.linspace(-4, 4, 201, dtype=np.float32)
(y,) = layer.run({"x": inputs[:, None]})

print("ran on", layer.engine)
print(layer.explain())
plot(inputs, y.T, title="gelu(x @ w + b)", xlabel="x", labels=["a", "b", "c"])
y[:3]  # the value of the last line is shown
