"""EDF+ and BDF+ files, written record by record however long the recording is.

Owns the header and the order of the bytes. Integers that an EDF file gave are written
as they are where their scale can be told again; else the data is walked once for its
range and once to be written. edfio writes these files too, but holds all of the samples
in memory.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice, Blank
from rlxweb.digital import Digital
from rlxweb.errors import UsageError
from rlxweb.io.days import for_edf
from rlxweb.io.edf_header import ANNOTATIONS, BDF_MAGIC
from rlxweb.io.edf_notes import PlacedNotes, is_exact, placed
from rlxweb.io.edf_records import Cut, cut_of
from rlxweb.io.edf_scale import Scale, copied_scale, scale_of
from rlxweb.io.outgoing import (
    BLOCK_BYTES,
    Exactness,
    Outgoing,
    WrittenChannel,
    WrittenGroup,
    check_numbers,
    check_scale,
)
from rlxweb.io.recording import Group

_WIDTHS: Final = {"EDF": 2, "BDF": 3}
_LETTERS: Final = {
    0xB5: "u",  # the sign of micro, and the Greek letter
    0x3BC: "u",
    0x2126: "Ohm",  # the sign of ohms, and theirs
    0x3A9: "Ohm",
    0xB0: "deg",
}
_UNSEEN: Final = re.compile(r"[^ -~]")
_NAME: Final = 16
_IDENTITY: Final = 80
_MOST_CHANNELS: Final = 9998
_UNIT: Final = 8
_DAY_S: Final = 86_400


class _Rows:
    """The channels of a group as they are to stand in the file."""

    def __init__(
        self,
        group: Group,
        names: Sequence[str],
        units: Sequence[str],
        scales: Sequence[Scale],
    ) -> None:
        self.group, self.names = group, names
        self.units, self.scales = units, scales
        self._off = Exactness(len(names))
        # Of the channels, as columns (C, 1).
        self._factor, self._gain, self._offset, self._low, self._high = (
            np.array([[float(getattr(one, of))] for one in scales])
            for of in ("factor", "gain", "offset", "low", "high")
        )

    def counts(self, start: int, stop: int, going: Outgoing) -> NDArray[np.int32]:
        """Integers (C, stop - start); behind the end the last of each channel."""
        group = self.group
        length, last = stop - start, min(stop, group.n_samples)
        start = min(start, last - 1)
        data = group.read(start, last)
        check_numbers(data, group, start, going)
        if going.full_scale is not None:
            check_scale(data, group, start, going.full_scale, going.doing)
        values = np.asarray(data, np.float64) * self._factor
        numbers = np.rint(values / self._gain - self._offset)
        np.clip(numbers, self._low, self._high, out=numbers)
        given = data if (self._factor == 1).all() else values
        self._off.note(given, (numbers + self._offset) * self._gain)
        return _filled(numbers.astype(np.int32), length)

    def written(self, fs: float, n_samples: int) -> WrittenGroup:
        """What became of them."""
        channels = tuple(
            WrittenChannel(
                own.name,
                label,
                unit,
                abs(scale.gain),
                0.0 if scale.is_copied else float(error),
            )
            for own, label, unit, scale, error in zip(
                self.group.channels,
                self.names,
                self.units,
                self.scales,
                self._off.error,
                strict=True,
            )
        )
        return WrittenGroup(fs, n_samples, channels)


def write_edf(file: IO[bytes], going: Outgoing) -> tuple[WrittenGroup, ...]:
    """Write the groups as an EDF+ or BDF+ file: all channels, whatever their rates.

    Raises
    ------
    NotFinite
        A sample is NaN or infinite.
    UsageError
        Rates, ranges, lengths or channels do not fit.
    """
    kind = going.title
    n_channels = sum(len(group.channels) for group in going.groups)
    if n_channels > _MOST_CHANNELS:
        raise UsageError(
            going.doing,
            f"{n_channels} channels",
            f"beside its annotations an {kind} file has at most {_MOST_CHANNELS}",
            Advice("take fewer: {}", channels=Blank("NAMES")),
        )
    cut = cut_of(going.groups, _WIDTHS[kind], going.doing)
    rows = _rows(going)
    begun = going.begun or 0.0
    since = begun - math.floor(begun)
    notes = placed(going.notes, cut.n_records, cut.record_s, since)
    _tell(going, cut)
    seconds = math.floor(begun) % _DAY_S
    identity, short = _identity(rows, cut, going)
    file.write(_header(rows, cut, notes, seconds, (identity, short), kind))
    for piece in _records(rows, cut, notes, going, _WIDTHS[kind]):
        file.write(piece)
    return tuple(
        own.written(fs, n * cut.n_records)
        for own, fs, n in zip(rows, cut.rates, cut.samples, strict=True)
    )


def _records(
    rows: Sequence[_Rows], cut: Cut, notes: PlacedNotes, going: Outgoing, width: int
) -> Iterator[bytes]:
    each = sum(n * len(own.names) for n, own in zip(cut.samples, rows, strict=True))
    at_once = max(1, BLOCK_BYTES // (8 * max(1, each)))
    keeper = -(-notes.nbytes // width) * width
    for first in range(0, cut.n_records, at_once):
        count = min(at_once, cut.n_records - first)
        parts = []
        for own, n in zip(rows, cut.samples, strict=True):
            start, stop = first * n, (first + count) * n
            counts = own.counts(start, stop, going)
            little = np.ascontiguousarray(counts, "<i2" if width == 2 else "<i4")
            raw = little.view(np.uint8).reshape(len(counts), count, n, -1)[..., :width]
            parts.append(raw.swapaxes(0, 1).reshape(count, -1))
            going.step(max(0, min(stop, own.group.n_samples) - start) * len(counts))
        texts = [
            notes.of_record(first + at).ljust(keeper, b"\0") for at in range(count)
        ]
        own_text = np.frombuffer(b"".join(texts), np.uint8).reshape(count, -1)
        yield np.concatenate([*parts, own_text], axis=1).tobytes()


def _filled(counts: NDArray[Any], length: int) -> NDArray[Any]:
    missing = length - counts.shape[1]
    return np.pad(counts, ((0, 0), (0, missing)), "edge") if missing else counts


# --- scales ---------------------------------------------------------------------------


def _rows(going: Outgoing) -> list[_Rows]:
    names = iter(
        _names([name for group in going.groups for name in group.names], going)
    )
    bits = 8 * _WIDTHS[going.title]
    found = []
    for group in going.groups:
        own = [next(names) for _ in group.channels]
        made = _scales(going, group, -(1 << bits - 1), (1 << bits - 1) - 1)
        scales, units = [scale for scale, _ in made], [unit for _, unit in made]
        found.append(_Rows(group, own, [_unit(unit, going) for unit in units], scales))
    return found


def _scales(
    going: Outgoing, group: Group, low: int, high: int
) -> list[tuple[Scale, str]]:
    """The scale and the unit of each channel."""
    if going.full_scale is not None:
        full = going.full_scale
        made = scale_of(-full, full, low, high, going.doing)
        return [(made, channel.unit) for channel in group.channels]
    found = []
    for channel, a, b in zip(group.channels, *_ranges(going, group), strict=True):
        if group.digital is not None:
            own = copied_scale(channel, (int(a), int(b)), low, high)
            if own is not None:
                found.append((own, channel.unit))
                continue
        low_end, high_end = sorted(
            channel.gain * (float(end) + channel.offset) for end in (a, b)
        )
        # Eight characters say little of a few millionths of a volt.
        is_volt = channel.unit == "V" and max(-low_end, high_end) < 1
        factor, unit = (1e6, "uV") if is_volt else (1.0, channel.unit)
        found.append(
            (scale_of(low_end, high_end, low, high, going.doing, factor), unit)
        )
    return found


def _ranges(going: Outgoing, group: Group) -> tuple[NDArray[Any], NDArray[Any]]:
    """The least and the largest of each channel, as stored."""
    least = np.full(len(group.channels), np.inf)
    most = -least
    size = max(1, BLOCK_BYTES // (8 * len(group.channels)))
    for block in group.stored_blocks(size):
        held = block.data.counts if isinstance(block.data, Digital) else block.data
        check_numbers(held, group, block.start, going)
        np.minimum(least, held.min(axis=1), out=least)
        np.maximum(most, held.max(axis=1), out=most)
        going.step(held.size)
    return least, most


# --- words ----------------------------------------------------------------------------


def _tell(going: Outgoing, cut: Cut) -> None:
    for group, n in zip(going.groups, cut.samples, strict=True):
        more = n * cut.n_records - group.n_samples
        if more:
            going.lost.append(
                f"the last data record is filled up: {more} samples at {group.fs:g} Hz "
                f"repeat the last of {group.n_samples}"
            )
    for group, fs in zip(going.groups, cut.rates, strict=True):
        if not math.isclose(fs, group.fs, rel_tol=1e-9):
            going.lost.append(f"{group.fs:.12g} Hz is {fs:.12g} Hz in the file")
    if going.begun is None:
        going.lost.append(f"no time of day is known, and {going.title} says midnight")
    n_changed = sum(not is_exact(note) for note in going.notes)
    if n_changed:
        going.lost.append(
            f"{n_changed} of {len(going.notes)} annotations read back otherwise: "
            f"{going.title} has no empty or padded text, control character or negative "
            "duration"
        )


def _names(names: Sequence[str], going: Outgoing) -> list[str]:
    """Sixteen characters that can be seen, for each a text of its own."""
    found: dict[str, None] = {}
    for name in names:
        plain = _ascii(name).strip() or "ch"
        if plain.casefold() in ANNOTATIONS:
            plain = f"_{plain}"
        label, n = plain[:_NAME], 1
        while label in found:
            n += 1
            end = f"~{n}"
            label = plain[: _NAME - len(end)] + end
        found[label] = None
    changed = [f"{a!r} is {b!r}" for a, b in zip(names, found, strict=True) if a != b]
    if changed:
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        said = f"names of {_NAME} plain characters: {', '.join(changed[:4])}{more}"
        going.lost.append(said)
    return list(found)


def _unit(unit: str, going: Outgoing) -> str:
    plain = _ascii(unit.translate(_LETTERS)).strip()[:_UNIT]
    if plain != unit and unit.translate(_LETTERS) != plain:
        told = f"the unit {unit!r} is {plain!r}"
        if told not in going.lost:
            going.lost.append(told)
    return plain


def _ascii(text: str) -> str:
    """Letters without their marks; what else is no ASCII is a question mark."""
    apart = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    bare = "".join(c for c in apart if not unicodedata.combining(c))
    return _UNSEEN.sub("?", bare)


def _identity(rows: Sequence[_Rows], cut: Cut, going: Outgoing) -> tuple[str, str]:
    """Return the recording's identification and its date, as the header has them.

    EDF+ allows further subfields: of a padded file, `samples=` has the samples of a
    channel before the padding, of each rate in the order of the signals. edfio shows it
    as `additional`, and MNE passes over it.
    """
    short, long = for_edf(going.date)
    lengths = [own.group.n_samples for own in rows]
    padded = [n * cut.n_records for n in cut.samples]
    if lengths == padded:
        return long, short
    more = f"{long} samples={','.join(map(str, lengths))}"
    if len(more) <= _IDENTITY:
        return more, short
    going.lost.append("the header has no room for the lengths before the padding")
    return long, short


def _header(
    rows: Sequence[_Rows],
    cut: Cut,
    notes: PlacedNotes,
    begun: int,
    identity: tuple[str, str],
    kind: str,
) -> bytes:
    low, high = -(1 << 8 * _WIDTHS[kind] - 1), (1 << 8 * _WIDTHS[kind] - 1) - 1
    columns: list[tuple[object, ...]] = [
        (name, unit, scale.bottom, scale.top, scale.low, scale.high, n)
        for own, n in zip(rows, cut.samples, strict=True)
        for name, unit, scale in zip(own.names, own.units, own.scales, strict=True)
    ]
    keeper = -(-notes.nbytes // _WIDTHS[kind])
    columns.append((f"{kind} Annotations", "", -1, 1, low, high, keeper))
    hours, minutes, seconds = begun // 3600, begun // 60 % 60, begun % 60
    magic = "0".ljust(8).encode() if kind == "EDF" else BDF_MAGIC
    long, short = identity
    told: list[tuple[object, int]] = [
        ("X X X X", 80),  # who it is of, a recording of ours does not know
        (long, _IDENTITY),
        (short, 8),
        (f"{hours:02}.{minutes:02}.{seconds:02}", 8),
        (256 * (len(columns) + 1), 8),
        (f"{kind}+C", 44),
        (cut.n_records, 8),
        (cut.text, 8),
        (len(columns), 4),
    ]
    label, unit, bottom, top, lows, highs, samples = zip(*columns, strict=True)
    blank = ("",) * len(columns)
    for values, width in (
        (label, _NAME),
        (blank, 80),
        (unit, _UNIT),
        (bottom, 8),
        (top, 8),
        (lows, 8),
        (highs, 8),
        (blank, 80),
        (samples, 8),
        (blank, 32),
    ):
        told += [(value, width) for value in values]
    return magic + b"".join(str(what).ljust(width).encode() for what, width in told)
