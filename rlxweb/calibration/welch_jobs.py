"""The Welch jobs that a calibration times: a small grid of sizes, few and telling.

Lengths, segments and rows are spread so that the model in `cost/welch_model.py` can
tell its parts from each other; what lies between is interpolated. Every size runs as it
does for callers: by the host's own code on the CPU, in NumPy and compiled where that
is open, as a graph of one op elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from rlxweb.calibration.kernels import Job, Prepared
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.errors import Unsupported
from rlxweb.host.compiled import wanted
from rlxweb.host.compiled_rows import Samples, powers, strongest
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.host.strongest import strongest_bins
from rlxweb.host.welch_graph import welch_graph
from rlxweb.host.welch_kernels import welch_kernels

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
    draw = np.random.default_rng(0)
    for (n, segments, k), all_rows in GRID.items():
        for n_rows in all_rows:
            n_samples = n + (segments - 1) * (n // 2)
            spec = plain_spec(n)
            x = draw.standard_normal((n_rows, n_samples), np.float32)
            size = {"n": n, "segments": segments, "rows": n_rows, "k": k}
            if place.device is Device.CPU:
                yield Job(what, size, partial(_on_host, x, spec, k))
                if welch_kernels.is_open:
                    compiled = partial(_compiled, x, spec, k)
                    yield Job("welch_compiled", size, compiled)
            else:
                # The first call of a job, in which this compiles, is not counted.
                graph = Prepared(place, welch_graph(x.shape, spec, k))
                yield Job(what, size, partial(graph.run, {"x": x}), close=graph.close)


def plain_spec(n: int) -> WelchSpec:
    """RLX's estimate of length n: symmetric Hann, half overlap, nothing scaled."""
    return WelchSpec(
        nperseg=n,
        hop=max(1, n // 2),
        nfft=n,
        n_segments=0,
        window=np.hanning(n).tobytes(),
        detrend=None,
        one_sided=True,
        scale=1.0,
        average="mean",
        dtype="float32",
    )


def _compiled(x: np.ndarray, spec: WelchSpec, k: int) -> None:
    about = wanted(spec, k)
    assert not isinstance(about, str)  # the grid is of plain estimates
    welch_kernels.now(about)  # at once but for the first call, which is not counted
    kernel = welch_kernels.ready(about)
    if kernel is None:
        raise Unsupported("time compiled code", welch_kernels.state(about))
    if k:
        strongest(kernel, Samples.of(x), spec, k)
    else:
        powers(kernel, Samples.of(x), spec)


def _on_host(x: np.ndarray, spec: WelchSpec, k: int) -> None:
    power = welch_power(x, spec)
    if k:
        strongest_bins(power, k)
