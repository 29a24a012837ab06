"""GDF files generated from the specification, since no library here writes them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest

from rlxweb.io import open_recording
from tests.edf_bdf_recordings import check_unreadable, try_reading

mne.set_log_level("ERROR")
FS, N = 256.0, 4096
T = np.arange(N) / FS
X = np.array([40 * np.sin(2 * np.pi * hz * T) for hz in (6, 10)])
X += np.random.default_rng(7).normal(0, 2, X.shape)


def write_gdf(path: Path, *, version: str = "2.20", unit: int = 4275) -> Path:
    """Write two channels of int16, one second per record, as the specification defines
    it.

    Source  Schlögl, "GDF: a general dataformat for biosignals" 1.25 and 2.51
    """
    is_version_1 = version.startswith("1")
    names, n = ("C3", "C4"), int(FS)
    counts = np.round(X[:2] * 100).astype("<i2")
    n_channels, records = len(names), N // n
    head = bytearray(256)
    head[:8] = f"GDF {version}".encode()
    if is_version_1:
        head[168:184] = b"2023111422132000"
        struct.pack_into("<q", head, 184, 256 * (1 + n_channels))
        struct.pack_into("<I", head, 252, n_channels)
    else:
        days = 738_839 + (22 * 3600 + 13 * 60 + 20) / 86_400 + 366
        struct.pack_into("<Q", head, 168, int(days * 2**32))
        struct.pack_into("<H", head, 184, 1 + n_channels)
        struct.pack_into("<H", head, 252, n_channels)
    struct.pack_into("<qII", head, 236, records, 1, 1)

    def pack_each(type_code: str, *values: Any) -> bytes:
        return b"".join(struct.pack(f"<{type_code}", value) for value in values)

    limits = (pack_each("q", -32768, -32768), pack_each("q", 32767, 32767))
    if not is_version_1:
        limits = (pack_each("d", -32768, -32768), pack_each("d", 32767, 32767))
    text = {4275: b"uV", 6048: b"degC"}[unit]
    body = b"".join(
        [
            b"".join(name.encode().ljust(16) for name in names),
            bytes(80 * n_channels),
            text.ljust(8) * n_channels if is_version_1 else bytes(6 * n_channels),
            b"" if is_version_1 else pack_each("H", unit, unit),
            pack_each("d", -327.68, -327.68),
            pack_each("d", 327.67, 327.67),
            *limits,
            bytes(80 * n_channels),
            pack_each("I", n, n),
            pack_each("I", 3, 3),
            bytes(32 * n_channels),
        ]
    )
    data = b"".join(
        counts[:, record * n : (record + 1) * n].tobytes() for record in range(records)
    )
    positions, event_types = (1025, 2305), (0x300, 0x301)
    events = pack_each("I", *positions) + pack_each("H", *event_types)
    count = len(positions)
    table = struct.pack("<B", 1)
    if is_version_1:
        table += int(FS).to_bytes(3, "little") + struct.pack("<I", count)
    else:
        table += count.to_bytes(3, "little") + struct.pack("<f", FS)
    path.write_bytes(bytes(head) + body + data + table + events)
    return path


@pytest.mark.parametrize("version", ["1.25", "2.20"])
def test_gdf_agrees_with_the_specification_and_mne(
    tmp_path: Path, version: str
) -> None:
    """GDF is read as specified and as by MNE: hundredths of microvolts, two events."""
    path = write_gdf(tmp_path / "night.gdf", version=version)
    oracle = mne.io.read_raw_gdf(path)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert (group.fs, group.names) == (FS, ("C3", "C4"))
        assert {channel.unit for channel in group.channels} == {"uV"}
        x = group.read(100, 3000)
        np.testing.assert_allclose(x, np.round(X[:2] * 100)[:, 100:3000] / 100, 1e-9)
        np.testing.assert_allclose(x, oracle[[0, 1], 100:3000][0] * 1e6, rtol=1e-13)
        assert [annotation.onset for annotation in recording.annotations] == [4.0, 9.0]
        assert recording.annotations[0].text in ("769", "768")
        assert recording.begun == pytest.approx(80_000, abs=1)


@pytest.mark.parametrize("version", ["1.25", "2.20"])
def test_other_units_than_volts_are_kept(tmp_path: Path, version: str) -> None:
    path = write_gdf(tmp_path / "warm.gdf", version=version, unit=6048)
    with open_recording(path) as recording:
        (group,) = recording.groups
        assert {channel.unit for channel in group.channels} == {"degC"}
        np.testing.assert_allclose(group.read(), np.round(X[:2] * 100) / 100, 1e-9)


@pytest.mark.filterwarnings("ignore::rlxweb.core.errors.RecordingWarning")
@pytest.mark.parametrize("version", ["1.25", "2.20"])
def test_damage_gives_samples_or_a_recording_error(
    tmp_path: Path, version: str
) -> None:
    """A truncated or changed file gives samples or a RecordingError."""
    path = write_gdf(tmp_path / "a.gdf", version=version)
    whole, rng = path.read_bytes(), np.random.default_rng(3)
    outcomes = set()
    for trial in range(30):
        raw = bytearray(whole)
        if trial < 10:
            raw = raw[: int(rng.integers(1, len(raw)))]
        for offset in rng.integers(0, min(len(raw), 768), 4):
            raw[offset] = rng.integers(256)
        path.write_bytes(bytes(raw))
        outcomes.add(try_reading(path))
    assert "refused" in outcomes


def test_a_header_that_claims_too_much_costs_nothing(tmp_path: Path) -> None:
    """A header is validated before MNE reads it."""
    path = write_gdf(tmp_path / "b.gdf", version="1.25")
    raw = bytearray(path.read_bytes())
    struct.pack_into("<I", raw, 252, 60_000)
    path.write_bytes(raw)
    check_unreadable(path, "60000 channels need 15360256 bytes")
    struct.pack_into("<I", raw, 252, 4_000_000_000)
    path.write_bytes(raw)
    check_unreadable(path, "4000000000 channels; expected at most 65536")


@pytest.mark.parametrize("version", ["1.25", "2.20"])
def test_a_table_of_events_that_claims_too_much_is_refused(
    tmp_path: Path, version: str
) -> None:
    """MNE would allocate memory for all claimed events."""
    path = write_gdf(tmp_path / "c.gdf", version=version)
    raw = bytearray(path.read_bytes())
    offset = len(raw) - 12 - 8
    assert raw[offset] == 1
    claimed = (
        slice(offset + 4, offset + 8)
        if version == "1.25"
        else slice(offset + 1, offset + 4)
    )
    raw[claimed] = (9_000_000).to_bytes(claimed.stop - claimed.start, "little")
    path.write_bytes(raw)
    check_unreadable(path, "9000000 events need 54000000 bytes, the table has 20")


def test_a_table_that_ends_with_its_count_is_refused(tmp_path: Path) -> None:
    """MNE reads an incomplete count and allocates memory for that many events."""
    path = write_gdf(tmp_path / "d.gdf")
    raw = path.read_bytes()[: -12 - 8] + b"\x01\xff\xff\xff"
    path.write_bytes(raw)
    check_unreadable(path, "16777215 events need 100663290 bytes, the table has 4")


@pytest.mark.parametrize(
    ("offset", "value", "match"),
    [
        (256 + 220 * 2, 0, "the sample type is 0"),
        (236, -1, "the header declares -1 records"),
    ],
)
def test_an_event_table_at_an_unknown_offset_is_refused(
    tmp_path: Path, offset: int, value: int, match: str
) -> None:
    """An event table whose offset is unknown is refused, not read from anywhere."""
    path = write_gdf(tmp_path / "e.gdf")
    raw = bytearray(path.read_bytes())
    struct.pack_into("<q" if value < 0 else "<I", raw, offset, value)
    path.write_bytes(raw)
    check_unreadable(path, match)


def test_channels_of_several_rates_are_refused(tmp_path: Path) -> None:
    """Resampling to one rate would add samples that nobody recorded."""
    path = write_gdf(tmp_path / "d.gdf")
    raw = bytearray(path.read_bytes())
    struct.pack_into("<2I", raw, 256 + 216 * 2, 256, 128)
    path.write_bytes(raw)
    check_unreadable(
        path, "2 rates, 128 to 256 samples per record.*save the recording as EDF"
    )
