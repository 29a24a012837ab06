"""Groups that could be one: of one rate, one beginning and one length.

A file has such groups after all channels were brought to one rate, or where a caller
asks for several parts of a recording. Owns what two groups must share to be joined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlxweb.io.contents import Samples
from rlxweb.io.recording import Group

_SAME_RATE = 1e-9  # within which `open_recording` takes two rates for equal


@dataclass(frozen=True, slots=True)
class _Joined:
    """Reads the channels of several groups, which are numbered anew.

    rows  the group and the row in it of each channel
    """

    groups: tuple[Group, ...]
    rows: tuple[tuple[int, int], ...]
    dtype: np.dtype[np.generic]

    def read(self, channels: tuple[int, ...], start: int, stop: int) -> Samples:
        """See SampleReader."""
        out = np.empty((len(channels), stop - start), self.dtype)
        wanted = [self.rows[channel] for channel in channels]
        for at in dict.fromkeys(at for at, _ in wanted):
            data = self.groups[at].read(start, stop)
            for row, (of, own) in enumerate(wanted):
                if of == at:
                    out[row] = data[own]
        return out


def joined(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return the groups, those that can be one as one, in the order of the first.

    The channels of a joined group are in the order of the file.
    """
    sets: list[list[Group]] = []
    for group in groups:
        for own in sets:
            if not any(_difference(one, group) for one in own):
                own.append(group)
                break
        else:
            sets.append([group])
    return tuple(own[0] if len(own) == 1 else _one(own) for own in sets)


def differences(groups: Sequence[Group]) -> str:
    """Return what keeps groups that `joined` left apart from being one."""
    rates = list(dict.fromkeys(f"{group.fs:.10g}" for group in groups))
    if len(rates) > 1:
        return f"the channels have {len(rates)} rates: {', '.join(rates)} Hz"
    first, second = groups[:2]
    said = _difference(first, second)
    return f"of the groups at {rates[0]} Hz, {said}"


def _difference(one: Group, other: Group) -> str:
    """Return what is different; "" for two groups that can be one."""
    if not math.isclose(one.fs, other.fs, rel_tol=_SAME_RATE):
        return f"one has {one.fs:.10g} Hz and one {other.fs:.10g} Hz"
    if abs(one.first - other.first) > 1:
        begins = (f"{group.first / group.fs:.10g} s" for group in (one, other))
        return f"one begins at {' and one at '.join(begins)}"
    if one.n_samples != other.n_samples:
        return f"one has {one.n_samples} samples and one {other.n_samples}"
    if one.gaps != other.gaps:
        return "one has gaps where the other has none"
    if _common(one, other) is None:
        return f"one holds {one.dtype} and one {other.dtype}, which no type holds both"
    twice = [name for name in one.names if name in other.names]
    return f"both have a channel {twice[0]!r}" if twice else ""


def _common(one: Group, other: Group) -> np.dtype[np.generic] | None:
    """Return a type that holds the samples of both exactly; None for none."""
    common = np.result_type(one.dtype, other.dtype)
    wide = any(g.dtype.kind in "iu" and g.dtype.itemsize > 4 for g in (one, other))
    return None if wide and common.kind == "f" else common


def _one(groups: Sequence[Group]) -> Group:
    places = [
        (channel.index, at, row)
        for at, group in enumerate(groups)
        for row, channel in enumerate(group.channels)
    ]
    rows = tuple((at, row) for _, at, row in sorted(places))
    channels = tuple(
        replace(groups[at].channels[row], index=index, gain=1.0, offset=0.0)
        for index, (at, row) in enumerate(rows)
    )
    dtype = np.result_type(*(group.dtype for group in groups))
    reader = _Joined(tuple(groups), rows, dtype)
    return replace(
        groups[0], channels=channels, dtype=dtype, reader=reader, digital=None
    )
