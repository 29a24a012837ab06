"""Engine of compiled Welch estimates: machine code on the CPU, where a kernel is ready.

Answers as `NumpyEngine` does, with the same numbers; what there is no kernel for is not
its business. Which estimates have one, and why others have none, is said here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlxweb.core.device import Device
from rlxweb.core.errors import Unsupported
from rlxweb.ops.welch.cpu.kernel import CompiledWelchKernel, welch_kernel_key
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.ops.welch.cpu.rows import (
    KernelSamples,
    compiled_power,
    compiled_strongest_bins,
)
from rlxweb.ops.welch.cpu.strongest_bins import BinsAndPower
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.device_resident_rows import DeviceRows
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.welch_engine import Power, SampleRows, strongest_bins_in_band
from rlxweb.signal.welch_strategy import WelchEstimate

ENGINE_NAME: Final = "compiled code"
UNPROFITABLE_REASON: Final = "the recording is too short to justify compiling"


def missing_kernel_reason(estimate: WelchEstimate) -> str:
    """Return the reason why no kernel computes an estimate; "" where one is ready."""
    if estimate.use_compiled is False:
        return UNPROFITABLE_REASON
    # Kernels search whole spectra.
    kernel_key = welch_kernel_key(estimate.spec, 0 if estimate.band else estimate.k)
    if estimate.use_compiled and not isinstance(kernel_key, str):
        welch_kernels.compile_now(kernel_key)
    if isinstance(kernel_key, str) or welch_kernels.get_kernel(kernel_key) is not None:
        return kernel_key if isinstance(kernel_key, str) else ""
    return welch_kernels.missing_reason(kernel_key)


@dataclass(frozen=True, slots=True)
class CompiledEngine:
    """Engine that runs rows through machine-code kernels on a few threads."""

    device: Device = Device.CPU
    name: str = ENGINE_NAME

    async def power(
        self, x: SampleRows, spec: WelchSpec, band: BinRange | None = None
    ) -> Power:
        power: Power = compiled_power(_require_kernel(spec, 0), _host_samples(x), spec)
        return power if band is None else power[:, band.bins]

    async def strongest_bins(
        self, x: SampleRows, spec: WelchSpec, k: int, band: BinRange | None = None
    ) -> BinsAndPower:
        if band is not None:
            return strongest_bins_in_band(await self.power(x, spec), k, band)
        return compiled_strongest_bins(
            _require_kernel(spec, k), _host_samples(x), spec, k
        )

    def is_ready(
        self,
        shape: tuple[int, ...],
        spec: WelchSpec,
        k: int,
        band: BinRange | None = None,
    ) -> bool:
        return True


def compiled_power_kernel(spec: WelchSpec) -> CompiledWelchKernel | None:
    """Return the kernel of an estimate without peaks; None where it is not compiled."""
    kernel_key = welch_kernel_key(spec, 0)
    return None if isinstance(kernel_key, str) else welch_kernels.get_kernel(kernel_key)


def _require_kernel(spec: WelchSpec, k: int) -> CompiledWelchKernel:
    """Return the kernel of an estimate; raise Unsupported where there is none."""
    kernel_key = welch_kernel_key(spec, k)
    # It was there when it was chosen; another thread's kernels may have displaced it.
    kernel = (
        None if isinstance(kernel_key, str) else welch_kernels.compile_now(kernel_key)
    )
    if kernel is None:
        reason = (
            kernel_key
            if isinstance(kernel_key, str)
            else welch_kernels.missing_reason(kernel_key)
        )
        raise Unsupported("Welch estimate by compiled code", reason)
    return kernel


def _host_samples(x: SampleRows) -> KernelSamples:
    """Return host rows as the kernel takes them."""
    assert not isinstance(x, DeviceRows)  # those are on a device
    return KernelSamples.from_samples(x)


COMPILED_ENGINE = CompiledEngine()
