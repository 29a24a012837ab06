"""What is demanded of every file: samples or an error of ours, and nothing else.

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
from rlxweb.errors import RecordingWarning, RlxError
from rlxweb.io import Group, open_recording
from rlxweb.signal.learned.file import load_learned
from tests.fuzz.cases import Case
from tests.fuzz.seeds import GRAPHS

_SAMPLES, _CHANNELS = 20_000, 64
AROUND = ("beside", "pipe", "zero", "folder", "link.bin")
"""Beginnings of the names of what lies around a file; the file itself has another."""
MARKER = "the-secret-of-elsewhere"
_ELSEWHERE = ("secret.bin", "passwd", "/dev/zero", "/dev/stdin", "/pipe", "/zero")
"""Ends of the names of files that no file may lead to."""
_was_opened: list[str] = []
_is_listening = False
OUTPUTS = ("out", "plot")
_CODES = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a file.

    outcome  "read", "warned" or "refused"
    broken   what is wrong with that; empty where all is well
    """

    outcome: str
    broken: str = ""


def clear(home: Path) -> None:
    """Empty the folder, so that what is in it belongs to the case at hand."""
    for old in home.iterdir():
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()


def write_case(case: Case, home: Path) -> Path:
    """Write the file and what lies around it: a pipe, a device, a secret outside."""
    clear(home)
    (home / "folder").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(home / "pipe")
        (home / "zero").symlink_to("/dev/zero")
        (home / "link.bin").symlink_to("beside.bin")
    (home.parent / "secret.bin").write_text(f"{MARKER}\n" * 400)
    for name, content in case.companions.items():
        (home / name).write_bytes(content)
    path = home / f"{case.stem}.{case.kind}"
    path.write_bytes(case.raw)
    return path


def _listen() -> None:
    """Note what Python opens from now on; what it heard before is forgotten."""
    global _is_listening
    if not _is_listening:
        sys.addaudithook(_hear)
        _is_listening = True
    _was_opened.clear()


def _hear(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and isinstance(args[0], str | bytes):
        name = os.fsdecode(args[0])
        if name.endswith(_ELSEWHERE) and os.path.exists(name):
            _was_opened.append(name)


def judge(path: Path, case: Case) -> Verdict:
    """Open, read, compute, and where the case says so run the command line."""
    _listen()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            if case.kind in GRAPHS:
                outcome = _as_graph(path, case.kind)
            else:
                outcome = _through_python(path, case)
            outcome = outcome if case.cli == "" else _through_cli(path, case) or outcome
        except RlxError as error:
            outcome = "refused" if _is_plain(error, path) else f"! message {error!r}"
        except Exception:
            outcome = "! " + traceback.format_exc()
    if _was_opened:
        outcome = f"! {_was_opened[0]} was opened"
    foreign = [w for w in told if w.category is not RecordingWarning]
    if foreign:
        first = foreign[0]
        where = f"{Path(first.filename).name}:{first.lineno}"
        outcome = f"! {first.category.__name__} at {where}: {first.message}"
    if outcome.startswith("! "):
        return Verdict("broken", outcome[2:])
    return Verdict("warned" if told and outcome == "read" else outcome)


def _is_plain(error: RlxError, path: Path) -> bool:
    """True for a message that says something, in a few lines, to a user."""
    if MARKER in str(error) or "root:x" in str(error):
        return False
    return bool(error.problem) and len(str(error)) < 4000 and error.exit_code in _CODES


def _as_graph(path: Path, kind: str) -> str:
    """A file is read to a graph that, saved again, comes back; nothing is run."""
    if kind == "rlxl":
        repr(load_learned(path))
        return "read"
    if kind == "onnx":
        with rlx.onnx.load(path) as network:
            for array in network.params.values():
                if MARKER.encode() in array.tobytes()[:10_000]:
                    return "! a weight is what lies elsewhere"
            repr(network.graph)
        return "read"
    model = rlx.load(path)
    again = io.BytesIO()
    model.graph.save(again, model.params, outputs=list(model.outputs))
    other = rlx.load(again.getvalue())
    same = other.graph.key == model.graph.key and [*other.outputs] == [*model.outputs]
    return "read" if same else "! saved again it is another graph"


def _through_python(path: Path, case: Case) -> str:
    how = {"fs": case.fs, "channels": case.channels, "layout": case.layout}
    with open_recording(path, **how) as recording:  # type: ignore[arg-type]
        said = repr([recording.left_out, recording.warnings, recording.annotations[:9]])
        said += repr([group.channels[:9] for group in recording.groups])
        if MARKER in said or "root:x" in said:
            return "! it shows what lies elsewhere"
        for group in recording.groups[:3]:
            wrong = _read(replace(group, channels=group.channels[:_CHANNELS]))
            if wrong:
                return wrong
    return "read"


def _read(group: Group) -> str:
    most = min(group.n_samples, _SAMPLES)
    x = group.read(0, most)
    if x.shape != (len(group.channels), most) or x.dtype != group.dtype:
        return f"! read gave {x.shape} {x.dtype}, promised {most} of {group.dtype}"
    low, high = most // 3, most // 3 + (most + 1) // 2
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


def _through_cli(path: Path, case: Case) -> str:
    """Every output there is, into the folder of the file; "" where all is well."""
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
    code, said = _run([*args, "--", str(path)])
    made = {*os.listdir(path.parent)} - before
    for name in made:
        path.with_name(name).unlink()
    if code not in _CODES or "Traceback" in said:
        return f"! exit {code}: {said[-2000:]}"
    wanted = {output.name for output in outputs} if code == 0 else set()
    return f"! exit {code} left {sorted(made)}: {said}" if made != wanted else ""


def _run(args: list[str]) -> tuple[object, str]:
    """The exit code of the command line in this process, and all that it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(args)
        except SystemExit as done:
            return done.code or 0, out.getvalue() + err.getvalue()
    return None, "main returned"
