"""The strategies that average on the CPU: "fast", and "ultra", one segment alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rlxweb.calibration.known import fitted, priced_cpu
from rlxweb.cost.welch_model import WelchModel
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.strategy import WelchPeaksStrategy
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.signal.engine import NUMPY
from rlxweb.signal.ways import Strategy, WelchEstimate

POINTS = ("welch_host",)
NOT_ONE_SEGMENT = "it averages 1 segment only; a min_segments of 1 allows that"
# NumPy's time against float32 samples, where a record has no points of its own.
_WIDER = {
    "float32": 1.0,
    "int24": 1.4,
    "float64": 1.4,
    "complex64": 2.0,
    "complex128": 2.8,
}
_model = partial(WelchModel, how="welch_host")


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
    own = estimate.averaging(segments)
    yield Candidate(
        Device.CPU,
        NUMPY.name,
        name,
        "host",
        terms=model.terms(own.size).slowed(_WIDER[own.spec.dtype]),
        error=model.error,
        source=source,
        blocker="" if allowed else NOT_ONE_SEGMENT,
    )


def _strategy(name: str, label: WelchPeaksStrategy, segments: int) -> Strategy:
    ways = partial(_way, name, segments)
    return Strategy(name, label, True, ways, lambda way: NUMPY, POINTS, segments)


FAST = _strategy("fast", WelchPeaksStrategy.FAST_STREAMING, 0)
ULTRA = _strategy("ultra", WelchPeaksStrategy.ULTRA_FAST, 1)
