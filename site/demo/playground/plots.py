"""`plot` and `heat`: check arrays and post them to the page's canvas.

The page draws; here arrays become float32 and wrong ones get a sentence. `post` comes
from the Worker.
"""

import math
import sys
import types

import numpy as np

post = globals()["post"]  # by the Worker
MAX_FIGURES = 40
MAX_POINTS = 20_000
MAX_PIXELS = 1_000_000
figure_count = 0


def start_afresh():
    """Reset the number of figures; called before each run."""
    global figure_count
    figure_count = 0


def post_figure(kind, options, arrays):
    """Post one figure to the page. Errors  RuntimeError when a loop draws without
    end.
    """
    global figure_count
    figure_count += 1
    if figure_count > MAX_FIGURES:
        raise RuntimeError(f"{kind}: a run can draw at most {MAX_FIGURES} figures")
    post({kind: options}, arrays)


def plot(x, *ys, title="", xlabel="", ylabel="", labels=(), marks=None, log=""):
    """Draw lines beside the editor.

    plot(y)            one line over 0, 1, 2 …
    plot(x, y, z, …)   lines over x; a 2-D y is a line per row
    labels             a name per line
    marks              (xs, ys): points that stand out, such as peaks
    log                "x", "y" or "xy": logarithmic axes
    """
    xs, lines = coerce_lines(x, ys)
    if set(log) - {"x", "y"}:
        raise ValueError(f"plot: log={log!r}; it must be '', 'x', 'y' or 'xy'")
    step = max(1, math.ceil(len(xs) / MAX_POINTS))
    arrays = [float32(line[::step]) for line in (xs, *lines)]
    if marks is not None:
        pair = [float32(np.ravel(coordinates)) for coordinates in marks]
        if len(pair) != 2 or len(pair[0]) != len(pair[1]):
            raise ValueError(
                "plot: marks must be (xs, ys), two sequences of the same length"
            )
        arrays += pair
    words = {"title": title, "xlabel": xlabel, "ylabel": ylabel}
    options = {name: str(text) for name, text in words.items()}
    options |= {"labels": [str(name) for name in labels], "log": log}
    options |= {"lines": len(lines), "marks": marks is not None}
    post_figure("plot", options, arrays)


def coerce_lines(x, ys):
    """Return (x, [y, …]) as float64 vectors of one length."""
    if not ys:
        ys, x = (x,), None
    lines = []
    for y in ys:
        y = as_real_array("plot", y)
        if y.ndim not in (1, 2):
            raise ValueError(
                f"plot: y must have 1 axis, or 2 (one line per row); got {y.shape}"
            )
        lines += list(np.atleast_2d(y))
    xs = np.arange(len(lines[0])) if x is None else as_real_array("plot", x)
    for line in lines:
        if xs.shape != line.shape:
            raise ValueError(f"plot: x has shape {xs.shape}, y has shape {line.shape}")
    if not lines or not len(xs):
        raise ValueError("plot: the arrays are empty")
    return xs, lines


def heat(array, title="", xlabel="", ylabel="", x=None, y=None):
    """Draw a 2-D array as colours, its first row at the bottom.

    x, y   (first, last) of the axes; the array's own indices when left out
    """
    values = as_real_array("heat", array)
    if values.ndim != 2 or not values.size:
        raise ValueError(
            f"heat: expected a non-empty array with 2 axes, got {values.shape}"
        )
    if values.size > MAX_PIXELS:
        raise ValueError(
            f"heat: the array has {values.size:,} values; at most {MAX_PIXELS:,}"
        )
    rows, columns = values.shape
    options = {"title": str(title), "xlabel": str(xlabel), "ylabel": str(ylabel)}
    options |= {"rows": rows, "columns": columns}
    options["x"] = [float(v) for v in (x or (0, columns - 1))]
    options["y"] = [float(v) for v in (y or (0, rows - 1))]
    post_figure("heat", options, [float32(values)])


def as_real_array(name, value):
    """Return a real array; complex numbers are refused."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected real numbers, got {array.dtype}")
    return array.astype(np.float64)


def float32(values):
    """Return a contiguous float32 array, as the page expects it."""
    return np.ascontiguousarray(values, np.float32)


# What `from playground import plot, heat` finds.
sys.modules["playground"] = types.ModuleType("playground", "Draws next to the editor.")
sys.modules["playground"].plot = plot
sys.modules["playground"].heat = heat
sys.modules["playground"].start_afresh = start_afresh
