"""Trained models beside the demos: what `./dev site --models` puts there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from assembly.errors import SiteError
from assembly.models import LISTED, add_models, safetensors

from rlxweb.models import BasicPitch, MiniLM, folder

TEXTS = ["That is a happy person", "four eggs and a kilo of apples", "", "word " * 80]


def test_weights_of_half_the_size_mean_the_same(tmp_path: Path) -> None:
    """Every file is listed with its size, the licence lies beside them."""
    add_models(tmp_path / "models", ["minilm"])
    inside = tmp_path / "models" / "minilm"
    said = json.loads((inside.parent / LISTED).read_text("utf-8"))["minilm"]
    assert said == {name: (inside / name).stat().st_size for name in said}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(said)
    assert list(inside.glob("LICENSE*"))
    assert said["model.safetensors"] < 46e6
    with MiniLM.load() as whole, MiniLM.load(inside) as half:
        wanted, found = whole.embed(TEXTS, "cpu"), half.embed(TEXTS, "cpu")
    # between two points of length 1, so near that the angle is their distance
    far = np.linalg.norm(wanted.astype(np.float64) - found, axis=1)
    assert np.degrees(far).max() < 0.2


def test_basic_pitch_is_a_graph_that_needs_no_onnx(tmp_path: Path) -> None:
    add_models(tmp_path / "models", ["basic-pitch"])
    inside = tmp_path / "models" / "basic-pitch"
    listed = json.loads((inside.parent / LISTED).read_text("utf-8"))
    assert list(listed["basic-pitch"]) == ["basic_pitch.rlxg"]
    assert list(inside.glob("LICENSE*"))
    time = np.arange(12000) / 8000
    tone = 0.5 * np.sin(2 * np.pi * 440 * time) * (time > 0.2)
    with BasicPitch.load(inside / "basic_pitch.rlxg") as model:
        (note,) = model.transcribe(tone, 8000, device="cpu")
    assert note.name == "A4"


def test_a_missing_package_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "find_spec", lambda name: None)
    with pytest.raises(SiteError, match="--models installs"):
        add_models(tmp_path / "models", ["minilm"])


def test_others_read_the_file_that_is_written() -> None:
    from safetensors.numpy import load

    made = {
        "a": np.arange(6, dtype=np.float16).reshape(2, 3),
        "": np.array(-1.5, np.float16),
        "b": np.empty((0, 2), np.float16),
    }
    found = load(safetensors(made))
    assert found.keys() == made.keys()
    for name, array in made.items():
        np.testing.assert_array_equal(found[name], array)
