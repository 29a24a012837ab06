"""Sample recordings of every format for tests of remote files, and a bucket to hold
them.
"""

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

from rlxweb.core.errors import RecordingError
from rlxweb.io import open_recording
from tests.edf_bdf_recordings import write_recording

RNG = np.random.default_rng(11)
COUNTS = RNG.integers(-9000, 9000, (4, 6000)).astype(np.int16)
_bucket_numbers = count()


def write_recordings(folder: Path) -> dict[str, Path]:
    """Write one small file of every single-file format; return the paths by suffix."""
    paths = {".edf": write_recording(folder / "a.edf", ("Fp1", 100.0), ("Fp2", 100.0))}
    paths[".bdf"] = write_recording(folder / "a.bdf", ("A1", 256.0))
    paths[".wav"] = folder / "a.wav"
    paths[".wav"].write_bytes(wav_bytes(COUNTS[0]))
    paths[".npy"] = folder / "a.npy"
    np.save(paths[".npy"], COUNTS)
    paths[".npz"] = folder / "a.npz"
    np.savez_compressed(paths[".npz"], x=COUNTS.astype(np.float32), fs=250.0)
    paths[".csv"] = folder / "a.csv"
    rows = "\n".join(f"{n / 64},{value}" for n, value in enumerate(COUNTS[1, :640]))
    paths[".csv"].write_text(f"time,Cz\n{rows}\n")
    return paths


def wav_bytes(samples: np.ndarray, fs: int = 8000) -> bytes:
    """Return a mono 16-bit PCM file."""
    data = samples.astype("<i2").tobytes()
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, fs, 2 * fs, 2, 16)
    head += struct.pack("<4sI", b"data", len(data))
    return struct.pack("<4sI4s", b"RIFF", 4 + len(head) + len(data), b"WAVE") + (
        head + data
    )


def npy_bytes(array: np.ndarray) -> bytes:
    """Return the bytes of an NPY file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


class Bucket:
    """Bucket on moto's server."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.name = f"bucket-{next(_bucket_numbers)}"
        self.options: dict[str, Any] = {"endpoint_url": server}
        self.fs = fsspec.filesystem("s3", skip_instance_cache=True, **self.options)
        self.fs.mkdir(self.name)

    def add_object(self, name: str, data: bytes) -> str:
        """Store an object and return its URL."""
        self.fs.pipe(f"{self.name}/{name}", data)
        return f"s3://{self.name}/{name}"

    @property
    def storage_arguments(self) -> list[str]:
        """Command line arguments that give access to the bucket."""
        return ["--storage", f"s3.endpoint_url={self.server}"]

    def empty(self) -> None:
        """Delete everything on the server."""
        url = f"{self.server}/moto-api/reset"
        with urllib.request.urlopen(
            urllib.request.Request(url, method="POST")
        ) as response:
            json.load(response)


def read_samples(url: str, **options: Any) -> np.ndarray:
    """Return all samples."""
    with open_recording(url, fs=1.0, storage_options=options or None) as recording:
        return np.asarray(recording.groups[0].read())


def check_fails(url: str, *words: str, **options: Any) -> str:
    """Check that reading raises a RecordingError with the URL and the words; return its
    message.
    """
    with pytest.raises(RecordingError) as caught:
        read_samples(url, **options)
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return message
