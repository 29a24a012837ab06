"""The compiled Welch estimates of this process: made, tried, and kept on disk."""

from __future__ import annotations

from typing import cast

import numpy as np

from rlxweb.errors import DeviceError
from rlxweb.host.compiled import Kernel, Wanted, loaded
from rlxweb.host.compiled_rows import Samples, powers, strongest
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.host.strongest import strongest_bins
from rlxweb.machine import library
from rlxweb.machine.making import code_of, fast_mode
from rlxweb.machine.workshop import CODE_BYTES, Workshop


def _made(about: object) -> Kernel:
    """The kernel, from disk or compiled now, once it was right on a small case.

    Errors   AdapterMissing; DeviceError for wrong numbers; those of the library.
    """
    from rlxweb.machine.estimate import Estimate
    from rlxweb.machine.search import registers_for
    from rlxweb.machine.text import SIZE

    own = cast("Wanted", about)
    here = library.processor()
    lanes = here.nbytes // SIZE[own.answer]
    registers = registers_for(min(own.k, own.n // 2 + 1), lanes)
    front = own.n, here.nbytes, own.sample, own.trend, own.answer
    estimate = Estimate(*front, registers)
    kernel = loaded(estimate, code_of(estimate.text()))
    _prove(kernel, own)
    return kernel


def _prove(kernel: Kernel, own: Wanted) -> None:
    """Demand NumPy's numbers of a few rows of noise, one segment short of even lanes.

    Errors   DeviceError for others.
    """
    spec = WelchSpec(
        nperseg=own.n,
        hop=max(1, own.n // 2),
        nfft=own.n,
        n_segments=3,
        window=np.hanning(own.n + 2)[1:-1].tobytes(),
        detrend=None if own.trend == "none" else own.trend,
        one_sided=True,
        scale=1.0,
        average="mean",
        dtype="float32" if own.sample == "float" else "float64",
    )
    noise = np.random.default_rng(own.n).standard_normal((3, own.n + 2 * spec.hop))
    dtype = {"float": np.float32, "double": np.float64, "int": np.int16}[own.sample]
    x = (100.0 * noise).astype(dtype)
    given = Samples.of(x)
    right = welch_power(x.astype(np.float64), spec)
    power, close = powers(kernel, given, spec), 1e-5 if own.answer == "float" else 1e-11
    furthest, k = np.abs(power - right).max(axis=1), min(own.k, power.shape[1])
    # What a line through two samples leaves is rounding, and no two agree on that.
    energy = 1e-24 * own.n * np.square(x, dtype=np.float64).sum(axis=1)
    is_right = bool((furthest <= close * right.max(axis=1) + energy).all())
    if kernel.peaks is not None and is_right and own.n > 2:
        found, want = strongest(kernel, given, spec, k), strongest_bins(power, k)
        is_right = all(map(np.array_equal, found, want))
    if not is_right:
        raise DeviceError(
            f"compile {own}",
            "the code computes other numbers than NumPy",
            "it is not used",
            "update llvmlite",
        )


def _nbytes(kernel: Kernel) -> int:
    return CODE_BYTES + sum(table.nbytes for table in kernel.tables)


welch_kernels: Workshop[Kernel] = Workshop(_made, fast_mode, _nbytes)
