"""What `rlxweb bands` is asked beside the bands: values, ratios, the 1/f part."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan
from typing import Any

import click
import numpy as np

from rlxweb.cli.options import Decorator, all_of
from rlxweb.errors import UnknownName, UsageError, did_you_mean, shown
from rlxweb.jobs.bands import BandsAsked, usual_fit
from rlxweb.signal.bands import BANDS, Bands


def stretch(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[float, float] | None:
    """`2:40`, two rising numbers."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        low = high = nan
    if not low < high:
        raise click.BadParameter(f"{text!r} is no stretch; write it like 2:40")
    return low, high


def _ratios(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    found = []
    for part in (one.strip() for value in values for one in value.split(",")):
        over, _, under = (word.strip() for word in part.partition("/"))
        if not over or not under:
            raise click.BadParameter(f"{part!r} is no ratio; write it like theta/beta")
        found.append((over, under))
    return tuple(dict.fromkeys(found))


VALUES: Decorator = all_of(
    click.option("--relative", is_flag=True, help="Show the shares alone."),
    click.option("--log", is_flag=True, help="Show log10 of what is shown."),
    click.option(
        "--ratios",
        multiple=True,
        callback=_ratios,
        metavar="A/B",
        help="Power of one band over another's: theta/beta,alpha/theta.",
    ),
    click.option(
        "--aperiodic",
        is_flag=True,
        help="Fit the 1/f part, and tell its exponent and the peaks above it.",
    ),
    click.option("--knee", is_flag=True, help="The same with a line that may bend."),
    click.option(
        "--fit",
        metavar="LOW:HIGH",
        callback=stretch,
        help="Where it is fitted, in Hz [1 Hz to the highest edge].",
    ),
)


def bands_asked(bands: Bands, asked: dict[str, Any]) -> BandsAsked:
    """Takes these options out of all that were given.

    Errors   UnknownName for a ratio of a band that is not asked for; UsageError for
             --fit without a fit
    """
    names = BANDS[bands] if isinstance(bands, str) else bands
    _check_known(asked["ratios"], names)
    is_bent, fit_hz = asked.pop("knee"), asked.pop("fit")
    is_fitted = asked.pop("aperiodic") or is_bent
    if fit_hz is not None and not is_fitted:
        said = "it is of the 1/f part, and that is not asked for"
        raise UsageError("--fit", said, hint="give --aperiodic or --knee")
    elif is_fitted and fit_hz is None:
        usual_fit(np.array(list(names.values())))
    return BandsAsked(
        bands,
        relative=asked.pop("relative"),
        log=asked.pop("log"),
        ratios=asked.pop("ratios"),
        fit=("knee" if is_bent else "fixed") if is_fitted else None,
        fit_hz=fit_hz,
    )


def _check_known(ratios: Iterable[tuple[str, str]], names: Iterable[str]) -> None:
    known = list(names)
    for name in (name for pair in ratios for name in pair):
        if name not in known:
            raise UnknownName(
                "--ratios",
                f"no band is called {shown(name)}",
                f"there are {', '.join(known)}",
                did_you_mean(name, known),
            )
