"""The engine of compiled estimates: machine code on the CPU, where a kernel is ready.

Answers as `NumpyEngine` does, with the same numbers; what there is no kernel for is not
its business. Which estimates have one, and why others have none, is said here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlxweb.device import Device
from rlxweb.errors import Unsupported
from rlxweb.host.compiled import Kernel, wanted
from rlxweb.host.compiled_rows import Samples, powers, strongest
from rlxweb.host.spec import WelchSpec
from rlxweb.host.strongest import Found
from rlxweb.host.welch_kernels import welch_kernels
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.engine import Power, Rows, strongest_of
from rlxweb.signal.rows_there import RowsThere
from rlxweb.signal.ways import WelchEstimate

NAME: Final = "compiled code"
TOO_LITTLE: Final = "the recording is too short to pay for compiling"


def why_not(estimate: WelchEstimate) -> str:
    """Why no kernel computes it; "" where one is ready."""
    if estimate.compiled is False:
        return TOO_LITTLE
    # Kernels search whole spectra.
    about = wanted(estimate.spec, 0 if estimate.band else estimate.k)
    if estimate.compiled and not isinstance(about, str):
        welch_kernels.now(about)
    if isinstance(about, str) or welch_kernels.ready(about) is not None:
        return about if isinstance(about, str) else ""
    return welch_kernels.state(about)


@dataclass(frozen=True, slots=True)
class CompiledEngine:
    """Rows through kernels of machine code, on a few threads."""

    device: Device = Device.CPU
    name: str = NAME

    async def power(self, x: Rows, spec: WelchSpec, band: Band | None = None) -> Power:
        power: Power = powers(_kernel(spec, 0), _samples(x), spec)
        return power if band is None else power[:, band.bins]

    async def strongest(
        self, x: Rows, spec: WelchSpec, k: int, band: Band | None = None
    ) -> Found:
        if band is not None:
            return strongest_of(await self.power(x, spec), k, band)
        return strongest(_kernel(spec, k), _samples(x), spec, k)

    def is_ready(
        self, shape: tuple[int, ...], spec: WelchSpec, k: int, band: Band | None = None
    ) -> bool:
        return True


def kernel_of(spec: WelchSpec) -> Kernel | None:
    """The one for an estimate without peaks, where it is compiled."""
    about = wanted(spec, 0)
    return None if isinstance(about, str) else welch_kernels.ready(about)


def _kernel(spec: WelchSpec, k: int) -> Kernel:
    """The one for an estimate. Errors  Unsupported where there is none."""
    about = wanted(spec, k)
    # It was there when it was chosen; another thread's kernels may have displaced it.
    kernel = None if isinstance(about, str) else welch_kernels.now(about)
    if kernel is None:
        why = about if isinstance(about, str) else welch_kernels.state(about)
        raise Unsupported("a Welch estimate by compiled code", why)
    return kernel


def _samples(x: Rows) -> Samples:
    assert not isinstance(x, RowsThere)  # those are on a device
    return Samples.of(x)


COMPILED = CompiledEngine()
