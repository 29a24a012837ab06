"""Every way to compute a band that there is, to be measured side by side.

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

from rlxweb.devices.place import Place
from rlxweb.gpu.drive import drive
from rlxweb.host.bins_product import why_not
from rlxweb.host.compiled import wanted
from rlxweb.host.decimated import decimation_kernels, kernel_key
from rlxweb.host.spec import WelchSpec
from rlxweb.host.spectrum import welch_power
from rlxweb.host.welch_kernels import welch_kernels
from rlxweb.signal.band_engine import BINS, DecimatingEngine
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.band_plan import BandPlan, band_plans
from rlxweb.signal.compiled_engine import COMPILED
from rlxweb.signal.engine import NUMPY_ALONE, Engine, device_engine
from rlxweb.signal.learned.network import Program, exact
from rlxweb.signal.learned.strategy import LearnedEngine
from rlxweb.signal.learned.transform import LearnedTransform, power_in_numpy
from tests.benchmarks.goertzel import goertzel_power

Rows = NDArray[Any]
WHOLE: Final = "whole transform"
NUMPY: Final = "NumPy"
_ANY: Final = 1e9
"""An error that is never reached: what is measured here is measured anyhow."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A way, on an engine.

    error  what it was asked to keep within, relative; 0: it is exact
    rows   it is given so many of the rows: some take long
    """

    method: str
    engine: str
    run: Callable[[Rows], Rows]
    error: float = 0.0
    rows: int = 1 << 30


def rivals_of(
    spec: WelchSpec,
    band: Band,
    places: Mapping[str, Place],
    errors: tuple[float, ...],
    learned: Mapping[float, LearnedTransform],
) -> Iterator[Rival]:
    """The ways to compute an estimate of float32 rows.

    places   devices beside the CPU, by what they are called
    learned  by the error that each keeps within
    """
    bare = exact(spec.nperseg, band)
    yield Rival(WHOLE, NUMPY, lambda x: welch_power(x, spec)[:, band.bins])
    compiled = _compiled(spec)
    if compiled is not None:
        yield Rival(WHOLE, compiled, _by(COMPILED, spec, band))
    if not why_not(spec):
        yield Rival("bins by a product", NUMPY, _by(BINS, spec, band))
    yield Rival("Goertzel", NUMPY, lambda x: goertzel_power(x, spec, band), rows=2)
    yield Rival("pruned FFT", NUMPY, lambda x: power_in_numpy(x, spec, bare, band))
    for error in errors:
        yield from _within(spec, band, error, NUMPY, NUMPY_ALONE)
        if compiled is not None:
            yield from _within(spec, band, error, compiled, COMPILED)
        if error in learned:
            own = LearnedEngine(learned[error].program, _ANY)
            yield Rival("learned", NUMPY, _by(own, spec, band), error)
    for name, place in places.items():
        yield from _there(name, place, spec, band, errors, learned, bare)


def _there(
    name: str,
    place: Place,
    spec: WelchSpec,
    band: Band,
    errors: tuple[float, ...],
    learned: Mapping[float, LearnedTransform],
    bare: Program,
) -> Iterator[Rival]:
    whole = device_engine(place.device, place.adapter, "band_fft_host")
    where = place.device, place.adapter
    yield Rival(WHOLE, name, _by(whole, spec, band))
    yield Rival("pruned FFT", name, _by(LearnedEngine(bare, _ANY, *where), spec, band))
    for error in errors:
        yield from _within(spec, band, error, name, whole)
        if error in learned:
            own = LearnedEngine(learned[error].program, _ANY, *where)
            yield Rival("learned", name, _by(own, spec, band), error)


def _within(
    spec: WelchSpec, band: Band, error: float, name: str, inner: Engine
) -> Iterator[Rival]:
    """The band of fewer samples, by each filter that there is."""
    plans: list[BandPlan] | str = band_plans(spec, band, error)
    for plan in [] if isinstance(plans, str) else plans:
        step = plan.filter.step
        if decimation_kernels.is_open:
            decimation_kernels.now(kernel_key(plan.filter, np.dtype(np.float32)))
        if inner is COMPILED and _compiled(plan.spec) is None:
            continue
        run = _by(DecimatingEngine(inner, step, error, is_held=False), spec, band)
        yield Rival(f"decimated, 1 of {step}", name, run, error)


def _by(engine: Engine, spec: WelchSpec, band: Band) -> Callable[[Rows], Rows]:
    return lambda x: np.asarray(drive(engine.power(x, spec, band)))


def _compiled(spec: WelchSpec) -> str | None:
    """What compiled code is called; None where there is none for it."""
    about = wanted(spec, 0)
    if isinstance(about, str) or not welch_kernels.is_open:
        return None
    welch_kernels.now(about)
    return COMPILED.name if welch_kernels.ready(about) is not None else None
