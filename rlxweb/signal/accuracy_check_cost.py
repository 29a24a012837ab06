"""Cost-model terms of an accuracy check, which compares part of an answer with the
exact one.
"""

from __future__ import annotations

from rlxweb.cost.decision import Terms
from rlxweb.cost.welch_model import WelchSize
from rlxweb.signal.cpu_welch_strategies import cpu_model
from rlxweb.signal.spectrum_accuracy import CHECKED_SEGMENTS, checked_row_count
from rlxweb.signal.welch_strategy import WelchEstimate


def accuracy_check_terms(estimate: WelchEstimate) -> Terms:
    """Return the cost of computing some segments of some rows twice."""
    spec = estimate.spec
    count = min(CHECKED_SEGMENTS, spec.segments_per_row(estimate.n_samples))
    samples = spec.nperseg + (count - 1) * spec.hop
    rows = checked_row_count(estimate.n_rows)
    size = WelchSize(spec.nfft, count, rows, 0, samples)
    return Terms(host_ns=2.0 * cpu_model()[0].terms(size).total_ns)
