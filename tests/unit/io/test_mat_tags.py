"""MATLAB 5 files are walked before SciPy, whose reader ends the process over damage."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from rlxweb.errors import RecordingError
from rlxweb.io.mat_tags import check_matlab
from rlxweb.io.source import open_source

EVENTS = np.zeros(5, [("type", object), ("latency", "f8")])
EVENTS["type"] = "blink"
KINDS: dict[str, Any] = {
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


def checked(path: Path) -> None:
    source = open_source(path)
    try:
        check_matlab(source)
    finally:
        source.close()


@pytest.mark.parametrize("packed", [True, False])
def test_whatever_scipy_writes_passes(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, KINDS, do_compression=packed)
    checked(path)


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, packed: bool) -> None:
    """A file that is cut anywhere but between two elements is refused."""
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"cells": KINDS["cells"]}, do_compression=packed)
    whole = path.read_bytes()
    for length in range(129, len(whole), 3):
        path.write_bytes(whole[:length])
        with pytest.raises(RecordingError, match=r"cut short or damaged|ends early"):
            checked(path)


@pytest.mark.parametrize("kind", KINDS)
def test_what_passes_is_read_by_scipy_or_refused(tmp_path: Path, kind: str) -> None:
    """A changed tag is refused, or SciPy comes back with arrays or an error."""
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"x": KINDS[kind]}, do_compression=False)
    whole, chance = path.read_bytes(), np.random.default_rng(8)
    refused = 0
    for _ in range(60):
        raw = bytearray(whole)
        at = 128 + 4 * int(chance.integers((len(raw) - 128) // 4))
        raw[at] = chance.choice([0, 1, 3, 8, 10, 14, 15, 19, 200])
        path.write_bytes(bytes(raw))
        try:
            checked(path)
        except RecordingError:
            refused += 1
            continue
        try:
            scipy.io.loadmat(path)
        except Exception:
            refused += 1
    assert refused


def test_a_bomb_costs_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros pack a thousandfold; they are passed over, to a limit."""
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"x": np.zeros((1, 4 << 20))}, do_compression=True)
    tracemalloc.start()
    checked(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size < 100_000
    assert peak < 8 << 20
    monkeypatch.setattr("rlxweb.io.bounds.UNPACKED_AT_ONCE_NBYTES", 1 << 20)
    with pytest.raises(RecordingError, match="its packed arrays; at most 1048576"):
        checked(path)
