"""Options of `rlxweb bands` other than the bands: displayed values, ratios and the 1/f
fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import nan
from typing import Any

import click
import numpy as np

from rlxweb.batch.recording_band_power import BandRequest, default_fit_range
from rlxweb.cli.options import Decorator, combine_options
from rlxweb.core.errors import UnknownName, UsageError, did_you_mean, shown
from rlxweb.signal.band_power import BAND_PRESETS, BandsLike


def parse_frequency_range(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[float, float] | None:
    """Parse a range written as two rising numbers, such as `2:40`."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        low = high = nan
    if not low < high:
        raise click.BadParameter(
            f"{text!r} is not a range; expected LOW:HIGH with LOW < HIGH, such as 2:40"
        )
    return low, high


def _parse_ratios(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Parse ratios written as `theta/beta`, several separated by commas."""
    ratios = []
    for part in (piece.strip() for value in values for piece in value.split(",")):
        numerator, _, denominator = (word.strip() for word in part.partition("/"))
        if not numerator or not denominator:
            raise click.BadParameter(
                f"{part!r} is not a ratio; expected two bands, such as theta/beta"
            )
        ratios.append((numerator, denominator))
    return tuple(dict.fromkeys(ratios))


VALUE_OPTIONS: Decorator = combine_options(
    click.option(
        "--relative", is_flag=True, help="Show only each band's share of the power."
    ),
    click.option(
        "--log",
        is_flag=True,
        help="Show log10 of the power, or of the share with --relative.",
    ),
    click.option(
        "--ratios",
        multiple=True,
        callback=_parse_ratios,
        metavar="A/B",
        help="Show ratios of band powers, such as theta/beta,alpha/theta.",
    ),
    click.option(
        "--aperiodic",
        is_flag=True,
        help="Fit the 1/f part of the spectrum; show its exponent and the peaks above "
        "it.",
    ),
    click.option(
        "--knee", is_flag=True, help="Like --aperiodic, with a knee in the 1/f part."
    ),
    click.option(
        "--fit",
        metavar="LOW:HIGH",
        callback=parse_frequency_range,
        help="Frequency range of the 1/f fit, in Hz [1 Hz to the highest band edge].",
    ),
)


def pop_bands_request(bands: BandsLike, option_values: dict[str, Any]) -> BandRequest:
    """Remove these options from `option_values` and return the request they describe.

    Errors   UnknownName for a ratio of a band that is not asked for; UsageError for
             --fit without a fit
    """
    edges_by_band = BAND_PRESETS[bands] if isinstance(bands, str) else bands
    _check_ratio_names(option_values["ratios"], edges_by_band)
    is_bent, fit_hz = option_values.pop("knee"), option_values.pop("fit")
    is_fitted = option_values.pop("aperiodic") or is_bent
    if fit_hz is not None and not is_fitted:
        problem = "it applies only to a fit of the 1/f part"
        raise UsageError("--fit", problem, hint="add --aperiodic or --knee")
    elif is_fitted and fit_hz is None:
        default_fit_range(np.array(list(edges_by_band.values())))
    return BandRequest(
        bands,
        relative=option_values.pop("relative"),
        log=option_values.pop("log"),
        ratios=option_values.pop("ratios"),
        fit=("knee" if is_bent else "fixed") if is_fitted else None,
        fit_hz=fit_hz,
    )


def _check_ratio_names(
    ratios: Iterable[tuple[str, str]], band_names: Iterable[str]
) -> None:
    """Raise UnknownName for a ratio that names a band which is not computed."""
    known_names = list(band_names)
    for name in (name for pair in ratios for name in pair):
        if name not in known_names:
            raise UnknownName(
                "--ratios",
                f"there is no band {shown(name)}",
                f"known bands: {', '.join(known_names)}",
                did_you_mean(name, known_names),
            )
