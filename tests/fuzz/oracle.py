"""Oracle of the fuzzer: a file gives samples or one of rlxweb's errors, and nothing
else.

`broken` says what is wrong with how a file was treated: another exception or warning
than ours, samples that depend on how they are asked for, a traceback or half of the
outputs from the command line. What hangs or grows is for the process above to see.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import traceback
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import rlxweb as rlx
from rlxweb.cli.main import main
from rlxweb.core.errors import RecordingWarning, RlxError
from rlxweb.io import Group, open_recording
from rlxweb.signal.learned.transform_file import load_learned
from tests.fuzz.cases import FuzzCase
from tests.fuzz.seed_files import GRAPH_KINDS

_MAX_SAMPLES, _MAX_CHANNELS = 20_000, 64
NEIGHBOR_PREFIXES = ("beside", "pipe", "zero", "folder", "link.bin")
"""Prefixes of the names of the files around a case; the file itself has another name.
"""
SECRET_MARKER = "the-secret-of-elsewhere"
_FORBIDDEN_SUFFIXES = (
    "secret.bin",
    "passwd",
    "/dev/zero",
    "/dev/stdin",
    "/pipe",
    "/zero",
)
"""Suffixes of the names of files that no case may open."""
_forbidden_opened: list[str] = []
_has_audit_hook = False
OUTPUT_STEMS = ("out", "plot")
_EXIT_CODES = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a file.

    outcome  "read", "warned" or "refused"
    broken   what is wrong with that; empty where all is well
    """

    outcome: str
    broken: str = ""


def clear_folder(home: Path) -> None:
    """Empty the folder, so that everything in it belongs to the current case."""
    for old in home.iterdir():
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()


def write_case(case: FuzzCase, home: Path) -> Path:
    """Write the file and what lies around it: a pipe, a device, a secret outside."""
    clear_folder(home)
    (home / "folder").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(home / "pipe")
        (home / "zero").symlink_to("/dev/zero")
        (home / "link.bin").symlink_to("beside.bin")
    (home.parent / "secret.bin").write_text(f"{SECRET_MARKER}\n" * 400)
    for name, content in case.companions.items():
        (home / name).write_bytes(content)
    path = home / f"{case.stem}.{case.kind}"
    path.write_bytes(case.raw)
    return path


def _watch_opened_files() -> None:
    """Record the forbidden files that Python opens from now on; forget earlier ones."""
    global _has_audit_hook
    if not _has_audit_hook:
        sys.addaudithook(_audit_open)
        _has_audit_hook = True
    _forbidden_opened.clear()


def _audit_open(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and isinstance(args[0], str | bytes):
        name = os.fsdecode(args[0])
        if name.endswith(_FORBIDDEN_SUFFIXES) and os.path.exists(name):
            _forbidden_opened.append(name)


def check_case(path: Path, case: FuzzCase) -> Verdict:
    """Open, read and compute, and run the command line where the case says so."""
    _watch_opened_files()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if case.kind in GRAPH_KINDS:
                outcome = _check_graph(path, case.kind)
            else:
                outcome = _check_recording(path, case)
            outcome = outcome if case.cli == "" else _check_cli(path, case) or outcome
        except RlxError as error:
            outcome = (
                "refused" if _is_clear_message(error, path) else f"! message {error!r}"
            )
        except Exception:
            outcome = "! " + traceback.format_exc()
    if _forbidden_opened:
        outcome = f"! {_forbidden_opened[0]} was opened"
    unexpected = [w for w in caught if w.category is not RecordingWarning]
    if unexpected:
        first = unexpected[0]
        where = f"{Path(first.filename).name}:{first.lineno}"
        outcome = f"! {first.category.__name__} at {where}: {first.message}"
    if outcome.startswith("! "):
        return Verdict("broken", outcome[2:])
    return Verdict("warned" if caught and outcome == "read" else outcome)


def _is_clear_message(error: RlxError, path: Path) -> bool:
    """Return whether the message says something, in a few lines, to a user."""
    if SECRET_MARKER in str(error) or "root:x" in str(error):
        return False
    return (
        bool(error.problem)
        and len(str(error)) < 4000
        and error.exit_code in _EXIT_CODES
    )


def _check_graph(path: Path, kind: str) -> str:
    """Check that a file is read to a graph that survives a round trip; run nothing."""
    if kind == "rlxl":
        repr(load_learned(path))
        return "read"
    if kind == "onnx":
        with rlx.onnx.load(path) as network:
            for array in network.params.values():
                if SECRET_MARKER.encode() in array.tobytes()[:10_000]:
                    return "! a weight is what lies elsewhere"
            repr(network.graph)
        return "read"
    model = rlx.load(path)
    buffer = io.BytesIO()
    model.graph.save(buffer, model.params, outputs=list(model.outputs))
    reloaded = rlx.load(buffer.getvalue())
    is_same = reloaded.graph.key == model.graph.key and [*reloaded.outputs] == [
        *model.outputs
    ]
    return "read" if is_same else "! saved again it is another graph"


def _check_recording(path: Path, case: FuzzCase) -> str:
    options = {"fs": case.fs, "channels": case.channels, "layout": case.layout}
    with open_recording(path, **options) as recording:  # type: ignore[arg-type]
        shown = repr(
            [recording.left_out, recording.warnings, recording.annotations[:9]]
        )
        shown += repr([group.channels[:9] for group in recording.groups])
        if SECRET_MARKER in shown or "root:x" in shown:
            return "! it shows what lies elsewhere"
        for group in recording.groups[:3]:
            problem = _check_group(
                replace(group, channels=group.channels[:_MAX_CHANNELS])
            )
            if problem:
                return problem
    return "read"


def _check_group(group: Group) -> str:
    n_samples = min(group.n_samples, _MAX_SAMPLES)
    x = group.read(0, n_samples)
    if x.shape != (len(group.channels), n_samples) or x.dtype != group.dtype:
        return f"! read gave {x.shape} {x.dtype}, promised {n_samples} of {group.dtype}"
    low, high = n_samples // 3, n_samples // 3 + (n_samples + 1) // 2
    if not np.array_equal(group.read(low, high), x[:, low:high], equal_nan=True):
        return f"! samples {low} to {high} differ from those of the whole"
    if not (np.isfinite(group.fs) and group.fs > 0):
        return f"! a rate of {group.fs} Hz"
    # What has gaps is no signal; the first of its pieces is one.
    x = x[:, slice(*group.spans[0])]
    hz, power = rlx.welch(x, group.fs, nperseg=min(64, x.shape[1]), device="cpu")
    if power.shape != (len(group.channels), len(hz)):
        return f"! welch gave {power.shape}"
    return ""


def _check_cli(path: Path, case: FuzzCase) -> str:
    """Write every output into the file's folder; return "" where all is well."""
    outputs = [path.with_name(f"out.{kind}") for kind in ("csv", "npz", "json")]
    args = ["welch", "--nperseg", "64", "--device", "cpu", "--k", "3"]
    args += case.extra
    if case.cli == "plot":
        outputs.append(path.with_name("plot.png"))
        args += ["--plot", str(outputs[-1])]
    for output in outputs[:3]:
        args += [f"--{output.suffix[1:]}", str(output)]
    args += ["--fs", str(case.fs)] if case.fs else []
    args += ["--layout", case.layout] if case.layout else []
    before = {*os.listdir(path.parent)}
    code, output_text = _run_cli([*args, "--", str(path)])
    written = {*os.listdir(path.parent)} - before
    for name in written:
        path.with_name(name).unlink()
    if code not in _EXIT_CODES or "Traceback" in output_text:
        return f"! exit {code}: {output_text[-2000:]}"
    expected = {output.name for output in outputs} if code == 0 else set()
    return (
        f"! exit {code} left {sorted(written)}: {output_text}"
        if written != expected
        else ""
    )


def _run_cli(args: list[str]) -> tuple[object, str]:
    """Return the exit code of the command line in this process, and all it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(args)
        except SystemExit as exit_info:
            return exit_info.code or 0, out.getvalue() + err.getvalue()
    return None, "main returned"
