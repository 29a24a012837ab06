"""The limits of EDF channels: told again from gain and offset, or chosen for data."""

from __future__ import annotations

import pytest

from rlxweb.errors import UsageError
from rlxweb.io.edf_scale import copied_scale, scale_of
from rlxweb.io.recording import Channel

LOW, HIGH = -32768, 32767


@pytest.mark.parametrize(
    ("bottom", "top", "low", "high"),
    [(-500, 500, LOW, HIGH), (-187.5, 187.5, -2048, 2047), (500, -500, -2048, 2047)],
)
def test_the_limits_of_a_scale_are_told_again(
    bottom: float, top: float, low: int, high: int
) -> None:
    """Limits come from gain and offset alone, never narrower than the counts."""
    gain = (top - bottom) / (high - low)
    channel = Channel("a", "a", "uV", 0, gain, top / gain - high)
    own = copied_scale(channel, (low, high), LOW, HIGH)
    assert own is not None
    assert (own.gain, own.offset) == pytest.approx((channel.gain, channel.offset))
    assert own.low <= low < high <= own.high
    assert max(len(own.bottom), len(own.top)) <= 8
    assert copied_scale(channel, (LOW - 1, 0), LOW, HIGH) is None
    odd = Channel("a", "a", "uV", 0, 1 / 3, 0.123456789)
    assert copied_scale(odd, (low, high), LOW, HIGH) is None


@pytest.mark.parametrize(
    "span",
    [
        *[(-203.1234567, 187.2), (0, 0), (5.5, 5.5), (-2e-4, 1e-4), (1e-9, 2e-9)],
        *[(-1e12, 3e11), (123456.789, 123457.1), (-1e300, 1e300), (12345678.9, 2e7)],
    ],
)
def test_limits_lie_outside_of_the_data_and_take_eight_characters(
    span: tuple[float, float],
) -> None:
    """Nearly as narrow as it: no step is much coarser than it need be."""
    own = scale_of(*span, LOW, HIGH, "writing")
    assert max(len(own.bottom), len(own.top)) <= 8
    assert float(own.bottom) <= span[0] <= span[1] <= float(own.top)
    if span[0] < span[1]:
        assert own.gain <= 2.5 * (span[1] - span[0]) / (HIGH - LOW)


def test_a_range_that_eight_characters_do_not_tell_is_refused() -> None:
    with pytest.raises(UsageError, match="do not tell these apart"):
        scale_of(-5e-324, 1e-323, LOW, HIGH, "writing")
    with pytest.raises(UsageError, match="do not tell these apart"):
        scale_of(-1.7e308, 1.7e308, LOW, HIGH, "writing")
