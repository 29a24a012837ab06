"""NPZ arrays that are read in one piece: damaged files and decompression bombs raise
ValueError.
"""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from rlxweb.io.npz_arrays import read_npz_arrays


def compressed_npz(path: Path) -> bytes:
    np.savez_compressed(path, a=np.arange(900.0), b=np.array("text"))
    return path.read_bytes()


def test_every_array_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    raw = compressed_npz(path)
    for source in (path, str(path), io.BytesIO(raw)):
        arrays = read_npz_arrays(source)
        assert [*arrays] == ["a", "b"]
        np.testing.assert_array_equal(arrays["a"], np.arange(900.0))


def test_any_damage_is_a_value_error(tmp_path: Path) -> None:
    """Damage to any byte raises ValueError or is read."""
    path = tmp_path / "a.npz"
    raw = compressed_npz(path)
    for offset in range(0, len(raw), 7):
        for bits in (0x01, 0x80, 0xFF):
            changed = bytearray(raw)
            changed[offset] ^= bits
            with contextlib.suppress(ValueError):
                read_npz_arrays(io.BytesIO(bytes(changed)))


def test_an_oversized_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.zeros(100 << 20, np.uint8))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ValueError, match="67108864 decompressed bytes, got 104857"):
        read_npz_arrays(path)


def test_a_shape_larger_than_its_member_is_refused(tmp_path: Path) -> None:
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,), }"
    text = header.encode().ljust(117) + b"\n"
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x01\0" + b"\x76\0" + text)
    with pytest.raises(ValueError, match=r"."):
        read_npz_arrays(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(OSError, match="not a regular file"):
        read_npz_arrays(tmp_path / "a.npz")
