"""Notes of Basic Pitch: those of its package, which runs ONNX Runtime."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime  # noqa: F401  # for the inference of the package, which is run here
import pytest
from scipy.signal import resample_poly

import rlxweb as rlx
from rlxweb.errors import ModelError
from tests.unit.examples.packages import folder_of, loaded
from tests.unit.examples.programs import module
from tests.unit.examples.sounds import FS, song

pytestmark = pytest.mark.full

own = module("examples/transcription")
Note = own.Note
SECONDS = 2.5
PACKAGE = "basic_pitch"
FILE = folder_of(PACKAGE) / "saved_models" / "icassp_2022" / "nmp.onnx"


class _Midi:
    """Stand-in for classes of pretty_midi."""

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
    """A song at the rate of the network."""
    return resample_poly(song(SECONDS)[0], 1, FS // own.RATE).astype(np.float32)


@pytest.fixture(scope="module")
def theirs(samples: Any) -> Any:
    """(inference, note_creation) of the package."""
    present = {f"{one}_PRESENT": False for one in ("CT", "TF", "TFLITE")}
    facts = {**present, "ONNX_PRESENT": True, "ICASSP_2022_MODEL_PATH": FILE}
    names = ("inference", "note_creation")
    return loaded(PACKAGE, names, _stubs(samples), **facts)


def activations(x: Any) -> dict[str, Any]:
    """What the network finds, by rlxweb."""
    with rlx.onnx.load(FILE) as network:
        outputs = network.run({own.INPUT: own.windows(x)}, device="cpu")
    return {n: own.frames([outputs[key]], len(x)) for n, key in own.OUTPUTS.items()}


def _random(kind: str) -> dict[str, Any]:
    """Smooth activations, and ones on a grid, where many are equal."""
    rng = np.random.default_rng(len(kind))
    note = rng.random((250, 88)) ** 3
    for _ in range(3):
        note[1:] = 0.6 * note[1:] + 0.4 * note[:-1]
    note /= note.max()
    onset, contour = rng.random((250, 88)) ** 6, rng.random((250, 264)) ** 4
    made = {"note": note, "onset": onset, "contour": contour}
    if kind == "grid":
        made = {name: np.round(one * 32) / 32 for name, one in made.items()}
    return {name: one.astype(np.float32) for name, one in made.items()}


ASKED = (
    {},
    {"onset_threshold": 0.35, "frame_threshold": 0.22, "minimum_note_length": 40.0},
    {"onset_threshold": 0.95, "frame_threshold": 0.6},
)


@pytest.mark.parametrize("asked", ASKED, ids=["usual", "low", "high"])
@pytest.mark.parametrize("kind", ["smooth", "grid"])
def test_notes_are_those_of_the_package(
    theirs: Any, kind: str, asked: dict[str, float]
) -> None:
    made = _random(kind)
    found = own.find_notes(made, **asked)
    least = asked.get("minimum_note_length", 127.7)
    _, want = theirs[1].model_output_to_notes(
        {name: one.copy() for name, one in made.items()},
        asked.get("onset_threshold", 0.5),
        asked.get("frame_threshold", 0.3),
        min_note_len=round(least / 1000 * (22050 / 256)),
    )
    assert len(want) > 5
    plain = [(*one[:4], tuple(one[4] or ())) for one in want]
    assert [tuple(note) for note in found] == sorted(plain)


def test_activations_are_those_of_the_package_with_onnx_runtime(
    theirs: Any, samples: Any
) -> None:
    """Activations differ by 1e-3 at most: in near silence rounding counts.

    ONNX Runtime with and without its optimisations differs by 4e-4.
    """
    inference, _ = theirs
    want = inference.run_inference("made", inference.Model(FILE))
    found = activations(samples)
    for name, one in found.items():
        assert one.shape == want[name].shape
        np.testing.assert_allclose(one, want[name], atol=1e-3)
    _, notes = inference.infer.model_output_to_notes(want, 0.5, 0.3)
    mine = own.find_notes(found)
    assert len(mine) == len(notes)
    for one, other in zip(mine, sorted(notes, key=lambda n: n[:3]), strict=True):
        assert one[:3] == tuple(other[:3])
        assert one.amplitude == pytest.approx(other[3], abs=1e-3)
    for start, _, pitch in song(SECONDS)[1]:
        near = [n for n in mine if n.pitch == pitch and abs(n.start - start) < 0.05]
        assert near, (start, pitch)


def test_silence_and_short_sounds_have_no_notes() -> None:
    for count in (1, 300, 60_000):
        notes = own.find_notes(activations(np.zeros(count, np.float32)))
        assert notes == []
        assert own.midi(notes)[:4] == b"MThd"


def test_the_demo_finds_the_same_notes(
    samples: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo finds the same notes by a file of one window or two, at another rate."""
    demo = module("demo/notes/notes")
    posted: list[dict[str, float]] = []
    monkeypatch.setattr(demo, "post", posted.append, raising=False)
    want = own.find_notes(activations(samples))
    for windows in (1, 2):
        x = np.zeros((windows, own.WINDOW, 1), np.float32)
        with rlx.onnx.load(FILE) as network:
            compiled = network.compiled({own.INPUT: x}, device="cpu")
            file = tmp_path / "notes.rlxg"
            names = ["a", "b", "c"] if windows == 2 else list(network.outputs)
            compiled.save(file, outputs=names)
        demo.load({}, [file.read_bytes()])
        asyncio.run(demo.hear({"fs": own.RATE, "device": "cpu"}, [samples.tobytes()]))
        assert posted[-1]["done"] == posted[-1]["of"] == demo.FOUND[1]
        told, arrays = demo.notes({"settings": {}}, [])
        assert told["count"] == len(want)
        assert arrays[3].tolist() == [note.pitch for note in want]
        few, _ = demo.notes({"settings": {"onset_threshold": 0.9}}, [])
        assert few["count"] < told["count"]
    heard = {"fs": FS, "device": "cpu"}
    asyncio.run(demo.hear(heard, [song(SECONDS)[0].tobytes()]))
    assert demo.notes({"settings": {}}, [])[1][3].tolist() == arrays[3].tolist()
    other = rlx.Graph("other")
    other.set_outputs([other.input("x", (2, 3)) + 1.0])
    other.save(file)
    with pytest.raises(ModelError, match="its inputs are"):
        demo.load({}, [file.read_bytes()])


@pytest.mark.parametrize("fs", [16_000, 44_100, 48_000])
def test_tones_are_the_same_tones_at_another_rate(fs: int) -> None:
    demo = module("demo/notes/notes")

    def tones(time: Any) -> Any:
        return sum(
            np.cos(2 * np.pi * hz * time) for hz in (333.0, 0.3 * min(fs, 22050))
        )

    x = tones(np.arange(int(fs * 0.4)) / fs)
    x *= np.hanning(len(x))
    found = demo.resampled(x, fs)
    time = np.arange(len(found)) / own.RATE
    want = tones(time) * np.interp(time, np.arange(len(x)) / fs, np.hanning(len(x)))
    np.testing.assert_allclose(found, want, atol=1e-3)
    noise = np.cos(2 * np.pi * 15_000 * np.arange(9_000) / 48_000)
    assert abs(demo.resampled(noise * np.hanning(9_000), 48_000)).max() < 1e-3


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


NOTES = [
    Note(0.5, 1.0, 60, 0.5, (0, 1, 1, 9, -9)),
    Note(1.0, 2.0, 64, 1.0, (1, 2)),
    Note(1.5, 1.8, 67, 0.001, (3, 3)),
    Note(1.6, 2.5, 64, 0.3, (-1,)),
]


def test_a_midi_file_says_when_which_key_sounds() -> None:
    _, events = parsed(own.midi(NOTES))
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


def test_what_the_package_bends_is_bent(theirs: Any) -> None:
    """The notes whose bends are dropped are those that overlap another."""
    plain = [(*n[:4], list(n.bends)) for n in NOTES]
    kept = theirs[1].drop_overlapping_pitch_bends(plain)
    assert [bool(n[4]) for n in kept] == [True, False, False, False]
