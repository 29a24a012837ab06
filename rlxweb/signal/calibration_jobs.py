"""The Welch jobs that a calibration times: a small grid of sizes, few and telling.

Lengths, segments and rows are spread so that the model in `cost/welch_model.py` can
tell its parts from each other; what lies between is interpolated. Every size runs
through the very engines that serve callers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from rlxweb.calibration.kernels import Job
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.signal.engine import NUMPY, Engine, GraphEngine
from rlxweb.signal.presets import from_preset

# (n, segments, k) → rows; k = 0 is the spectrum alone, without the search. Each line is
# a shader to compile. Long transforms of many rows take longest and say least new.
GRID = {
    (32, 4, 4): (16, 2048),
    (128, 2, 16): (1, 24, 384, 3072),
    (128, 2, 0): (1024,),
    (512, 6, 4): (1, 12, 96, 384),
    (2048, 3, 8): (1, 10, 128),
    (2048, 3, 0): (48,),
    (128, 6, 4): (4, 512),
    (512, 2, 16): (6, 768),
}


def welch_jobs(place: Place) -> Iterator[Job]:
    """One job per size of the grid, on the engine of a place; nothing is run yet."""
    what = "welch_host" if place.device is Device.CPU else "welch_fused"
    engine: Engine = NUMPY
    if place.device is not Device.CPU:
        engine = GraphEngine(place.device, place.adapter)
    draw = np.random.default_rng(0)
    for (n, segments, k), all_rows in GRID.items():
        for n_rows in all_rows:
            n_samples = n + (segments - 1) * (n // 2)
            spec = from_preset("rlx", n_samples, nperseg=n, dtype=np.float32)
            x = draw.standard_normal((n_rows, n_samples), np.float32)
            size = {"n": n, "segments": segments, "rows": n_rows, "k": k}
            if k:
                yield Job(what, size, partial(engine.strongest, x, spec, k))
            else:
                yield Job(what, size, partial(engine.power, x, spec))
