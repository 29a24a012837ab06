"""The limits of EDF channels: recovered from gain and offset, or chosen for data."""

from __future__ import annotations

import pytest

from rlxweb.core.errors import UsageError
from rlxweb.io.edf_writer_scale import copied_scale, finest_scale
from rlxweb.io.recording import Channel

DIGITAL_MIN, DIGITAL_MAX = -32768, 32767


@pytest.mark.parametrize(
    ("physical_min", "physical_max", "digital_min", "digital_max"),
    [
        (-500, 500, DIGITAL_MIN, DIGITAL_MAX),
        (-187.5, 187.5, -2048, 2047),
        (500, -500, -2048, 2047),
    ],
)
def test_limits_are_recovered_from_gain_and_offset(
    physical_min: float, physical_max: float, digital_min: int, digital_max: int
) -> None:
    """Limits follow from gain and offset alone, never narrower than the counts."""
    gain = (physical_max - physical_min) / (digital_max - digital_min)
    channel = Channel("a", "a", "uV", 0, gain, physical_max / gain - digital_max)
    scale = copied_scale(channel, (digital_min, digital_max), DIGITAL_MIN, DIGITAL_MAX)
    assert scale is not None
    assert (scale.gain, scale.offset) == pytest.approx((channel.gain, channel.offset))
    assert scale.digital_min <= digital_min < digital_max <= scale.digital_max
    assert max(len(scale.physical_min), len(scale.physical_max)) <= 8
    assert copied_scale(channel, (DIGITAL_MIN - 1, 0), DIGITAL_MIN, DIGITAL_MAX) is None
    odd = Channel("a", "a", "uV", 0, 1 / 3, 0.123456789)
    assert (
        copied_scale(odd, (digital_min, digital_max), DIGITAL_MIN, DIGITAL_MAX) is None
    )


@pytest.mark.parametrize(
    "span",
    [
        *[(-203.1234567, 187.2), (0, 0), (5.5, 5.5), (-2e-4, 1e-4), (1e-9, 2e-9)],
        *[(-1e12, 3e11), (123456.789, 123457.1), (-1e300, 1e300), (12345678.9, 2e7)],
    ],
)
def test_limits_enclose_the_data_in_eight_characters(
    span: tuple[float, float],
) -> None:
    """Limits are nearly as narrow as the data, so that no step is much coarser than
    necessary.
    """
    scale = finest_scale(*span, DIGITAL_MIN, DIGITAL_MAX, "writing")
    assert max(len(scale.physical_min), len(scale.physical_max)) <= 8
    assert float(scale.physical_min) <= span[0] <= span[1] <= float(scale.physical_max)
    if span[0] < span[1]:
        assert scale.gain <= 2.5 * (span[1] - span[0]) / (DIGITAL_MAX - DIGITAL_MIN)


def test_a_range_that_eight_characters_cannot_express_is_refused() -> None:
    with pytest.raises(UsageError, match="too few to distinguish these two"):
        finest_scale(-5e-324, 1e-323, DIGITAL_MIN, DIGITAL_MAX, "writing")
    with pytest.raises(UsageError, match="too few to distinguish these two"):
        finest_scale(-1.7e308, 1.7e308, DIGITAL_MIN, DIGITAL_MAX, "writing")
