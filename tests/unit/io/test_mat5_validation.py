"""MATLAB 5 files are validated before SciPy reads them, because damage can crash its
reader.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from rlxweb.core.errors import RecordingError
from rlxweb.io.byte_source import open_source
from rlxweb.io.mat5_validation import check_matlab5

EVENTS = np.zeros(5, [("type", object), ("latency", "f8")])
EVENTS["type"] = "blink"
VARIABLES: dict[str, Any] = {
    "numbers": np.arange(12.0).reshape(3, 4),
    "few": np.int16(3),
    "complex": np.array([[1 + 2j, 3]]),
    "sparse": scipy.sparse.eye_array(3),
    "text": "hé",
    "none": np.zeros((0, 3)),
    "logical": np.array([True, False]),
    "cells": np.array(["a", "bcd", 3.0, {"x": {"y": [1, 2]}}], dtype=object),
    "events": EVENTS,
}


def check_file(path: Path) -> None:
    source = open_source(path)
    try:
        check_matlab5(source)
    finally:
        source.close()


@pytest.mark.parametrize("packed", [True, False])
def test_files_written_by_scipy_pass(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, VARIABLES, do_compression=packed)
    check_file(path)


@pytest.mark.parametrize("packed", [True, False])
def test_a_truncated_file_is_refused(tmp_path: Path, packed: bool) -> None:
    """A file that is cut anywhere but between two elements is refused."""
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"cells": VARIABLES["cells"]}, do_compression=packed)
    original = path.read_bytes()
    for length in range(129, len(original), 3):
        path.write_bytes(original[:length])
        with pytest.raises(RecordingError, match=r"truncated or damaged|ends early"):
            check_file(path)


@pytest.mark.parametrize("kind", VARIABLES)
def test_a_changed_tag_is_refused_or_survives_scipy(tmp_path: Path, kind: str) -> None:
    """A changed tag is refused, or SciPy comes back with arrays or an error."""
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"x": VARIABLES[kind]}, do_compression=False)
    original, rng = path.read_bytes(), np.random.default_rng(8)
    refused = 0
    for _ in range(60):
        raw = bytearray(original)
        offset = 128 + 4 * int(rng.integers((len(raw) - 128) // 4))
        raw[offset] = rng.choice([0, 1, 3, 8, 10, 14, 15, 19, 200])
        path.write_bytes(bytes(raw))
        try:
            check_file(path)
        except RecordingError:
            refused += 1
            continue
        try:
            scipy.io.loadmat(path)
        except Exception:
            refused += 1
    assert refused


def test_a_decompression_bomb_costs_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros compress a thousandfold; they are skipped without being held, up to a
    limit.
    """
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"x": np.zeros((1, 4 << 20))}, do_compression=True)
    tracemalloc.start()
    check_file(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size < 100_000
    assert peak < 8 << 20
    monkeypatch.setattr("rlxweb.io.file_limits.UNPACKED_AT_ONCE_NBYTES", 1 << 20)
    with pytest.raises(
        RecordingError, match="the decompressed arrays; expected at most 1048576"
    ):
        check_file(path)
