"""Merge groups of channels that share one rate, start and length.

A file has such groups after all channels were brought to one rate, or where a caller
asks for several parts of a recording. Owns what two groups must share to be joined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rlxweb.io.format_reader_interface import Samples
from rlxweb.io.recording import Group

_SAME_EXTENT = "the same start, length and gaps"
_RATE_TOLERANCE = 1e-9  # within which `open_recording` takes two rates for equal


@dataclass(frozen=True, slots=True)
class _MergedGroupReader:
    """Reader of the channels of several groups, renumbered as one group.

    channel_rows  the group and the row in it of each channel
    """

    groups: tuple[Group, ...]
    channel_rows: tuple[tuple[int, int], ...]
    dtype: np.dtype[np.generic]

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """Return samples [start, stop) of the channels, (C, T); see SampleReader."""
        out = np.empty((len(channels), stop - start), self.dtype)
        sources = [self.channel_rows[channel] for channel in channels]
        for group_index in dict.fromkeys(group_index for group_index, _ in sources):
            data = self.groups[group_index].read(start, stop)
            for row, (source_index, source_row) in enumerate(sources):
                if source_index == group_index:
                    out[row] = data[source_row]
        return out


def merge_groups(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return the groups, with those that can be one merged, each at the place of its
    first member.

    The channels of a joined group are in the order of the file.
    """
    group_sets: list[list[Group]] = []
    for group in groups:
        for members in group_sets:
            if not any(_pair_difference(member, group) for member in members):
                members.append(group)
                break
        else:
            group_sets.append([group])
    return tuple(
        members[0] if len(members) == 1 else _merge(members) for members in group_sets
    )


class MergeObstacle(NamedTuple):
    """Reason why groups cannot be one, in words.

    requirement   what their channels must have to be one group
    """

    problem: str
    requirement: str
    has_several_rates: bool = False


def merge_obstacle(groups: Sequence[Group]) -> MergeObstacle:
    """Return the reason why groups that `merge_groups` kept separate cannot be one."""
    rates = list(dict.fromkeys(f"{group.fs:.10g}" for group in groups))
    if len(rates) > 1:
        return MergeObstacle(
            f"the channels have {len(rates)} rates: {', '.join(rates)} Hz",
            "the same sampling rate",
            has_several_rates=True,
        )
    difference, requirement = _pair_difference(*groups[:2]) or ("", "")
    return MergeObstacle(
        f"the groups at {rates[0]} Hz cannot be merged: {difference}", requirement
    )


def _pair_difference(first: Group, second: Group) -> tuple[str, str] | None:
    """Return the difference that prevents merging two groups, and what their channels
    must have instead; None for no difference.
    """
    if not math.isclose(first.fs, second.fs, rel_tol=_RATE_TOLERANCE):
        return (
            f"one has a rate of {first.fs:.10g} Hz, the other {second.fs:.10g} Hz",
            "the same sampling rate",
        )
    if abs(first.first - second.first) > 1:
        begins = (f"{group.first / group.fs:.10g} s" for group in (first, second))
        return f"one starts at {', the other at '.join(begins)}", _SAME_EXTENT
    if first.n_samples != second.n_samples:
        return (
            f"one has {first.n_samples} samples, the other {second.n_samples}",
            _SAME_EXTENT,
        )
    if first.gaps != second.gaps:
        return "their gaps (spans without samples) differ", _SAME_EXTENT
    if _common_dtype(first, second) is None:
        return (
            f"one has dtype {first.dtype}, the other {second.dtype}",
            "dtypes that a common dtype represents exactly",
        )
    shared = [name for name in first.names if name in second.names]
    if shared:
        return f"both groups have a channel named {shared[0]!r}", "different names"
    return None


def _common_dtype(first: Group, second: Group) -> np.dtype[np.generic] | None:
    """Return a dtype that holds the samples of both groups exactly; None for none."""
    dtype = np.result_type(first.dtype, second.dtype)
    has_wide_integers = any(
        g.dtype.kind in "iu" and g.dtype.itemsize > 4 for g in (first, second)
    )
    return None if has_wide_integers and dtype.kind == "f" else dtype


def _merge(groups: Sequence[Group]) -> Group:
    """Merge groups into one, its channels in the order of the file."""
    places = [
        (channel.index, group_index, row)
        for group_index, group in enumerate(groups)
        for row, channel in enumerate(group.channels)
    ]
    rows = tuple((group_index, row) for _, group_index, row in sorted(places))
    channels = tuple(
        replace(groups[group_index].channels[row], index=index, gain=1.0, offset=0.0)
        for index, (group_index, row) in enumerate(rows)
    )
    dtype = np.result_type(*(group.dtype for group in groups))
    reader = _MergedGroupReader(tuple(groups), rows, dtype)
    return replace(
        groups[0], channels=channels, dtype=dtype, reader=reader, digital=None
    )
