"""Options for epochs: `--epochs` and its companions, of welch, bands and
spectrogram.
"""

from __future__ import annotations

from typing import Any

import click

from rlxweb.batch.epoch_options import EPOCH_GROUPINGS, EpochOptions
from rlxweb.cli.options import (
    Decorator,
    FiniteFloatRange,
    choice_option,
    combine_options,
    value_option,
)
from rlxweb.core.errors import UsageError

EPOCH_OPTIONS: Decorator = combine_options(
    value_option(
        "--epochs", str, "Average epochs around matching annotations ('Stim*')."
    ),
    value_option(
        "--tmin", float, "Start of an epoch, in seconds from its annotation [0]."
    ),
    value_option(
        "--tmax",
        float,
        "End of an epoch, in seconds from its annotation; the sample at tmax is "
        "excluded.",
    ),
    choice_option(
        "--by",
        EPOCH_GROUPINGS,
        "all: one average over all epochs; text: one per annotation text [all].",
    ),
    value_option(
        "--reject",
        FiniteFloatRange(0, min_open=True),
        "Drop epochs in which a channel exceeds this peak-to-peak value in µV.",
    ),
    click.option(
        "--keep-bad",
        is_flag=True,
        default=None,
        help="Keep epochs that overlap an annotation whose text starts with 'bad'.",
    ),
)
_OPTION_NAMES = ("epochs", "tmin", "tmax", "by", "reject", "keep_bad")


def pop_epoching(option_values: dict[str, Any]) -> EpochOptions | None:
    """Remove these options from `option_values` and return the epoching; None without
    --epochs.

    Errors   UsageError for one of them without --epochs, and for an epoch that has no
             end or ends before it begins
    """
    text_pattern, *other_values = (option_values.pop(name) for name in _OPTION_NAMES)
    given_values = {
        name: value
        for name, value in zip(_OPTION_NAMES[1:], other_values, strict=True)
        if value is not None
    }
    if text_pattern is None:
        for name in given_values:
            problem = "it requires --epochs"
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(flag, problem, hint="add --epochs TEXT")
        return None
    if not text_pattern.strip():
        raise UsageError(
            "--epochs", "the annotation text is empty", hint="omit --epochs"
        )
    if "tmax" not in given_values:
        problem = "the end of the epochs is missing"
        raise UsageError(f"--epochs {text_pattern!r}", problem, hint="add --tmax S")
    epoching = EpochOptions(text_pattern.strip(), **given_values)
    if not epoching.tmin < epoching.tmax:
        raise UsageError(
            f"--epochs {text_pattern!r}",
            f"got tmax {epoching.tmax:g} s",
            f"tmax must be greater than tmin, which is {epoching.tmin:g} s",
        )
    return epoching
