"""Welch jobs that a calibration times: a small grid of informative sizes.

Lengths, segments and rows are spread so that the model in `cost/welch_model.py` can
tell its parts from each other; what lies between is interpolated. Every size runs as it
does for callers: by the host's own code on the CPU, in NumPy and compiled where that
is open, as a graph of one op elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from rlxweb.core.device import Device
from rlxweb.core.errors import Unsupported
from rlxweb.ops.welch.cpu.kernel import welch_kernel_key
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.ops.welch.cpu.rows import (
    KernelSamples,
    compiled_power,
    compiled_strongest_bins,
)
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.cpu.strongest_bins import strongest_bins
from rlxweb.ops.welch.graph import welch_graph
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.calibration.calibration_jobs import (
    CalibrationJob,
    CalibrationProgram,
)
from rlxweb.select.device_and_adapter import DevicePlace

# (n, segments, k) → rows; k = 0 is the spectrum alone, without the search. Each line is
# a shader to compile. Long transforms of many rows take longest and say least new.
SIZE_GRID = {
    (32, 4, 4): (16, 2048),
    (128, 2, 16): (1, 24, 384, 3072),
    (128, 2, 0): (1024,),
    (512, 6, 4): (1, 12, 96, 384),
    (2048, 3, 8): (1, 10, 128),
    (2048, 3, 0): (48,),
    (128, 6, 4): (4, 512),
    (512, 2, 16): (6, 768),
}


def welch_jobs(place: DevicePlace) -> Iterator[CalibrationJob]:
    """Yield one job per size of the grid, on the engine of a place; nothing runs
    yet.
    """
    point_kind = "welch_host" if place.device is Device.CPU else "welch_fused"
    rng = np.random.default_rng(0)
    for (n, segments, k), all_rows in SIZE_GRID.items():
        for n_rows in all_rows:
            n_samples = n + (segments - 1) * (n // 2)
            spec = default_welch_spec(n)
            x = rng.standard_normal((n_rows, n_samples), np.float32)
            size = {"n": n, "segments": segments, "rows": n_rows, "k": k}
            if place.device is Device.CPU:
                yield CalibrationJob(point_kind, size, partial(_run_numpy, x, spec, k))
                if welch_kernels.is_enabled:
                    run_compiled = partial(_run_compiled, x, spec, k)
                    yield CalibrationJob("welch_compiled", size, run_compiled)
            else:
                # The first call of a job, in which this compiles, is not counted.
                program = CalibrationProgram(place, welch_graph(x.shape, spec, k))
                yield CalibrationJob(
                    point_kind,
                    size,
                    partial(program.run, {"x": x}),
                    close=program.close,
                )


def default_welch_spec(n: int) -> WelchSpec:
    """Return RLX's estimate of length n: symmetric Hann, half overlap, nothing
    scaled.
    """
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


def _run_compiled(x: np.ndarray, spec: WelchSpec, k: int) -> None:
    """Run the compiled estimate, compiling it first. Errors  Unsupported where that
    fails.
    """
    key = welch_kernel_key(spec, k)
    assert not isinstance(key, str)  # the grid is of plain estimates
    welch_kernels.compile_now(
        key
    )  # at once but for the first call, which is not counted
    kernel = welch_kernels.get_kernel(key)
    if kernel is None:
        raise Unsupported("time compiled code", welch_kernels.missing_reason(key))
    if k:
        compiled_strongest_bins(kernel, KernelSamples.from_samples(x), spec, k)
    else:
        compiled_power(kernel, KernelSamples.from_samples(x), spec)


def _run_numpy(x: np.ndarray, spec: WelchSpec, k: int) -> None:
    """Run the NumPy estimate, and the search if k is given."""
    power = welch_power(x, spec)
    if k:
        strongest_bins(power, k)
