"""Profile of a run: the time of each step, by the clock of the device."""

import numpy as np

import rlxweb as rlx

g = rlx.Graph("block")
x = g.input("x", (128, 256))
w = g.constant(np.random.default_rng(0).standard_normal((256, 256), np.float32) / 16)
hidden = g.gelu(x @ w)
g.set_outputs([g.softmax(hidden @ w)])

feeds = {"x": np.ones((128, 256), np.float32)}
for device in ("cpu", "webgpu"):
    if rlx.is_available(device):
        compiled = await rlx.Session(device).compile_async(g)
        print(await compiled.profile_async(feeds), end="\n\n")
        compiled.close()
