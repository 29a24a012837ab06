"""Selection of channels by name, label or pattern, and unique channel names.

Pure functions on labels: unique names for equal labels, the trigger channels nobody
wants in a spectrum, and picking by name, label or pattern. Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rlxweb.core.errors import RecordingError, UnknownName, UsageError, did_you_mean
from rlxweb.io.format_reader_interface import FileChannel

_TRIGGER = re.compile(
    r"status|sti ?\d+|(stim(ulus)?|trig(ger)?s?)([ _-]\w+|\d+)?|events?|markers?",
    re.IGNORECASE,
)
_WILDCARD = re.compile(r"[*?\[]")
_FIRST_SUFFIX = " (1)"
_MAX_SHOWN_LENGTH = 60  # of a name in a message
ANNOTATIONS_REASON = "contains annotations (text)"
TRIGGER_REASON = "contains triggers or status bits, not a signal"


def is_trigger(label: str) -> bool:
    """Tell whether a label is one that status and trigger channels carry."""
    return _TRIGGER.fullmatch(label.strip()) is not None


def has_only_annotations(file_channels: Sequence[FileChannel]) -> bool:
    """Tell whether a file has channels and all of them hold annotations."""
    return bool(file_channels) and all(
        channel.exclusion_reason == ANNOTATIONS_REASON for channel in file_channels
    )


def unique_names(labels: Sequence[str]) -> tuple[str, ...]:
    """Return one name per label: equal labels get ` (2)`, ` (3)` …; empty ones
    `ch<position>`.

    A suffix that another label already carries is passed over.
    """
    base_names = [
        label.strip() or f"ch{position + 1}" for position, label in enumerate(labels)
    ]
    reserved = set(base_names)
    assigned: set[str] = set()
    # How far the numbers of a label are used up, so that no number is tried twice.
    last_number: dict[str, int] = {}
    names = []
    for base_name in base_names:
        name = base_name
        while name in assigned or (base_name in last_number and name in reserved):
            last_number[base_name] = last_number.get(base_name, 1) + 1
            name = f"{base_name} ({last_number[base_name]})"
        assigned.add(name)
        names.append(name)
    return tuple(names)


def choose_channels(
    context: str,
    file_channels: Sequence[FileChannel],
    names: Sequence[str],
    requested: Sequence[str] | None,
) -> tuple[int, ...]:
    """Return the indices of the requested channels, or of all ordinary ones.

    Each entry is a unique name, a label (upper or lower case alike) that one channel
    carries, or a pattern such as "EEG*" over the ordinary channels. The order asked for
    is kept. Of channels that share a label each is picked by its number, the first as
    ` (1)` or, where another is called so, ` (1) (1)`, and all of them by a pattern.

    Errors   UnknownName with the nearest names; UsageError for an empty list, a label
             of several channels or a channel that holds no samples; RecordingError when
             nothing is left.
    """
    if requested is None:
        return _default_channels(context, file_channels, names)
    if not requested:
        raise UsageError(
            context, "no channel is selected", hint="select at least one channel"
        )
    index = _build_index(file_channels, names)
    selected: dict[int, None] = {}
    for entry in requested:
        if not isinstance(entry, str):
            raise UsageError(
                context,
                f"{entry!r} is not a channel name",
                "channels are selected by name",
                "pass strings such as 'Fp1' or 'EEG*'",
            )
        for position in _match_channels(
            context, entry.strip(), file_channels, names, index
        ):
            if not file_channels[position].is_selectable:
                raise UsageError(
                    context,
                    f"channel {_quote_name(names[position])} cannot be selected: "
                    f"it {file_channels[position].exclusion_reason}",
                )
            selected[position] = None
    return tuple(selected)


def exclude_channels(
    context: str,
    file_channels: Sequence[FileChannel],
    names: Sequence[str],
    selected: tuple[int, ...],
    excluded: Sequence[str],
) -> tuple[int, ...]:
    """Return the selected channels without the excluded ones, which are named as in
    `choose_channels`.

    Errors   UnknownName for what names no channel; UsageError when nothing is left.
    """
    if not excluded:
        return selected
    index = _build_index(file_channels, names)
    excluded_positions = {
        position
        for entry in excluded
        for position in _match_channels(
            context, str(entry).strip(), file_channels, names, index
        )
    }
    remaining = tuple(
        position for position in selected if position not in excluded_positions
    )
    if not remaining:
        problem = f"all {len(selected)} channels are excluded"
        raise UsageError(context, problem, hint="exclude fewer channels")
    return remaining


def _default_channels(
    context: str, file_channels: Sequence[FileChannel], names: Sequence[str]
) -> tuple[int, ...]:
    """Return the indices of all channels without a reason for exclusion."""
    selected = tuple(
        position
        for position, channel in enumerate(file_channels)
        if not channel.exclusion_reason
    )
    if not selected:
        examples = list(zip(names, file_channels, strict=True))[:4]
        reasons = "; ".join(
            f"{_quote_name(name)} {channel.exclusion_reason}"
            for name, channel in examples
        )
        raise RecordingError(
            context, "the file contains no signal channel", reasons or "0 channels"
        )
    return selected


@dataclass(frozen=True, slots=True)
class _ChannelIndex:
    """Channel positions by name and label, as written and casefolded.

    numbered_firsts  those whose bare label others carry too, by the name that is theirs
                     alone
    """

    names: dict[str, int]
    labels: dict[str, list[int]]
    casefolded: dict[str, list[int]]
    numbered_firsts: dict[str, int]


def _build_index(
    file_channels: Sequence[FileChannel], names: Sequence[str]
) -> _ChannelIndex:
    """Build the look-up tables of names and labels."""
    labels: dict[str, list[int]] = {}
    casefolded: dict[str, list[int]] = {}
    for position, (name, channel) in enumerate(zip(names, file_channels, strict=True)):
        label = channel.label.strip()
        labels.setdefault(label, []).append(position)
        for text in {name.casefold(), label.casefold()}:
            casefolded.setdefault(text, []).append(position)
    positions_by_name = {name: position for position, name in enumerate(names)}
    numbered_firsts: dict[str, int] = {}
    for label, positions in labels.items():
        selectable = _selectable(file_channels, positions)
        name = label + _FIRST_SUFFIX
        # Said once more where a channel is really called so.
        while name in labels or name in positions_by_name or name in numbered_firsts:
            name += _FIRST_SUFFIX
        if len(selectable) > 1:
            numbered_firsts[name] = selectable[0]
    return _ChannelIndex(positions_by_name, labels, casefolded, numbered_firsts)


def _match_channels(
    context: str,
    entry: str,
    file_channels: Sequence[FileChannel],
    names: Sequence[str],
    index: _ChannelIndex,
) -> list[int]:
    """Return the indices that an entry stands for: an exact match, then one in any
    case, then a pattern.
    """
    shared = _selectable(file_channels, index.labels.get(entry, []))
    if len(shared) > 1:
        raise _ambiguous_error(context, entry, shared, names, index)
    if entry in index.names:
        return [index.names[entry]]
    if entry in index.numbered_firsts:
        return [index.numbered_firsts[entry]]
    casefold_matches = index.casefolded.get(entry.casefold(), [])
    if len(_selectable(file_channels, casefold_matches)) > 1:
        raise _ambiguous_error(context, entry, casefold_matches, names, index)
    if casefold_matches:
        return _selectable(file_channels, casefold_matches) or casefold_matches
    # A pattern asks for signals; a trigger channel is taken only by its own name.
    folded_entry = entry.casefold()
    pattern_matches = [
        position
        for position, name in enumerate(names if _WILDCARD.search(entry) else ())
        if not file_channels[position].exclusion_reason
        and (
            fnmatchcase(name.casefold(), folded_entry)
            or fnmatchcase(
                file_channels[position].label.strip().casefold(), folded_entry
            )
        )
    ]
    if pattern_matches:
        return pattern_matches
    rest = f", … and {len(names) - 12} more" if len(names) > 12 else ""
    available = "1 channel is" if len(names) == 1 else f"{len(names)} channels are"
    raise UnknownName(
        context,
        f"no channel is named {_quote_name(entry)}",
        f"{available} available: {', '.join(map(_truncate, names[:12]))}{rest}",
        did_you_mean(entry, names)
        or "pass one of these names, or a pattern such as 'EEG*'",
    )


def _selectable(
    file_channels: Sequence[FileChannel], positions: list[int]
) -> list[int]:
    """Return the positions of channels that can be selected."""
    return [position for position in positions if file_channels[position].is_selectable]


def _ambiguous_error(
    context: str,
    entry: str,
    positions: list[int],
    names: Sequence[str],
    index: _ChannelIndex,
) -> UsageError:
    """Return the error for an entry that several channels match."""
    # The first of several carries the bare label, which is what could not be decided.
    names_of_firsts = {
        position: name for name, position in index.numbered_firsts.items()
    }
    suggestions = [
        names_of_firsts.get(position, names[position]) for position in positions[:3]
    ]
    return UsageError(
        context,
        f"{len(positions)} channels match {_quote_name(entry)}",
        "a name must select exactly one channel",
        "pass one of "
        f"{', '.join(map(_quote_name, suggestions))}{' …' * (len(positions) > 3)}; "
        f"or pass {_quote_name(entry + '*')} to select all names with this prefix",
    )


def _truncate(name: str) -> str:
    """Return a name, shortened for messages."""
    return name if len(name) <= _MAX_SHOWN_LENGTH else f"{name[:_MAX_SHOWN_LENGTH]}…"


def _quote_name(name: str) -> str:
    """Return a name in quotes, shortened for messages."""
    return repr(_truncate(name))
