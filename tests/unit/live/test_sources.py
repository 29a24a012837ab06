"""Sources of running signals: pipes, growing files, microphones and the network."""

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

from rlxweb.core.errors import RecordingError, Unsupported, UsageError
from rlxweb.live.file_source import GrowingFile, RecordingReplay
from rlxweb.live.lsl_source import LslSource
from rlxweb.live.microphone_source import MicrophoneSource
from rlxweb.live.raw_pipe_source import SAMPLE_FORMATS, RawPipeSource
from rlxweb.live.source import SampleChunk, SignalSource, SourceListener, StreamInfo
from tests.edf_bdf_recordings import write_recording

X = np.arange(48).reshape(2, 24)


def read_to_end(source: SignalSource, max_s: float = 20.0) -> np.ndarray:
    """Return the samples until the source's end."""
    parts, deadline = [], time.monotonic() + max_s
    while time.monotonic() < deadline:
        try:
            chunk = source.read(0.2)
        except EOFError:
            return np.concatenate(parts, axis=1)
        if chunk is not None:
            parts.append(chunk.samples)
    raise AssertionError("it does not end")


# --- a pipe ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SAMPLE_FORMATS)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_pipe_gives_frames_for_any_write_size(kind: str, step: int) -> None:
    data = X.T.astype(SAMPLE_FORMATS[kind]).tobytes()
    reader, writer = os.pipe()

    def write() -> None:
        for start in range(0, len(data), step):
            os.write(writer, data[start : start + step])
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reader, "rb") as file:
        got = read_to_end(RawPipeSource(file, kind, 2, 100.0))
    thread.join(20)
    np.testing.assert_array_equal(got, X)
    assert got.dtype.kind == "f"


def test_a_pipe_that_ends_inside_a_frame_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(X.T.astype("<f4").tobytes() + b"abc")
    with path.open("rb") as file:
        source = RawPipeSource(file, "f32", 2, 100.0)
        with pytest.raises(
            RecordingError, match=r"3 bytes of an incomplete frame.*has 8"
        ):
            read_to_end(source)


def test_a_silent_pipe_gives_no_chunk() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as file, os.fdopen(writer, "wb"):
        assert RawPipeSource(file, "f32", 2, 100.0).read(0.01) is None


@pytest.mark.parametrize(("kind", "channels"), [("f16", 2), ("f32", 0)])
def test_invalid_pipe_formats_are_refused(kind: str, channels: int) -> None:
    with pytest.raises(
        UsageError, match="at least 1 channel and one of the sample types f32"
    ):
        RawPipeSource(io.BytesIO(), kind, channels, 100.0)


# --- files ----------------------------------------------------------------------------


def test_a_growing_file_gives_the_added_samples(tmp_path: Path) -> None:
    content = write_recording(
        tmp_path / "all.edf", ("Cz", 64.0), ("Pz", 64.0), seconds=8
    ).read_bytes()
    path = tmp_path / "growing.edf"
    record_nbytes = 2 * 64 * 2
    header_nbytes = len(content) - 8 * record_nbytes
    path.write_bytes(content[: header_nbytes + 3 * record_nbytes])
    source = GrowingFile(str(path), idle_s=0.5)
    assert source.stream_info.channels == ("Cz", "Pz")

    parts = []
    for n_records in (4, 6, 8):
        path.write_bytes(content[: header_nbytes + n_records * record_nbytes])
        chunk = source.read(20.0)
        assert chunk is not None
        parts.append(chunk.samples)
    got = np.concatenate([*parts, np.empty((2, 0))], axis=1)
    want = read_to_end(
        GrowingFile(str(tmp_path / "all.edf"), since_begin=True, idle_s=0.0)
    )
    assert want.shape == (2, 512)
    np.testing.assert_array_equal(got, want[:, 3 * 64 :])
    with pytest.raises(EOFError):
        source.read(20.0)


@pytest.mark.parametrize("change", ["shorter", "another", "gone"])
def test_a_replaced_file_ends_the_source(tmp_path: Path, change: str) -> None:
    path = write_recording(tmp_path / "a.edf", ("Cz", 64.0))
    source = GrowingFile(str(path))
    if change == "shorter":
        write_recording(path, ("Cz", 64.0), seconds=2)
    elif change == "another":
        write_recording(path, ("Cz", 64.0), ("Pz", 64.0), seconds=8)
    else:
        path.unlink()
    messages = {
        "shorter": "shrank to 128",
        "another": "2 channels",
        "gone": "not accessible",
    }
    with pytest.raises(RecordingError, match=messages[change]):
        source.read(5.0)


def test_several_rates_are_refused(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.edf", ("Cz", 64.0), ("ECG", 128.0))
    for source_class in (GrowingFile, RecordingReplay):
        with pytest.raises(
            UsageError,
            match=r"2 different sampling rates: 64, 128 Hz.*-c NAME \(repeatable",
        ):
            source_class(str(path))
    assert GrowingFile(str(path), channels="ECG").stream_info.fs == 128.0


def test_a_replay_keeps_its_pace(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.edf", ("Cz", 64.0))
    source = RecordingReplay(str(path), 8.0)
    start = time.monotonic()
    got = read_to_end(source)
    source.close()
    assert got.shape == (1, 256)
    assert time.monotonic() - start >= 0.49  # 4 s, eight times as fast


# --- the thread -----------------------------------------------------------------------


class FastSource:
    """Source of single samples as fast as they are read."""

    stream_info = StreamInfo("flood", 10.0, ("a",))

    def __init__(self, can_wait: bool, count: int) -> None:
        self.can_wait, self.n_left = can_wait, count
        self.is_empty = threading.Event()

    def read(self, timeout_s: float) -> SampleChunk | None:
        if not self.n_left:
            self.is_empty.set()
            raise EOFError
        self.n_left -= 1
        return SampleChunk(np.full((1, 1), float(self.n_left)), 0.0)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("can_wait", [True, False])
def test_chunks_do_not_accumulate(can_wait: bool) -> None:
    """Sources that can wait are delayed; for others the lost samples are counted."""
    source = FastSource(can_wait, 500)
    n_read = n_lost = 0
    with SourceListener(source) as listener:
        assert source.is_empty.wait(0.3 if can_wait else 20) is not can_wait
        while True:
            try:
                chunk = listener.next_chunk(20.0)
            except EOFError:
                break
            assert chunk is not None
            n_read, n_lost = n_read + 1, n_lost + chunk.n_lost_before
    assert (n_read, n_lost) == (500, 0) if can_wait else n_read < 100


# --- a microphone ---------------------------------------------------------------------


class PortAudioError(Exception):
    """Error class with the name that sounddevice uses."""


def fake_sounddevice(*names: str) -> Any:
    """Stand-in for the sounddevice module with these inputs."""
    devices = [
        {
            "name": name,
            "index": i,
            "max_input_channels": 2,
            "default_samplerate": 8000.0,
        }
        for i, name in enumerate(names)
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
        return devices[0] if kind else devices

    return SimpleNamespace(
        PortAudioError=PortAudioError,
        InputStream=InputStream,
        query_devices=query_devices,
    )


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def install_fake(*names: str) -> None:
        monkeypatch.setitem(sys.modules, "sounddevice", fake_sounddevice(*names))

    return install_fake


def test_a_microphone_is_found_by_its_name(inputs: Any) -> None:
    inputs("Built-in", "USB Audio")
    source = MicrophoneSource("usb", channels=2)
    assert source.stream_info == StreamInfo(
        "microphone 'USB Audio'", 8000.0, ("mic1", "mic2")
    )
    first, second = source.read(0.1), source.read(0.1)
    assert first is not None
    assert second is not None
    assert first.samples.shape == (2, 16)
    assert (first.n_lost_before, second.n_lost_before) == (0, 16)
    assert source.read(0.01) is None
    assert MicrophoneSource().stream_info.name == "microphone 'Built-in'"


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ((), {}, "no sound input"),
        (("A", "B"), {"device": "C"}, "no input matches 'C'; available: 0 'A', 1 'B'"),
        (("Mic A", "Mic B"), {"device": "mic"}, "several inputs match"),
        (
            ("A",),
            {"channels": 3},
            "3 channels at 8000 Hz; the device supports at most 2 channels",
        ),
    ],
)
def test_missing_microphones_are_reported(
    inputs: Any, names: Any, options: Any, message: str
) -> None:
    inputs(*names)
    with pytest.raises(UsageError, match=message):
        MicrophoneSource(**options)


@pytest.mark.parametrize("library", ["sounddevice", "pylsl"])
def test_a_missing_library_names_the_extra(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Unsupported, match=r"pip install 'rlxweb\[live\]'"):
        MicrophoneSource() if library == "sounddevice" else LslSource()


# --- the Lab Streaming Layer ----------------------------------------------------------


def make_outlet(
    name: str, channels: int = 3, fs: float = 100.0, source: str = ""
) -> Any:
    uid = source or name
    info = pylsl.StreamInfo(name, "EEG", channels, fs, "float32", uid)
    channel_list = info.desc().append_child("channels")
    for label in ("Cz", "Pz", "Pz")[:channels]:
        channel = channel_list.append_child("channel")
        channel.append_child_value("label", label)
        channel.append_child_value("unit", "microvolts")
    return pylsl.StreamOutlet(info)


def test_an_lsl_stream_is_read_with_its_gap() -> None:
    name = f"rlxweb-{os.getpid()}"
    sender = make_outlet(name)
    source = LslSource(name, 10.0)
    want = StreamInfo(f"LSL {name!r}", 100.0, ("Cz", "Pz", "Pz-2"), "uV")
    assert source.stream_info == want
    sent = np.arange(60, dtype=np.float32).reshape(20, 3)
    start = pylsl.local_clock()
    for i, row in enumerate(sent):
        # 1.5 s are missing in the middle.
        sender.push_sample(row.tolist(), start + i / 100.0 + 1.5 * (i >= 10))
    parts: list[SampleChunk] = []
    deadline = time.monotonic() + 20
    while (
        sum(part.samples.shape[1] for part in parts) < 20
        and time.monotonic() < deadline
    ):
        chunk = source.read(0.2)
        parts += [chunk] if chunk is not None else []
    got = np.concatenate([part.samples for part in parts], axis=1)
    np.testing.assert_array_equal(got, sent.T)
    # However they were cut on the way: what is missing is missing where it was.
    assert [part.n_lost_before for part in parts if part.n_lost_before] == [150]
    parts_before_gap = parts[: [part.n_lost_before for part in parts].index(150)]
    assert sum(part.samples.shape[1] for part in parts_before_gap) == 10
    source.close()


def test_jumps_of_timestamps_count_as_lost_samples() -> None:
    source = object.__new__(LslSource)
    source.stream_info, source._last_stamp = StreamInfo("LSL", 100.0, ("a",)), None
    assert source._count_lost_samples([0.0, 0.01]) == 0
    assert source._count_lost_samples([0.02, 0.03]) == 0
    assert source._count_lost_samples([2.04, 2.05]) == 200
    assert source._count_lost_samples([2.07]) == 0  # jitter


def test_two_streams_of_one_name_are_refused() -> None:
    """Two streams of one name are refused, since either could be meant."""
    name = f"rlxweb-twin-{os.getpid()}"
    first, second = make_outlet(name), make_outlet(name, 2, source="second")
    assert first is not second
    with pytest.raises(UsageError, match=f"2 streams have the name or type '{name}'"):
        LslSource(name, 10.0)


def test_no_stream_in_time_reports_the_streams_seen() -> None:
    name = f"rlxweb-other-{os.getpid()}"
    sender = make_outlet(name)
    assert sender is not None
    with pytest.raises(
        UsageError, match=f"named 'nobody' was found in 1 s; found: .*{name}"
    ):
        LslSource("nobody", 1.0)


def test_a_stream_without_a_rate_is_refused() -> None:
    name = f"rlxweb-marks-{os.getpid()}"
    sender = make_outlet(name, 1, 0.0)
    assert sender is not None
    with pytest.raises(UsageError, match="no fixed sampling rate"):
        LslSource(name, 10.0)


def test_a_stream_that_ends_is_an_error() -> None:
    name = f"rlxweb-short-{os.getpid()}"
    sender = make_outlet(name)
    source = LslSource(name, 10.0)
    del sender
    with pytest.raises(RecordingError, match="was lost"):
        read_to_end(source)
