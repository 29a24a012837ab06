"""Which channels of a file are taken, and what each is called.

Pure functions on labels: unique names for equal labels, the trigger channels nobody
wants in a spectrum, and picking by name, label or pattern. Opens nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from rlxweb.errors import RecordingError, UnknownName, UsageError
from rlxweb.io.contents import Found

_TRIGGER = re.compile(
    r"status|sti ?\d+|(stim(ulus)?|trig(ger)?s?)([ _-]\w+|\d+)?|events?|markers?",
    re.IGNORECASE,
)
TRIGGER_REASON = "holds triggers or status bits, not a signal"


def is_trigger(label: str) -> bool:
    """True for the labels that status and trigger channels carry."""
    return _TRIGGER.fullmatch(label.strip()) is not None


def unique_names(labels: Sequence[str]) -> tuple[str, ...]:
    """One name per label: equal labels get ` (2)`, ` (3)` …; empty ones `ch<place>`.

    A suffix that another label already carries is passed over.
    """
    wanted = [label.strip() or f"ch{at + 1}" for at, label in enumerate(labels)]
    taken = set(wanted)
    seen: set[str] = set()
    names = []
    for want in wanted:
        name, count = want, 1
        while name in seen or (count > 1 and name in taken):
            count += 1
            name = f"{want} ({count})"
        seen.add(name)
        names.append(name)
    return tuple(names)


def choose_channels(
    doing: str,
    found: Sequence[Found],
    names: Sequence[str],
    wanted: Sequence[str] | None,
) -> tuple[int, ...]:
    """Indices of the channels taken: all ordinary ones, or those `wanted` names.

    Each entry is a unique name, a label (upper or lower case alike), or a pattern such
    as "EEG*" over the ordinary channels. The order asked for is kept.

    Errors   UnknownName with the nearest names; UsageError for an empty list or a
             channel that holds no samples; RecordingError when nothing is left.
    """
    if wanted is None:
        taken = [at for at, channel in enumerate(found) if not channel.why_not]
        if not taken:
            listed = list(zip(names, found, strict=True))[:4]
            why = "; ".join(f"{name!r} {channel.why_not}" for name, channel in listed)
            raise RecordingError(doing, "no signal channel in it", why or "0 channels")
        return tuple(taken)
    if not wanted:
        raise UsageError(doing, "no channel was asked for", hint="name at least one")
    picked: dict[int, None] = {}
    for entry in wanted:
        if not isinstance(entry, str):
            raise UsageError(
                doing,
                f"{entry!r} is not a channel name",
                "channels are picked by name",
                "give strings such as 'Fp1' or 'EEG*'",
            )
        for at in _matches(doing, entry.strip(), found, names):
            if not found[at].nameable:
                raise UsageError(
                    doing,
                    f"channel {names[at]!r} cannot be taken: it {found[at].why_not}",
                )
            picked[at] = None
    return tuple(picked)


def _matches(
    doing: str, entry: str, found: Sequence[Found], names: Sequence[str]
) -> list[int]:
    """Indices `entry` stands for: exact, then without case, then as a pattern."""
    if entry in names:
        return [names.index(entry)]
    folded = entry.casefold()
    both = [
        (name.casefold(), channel.label.strip().casefold())
        for name, channel in zip(names, found, strict=True)
    ]
    exact = [at for at, pair in enumerate(both) if folded in pair]
    if exact:
        return exact
    # A pattern asks for signals; a trigger channel is taken only by its own name.
    pattern = [
        at
        for at, pair in enumerate(both)
        if not found[at].why_not and any(fnmatchcase(text, folded) for text in pair)
    ]
    if pattern:
        return pattern
    rest = f", … and {len(names) - 12} more" if len(names) > 12 else ""
    raise UnknownName(
        doing,
        f"there is no channel {entry!r}",
        f"{len(names)} channels: {', '.join(names[:12])}{rest}",
        _nearest(folded, names),
    )


def _nearest(folded: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(folded, [n.casefold() for n in names], n=3)
    close = [name for name in names if name.casefold() in near]
    if not close:
        return "choose one of them, or a pattern such as 'EEG*'"
    return "did you mean " + " or ".join(repr(name) for name in close[:3]) + "?"
