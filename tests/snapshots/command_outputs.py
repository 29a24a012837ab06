"""Record every command's help text and the JSON that it writes.

The commands run in this process, on small files that are made here, in a folder of
their own. What belongs to the machine, the time or a version is replaced by a word; of
what is measured only the shape is recorded: keys, and the types of values.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import click
import numpy as np

from rlxweb.cli.main import COMMANDS, cli, main
from rlxweb.engines import library_detection
from rlxweb.engines.registry import clear_detection_caches

SEED, FS = 39, 128.0
GRAPH = """
import rlxweb as rlx

def graph():
    g = rlx.Graph("small")
    g.set_outputs([g.softmax(g.input("x", (4, 8)) @ g.param("w", (8, 3)))])
    return g
"""
CPU_OPTIONS = ("--device", "cpu")
VALUE_COMMANDS: Mapping[str, str] = {
    "info npz": "info recording.npz --json -",
    "info wav": "info sound.wav --json -",
    "info edf": "info demo/demo.edf --json -",
    "welch": "welch recording.npz --device cpu --k 4 -q --json -",
    "welch peaks": "welch recording.npz --device cpu --preset scipy --mode peaks "
    "--nperseg 128 --k 3 --fmin 2 --fmax 40 --prominence 0.001 -q --json -",
    "welch mne": "welch recording.npz --device cpu --preset mne --detrend linear "
    "--window kaiser,8.6 --noverlap 64 --k 2 -c C3 -q --json -",
    "welch f32": "welch recording.npz --device cpu --precision f32 --k 2 -q --json -",
    "welch of a part": "welch recording.npz --device cpu --start 1 --stop 6 "
    "--highpass 1 --reference average --resample 64 --nperseg 64 --k 2 -q --json -",
    "welch NaN refused": "welch holes.npz --device cpu -q --json -",
    "welch NaN": "welch holes.npz --device cpu --nan propagate --k 2 -q --json -",
    "welch two files, one bad": "welch recording.npz missing.npz --device cpu --k 1 "
    "--keep-going -q --json -",
    "welch explained": "welch recording.npz --device cpu --k 1 --explain --json -",
    "welch epochs": "welch demo/demo.edf --device cpu --epochs * --tmin 0 --tmax 2 "
    "--by text --k 2 -q --json -",
    "bands": "bands recording.npz --device cpu -q --json -",
    "bands of one's own": "bands recording.npz --device cpu --bands mu=8:12,beta=13:30 "
    "--ratios mu/beta --relative -q --json -",
    "bands aperiodic": "bands recording.npz --device cpu --aperiodic -q --json -",
    "spectrogram": "spectrogram recording.npz --device cpu --fmax 40 -q --json -",
    "convert wav": "convert recording.npz --to wav -o converted.wav --overwrite",
    "convert edf": "convert recording.npz --to edf -o converted.edf --overwrite",
    "info of what was converted": "info converted.wav converted.edf --json -",
    "live": "live sound.wav --replay 1000 --json-lines --duration-s 3 --segment-s 1 "
    "--every-s 0.02 --average all --fmin 5",
    "demo": "demo --out demo --device cpu --json -",
    "explain": "explain --device cpu --cost-mode seed --json",
    "explain large": "explain --device cpu --cost-mode seed --batch 4096 --n-fft 1024 "
    "--k 32 --json",
    "explain file": "explain recording.npz --device cpu --cost-mode seed --json",
    "inspect": "inspect model.onnx --device cpu --dim n=4 --json -",
    "run": "run model.onnx --input x=x.npy --device cpu -q --json -",
    "export welch": "export welch page --rows 2 --samples 256 --fs 128 --nperseg 64 "
    "--k 4 --json",
    "export graph": "export graph.py:graph page2 --weights weights.npz --json",
    "devices": "devices --json",
    "devices cpu": "devices cpu --json",
}
"""Commands that are recorded with their values."""
SHAPE_COMMANDS: Mapping[str, str] = {
    "explain calibrated": "explain --device cpu --json",
    "profile file": "profile recording.npz --device cpu --repeats 1 --json -",
    "profile graph": "profile --graph graph.py:graph --weights weights.npz "
    "--device cpu --repeats 1 --json -",
    "smoke": "smoke --device cpu --quick -k softmax --json smoke.json",
    "bench": "bench --device cpu --quick --json bench.json",
    "learn": "learn recording.npz --band 4:40 --n-fft 64 --steps 2 --device cpu -q "
    "--out own.rlxl --json -",
    "calibrate": "calibrate --device cpu --budget-s 0.1 --no-race --json",
    "calibrate show": "calibrate --device cpu --show --json",
}
"""Commands that are recorded with their shape only; the calibrated one comes last."""
VARIABLE_SHAPES = {"size": "sizes", "left_out": "texts", "versions": "versions"}
"""Keys whose shape differs in every run."""
PLACEHOLDERS = {
    "wall_s": "SECONDS",
    "took_s": "SECONDS",
    "stages": "SECONDS",
    "first_ns": "TIME",
    "median_ns": "TIME",
    "versions": "VERSIONS",
    "made": "TIME",
    "latency_ms": "TIME",
    "rate_hz": "TIME",
    "nbytes": "BYTES",
    "gzipped": "BYTES",
}
"""Placeholder for each key whose value depends on the machine, the time or a version.
"""
DEVICE_PLACEHOLDERS = {"blocker": "REASON", "no_adapters": "REASON"}
"""Placeholders of `rlxweb devices`, whose reasons name the installed packages."""


def record() -> dict[str, str]:
    """Return the help texts and the records of all commands."""
    files = {"commands-help.txt": _help_texts()}
    with _working_folder():
        _hide_gpu_libraries()
        for name, line in VALUE_COMMANDS.items():
            files[f"commands-{_slug(name)}.txt"] = _record_command(
                line, is_shape_only=False
            )
        shapes = [
            _record_command(line, is_shape_only=True)
            for line in SHAPE_COMMANDS.values()
        ]
        files["commands-shapes.txt"] = "\n".join(shapes)
    return files


def _hide_gpu_libraries() -> None:
    """Hide the libraries of every GPU, whatever this machine has."""
    for name in ("wgpu", "wgpudawn"):
        sys.modules[name] = None  # type: ignore[assignment]  # as `import` takes it
    library_detection.is_importable = lambda module: False
    clear_detection_caches()


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _help_texts() -> str:
    parts = [_run_command(["--help"])[0]]
    for name in COMMANDS:
        parts.append(_run_command([name, "--help"])[0])
        command = cli.get_command(click.Context(cli), name)
        for subcommand in getattr(command, "commands", {}):
            parts.append(_run_command([name, subcommand, "--help"])[0])
    return "\n".join(f"{'=' * 80}\n{part}" for part in parts)


def _run_command(words: list[str]) -> tuple[str, str, int]:
    """Run a command; return its stdout, stderr and exit code."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as exit_request:
            code = int(exit_request.code or 0)
    texts = []
    for stream in (out, err):
        stream.flush()
        buffer = stream.buffer
        assert isinstance(buffer, io.BytesIO)
        texts.append(buffer.getvalue().decode())
    return texts[0], texts[1], code


def _record_command(line: str, *, is_shape_only: bool) -> str:
    """Run a command line; return it with its exit code and its records."""
    words = line.split()
    out, err, code = _run_command(words)
    target = words[words.index("--json") + 1] if "--json" in words[:-1] else "-"
    if target.endswith(".json"):
        out = Path(target).read_text("utf-8")
    try:
        records = [json.loads(out)]
    except ValueError:
        records = _parse_lines(out)
    placeholders = PLACEHOLDERS | (DEVICE_PLACEHOLDERS if words[0] == "devices" else {})
    normalized = [
        _json_shape(document)
        if is_shape_only
        else _replace_variable_values(document, placeholders)
        for document in records
    ]
    texts = [json.dumps(value, indent=1, ensure_ascii=False) for value in normalized]
    stderr_lines = (
        []
        if is_shape_only
        else [f"! {_strip_variable_text(value)}" for value in err.splitlines()]
    )
    return (
        "\n".join([f"$ rlxweb {line}", f"exit code {code}", *stderr_lines, *texts])
        + "\n"
    )


def _parse_lines(out: str) -> list[Any]:
    """Return the last of the JSON lines, or the lines themselves if they are no JSON.

    How many records there are depends on the time.
    """
    lines = out.splitlines()
    try:
        return [json.loads(line) for line in lines[-1:]]
    except ValueError:
        return lines


def _replace_variable_values(value: Any, placeholders: Mapping[str, str]) -> Any:
    """Return a document with placeholders for values that differ in every run."""
    if isinstance(value, dict):
        return {
            key: placeholders[key]
            if key in placeholders
            else _replace_variable_values(item, placeholders)
            for key, item in value.items()
        }
    if isinstance(value, list):
        items = [_replace_variable_values(item, placeholders) for item in value]
        is_plain = all(isinstance(item, int | float | None) for item in items)
        return " ".join(map(json.dumps, items)) if is_plain and items else items
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return _strip_variable_text(value) if isinstance(value, str) else value


def _strip_variable_text(text: str) -> str:
    """Return a text without versions, folders and times."""
    text = text.replace(os.getcwd() + os.sep, "").replace(os.getcwd(), ".")
    text = text.replace(os.environ["RLX_CACHE_DIR"], "CACHE")
    text = re.sub(r"\b(NumPy|LLVM|rlxweb|Python|ONNX|onnx) v?\d[\w.+]*", r"\1", text)
    return re.sub(r"\b\d+\.\d+\.\d+\w*\b", "VERSION", text)


def _json_shape(value: Any, key: str = "") -> Any:
    """Return keys and types; for a list the common shape of all its items."""
    if key in VARIABLE_SHAPES:
        return VARIABLE_SHAPES[key]
    if isinstance(value, dict):
        return {
            _strip_variable_text(k): _json_shape(item, k) for k, item in value.items()
        }
    if isinstance(value, list):
        return [reduce(_merge_shapes, map(_json_shape, value))] if value else []
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def _merge_shapes(first: Any, second: Any) -> Any:
    """Return the shape that covers two shapes."""
    if isinstance(first, dict) and isinstance(second, dict):
        keys = [*first, *(key for key in second if key not in first)]
        return {
            key: _merge_shapes(first[key], second[key])
            if key in first and key in second
            else first.get(key, second.get(key))
            for key in keys
        }
    if isinstance(first, list) and isinstance(second, list):
        items = [*first, *second]
        return [reduce(_merge_shapes, items)] if items else []
    kinds = {kind for side in (first, second) for kind in str(side).split(" or ")}
    return first if first == second else " or ".join(sorted(kinds))


@contextlib.contextmanager
def _working_folder() -> Iterator[None]:
    """Work in a new folder with the files that the commands read."""
    previous = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            _make_files()
            yield
        finally:
            os.chdir(previous)
            sys.path_importer_cache.clear()


def _make_files() -> None:
    from rlxweb.io import write_demo_recording

    rng = np.random.default_rng(SEED)
    t = np.arange(int(10 * FS)) / FS
    waves = [np.sin(2 * np.pi * hz * t + hz) for hz in (6.0, 10.0, 21.0)]
    x = np.stack(waves) + 0.3 * rng.standard_normal((3, t.size))
    names = np.array(["C3", "Cz", "O1"])
    np.savez("recording.npz", x=x, fs=FS, channels=names)
    holes = x.copy()
    holes[1, 40] = np.nan
    np.savez("holes.npz", x=holes, fs=FS, channels=names)
    Path("demo").mkdir()
    write_demo_recording("demo/demo.edf")
    Path("graph.py").write_text(GRAPH, "utf-8")
    weights = rng.standard_normal((8, 3)).astype(np.float32)
    np.savez("weights.npz", w=weights)
    np.save("x.npy", rng.standard_normal((4, 8)).astype(np.float32))
    _write_wav(x[1])
    _write_model(weights)


def _write_wav(x: np.ndarray) -> None:
    import wave

    with wave.open("sound.wav", "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(int(FS))
        out.writeframes((8000 * np.clip(x, -3, 3)).astype("<i2").tobytes())


def _write_model(weights: np.ndarray) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"], axis=-1),
    ]
    value_infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
        for name, size in (("x", 8), ("y", 3))
    ]
    initializers = [numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph(
        nodes, "small", value_infos[:1], value_infos[1:], initializers
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), "model.onnx")
