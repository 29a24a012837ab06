"""Basic Pitch: what the package finds with ONNX Runtime, and the same notes of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime  # noqa: F401  # by the inference of the package, which is run here
import pytest

from rlxweb.errors import ModelError, NotFinite, ShapeError, Unsupported, UsageError
from rlxweb.io import write_recording
from rlxweb.ir.graph import Graph
from rlxweb.models import basic_pitch
from rlxweb.models.basic_pitch import (
    INSIDE,
    PACKAGE,
    RATE,
    BasicPitch,
    _notes,
    times_of,
)
from rlxweb.models.note import Note
from rlxweb.models.note_events import NoteSettings, bends_of
from rlxweb.models.notes import Notes
from rlxweb.models.sound import sound_of
from tests.unit.models.made_sound import FS, song
from tests.unit.models.theirs import folder_of, loaded

SECONDS = 2.5
FILE = folder_of(PACKAGE) / INSIDE


class _Midi:
    """Stands for what pretty_midi makes."""

    def __init__(self, **given: Any) -> None:
        self.instruments: list[Any] = []
        self.notes: list[Any] = []
        self.pitch_bends: list[Any] = []


def _stubs(samples: Any) -> dict[str, dict[str, Any]]:
    def frames_to_time(frames: Any, sr: int, hop_length: int) -> Any:
        return (np.asanyarray(frames) * hop_length).astype(int) / float(sr)

    midi = {
        "PrettyMIDI": _Midi,
        "Instrument": _Midi,
        "Note": SimpleNamespace,
        "PitchBend": lambda value, time: (value, time),
        "instrument_name_to_program": lambda name: 4,
    }
    librosa = {
        "midi_to_hz": lambda pitch: 440.0 * 2.0 ** ((pitch - 69.0) / 12.0),
        "hz_to_midi": lambda hz: 12 * (np.log2(hz) - np.log2(440.0)) + 69,
        "core": SimpleNamespace(frames_to_time=frames_to_time),
        "load": lambda path, sr, mono: (samples, sr),
    }
    return {"pretty_midi": midi, "librosa": librosa, "resampy": {}, "mir_eval": {}}


@pytest.fixture(scope="module")
def samples() -> Any:
    """A song at the model's rate."""
    with sound_of(song(SECONDS)[0], FS, RATE, "test") as sound:
        return sound.read(0, sound.n_samples)


@pytest.fixture(scope="module")
def theirs(samples: Any) -> Any:
    """(inference, note_creation) of the package."""
    present = {f"{one}_PRESENT": False for one in ("CT", "TF", "TFLITE")}
    facts = {**present, "ONNX_PRESENT": True, "ICASSP_2022_MODEL_PATH": FILE}
    names = ("inference", "note_creation")
    return loaded(PACKAGE, names, _stubs(samples), **facts)


@pytest.fixture(scope="module")
def model() -> Iterator[BasicPitch]:
    with BasicPitch.load() as made:
        yield made


def _activations(kind: str) -> tuple[Any, Any, Any]:
    """Smooth ones, and ones on a grid, where many are equal."""
    rng = np.random.default_rng(len(kind))
    note = rng.random((250, 88)) ** 3
    for _ in range(3):
        note[1:] = 0.6 * note[1:] + 0.4 * note[:-1]
    note /= note.max()
    onset, contour = rng.random((250, 88)) ** 6, rng.random((250, 264)) ** 4
    made = note, onset, contour
    if kind == "grid":
        made = tuple(np.round(one * 32) / 32 for one in made)
    first, second, third = (one.astype(np.float32) for one in made)
    return first, second, third


ASKED = (
    {},
    {"onset_threshold": 0.35, "frame_threshold": 0.22, "minimum_note_length": 40.0},
    {"melodia_trick": False, "minimum_frequency": 100.0, "maximum_frequency": 900.0},
    {"pitch_bends": False, "infer_onsets": False, "frame_threshold": 0.25},
)


@pytest.mark.parametrize("asked", ASKED, ids=["usual", "low", "between", "bare"])
@pytest.mark.parametrize("kind", ["smooth", "grid"])
def test_notes_are_those_of_the_package(
    theirs: Any, kind: str, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they are cut into, and with a file in place of memory."""
    monkeypatch.setattr("rlxweb.models.note_events._CHUNK", 97)
    note, onset, contour = _activations(kind)
    settings = NoteSettings(**asked)
    bends = bends_of(contour) if settings.pitch_bends else contour[:0]
    found = _notes(note, onset, bends, settings)
    own = asdict(settings)
    _, want = theirs[1].model_output_to_notes(
        {"note": note.copy(), "onset": onset.copy(), "contour": contour},
        own["onset_threshold"],
        own["frame_threshold"],
        infer_onsets=own["infer_onsets"],
        min_note_len=round(own["minimum_note_length"] / 1000 * (22050 / 256)),
        min_freq=own["minimum_frequency"],
        max_freq=own["maximum_frequency"],
        include_pitch_bends=own["pitch_bends"],
        melodia_trick=own["melodia_trick"],
    )
    assert len(want) > 5
    plain = [(*one[:4], tuple(one[4] or ())) for one in want]
    assert [tuple(one) for one in found] == sorted(plain)


def test_what_is_found_is_what_the_package_finds_with_onnx_runtime(
    model: BasicPitch, theirs: Any, samples: Any
) -> None:
    """Where it is nearly silent rounding counts: ONNX Runtime with and without its
    optimisations differs by 4e-4.
    """
    inference, _ = theirs
    want = inference.run_inference("made", inference.Model(FILE))
    found = model.activations(samples, RATE, device="cpu")
    for name in ("note", "onset", "contour"):
        own = getattr(found, name)
        assert own.shape == want[name].shape
        np.testing.assert_allclose(own, want[name], atol=1e-3)
    np.testing.assert_array_equal(found.times, times_of(len(found.note)))
    _, notes = inference.infer.model_output_to_notes(want, 0.5, 0.3)
    mine = model.transcribe(samples, RATE, device="cpu")
    assert len(mine) == len(notes)
    for one, other in zip(mine, sorted(notes, key=lambda n: n[:3]), strict=True):
        assert one[:3] == tuple(other[:3])
        assert one.amplitude == pytest.approx(other[3], abs=1e-3)


def test_notes_that_were_played_are_heard_from_a_file(
    model: BasicPitch, tmp_path: Path
) -> None:
    """Of two channels at 44.1 kHz, with progress, beside an event loop as well."""
    x, played = song(SECONDS)
    path = tmp_path / "song.wav"
    write_recording(str(path), np.stack([x, x]), fs=FS)
    heard: list[tuple[float, float]] = []
    notes = model.transcribe(path, device="cpu", tell=lambda *told: heard.append(told))
    assert heard[-1] == (SECONDS, SECONDS)
    assert notes.seconds == pytest.approx(SECONDS)
    for start, _, pitch in played:
        near = [n for n in notes if n.pitch == pitch and abs(n.start - start) < 0.05]
        assert near, (start, pitch)
    again = asyncio.run(model.transcribe_async(path, device="cpu"))
    assert again.notes == notes.notes


def test_what_is_long_lies_in_files(
    model: BasicPitch, samples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = model.transcribe(samples, RATE, device="cpu")
    monkeypatch.setattr(basic_pitch, "_IN_MEMORY", 1000)
    monkeypatch.setattr(basic_pitch, "BATCHES", (1, 2))
    found = model.transcribe(samples, RATE, device="cpu")
    assert [n[:3] for n in found] == [n[:3] for n in want]
    assert PACKAGE not in sys.modules, "no code of the package is run"


def test_a_saved_graph_gives_the_same_notes(
    model: BasicPitch, samples: Any, tmp_path: Path
) -> None:
    """By a path and by bytes; without the package `onnx`; by other settings too."""
    path = tmp_path / "notes.rlxg"
    model.save(path)
    for file in (path, path.read_bytes()):
        with BasicPitch.load(file) as saved:
            found = saved.activations(samples, RATE, device="cpu")
            notes = found.notes()
            assert [n[:3] for n in notes] == [
                n[:3] for n in model.transcribe(samples, RATE, device="cpu")
            ]
            assert len(found.notes(NoteSettings(onset_threshold=0.9))) < len(notes)
            with pytest.raises(UsageError, match="it is a saved graph"):
                saved.save(path)
    with pytest.raises(UsageError, match="windows is 0"):
        model.save(path, 0)
    graph = Graph("other")
    graph.set_outputs([graph.input("x", (2, 3)) + 1.0])
    graph.save(tmp_path / "other.rlxg")
    with pytest.raises(ModelError, match="another model: its inputs are x"):
        BasicPitch.load(tmp_path / "other.rlxg")


def test_silence_and_short_sounds_have_no_notes(model: BasicPitch) -> None:
    for count in (1, 300):
        found = model.transcribe(np.zeros(count), 8000, device="cpu")
        assert found.notes == ()
        assert found.arrays()["pitch"].shape == (0,)
        assert found.midi()[:4] == b"MThd"


def test_what_is_no_sound_or_no_model_is_told(
    model: BasicPitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = np.zeros(100)
    bad[7] = np.nan
    for given, fs, error, words in (
        (bad, 8000, NotFinite, "sample 7"),
        (np.zeros(9), None, UsageError, "no rate of its own"),
        (np.zeros(9), 10, UsageError, "the rate is 10 Hz"),
        (np.zeros((2, 3, 4)), 8000, ShapeError, "channels"),
    ):
        with pytest.raises(error, match=words):
            model.transcribe(given, fs)
    for name, value in (
        ("onset_threshold", 0),
        ("frame_threshold", 1.5),
        ("minimum_frequency", -1),
        ("minimum_note_length", -1),
    ):
        with pytest.raises(UsageError, match=name):
            model.transcribe(bad, 8000, settings=NoteSettings(**{name: value}))
    other = folder_of("silero_vad") / "data" / "silero_vad_16k_sequence.onnx"
    with pytest.raises(ModelError, match="another model: its inputs are input"):
        BasicPitch.load(other)
    monkeypatch.setattr(basic_pitch, "PACKAGE", "no_such_package")
    with pytest.raises(Unsupported, match="pip install no-such-package"):
        BasicPitch.load()


# --- MIDI -----------------------------------------------------------------------------


def parsed(raw: bytes) -> tuple[int, list[tuple[float, tuple[int, ...]]]]:
    """(tracks, [(s, message)]) of a file at whatever tempo it says."""
    assert raw[:8] == b"MThd\0\0\0\6"
    kind, tracks, ticks = (int.from_bytes(raw[a : a + 2], "big") for a in (8, 10, 12))
    assert kind == 1
    at, events, tempo = 14, [], 0
    for _ in range(tracks):
        assert raw[at : at + 4] == b"MTrk"
        end = at + 8 + int.from_bytes(raw[at + 4 : at + 8], "big")
        at, now = at + 8, 0
        while at < end:
            delta = 0
            while True:
                delta = delta << 7 | raw[at] & 127
                at += 1
                if not raw[at - 1] & 128:
                    break
            now += delta
            if raw[at] == 0xFF:
                size = raw[at + 2]
                if raw[at + 1] == 0x51:
                    tempo = int.from_bytes(raw[at + 3 : at + 3 + size], "big")
                at += 3 + size
                continue
            size = 2 if raw[at] >> 4 == 0xC else 3
            events.append((now, tuple(raw[at : at + size])))
            at += size
        assert raw[end - 3 : end] == b"\xff\x2f\0"
    assert at == len(raw)
    return tracks, [(now / ticks * tempo / 1e6, event) for now, event in events]


NOTES = Notes(
    (
        Note(0.5, 1.0, 60, 0.5, (0, 1, 1, 9, -9)),
        Note(1.0, 2.0, 64, 1.0, (1, 2)),
        Note(1.5, 1.8, 67, 0.001, (3, 3)),
        Note(1.6, 2.5, 64, 0.3, (-1,)),
    ),
    3.0,
)


@pytest.mark.parametrize("tempo", [120.0, 87.3])
def test_a_midi_file_says_when_which_key_sounds(tempo: float) -> None:
    _, events = parsed(NOTES.midi(tempo))
    on = [(s, e[1], e[2]) for s, e in events if e[0] == 0x90]
    off = [(s, e[1]) for s, e in events if e[0] == 0x80]
    tick = 60 / tempo / 480
    for (s, key, speed), note in zip(on, NOTES, strict=True):
        assert key == note.pitch
        assert s == pytest.approx(note.start, abs=tick)
        assert speed == max(1, round(127 * note.amplitude))
    assert sorted(off, key=lambda o: o[0]) == [
        (pytest.approx(s, abs=tick), key)
        for s, key in sorted((n.end, n.pitch) for n in NOTES)
    ]
    bends = [(s, e[1] + 128 * e[2] - 8192) for s, e in events if e[0] == 0xE0]
    assert [b for _, b in bends] == [0, 1365, 8191, -8192, 0], "notes that sound alone"
    assert bends[-1][0] == pytest.approx(1.0, abs=tick)


def test_notes_that_overlap_are_bent_on_channels_of_their_own() -> None:
    crowd = tuple(Note(0.01 * n, 5.0, 40 + n, 0.5, (n % 5,)) for n in range(20))
    for notes, bent in ((NOTES.notes, 4), (crowd, 14 - 3)):
        _, events = parsed(Notes(notes, 5.0).midi(multiple_pitch_bends=True))
        sounding: dict[int, int] = {}
        alone = set()
        for _, event in events:
            channel = event[0] & 15
            assert channel != 9, "it is for drums"
            if event[0] >> 4 == 9:
                sounding[channel] = sounding.get(channel, 0) + 1
            elif event[0] >> 4 == 8:
                sounding[channel] -= 1
            elif event[0] >> 4 == 0xE and event[1:] != (0, 64):
                assert sounding.get(channel, 0) <= 1
                alone.add(channel)
        assert len(alone) >= min(bent, 3)
        assert not any(sounding.values())
    with pytest.raises(UsageError, match="tempo is 0"):
        NOTES.midi(0)


def test_what_the_package_bends_is_bent(theirs: Any) -> None:
    """The notes whose bends are dropped are those that overlap another."""
    plain = [(*n[:4], list(n.bends)) for n in NOTES]
    kept = theirs[1].drop_overlapping_pitch_bends(plain)
    assert [bool(n[4]) for n in kept] == [True, False, False, False]
