"""What is demanded of every file: samples or an error of ours, and nothing else.

`broken` says what is wrong with how a file was treated: another exception or warning
than ours, samples that depend on how they are asked for, a traceback or half of the
outputs from the command line. What hangs or grows is for the process above to see.
"""

from __future__ import annotations

import contextlib
import io
import os
import traceback
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import rlxweb as rlx
from rlxweb.cli.main import main
from rlxweb.errors import RecordingWarning, RlxError
from rlxweb.io import Group, open_recording
from tests.fuzz.cases import Case
from tests.fuzz.seeds import GRAPHS

_SAMPLES, _CHANNELS = 20_000, 64
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


def judge(path: Path, case: Case) -> Verdict:
    """Open, read, compute, and where the case says so run the command line."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            if case.kind in GRAPHS:
                outcome = _as_graph(path)
            else:
                outcome = _through_python(path, case)
            outcome = outcome if case.cli == "" else _through_cli(path, case) or outcome
        except RlxError as error:
            outcome = "refused" if _is_plain(error, path) else f"! message {error!r}"
        except Exception:
            outcome = "! " + traceback.format_exc()
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
    return bool(error.problem) and len(str(error)) < 4000 and error.exit_code in _CODES


def _as_graph(path: Path) -> str:
    """A file is read to a graph that, saved again, comes back; nothing is run."""
    model = rlx.load(path)
    again = io.BytesIO()
    model.graph.save(again, model.params, outputs=list(model.outputs))
    other = rlx.load(again.getvalue())
    same = other.graph.key == model.graph.key and [*other.outputs] == [*model.outputs]
    return "read" if same else "! saved again it is another graph"


def _through_python(path: Path, case: Case) -> str:
    how = {"fs": case.fs, "channels": case.channels, "layout": case.layout}
    with open_recording(path, **how) as recording:  # type: ignore[arg-type]
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
