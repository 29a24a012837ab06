"""Example of note transcription with Basic Pitch, compared with its own package, which
runs ONNX Runtime.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime  # noqa: F401  # for the inference of the package, which is run here
import pytest
from scipy.signal import resample_poly

import rlxweb as rlx
from rlxweb.core.errors import ModelError
from tests.unit.examples.installed_model_packages import (
    import_with_stubs,
    package_folder,
)
from tests.unit.examples.site_module_loader import load_site_module
from tests.unit.examples.synthetic_audio import FS, synthesize_song

pytestmark = pytest.mark.full

transcription = load_site_module("examples/transcription")
Note = transcription.Note
SECONDS = 2.5
PACKAGE = "basic_pitch"
FILE = package_folder(PACKAGE) / "saved_models" / "icassp_2022" / "nmp.onnx"


class _Midi:
    """Stand-in for classes of pretty_midi."""

    def __init__(self, **options: Any) -> None:
        self.instruments: list[Any] = []
        self.notes: list[Any] = []
        self.pitch_bends: list[Any] = []


def _stub_modules(song_samples: Any) -> dict[str, dict[str, Any]]:
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
        "load": lambda path, sr, mono: (song_samples, sr),
    }
    return {"pretty_midi": midi, "librosa": librosa, "resampy": {}, "mir_eval": {}}


@pytest.fixture(scope="module")
def song_samples() -> Any:
    """Return a song at the network's sampling rate."""
    return resample_poly(
        synthesize_song(SECONDS)[0], 1, FS // transcription.RATE
    ).astype(np.float32)


@pytest.fixture(scope="module")
def reference_modules(song_samples: Any) -> Any:
    """Return the package's modules `inference` and `note_creation`."""
    present = {f"{library}_PRESENT": False for library in ("CT", "TF", "TFLITE")}
    facts = {**present, "ONNX_PRESENT": True, "ICASSP_2022_MODEL_PATH": FILE}
    names = ("inference", "note_creation")
    return import_with_stubs(PACKAGE, names, _stub_modules(song_samples), **facts)


def activations(x: Any) -> dict[str, Any]:
    """Return the network's activations, computed by rlxweb."""
    with rlx.onnx.load(FILE) as network:
        outputs = network.run(
            {transcription.INPUT: transcription.windows(x)}, device="cpu"
        )
    return {
        n: transcription.frames([outputs[key]], len(x))
        for n, key in transcription.OUTPUTS.items()
    }


def _random_activations(kind: str) -> dict[str, Any]:
    """Return smooth activations, or activations rounded to a grid with many equal
    values.
    """
    rng = np.random.default_rng(len(kind))
    note = rng.random((250, 88)) ** 3
    for _ in range(3):
        note[1:] = 0.6 * note[1:] + 0.4 * note[:-1]
    note /= note.max()
    onset, contour = rng.random((250, 88)) ** 6, rng.random((250, 264)) ** 4
    arrays = {"note": note, "onset": onset, "contour": contour}
    if kind == "grid":
        arrays = {name: np.round(array * 32) / 32 for name, array in arrays.items()}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


SETTINGS = (
    {},
    {"onset_threshold": 0.35, "frame_threshold": 0.22, "minimum_note_length": 40.0},
    {"onset_threshold": 0.95, "frame_threshold": 0.6},
)


@pytest.mark.parametrize("settings", SETTINGS, ids=["usual", "low", "high"])
@pytest.mark.parametrize("kind", ["smooth", "grid"])
def test_notes_match_the_package(
    reference_modules: Any, kind: str, settings: dict[str, float]
) -> None:
    arrays = _random_activations(kind)
    notes = transcription.find_notes(arrays, **settings)
    min_length_ms = settings.get("minimum_note_length", 127.7)
    _, want = reference_modules[1].model_output_to_notes(
        {name: entry.copy() for name, entry in arrays.items()},
        settings.get("onset_threshold", 0.5),
        settings.get("frame_threshold", 0.3),
        min_note_len=round(min_length_ms / 1000 * (22050 / 256)),
    )
    assert len(want) > 5
    expected = [(*entry[:4], tuple(entry[4] or ())) for entry in want]
    assert [tuple(note) for note in notes] == sorted(expected)


def test_activations_match_the_package_with_onnx_runtime(
    reference_modules: Any, song_samples: Any
) -> None:
    """Activations differ by at most 1e-3, because rounding matters in near silence.

    ONNX Runtime with and without its optimisations differs by 4e-4.
    """
    inference, _ = reference_modules
    want = inference.run_inference("made", inference.Model(FILE))
    outputs = activations(song_samples)
    for name, entry in outputs.items():
        assert entry.shape == want[name].shape
        np.testing.assert_allclose(entry, want[name], atol=1e-3)
    _, notes = inference.infer.model_output_to_notes(want, 0.5, 0.3)
    our_notes = transcription.find_notes(outputs)
    assert len(our_notes) == len(notes)
    for entry, other in zip(our_notes, sorted(notes, key=lambda n: n[:3]), strict=True):
        assert entry[:3] == tuple(other[:3])
        assert entry.amplitude == pytest.approx(other[3], abs=1e-3)
    for start, _, pitch in synthesize_song(SECONDS)[1]:
        matches = [
            n for n in our_notes if n.pitch == pitch and abs(n.start - start) < 0.05
        ]
        assert matches, (start, pitch)


def test_silence_and_short_sounds_have_no_notes() -> None:
    for count in (1, 300, 60_000):
        notes = transcription.find_notes(activations(np.zeros(count, np.float32)))
        assert notes == []
        assert transcription.midi(notes)[:4] == b"MThd"


def test_the_demo_finds_the_same_notes(
    song_samples: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo finds the same notes for files of one or two windows and another
    rate.
    """
    demo = load_site_module("demo/notes/notes")
    posted: list[dict[str, float]] = []
    monkeypatch.setattr(demo, "post", posted.append, raising=False)
    want = transcription.find_notes(activations(song_samples))
    for windows in (1, 2):
        x = np.zeros((windows, transcription.WINDOW, 1), np.float32)
        with rlx.onnx.load(FILE) as network:
            compiled = network.compiled({transcription.INPUT: x}, device="cpu")
            file = tmp_path / "notes.rlxg"
            names = ["a", "b", "c"] if windows == 2 else list(network.outputs)
            compiled.save(file, outputs=names)
        demo.load({}, [file.read_bytes()])
        asyncio.run(
            demo.hear(
                {"fs": transcription.RATE, "device": "cpu"}, [song_samples.tobytes()]
            )
        )
        assert posted[-1]["done"] == posted[-1]["of"] == demo.ACTIVATIONS[1]
        summary, arrays = demo.notes({"settings": {}}, [])
        assert summary["count"] == len(want)
        assert arrays[3].tolist() == [note.pitch for note in want]
        strict_summary, _ = demo.notes({"settings": {"onset_threshold": 0.9}}, [])
        assert strict_summary["count"] < summary["count"]
    hear_request = {"fs": FS, "device": "cpu"}
    asyncio.run(demo.hear(hear_request, [synthesize_song(SECONDS)[0].tobytes()]))
    assert demo.notes({"settings": {}}, [])[1][3].tolist() == arrays[3].tolist()
    other = rlx.Graph("other")
    other.set_outputs([other.input("x", (2, 3)) + 1.0])
    other.save(file)
    with pytest.raises(ModelError, match="its inputs are"):
        demo.load({}, [file.read_bytes()])


@pytest.mark.parametrize("fs", [16_000, 44_100, 48_000])
def test_resampling_preserves_tones(fs: int) -> None:
    demo = load_site_module("demo/notes/notes")

    def tones(time: Any) -> Any:
        return sum(
            np.cos(2 * np.pi * hz * time) for hz in (333.0, 0.3 * min(fs, 22050))
        )

    x = tones(np.arange(int(fs * 0.4)) / fs)
    x *= np.hanning(len(x))
    resampled_tone = demo.resample(x, fs)
    time = np.arange(len(resampled_tone)) / transcription.RATE
    want = tones(time) * np.interp(time, np.arange(len(x)) / fs, np.hanning(len(x)))
    np.testing.assert_allclose(resampled_tone, want, atol=1e-3)
    noise = np.cos(2 * np.pi * 15_000 * np.arange(9_000) / 48_000)
    assert abs(demo.resample(noise * np.hanning(9_000), 48_000)).max() < 1e-3


# --- MIDI -----------------------------------------------------------------------------


def parse_midi(raw: bytes) -> tuple[int, list[tuple[float, tuple[int, ...]]]]:
    """Return the number of tracks and the messages (seconds, bytes) of a MIDI file."""
    assert raw[:8] == b"MThd\0\0\0\6"
    kind, tracks, ticks = (int.from_bytes(raw[a : a + 2], "big") for a in (8, 10, 12))
    assert kind == 1
    position, events, tempo = 14, [], 0
    for _ in range(tracks):
        assert raw[position : position + 4] == b"MTrk"
        end = position + 8 + int.from_bytes(raw[position + 4 : position + 8], "big")
        position, now = position + 8, 0
        while position < end:
            delta = 0
            while True:
                delta = delta << 7 | raw[position] & 127
                position += 1
                if not raw[position - 1] & 128:
                    break
            now += delta
            if raw[position] == 0xFF:
                size = raw[position + 2]
                if raw[position + 1] == 0x51:
                    tempo = int.from_bytes(
                        raw[position + 3 : position + 3 + size], "big"
                    )
                position += 3 + size
                continue
            size = 2 if raw[position] >> 4 == 0xC else 3
            events.append((now, tuple(raw[position : position + size])))
            position += size
        assert raw[end - 3 : end] == b"\xff\x2f\0"
    assert position == len(raw)
    return tracks, [(now / ticks * tempo / 1e6, event) for now, event in events]


NOTES = [
    Note(0.5, 1.0, 60, 0.5, (0, 1, 1, 9, -9)),
    Note(1.0, 2.0, 64, 1.0, (1, 2)),
    Note(1.5, 1.8, 67, 0.001, (3, 3)),
    Note(1.6, 2.5, 64, 0.3, (-1,)),
]


def test_a_midi_file_has_the_times_and_keys_of_the_notes() -> None:
    _, events = parse_midi(transcription.midi(NOTES))
    on = [(s, e[1], e[2]) for s, e in events if e[0] == 0x90]
    off = [(s, e[1]) for s, e in events if e[0] == 0x80]
    tick = 1 / 960
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
    assert NOTES[0].name == "C4"


def test_pitch_bends_match_the_package(reference_modules: Any) -> None:
    """Pitch bends are dropped from notes that overlap another."""
    notes = [(*n[:4], list(n.bends)) for n in NOTES]
    retained = reference_modules[1].drop_overlapping_pitch_bends(notes)
    assert [bool(n[4]) for n in retained] == [True, False, False, False]
