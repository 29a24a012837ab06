"""Where running signals come from: pipes, growing files, microphones, the network."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pylsl
import pytest

from rlxweb.errors import RecordingError, Unsupported, UsageError
from rlxweb.live.file_source import GrowingFile, Replay
from rlxweb.live.lsl import LslSource
from rlxweb.live.microphone import Microphone
from rlxweb.live.raw_source import KINDS, RawSource
from rlxweb.live.source import Chunk, Listener, Source, Stream
from tests.recordings import written

X = np.arange(48).reshape(2, 24)


def drained(source: Source, most_s: float = 20.0) -> np.ndarray:
    """The samples that come until the source's end."""
    parts, until = [], time.monotonic() + most_s
    while time.monotonic() < until:
        try:
            chunk = source.read(0.2)
        except EOFError:
            return np.concatenate(parts, axis=1)
        if chunk is not None:
            parts.append(chunk.samples)
    raise AssertionError("it does not end")


# --- a pipe ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_pipe_gives_frames_however_it_is_cut(kind: str, step: int) -> None:
    data = X.T.astype(KINDS[kind]).tobytes()
    reader, writer = os.pipe()

    def write() -> None:
        for at in range(0, len(data), step):
            os.write(writer, data[at : at + step])
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reader, "rb") as file:
        got = drained(RawSource(file, kind, 2, 100.0))
    thread.join(20)
    np.testing.assert_array_equal(got, X)
    assert got.dtype.kind == "f"


def test_a_pipe_that_ends_inside_a_frame_says_so(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(X.T.astype("<f4").tobytes() + b"abc")
    with path.open("rb") as file:
        source = RawSource(file, "f32", 2, 100.0)
        with pytest.raises(RecordingError, match=r"3 bytes of a frame.*has 8"):
            drained(source)


def test_a_pipe_where_nothing_comes_gives_nothing() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as file, os.fdopen(writer, "wb"):
        assert RawSource(file, "f32", 2, 100.0).read(0.01) is None


@pytest.mark.parametrize(("kind", "channels"), [("f16", 2), ("f32", 0)])
def test_a_pipe_is_told_what_it_gives(kind: str, channels: int) -> None:
    with pytest.raises(UsageError, match="1 or more, of f32"):
        RawSource(io.BytesIO(), kind, channels, 100.0)


# --- files ----------------------------------------------------------------------------


def test_a_growing_file_tells_what_is_added(tmp_path: Path) -> None:
    whole = written(
        tmp_path / "all.edf", ("Cz", 64.0), ("Pz", 64.0), seconds=8
    ).read_bytes()
    path = tmp_path / "growing.edf"
    record = 2 * 64 * 2
    head = len(whole) - 8 * record
    path.write_bytes(whole[: head + 3 * record])
    source = GrowingFile(str(path), idle_s=0.5)
    assert source.stream.channels == ("Cz", "Pz")

    parts = []
    for upto in (4, 6, 8):
        path.write_bytes(whole[: head + upto * record])
        chunk = source.read(20.0)
        assert chunk is not None
        parts.append(chunk.samples)
    got = np.concatenate([*parts, np.empty((2, 0))], axis=1)
    wanted = drained(
        GrowingFile(str(tmp_path / "all.edf"), since_begin=True, idle_s=0.0)
    )
    assert wanted.shape == (2, 512)
    np.testing.assert_array_equal(got, wanted[:, 3 * 64 :])
    with pytest.raises(EOFError):
        source.read(20.0)


@pytest.mark.parametrize("becomes", ["shorter", "another", "gone"])
def test_a_file_that_is_another_ends_it(tmp_path: Path, becomes: str) -> None:
    path = written(tmp_path / "a.edf", ("Cz", 64.0))
    source = GrowingFile(str(path))
    if becomes == "shorter":
        written(path, ("Cz", 64.0), seconds=2)
    elif becomes == "another":
        written(path, ("Cz", 64.0), ("Pz", 64.0), seconds=8)
    else:
        path.unlink()
    said = {"shorter": "shrank to 128", "another": "2 channels", "gone": "gone"}
    with pytest.raises(RecordingError, match=said[becomes]):
        source.read(5.0)


def test_several_rates_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.edf", ("Cz", 64.0), ("ECG", 128.0))
    for kind in (GrowingFile, Replay):
        with pytest.raises(UsageError, match=r"2 rates: 64, 128 Hz.*-c NAMES"):
            kind(str(path))
    assert GrowingFile(str(path), channels="ECG").stream.fs == 128.0


def test_a_replay_keeps_its_pace(tmp_path: Path) -> None:
    path = written(tmp_path / "a.edf", ("Cz", 64.0))
    source = Replay(str(path), 8.0)
    begun = time.monotonic()
    got = drained(source)
    source.close()
    assert got.shape == (1, 256)
    assert time.monotonic() - begun >= 0.49  # 4 s, eight times as fast


# --- the thread -----------------------------------------------------------------------


class Flood:
    """Hands on single samples as fast as it is asked."""

    stream = Stream("flood", 10.0, ("a",))

    def __init__(self, can_wait: bool, count: int) -> None:
        self.can_wait, self.left = can_wait, count
        self.is_empty = threading.Event()

    def read(self, timeout_s: float) -> Chunk | None:
        if not self.left:
            self.is_empty.set()
            raise EOFError
        self.left -= 1
        return Chunk(np.full((1, 1), float(self.left)), 0.0)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("can_wait", [True, False])
def test_nothing_piles_up(can_wait: bool) -> None:
    """What can wait waits; of what cannot, it is counted what was lost."""
    source = Flood(can_wait, 500)
    taken = lost = 0
    with Listener(source) as listener:
        assert source.is_empty.wait(0.3 if can_wait else 20) is not can_wait
        while True:
            try:
                chunk = listener.next(20.0)
            except EOFError:
                break
            assert chunk is not None
            taken, lost = taken + 1, lost + chunk.lost
    assert (taken, lost) == (500, 0) if can_wait else taken < 100


# --- a microphone ---------------------------------------------------------------------


class PortAudioError(Exception):
    """The error as sounddevice has it."""


def sound(*names: str) -> Any:
    """What sounddevice is to us, with these inputs."""
    about = [
        {
            "name": name,
            "index": at,
            "max_input_channels": 2,
            "default_samplerate": 8000.0,
        }
        for at, name in enumerate(names)
    ]

    class InputStream:
        def __init__(self, callback: Any, channels: int, **more: Any) -> None:
            if channels > 2:
                raise PortAudioError("Invalid number of channels")
            self.callback, self.channels = callback, channels

        def start(self) -> None:
            block = np.ones((16, self.channels), np.float32)
            for overflow in (False, True):
                status = SimpleNamespace(input_overflow=overflow)
                self.callback(block, 16, None, status)

        def close(self) -> None:
            pass

    def query_devices(kind: str = "") -> Any:
        return about[0] if kind else about

    return SimpleNamespace(
        PortAudioError=PortAudioError,
        InputStream=InputStream,
        query_devices=query_devices,
    )


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def there(*names: str) -> None:
        monkeypatch.setitem(sys.modules, "sounddevice", sound(*names))

    return there


def test_a_microphone_is_found_by_its_name(inputs: Any) -> None:
    inputs("Built-in", "USB Audio")
    source = Microphone("usb", channels=2)
    assert source.stream == Stream("microphone 'USB Audio'", 8000.0, ("mic1", "mic2"))
    first, second = source.read(0.1), source.read(0.1)
    assert first is not None
    assert second is not None
    assert first.samples.shape == (2, 16)
    assert (first.lost, second.lost) == (0, 16)
    assert source.read(0.01) is None
    assert Microphone().stream.name == "microphone 'Built-in'"


@pytest.mark.parametrize(
    ("names", "asked", "said"),
    [
        ((), {}, "no sound input"),
        (("A", "B"), {"device": "C"}, "no input is called 'C'; there: 0 'A', 1 'B'"),
        (("Mic A", "Mic B"), {"device": "mic"}, "several inputs are called"),
        (("A",), {"channels": 3}, "3 channels at 8000 Hz .* it has 2"),
    ],
)
def test_no_microphone_is_told(inputs: Any, names: Any, asked: Any, said: str) -> None:
    inputs(*names)
    with pytest.raises(UsageError, match=said):
        Microphone(**asked)


@pytest.mark.parametrize("library", ["sounddevice", "pylsl"])
def test_a_missing_library_names_the_extra(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Unsupported, match=r"pip install 'rlxweb\[live\]'"):
        Microphone() if library == "sounddevice" else LslSource()


# --- the Lab Streaming Layer ----------------------------------------------------------


def outlet(name: str, channels: int = 3, fs: float = 100.0, source: str = "") -> Any:
    uid = source or name
    info = pylsl.StreamInfo(name, "EEG", channels, fs, "float32", uid)
    described = info.desc().append_child("channels")
    for label in ("Cz", "Pz", "Pz")[:channels]:
        one = described.append_child("channel")
        one.append_child_value("label", label)
        one.append_child_value("unit", "microvolts")
    return pylsl.StreamOutlet(info)


def test_a_stream_of_the_network() -> None:
    name = f"rlxweb-{os.getpid()}"
    sender = outlet(name)
    source = LslSource(name, 10.0)
    wanted = Stream(f"LSL {name!r}", 100.0, ("Cz", "Pz", "Pz-2"), "uV")
    assert source.stream == wanted
    sent = np.arange(60, dtype=np.float32).reshape(20, 3)
    begun = pylsl.local_clock()
    for at, row in enumerate(sent):
        # 1.5 s are missing in the middle.
        sender.push_sample(row.tolist(), begun + at / 100.0 + 1.5 * (at >= 10))
    parts: list[Chunk] = []
    until = time.monotonic() + 20
    while sum(one.samples.shape[1] for one in parts) < 20 and time.monotonic() < until:
        chunk = source.read(0.2)
        parts += [chunk] if chunk is not None else []
    got = np.concatenate([one.samples for one in parts], axis=1)
    np.testing.assert_array_equal(got, sent.T)
    # However they were cut on the way: what is missing is missing where it was.
    assert [one.lost for one in parts if one.lost] == [150]
    before = parts[: [one.lost for one in parts].index(150)]
    assert sum(one.samples.shape[1] for one in before) == 10
    source.close()


def test_samples_that_stamps_jump_over_are_lost() -> None:
    source = object.__new__(LslSource)
    source.stream, source._stamp = Stream("LSL", 100.0, ("a",)), None
    assert source._missing([0.0, 0.01]) == 0
    assert source._missing([0.02, 0.03]) == 0
    assert source._missing([2.04, 2.05]) == 200
    assert source._missing([2.07]) == 0  # jitter


def test_two_streams_of_one_name_are_refused() -> None:
    """Two streams of one name are refused, since either could be meant."""
    name = f"rlxweb-twin-{os.getpid()}"
    first, second = outlet(name), outlet(name, 2, source="second")
    assert first is not second
    with pytest.raises(UsageError, match=f"2 streams are called '{name}'"):
        LslSource(name, 10.0)


def test_no_stream_in_time_tells_what_was_seen() -> None:
    name = f"rlxweb-other-{os.getpid()}"
    sender = outlet(name)
    assert sender is not None
    with pytest.raises(UsageError, match=f"called 'nobody', in 1 s; seen: .*{name}"):
        LslSource("nobody", 1.0)


def test_a_stream_without_a_rate_is_refused() -> None:
    name = f"rlxweb-marks-{os.getpid()}"
    sender = outlet(name, 1, 0.0)
    assert sender is not None
    with pytest.raises(UsageError, match="no fixed rate"):
        LslSource(name, 10.0)


def test_a_stream_that_ends_is_told() -> None:
    name = f"rlxweb-short-{os.getpid()}"
    sender = outlet(name)
    source = LslSource(name, 10.0)
    del sender
    with pytest.raises(RecordingError, match="is gone"):
        drained(source)
