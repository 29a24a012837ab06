"""GDF files made by the specification, for which nobody else has a writer here."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest

from rlxweb.io import open_recording
from tests.recordings import attempt, check_unreadable

mne.set_log_level("ERROR")
FS, N = 256.0, 4096
T = np.arange(N) / FS
X = np.array([40 * np.sin(2 * np.pi * hz * T) for hz in (6, 10)])
X += np.random.default_rng(7).normal(0, 2, X.shape)


def gdf(path: Path, *, version: str = "2.20", unit: int = 4275) -> Path:
    """Two channels of int16, a second per record, as the specification has it.

    Source  Schlögl, "GDF: a general dataformat for biosignals" 1.25 and 2.51
    """
    is_first = version.startswith("1")
    names, n = ("C3", "C4"), int(FS)
    counts = np.round(X[:2] * 100).astype("<i2")
    many, records = len(names), N // n
    head = bytearray(256)
    head[:8] = f"GDF {version}".encode()
    if is_first:
        head[168:184] = b"2023111422132000"
        struct.pack_into("<q", head, 184, 256 * (1 + many))
        struct.pack_into("<I", head, 252, many)
    else:
        days = 738_839 + (22 * 3600 + 13 * 60 + 20) / 86_400 + 366
        struct.pack_into("<Q", head, 168, int(days * 2**32))
        struct.pack_into("<H", head, 184, 1 + many)
        struct.pack_into("<H", head, 252, many)
    struct.pack_into("<qII", head, 236, records, 1, 1)

    def each(pack: str, *values: Any) -> bytes:
        return b"".join(struct.pack(f"<{pack}", value) for value in values)

    limits = (each("q", -32768, -32768), each("q", 32767, 32767))
    if not is_first:
        limits = (each("d", -32768, -32768), each("d", 32767, 32767))
    text = {4275: b"uV", 6048: b"degC"}[unit]
    body = b"".join(
        [
            b"".join(name.encode().ljust(16) for name in names),
            bytes(80 * many),
            text.ljust(8) * many if is_first else bytes(6 * many),
            b"" if is_first else each("H", unit, unit),
            each("d", -327.68, -327.68),
            each("d", 327.67, 327.67),
            *limits,
            bytes(80 * many),
            each("I", n, n),
            each("I", 3, 3),
            bytes(32 * many),
        ]
    )
    data = b"".join(counts[:, at * n : (at + 1) * n].tobytes() for at in range(records))
    places, kinds = (1025, 2305), (0x300, 0x301)
    events = each("I", *places) + each("H", *kinds)
    count = len(places)
    table = struct.pack("<B", 1)
    if is_first:
        table += int(FS).to_bytes(3, "little") + struct.pack("<I", count)
    else:
        table += count.to_bytes(3, "little") + struct.pack("<f", FS)
    path.write_bytes(bytes(head) + body + data + table + events)
    return path


@pytest.mark.parametrize("version", ["1.25", "2.20"])
def test_gdf_is_what_the_specification_and_mne_say(
    tmp_path: Path, version: str
) -> None:
    """GDF is read as specified and as by MNE: hundredths of microvolts, two events."""
    path = gdf(tmp_path / "night.gdf", version=version)
    oracle = mne.io.read_raw_gdf(path)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.fs, group.names) == (FS, ("C3", "C4"))
        assert {channel.unit for channel in group.channels} == {"uV"}
        x = group.read(100, 3000)
        np.testing.assert_allclose(x, np.round(X[:2] * 100)[:, 100:3000] / 100, 1e-9)
        np.testing.assert_allclose(x, oracle[[0, 1], 100:3000][0] * 1e6, rtol=1e-13)
        assert [one.onset for one in recording.annotations] == [4.0, 9.0]
        assert recording.annotations[0].text in ("769", "768")
        assert recording.begun == pytest.approx(80_000, abs=1)


@pytest.mark.parametrize("version", ["1.25", "2.20"])
def test_what_is_no_voltage_in_gdf_is_not_made_one(
    tmp_path: Path, version: str
) -> None:
    path = gdf(tmp_path / "warm.gdf", version=version, unit=6048)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert {channel.unit for channel in group.channels} == {"degC"}
        np.testing.assert_allclose(group.read(), np.round(X[:2] * 100) / 100, 1e-9)


@pytest.mark.filterwarnings("ignore::rlxweb.errors.RecordingWarning")
@pytest.mark.parametrize("version", ["1.25", "2.20"])
def test_damage_gives_samples_or_an_error_of_ours(tmp_path: Path, version: str) -> None:
    """A file that is cut or has bytes changed gives samples or an error of ours."""
    path = gdf(tmp_path / "a.gdf", version=version)
    whole, chance = path.read_bytes(), np.random.default_rng(3)
    outcomes = set()
    for at in range(30):
        raw = bytearray(whole)
        if at < 10:
            raw = raw[: int(chance.integers(1, len(raw)))]
        for place in chance.integers(0, min(len(raw), 768), 4):
            raw[place] = chance.integers(256)
        path.write_bytes(bytes(raw))
        outcomes.add(attempt(path))
    assert "refused" in outcomes


def test_a_header_that_claims_too_much_costs_nothing(tmp_path: Path) -> None:
    """A header is judged before MNE sees it."""
    path = gdf(tmp_path / "b.gdf", version="1.25")
    raw = bytearray(path.read_bytes())
    struct.pack_into("<I", raw, 252, 60_000)
    path.write_bytes(raw)
    check_unreadable(path, "60000 channels take 15360256 bytes")
    struct.pack_into("<I", raw, 252, 4_000_000_000)
    path.write_bytes(raw)
    check_unreadable(path, "4000000000 channels; at most 65536")


@pytest.mark.parametrize("version", ["1.25", "2.20"])
def test_a_table_of_events_that_claims_too_much_is_refused(
    tmp_path: Path, version: str
) -> None:
    """MNE would make room for all of them."""
    path = gdf(tmp_path / "c.gdf", version=version)
    raw = bytearray(path.read_bytes())
    at = len(raw) - 12 - 8
    assert raw[at] == 1
    claimed = slice(at + 4, at + 8) if version == "1.25" else slice(at + 1, at + 4)
    raw[claimed] = (9_000_000).to_bytes(claimed.stop - claimed.start, "little")
    path.write_bytes(raw)
    check_unreadable(path, "9000000 events take 54000000 bytes, 20 are there")


def test_a_table_that_ends_with_its_count_is_refused(tmp_path: Path) -> None:
    """MNE reads a count of which bytes are missing, and makes room for so many."""
    path = gdf(tmp_path / "d.gdf")
    raw = path.read_bytes()[: -12 - 8] + b"\x01\xff\xff\xff"
    path.write_bytes(raw)
    check_unreadable(path, "16777215 events take 100663290 bytes, 4 are there")


@pytest.mark.parametrize(
    ("at", "value", "match"),
    [
        (256 + 220 * 2, 0, "its samples are of type 0"),
        (236, -1, "it has -1 records"),
    ],
)
def test_the_place_of_the_table_is_known(
    tmp_path: Path, at: int, value: int, match: str
) -> None:
    """A table of events whose place is unknown is refused, not read from anywhere."""
    path = gdf(tmp_path / "e.gdf")
    raw = bytearray(path.read_bytes())
    struct.pack_into("<q" if value < 0 else "<I", raw, at, value)
    path.write_bytes(raw)
    check_unreadable(path, match)


def test_channels_of_several_rates_are_not_brought_to_one(tmp_path: Path) -> None:
    """Samples that nobody recorded would be in it."""
    path = gdf(tmp_path / "d.gdf")
    raw = bytearray(path.read_bytes())
    struct.pack_into("<2I", raw, 256 + 216 * 2, 256, 128)
    path.write_bytes(raw)
    check_unreadable(path, "2 rates, 128 to 256 samples a record.*save it as EDF")
