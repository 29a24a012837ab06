"""Errors for bad input: one sentence with what, why, the limit and what to do.

The last line is not caught, to show what an uncaught error looks like.
"""

import numpy as np

import rlxweb as rlx

x = np.random.default_rng(0).standard_normal((2, 1000)).astype(np.float32)
broken = x.copy()
broken[1, 700] = np.nan


def mismatched_shapes():
    """Shapes are checked as the graph is written, not when it runs."""
    g = rlx.Graph("bad")
    return g.input("a", (3, 4)) @ g.input("b", (5, 6))


def unknown_name():
    """Names come with the nearest known ones."""
    g = rlx.Graph("named")
    g.set_outputs([g.exp(g.input("signal", (3,)))])
    rlx.Session("cpu").compile(g).run({"singal": np.zeros(3, np.float32)})


attempts = {
    "k below 1": lambda: rlx.welch_peaks(x, k=0),
    "a segment longer than the signal": lambda: rlx.welch_peaks(x, nperseg=4096),
    "not a number": lambda: rlx.welch_peaks(broken, fs=250, nperseg=256),
    "float64 on a GPU": lambda: rlx.welch_peaks(x.astype(float), device="webgpu"),
    "a device that does not exist": lambda: rlx.Session("webgup"),
    "shapes that do not match": mismatched_shapes,
    "an unknown name": unknown_name,
}
for label, attempt in attempts.items():
    try:
        attempt()
    except rlx.RlxError as error:
        print(f"{label}\n  {type(error).__name__}: {error}\n")

mismatched_shapes()
