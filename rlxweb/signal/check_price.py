"""What it costs to hold part of an answer against the exact one."""

from __future__ import annotations

from rlxweb.cost.welch_model import WelchSize
from rlxweb.decision.terms import Terms
from rlxweb.signal.accuracy import SEGMENTS, checked_rows
from rlxweb.signal.on_host import host_model
from rlxweb.signal.ways import WelchEstimate


def check_terms(estimate: WelchEstimate) -> Terms:
    """Some segments of some rows are computed twice."""
    spec = estimate.spec
    count = min(SEGMENTS, spec.segments_of(estimate.n_samples))
    samples = spec.nperseg + (count - 1) * spec.hop
    rows = checked_rows(estimate.n_rows)
    size = WelchSize(spec.nfft, count, rows, 0, samples)
    return Terms(host_ns=2.0 * host_model()[0].terms(size).total_ns)
