"""Recordings of every format for tests of remote files, and a bucket to put them in."""

from __future__ import annotations

import io
import json
import struct
import urllib.request
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from rlxweb.errors import RecordingError
from rlxweb.io import open_recording
from tests.recordings import written

RNG = np.random.default_rng(11)
COUNTS = RNG.integers(-9000, 9000, (4, 6000)).astype(np.int16)
_names = count()


def recordings(folder: Path) -> dict[str, Path]:
    """One small file of every format that lies in one file, by its suffix."""
    made = {".edf": written(folder / "a.edf", ("Fp1", 100.0), ("Fp2", 100.0))}
    made[".bdf"] = written(folder / "a.bdf", ("A1", 256.0))
    made[".wav"] = folder / "a.wav"
    made[".wav"].write_bytes(wav(COUNTS[0]))
    made[".npy"] = folder / "a.npy"
    np.save(made[".npy"], COUNTS)
    made[".npz"] = folder / "a.npz"
    np.savez_compressed(made[".npz"], x=COUNTS.astype(np.float32), fs=250.0)
    made[".csv"] = folder / "a.csv"
    rows = "\n".join(f"{n / 64},{value}" for n, value in enumerate(COUNTS[1, :640]))
    made[".csv"].write_text(f"time,Cz\n{rows}\n")
    return made


def wav(samples: np.ndarray, fs: int = 8000) -> bytes:
    """A mono PCM file of 16 bits."""
    data = samples.astype("<i2").tobytes()
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, fs, 2 * fs, 2, 16)
    head += struct.pack("<4sI", b"data", len(data))
    return struct.pack("<4sI4s", b"RIFF", 4 + len(head) + len(data), b"WAVE") + (
        head + data
    )


def npy(array: np.ndarray) -> bytes:
    """The bytes of an NPY file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


class Bucket:
    """A bucket on moto's server."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.name = f"bucket-{next(_names)}"
        self.options: dict[str, Any] = {"endpoint_url": server}
        self.fs = fsspec.filesystem("s3", skip_instance_cache=True, **self.options)
        self.fs.mkdir(self.name)

    def put(self, name: str, data: bytes) -> str:
        """An object; gives its URL."""
        self.fs.pipe(f"{self.name}/{name}", data)
        return f"s3://{self.name}/{name}"

    @property
    def storage(self) -> list[str]:
        """What the command line needs to come here."""
        return ["--storage", f"s3.endpoint_url={self.server}"]

    def empty(self) -> None:
        """Away with everything on the server."""
        url = f"{self.server}/moto-api/reset"
        with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as told:
            json.load(told)


def read(url: str, **options: Any) -> np.ndarray:
    """All samples."""
    with open_recording(url, fs=1.0, storage_options=options or None) as recording:
        return np.asarray(recording.groups[0].read())


def check_fails(url: str, *words: str, **options: Any) -> str:
    """A RecordingError that names the URL and has the words; gives its text."""
    with pytest.raises(RecordingError) as caught:
        read(url, **options)
    said = str(caught.value)
    assert [word for word in words if word not in said] == [], said
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return said
