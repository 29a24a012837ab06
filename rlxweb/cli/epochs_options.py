"""`--epochs` and what belongs to it: options of welch, bands and spectrogram."""

from __future__ import annotations

from typing import Any

import click

from rlxweb.cli.options import Decorator, all_of, one_of, valued
from rlxweb.errors import UsageError
from rlxweb.jobs.epoching import BY, Epoching

EPOCHS: Decorator = all_of(
    valued("--epochs", str, "Average epochs around these annotations ('Stim*')."),
    valued("--tmin", float, "Epochs begin so many seconds from them [0]."),
    valued("--tmax", float, "And end here; the sample at tmax is left out."),
    one_of("--by", BY, "One average of all, or one for each text [all]."),
    valued(
        "--reject",
        click.FloatRange(0, min_open=True),
        "Leave out epochs in which a channel swings by more µV, peak to peak.",
    ),
    click.option(
        "--keep-bad",
        is_flag=True,
        default=None,
        help="Keep epochs in stretches whose annotation begins with bad.",
    ),
)
_NAMES = ("epochs", "tmin", "tmax", "by", "reject", "keep_bad")


def epochs_asked(asked: dict[str, Any]) -> Epoching | None:
    """Takes these options out of all that were given; None where no epochs are.

    Errors   UsageError for one of them without --epochs, and for an epoch that has no
             end or ends before it begins
    """
    around, *rest = (asked.pop(name) for name in _NAMES)
    given = {
        name: value
        for name, value in zip(_NAMES[1:], rest, strict=True)
        if value is not None
    }
    if around is None:
        for name in given:
            said = "it is of epochs, and none are asked for"
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(flag, said, hint="give --epochs TEXT")
        return None
    if not around.strip():
        raise UsageError("--epochs", "no annotation is named", hint="leave it out")
    if "tmax" not in given:
        said = "an epoch needs an end"
        raise UsageError(f"--epochs {around!r}", said, hint="give --tmax S")
    made = Epoching(around.strip(), **given)
    if not made.tmin < made.tmax:
        raise UsageError(
            f"--epochs {around!r}",
            f"tmax is {made.tmax:g} s",
            f"after tmin, {made.tmin:g} s",
        )
    return made
