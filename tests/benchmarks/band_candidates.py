"""Methods that compute the power of a band, to be measured side by side.

The whole transform, the band of fewer samples, its bins by one product, Goertzel's
recurrence, the transform without what the bins do not need, and the learned one; on
NumPy, compiled code, and devices. Each answers for rows (B, T) with power (B, bins).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ops.welch.cpu.decimate_rows import decimation_kernel_key, decimation_kernels
from rlxweb.ops.welch.cpu.kernel import welch_kernel_key
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.ops.welch.cpu.matmul_bin_power import unsupported_reason
from rlxweb.ops.welch.cpu.spectrum import welch_power
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.signal.band_decimation_plan import BandDecimationPlan, band_decimation_plans
from rlxweb.signal.band_engine import BINS_ENGINE, DecimatingEngine
from rlxweb.signal.compiled_welch_engine import COMPILED_ENGINE
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned.gated_fft import PrunedFftProgram, exact_program
from rlxweb.signal.learned.learned_strategy import LearnedEngine
from rlxweb.signal.learned.transform import LearnedTransform, band_power_by_numpy
from rlxweb.signal.welch_engine import (
    NUMPY_ENGINE_WITHOUT_COMPILE,
    WelchEngine,
    device_engine,
)
from tests.benchmarks.goertzel import goertzel_power

RowArray = NDArray[Any]
FULL_TRANSFORM: Final = "whole transform"
NUMPY: Final = "NumPy"
_UNREACHABLE_ERROR: Final = 1e9
"""Error bound that is never reached, so that every method is measured."""


@dataclass(frozen=True, slots=True)
class BandCandidate:
    """Method of computing a band's power on one engine.

    error_bound  what it was asked to keep within, relative; 0: it is exact
    max_rows  it is given so many of the rows: some take long
    """

    method: str
    engine: str
    run: Callable[[RowArray], RowArray]
    error_bound: float = 0.0
    max_rows: int = 1 << 30


def band_candidates(
    spec: WelchSpec,
    band: BinRange,
    places: Mapping[str, DevicePlace],
    errors: tuple[float, ...],
    learned: Mapping[float, LearnedTransform],
) -> Iterator[BandCandidate]:
    """Yield the methods that compute an estimate of float32 rows.

    places   devices beside the CPU, by what they are called
    learned  by the error that each keeps within
    """
    full_program = exact_program(spec.nperseg, band)
    yield BandCandidate(
        FULL_TRANSFORM, NUMPY, lambda x: welch_power(x, spec)[:, band.bins]
    )
    compiled = _compiled_engine_name(spec)
    if compiled is not None:
        yield BandCandidate(
            FULL_TRANSFORM, compiled, _run_engine(COMPILED_ENGINE, spec, band)
        )
    if not unsupported_reason(spec):
        yield BandCandidate(
            "bins by a product", NUMPY, _run_engine(BINS_ENGINE, spec, band)
        )
    yield BandCandidate(
        "Goertzel", NUMPY, lambda x: goertzel_power(x, spec, band), max_rows=2
    )
    yield BandCandidate(
        "pruned FFT", NUMPY, lambda x: band_power_by_numpy(x, spec, full_program, band)
    )
    for error in errors:
        yield from _decimated_candidates(
            spec, band, error, NUMPY, NUMPY_ENGINE_WITHOUT_COMPILE
        )
        if compiled is not None:
            yield from _decimated_candidates(
                spec, band, error, compiled, COMPILED_ENGINE
            )
        if error in learned:
            engine = LearnedEngine(learned[error].program, _UNREACHABLE_ERROR)
            yield BandCandidate(
                "learned", NUMPY, _run_engine(engine, spec, band), error
            )
    for name, place in places.items():
        yield from _device_candidates(
            name, place, spec, band, errors, learned, full_program
        )


def _device_candidates(
    name: str,
    place: DevicePlace,
    spec: WelchSpec,
    band: BinRange,
    errors: tuple[float, ...],
    learned: Mapping[float, LearnedTransform],
    full_program: PrunedFftProgram,
) -> Iterator[BandCandidate]:
    full_transform = device_engine(place.device, place.adapter, "band_fft_host")
    device_and_adapter = place.device, place.adapter
    yield BandCandidate(FULL_TRANSFORM, name, _run_engine(full_transform, spec, band))
    yield BandCandidate(
        "pruned FFT",
        name,
        _run_engine(
            LearnedEngine(full_program, _UNREACHABLE_ERROR, *device_and_adapter),
            spec,
            band,
        ),
    )
    for error in errors:
        yield from _decimated_candidates(spec, band, error, name, full_transform)
        if error in learned:
            engine = LearnedEngine(
                learned[error].program, _UNREACHABLE_ERROR, *device_and_adapter
            )
            yield BandCandidate("learned", name, _run_engine(engine, spec, band), error)


def _decimated_candidates(
    spec: WelchSpec, band: BinRange, error: float, name: str, inner: WelchEngine
) -> Iterator[BandCandidate]:
    """Yield the decimated band, once for each available filter."""
    plans: list[BandDecimationPlan] | str = band_decimation_plans(spec, band, error)
    for plan in [] if isinstance(plans, str) else plans:
        step = plan.filter.step
        if decimation_kernels.is_enabled:
            decimation_kernels.compile_now(
                decimation_kernel_key(plan.filter, np.dtype(np.float32))
            )
        if inner is COMPILED_ENGINE and _compiled_engine_name(plan.spec) is None:
            continue
        run = _run_engine(
            DecimatingEngine(inner, step, error, enforces_max_error=False), spec, band
        )
        yield BandCandidate(f"decimated, 1 of {step}", name, run, error)


def _run_engine(
    engine: WelchEngine, spec: WelchSpec, band: BinRange
) -> Callable[[RowArray], RowArray]:
    return lambda x: np.asarray(run_blocking(engine.power(x, spec, band)))


def _compiled_engine_name(spec: WelchSpec) -> str | None:
    """Return the name of the compiled engine, or None if it does not support the
    estimate.
    """
    key = welch_kernel_key(spec, 0)
    if isinstance(key, str) or not welch_kernels.is_enabled:
        return None
    welch_kernels.compile_now(key)
    return COMPILED_ENGINE.name if welch_kernels.get_kernel(key) is not None else None
