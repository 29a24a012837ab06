"""Which channels of a file are taken, and what each is called.

Pure functions on labels: unique names for equal labels, the trigger channels nobody
wants in a spectrum, and picking by name, label or pattern. Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rlxweb.errors import RecordingError, UnknownName, UsageError, did_you_mean
from rlxweb.io.contents import Found

_TRIGGER = re.compile(
    r"status|sti ?\d+|(stim(ulus)?|trig(ger)?s?)([ _-]\w+|\d+)?|events?|markers?",
    re.IGNORECASE,
)
_WILD = re.compile(r"[*?\[]")
_FIRST = " (1)"
_LONGEST = 60  # of a name in a message
ANNOTATIONS_REASON = "holds annotations (text)"
TRIGGER_REASON = "holds triggers or status bits, not a signal"


def is_trigger(label: str) -> bool:
    """True for the labels that status and trigger channels carry."""
    return _TRIGGER.fullmatch(label.strip()) is not None


def holds_annotations_alone(found: Sequence[Found]) -> bool:
    """Tell whether all channels of a file hold annotations, and there is one."""
    return bool(found) and all(one.why_not == ANNOTATIONS_REASON for one in found)


def unique_names(labels: Sequence[str]) -> tuple[str, ...]:
    """One name per label: equal labels get ` (2)`, ` (3)` …; empty ones `ch<place>`.

    A suffix that another label already carries is passed over.
    """
    wanted = [label.strip() or f"ch{at + 1}" for at, label in enumerate(labels)]
    taken = set(wanted)
    seen: set[str] = set()
    # How far the numbers of a label are used up, so that no number is tried twice.
    used: dict[str, int] = {}
    names = []
    for want in wanted:
        name = want
        while name in seen or (want in used and name in taken):
            used[want] = used.get(want, 1) + 1
            name = f"{want} ({used[want]})"
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

    Each entry is a unique name, a label (upper or lower case alike) that one channel
    carries, or a pattern such as "EEG*" over the ordinary channels. The order asked for
    is kept. Of channels that share a label each is picked by its number, the first as
    ` (1)` or, where another is called so, ` (1) (1)`, and all of them by a pattern.

    Errors   UnknownName with the nearest names; UsageError for an empty list, a label
             of several channels or a channel that holds no samples; RecordingError when
             nothing is left.
    """
    if wanted is None:
        return _ordinary(doing, found, names)
    if not wanted:
        raise UsageError(doing, "no channel was asked for", hint="name at least one")
    index = _index(found, names)
    picked: dict[int, None] = {}
    for entry in wanted:
        if not isinstance(entry, str):
            raise UsageError(
                doing,
                f"{entry!r} is not a channel name",
                "channels are picked by name",
                "give strings such as 'Fp1' or 'EEG*'",
            )
        for at in _matches(doing, entry.strip(), found, names, index):
            if not found[at].nameable:
                raise UsageError(
                    doing,
                    f"channel {_short(names[at])} cannot be taken: it "
                    f"{found[at].why_not}",
                )
            picked[at] = None
    return tuple(picked)


def leave_out(
    doing: str,
    found: Sequence[Found],
    names: Sequence[str],
    taken: tuple[int, ...],
    unwanted: Sequence[str],
) -> tuple[int, ...]:
    """The channels taken but for those that `unwanted` names, as `wanted` names them.

    Errors   UnknownName for what names no channel; UsageError when nothing is left.
    """
    if not unwanted:
        return taken
    index = _index(found, names)
    gone = {
        at
        for entry in unwanted
        for at in _matches(doing, str(entry).strip(), found, names, index)
    }
    kept = tuple(at for at in taken if at not in gone)
    if not kept:
        said = f"all {len(taken)} channels are excluded"
        raise UsageError(doing, said, hint="leave one in")
    return kept


def _ordinary(
    doing: str, found: Sequence[Found], names: Sequence[str]
) -> tuple[int, ...]:
    """All channels but those that say why not."""
    taken = tuple(at for at, channel in enumerate(found) if not channel.why_not)
    if not taken:
        listed = list(zip(names, found, strict=True))[:4]
        why = "; ".join(f"{_short(name)} {channel.why_not}" for name, channel in listed)
        raise RecordingError(doing, "no signal channel in it", why or "0 channels")
    return taken


@dataclass(frozen=True, slots=True)
class _Index:
    """Channels by what they may be called: as written, and with letters made small.

    firsts   those whose bare label others carry too, by the name that is theirs alone
    """

    names: dict[str, int]
    labels: dict[str, list[int]]
    folded: dict[str, list[int]]
    firsts: dict[str, int]


def _index(found: Sequence[Found], names: Sequence[str]) -> _Index:
    labels: dict[str, list[int]] = {}
    folded: dict[str, list[int]] = {}
    for at, (name, channel) in enumerate(zip(names, found, strict=True)):
        label = channel.label.strip()
        labels.setdefault(label, []).append(at)
        for text in {name.casefold(), label.casefold()}:
            folded.setdefault(text, []).append(at)
    known = {name: at for at, name in enumerate(names)}
    firsts: dict[str, int] = {}
    for label, places in labels.items():
        able = _able(found, places)
        name = label + _FIRST
        # Said once more where a channel is really called so.
        while name in labels or name in known or name in firsts:
            name += _FIRST
        if len(able) > 1:
            firsts[name] = able[0]
    return _Index(known, labels, folded, firsts)


def _matches(
    doing: str,
    entry: str,
    found: Sequence[Found],
    names: Sequence[str],
    index: _Index,
) -> list[int]:
    """Indices `entry` stands for: as written, then in any case, then as a pattern."""
    shared = _able(found, index.labels.get(entry, []))
    if len(shared) > 1:
        raise _ambiguous(doing, entry, shared, names, index)
    if entry in index.names:
        return [index.names[entry]]
    if entry in index.firsts:
        return [index.firsts[entry]]
    folded = index.folded.get(entry.casefold(), [])
    if len(_able(found, folded)) > 1:
        raise _ambiguous(doing, entry, folded, names, index)
    if folded:
        return _able(found, folded) or folded
    # A pattern asks for signals; a trigger channel is taken only by its own name.
    wanted = entry.casefold()
    pattern = [
        at
        for at, name in enumerate(names if _WILD.search(entry) else ())
        if not found[at].why_not
        and (
            fnmatchcase(name.casefold(), wanted)
            or fnmatchcase(found[at].label.strip().casefold(), wanted)
        )
    ]
    if pattern:
        return pattern
    rest = f", … and {len(names) - 12} more" if len(names) > 12 else ""
    count = f"{len(names)} channel{'s' * (len(names) != 1)}"
    raise UnknownName(
        doing,
        f"there is no channel {_short(entry)}",
        f"{count}: {', '.join(_cut(n) for n in names[:12])}{rest}",
        did_you_mean(entry, names) or "choose one of them, or a pattern such as 'EEG*'",
    )


def _able(found: Sequence[Found], places: list[int]) -> list[int]:
    """Those of the channels that could be taken."""
    return [at for at in places if found[at].nameable]


def _ambiguous(
    doing: str, entry: str, places: list[int], names: Sequence[str], index: _Index
) -> UsageError:
    # The first of several carries the bare label, which is what could not be decided.
    alone = {at: name for name, at in index.firsts.items()}
    said = [alone.get(at, names[at]) for at in places[:3]]
    return UsageError(
        doing,
        f"{len(places)} channels are called {_short(entry)}",
        "a name picks one channel",
        f"say which: {', '.join(map(_short, said))}{' …' * (len(places) > 3)}; or all "
        f"that begin so: {_short(entry + '*')}",
    )


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"


def _short(name: str) -> str:
    return repr(_cut(name))
