"""The strategies that average on the CPU: "fast", and "ultra", one segment alone.

Each has two ways: NumPy, which is always there, and compiled code, where the extra
`fast` is installed and a kernel is ready; until then its row says what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rlxweb.calibration.known import fitted, priced_cpu
from rlxweb.cost.welch_model import WelchModel
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.strategy import WelchPeaksStrategy
from rlxweb.decision.terms import Terms
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.host.welch_kernels import welch_kernels
from rlxweb.signal.compiled_engine import COMPILED, why_not
from rlxweb.signal.engine import NUMPY, Engine
from rlxweb.signal.ways import Strategy, WelchEstimate

POINTS = ("welch_host",)
COMPILED_POINTS = ("welch_compiled",)
NOT_ONE_SEGMENT = "it averages 1 segment only; a min_segments of 1 allows that"
# NumPy's time against float32 samples, where a record has no points of its own.
_WIDER = {
    "float32": 1.0,
    "int24": 1.4,
    "float64": 1.4,
    "complex64": 2.0,
    "complex128": 2.8,
}
# Compiled code computes all of them alike; doubles are twice the bytes.
_WIDER_COMPILED = {"float32": 1.0, "int24": 1.1, "float64": 1.2}
# Compiled code's time against NumPy's, where it was not measured.
_COMPILED = 0.3
_model = partial(WelchModel, how="welch_host")
_compiled_model = partial(WelchModel, how="welch_compiled")


def host_model() -> tuple[WelchModel, str]:
    """The CPU's prices, and where they come from."""
    have = priced_cpu(POINTS)
    return fitted(have.record, _model), have.source


def _way(
    name: str, segments: int, estimate: WelchEstimate, place: Place
) -> Iterator[Candidate]:
    model, source = host_model()
    # Naming the strategy allows its single segment.
    allowed = segments in (0, estimate.min_segments) or estimate.strategy == name
    blocker = "" if allowed else NOT_ONE_SEGMENT
    own = estimate.averaging(segments)
    terms = model.terms(own.size).slowed(_WIDER[own.spec.dtype])

    def candidate(engine: str, how: str, terms: Terms, blocker: str) -> Candidate:
        return Candidate(
            Device.CPU,
            engine,
            name,
            how,
            terms,
            error=model.error,
            source=source,
            blocker=blocker,
        )

    yield candidate(NUMPY.name, "host", terms, blocker)
    if welch_kernels.is_open:
        terms = compiled_terms(own) or terms.slowed(_COMPILED)
        blocker = blocker or why_not(own)
        yield candidate(COMPILED.name, "compiled", terms, blocker)


def compiled_terms(estimate: WelchEstimate) -> Terms | None:
    """What compiled code takes; None where it was not measured."""
    record = priced_cpu(COMPILED_POINTS).record
    if not record.of(COMPILED_POINTS[0]):
        return None
    model = fitted(record, _compiled_model)
    wider = _WIDER_COMPILED.get(estimate.spec.dtype, 1.0)
    return model.terms(estimate.size).slowed(wider)


def _engine(way: Candidate, estimate: WelchEstimate | None = None) -> Engine:
    return COMPILED if way.how == "compiled" else NUMPY


def _strategy(name: str, label: WelchPeaksStrategy, segments: int) -> Strategy:
    ways = partial(_way, name, segments)
    return Strategy(name, label, True, ways, _engine, POINTS, segments)


FAST = _strategy("fast", WelchPeaksStrategy.FAST_STREAMING, 0)
ULTRA = _strategy("ultra", WelchPeaksStrategy.ULTRA_FAST, 1)
