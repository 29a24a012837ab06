"""The live demo's EDF and BDF reader against edfio, which wrote the files."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import edfio
import numpy as np
import pytest

from rlxweb.errors import RecordingError
from rlxweb.io import open_recording

SOURCE = Path(__file__).resolve().parents[3] / "site" / "demo" / "live" / "edf.py"
FS = 100


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    """edf.py, which is no part of a package: a tab fetches it by its address."""
    spec = importlib.util.spec_from_file_location("live_edf", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def signal(
    kind: type[Any], label: str, seconds: float, fs: int = FS, **more: Any
) -> Any:
    """Noise of a signal's own seed."""
    draw = np.random.default_rng(sum(label.encode()))
    data = 40 * draw.standard_normal(round(seconds * fs))
    asked = {"physical_dimension": "uV", "physical_range": (-300, 250), **more}
    return kind(np.clip(data, -250, 250), fs, label=label, **asked)


def edf_signal(label: str, seconds: float = 10, **more: Any) -> edfio.EdfSignal:
    return signal(edfio.EdfSignal, label, seconds, **more)


@pytest.fixture
def edf(tmp_path: Path) -> Path:
    """Two rates, annotations and a trigger channel."""
    signals = [
        edf_signal("EEG Fp1"),
        edf_signal("EEG Fp2", physical_range=(-1000, 1000)),
        edf_signal("Resp", fs=20, physical_dimension="mV"),
        edf_signal("Trigger"),
    ]
    notes = [edfio.EdfAnnotation(2, None, "eyes closed")]
    path = tmp_path / "two rates.edf"
    edfio.Edf(signals, data_record_duration=1, annotations=notes).write(path)
    return path


def test_samples_are_those_of_the_desktop_reader(reader: ModuleType, edf: Path) -> None:
    """Bit for bit, group by group."""
    with open_recording(edf) as right, reader.open_edf(str(edf)) as ours:
        assert ours.format == right.format
        assert ours.left_out == right.left_out
        assert len(ours.groups) == len(right.groups) == 2
        for found, wanted in zip(ours.groups, right.groups, strict=True):
            assert found.channels == wanted.channels
            assert found.fs == wanted.fs
            assert found.n_samples == wanted.n_samples
            np.testing.assert_array_equal(found.read(), wanted.read())


def test_samples_are_those_of_edfio(reader: ModuleType, edf: Path) -> None:
    """In the physical unit, to the last digits of float64."""
    signals = {s.label: s for s in edfio.read_edf(edf).signals}
    with reader.open_edf(str(edf)) as ours:
        for group in ours.groups:
            for channel, row in zip(group.channels, group.read(), strict=True):
                own = signals[channel.label]
                assert channel.unit == own.physical_dimension
                np.testing.assert_allclose(row, own.data, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1), (0, 100), (99, 101), (250, 777), (999, 1000), (5, 5)]
)
def test_a_window_is_cut_out_of_the_records(
    reader: ModuleType, edf: Path, start: int, stop: int
) -> None:
    with reader.open_edf(str(edf)) as ours:
        group = ours.groups[0]
        np.testing.assert_array_equal(
            group.read(start, stop), group.read()[:, start:stop]
        )


def test_24_bits_of_bdf_keep_their_sign(reader: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "x.bdf"
    signals = [
        signal(edfio.BdfSignal, label, 4, physical_range=(-262144, 262143))
        for label in ("A1", "A2")
    ]
    edfio.Bdf(signals, data_record_duration=0.5).write(path)
    written = edfio.read_bdf(path).signals
    with reader.open_edf(str(path)) as ours:
        (group,) = ours.groups
        assert ours.format == "BDF"
        assert group.fs == FS
        found = group.read()
        assert found.min() < -1
        np.testing.assert_allclose(found, [s.data for s in written], rtol=1e-12)


def test_a_unit_outside_ascii_is_read(reader: ModuleType, tmp_path: Path) -> None:
    """As many recorders write it, in Latin-1."""
    path = tmp_path / "micro.edf"
    edfio.Edf([edf_signal("C3")], data_record_duration=1).write(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"uV      ", "µV      ".encode("latin-1"), 1))
    with reader.open_edf(str(path)) as ours:
        assert ours.groups[0].channels[0].unit == "µV"


def test_a_file_that_was_never_closed_has_the_records_that_are_there(
    reader: ModuleType, edf: Path
) -> None:
    """Its header says -1 records."""
    data = bytearray(edf.read_bytes())
    data[236:244] = b"-1      "
    edf.write_bytes(data)
    with reader.open_edf(str(edf)) as ours:
        assert ours.groups[0].n_samples == 10 * FS


def changed(path: Path, at: int, field: bytes) -> str:
    data = bytearray(path.read_bytes())
    data[at : at + len(field)] = field
    path.write_bytes(data)
    return str(path)


def refusal(reader: ModuleType, path: str) -> str:
    with pytest.raises(RecordingError) as caught:
        reader.open_edf(path)
    return str(caught.value)


def test_a_file_that_was_cut_is_refused(reader: ModuleType, edf: Path) -> None:
    """With both sizes."""
    data = edf.read_bytes()
    edf.write_bytes(data[:-100])
    said = refusal(reader, str(edf))
    assert "the file is cut short" in said
    assert f"need {len(data)} bytes, {len(data) - 100} are there" in said


def test_a_header_that_was_cut_is_refused(reader: ModuleType, edf: Path) -> None:
    edf.write_bytes(edf.read_bytes()[:700])
    assert "the EDF header is cut short" in refusal(reader, str(edf))


def test_a_file_with_gaps_is_refused(reader: ModuleType, edf: Path) -> None:
    said = refusal(reader, changed(edf, 192, b"EDF+D"))
    assert "EDF+D files may have gaps" in said
    assert "desktop" in said


def test_a_file_without_records_is_refused(reader: ModuleType, edf: Path) -> None:
    header = 256 * 6
    edf.write_bytes(edf.read_bytes()[:header])
    said = refusal(reader, changed(edf, 236, b"0       "))
    assert "it holds no samples" in said


def test_a_channel_without_a_calibration_is_left_out(
    reader: ModuleType, edf: Path
) -> None:
    """Its digital minimum equals its maximum; the others are read as ever."""
    signals = 5
    minimum = 256 + signals * (16 + 80 + 8 + 8 + 8)
    maximum = minimum + signals * 8
    whole = edf.read_bytes()
    path = changed(edf, minimum, whole[maximum : maximum + 8])
    with reader.open_edf(path) as ours:
        assert ours.groups[0].names == ("EEG Fp2",)
        assert ("EEG Fp1", "has no valid calibration") in ours.left_out


def test_records_too_long_for_a_tab_are_refused(
    reader: ModuleType, edf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window takes whole records into memory."""
    monkeypatch.setattr(reader, "MOST_BYTES", 3000)
    with reader.open_edf(str(edf)) as ours:
        group = ours.groups[0]
        assert group.read(0, 100).shape == (2, 100)
        with pytest.raises(RecordingError, match="3,000"):
            group.read(0, 1000)


def test_edf_is_known_by_its_first_bytes(
    reader: ModuleType, edf: Path, tmp_path: Path
) -> None:
    """Not by its name."""
    other = tmp_path / "no.edf"
    other.write_bytes(b"0,1,2\n")
    empty = tmp_path / "empty.edf"
    empty.write_bytes(b"")
    assert reader.is_edf(str(edf))
    assert not reader.is_edf(str(other))
    assert not reader.is_edf(str(empty))
