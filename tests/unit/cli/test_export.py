"""Command `rlxweb export`: written files, printed output, and user code that it
runs.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rlxweb as rlx
from tests.cli_runners import CommandRunner, check_rejected
from tests.exported_plan_replay import PlanReplay, WelchPlanReplay

USER_MODULE = """
import numpy as np
import rlxweb as rlx
import beside

graph = rlx.Graph("lin")
x, w = graph.input("x", (4, 3)), graph.param("w", (3, 2))
graph.set_outputs([x @ w])
W = np.full((3, 2), beside.VALUE, "f4")
number = 3

def compiled():
    one = rlx.Session("cpu").compile(graph)
    one.set_param("w", W)
    return one

class kept:
    @staticmethod
    def devices():
        one = rlx.GraphDevices(graph)
        one.set_param("w", W)
        return one

def bare():
    one = rlx.Graph("bare")
    one.set_outputs([one.input("x", (2,)) * 2])
    return one

def broken():
    raise ValueError("nobody home")
"""


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with a user's module and the module that it imports."""
    (tmp_path / "mine_to_export.py").write_text(USER_MODULE)
    (tmp_path / "beside.py").write_text("VALUE = 2.0\n")
    (tmp_path / "torn_to_export.py").write_text("import not_there_at_all\n")
    monkeypatch.chdir(tmp_path)
    for name in ("mine_to_export", "beside", "torn_to_export"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return tmp_path


WELCH_ARGS = (
    "export",
    "welch",
    "out",
    "--rows",
    "4",
    "--samples",
    "512",
    "--fs",
    "128",
)


@pytest.mark.requires_wgpu
def test_exported_welch_matches_python(call: CommandRunner, user_folder: Path) -> None:
    """The options of `rlxweb welch` mean the same to `export welch`."""
    options = (
        "--preset",
        "scipy",
        "--nperseg",
        "64",
        "--k",
        "3",
        "--detrend",
        "linear",
    )
    result = call(*WELCH_ARGS, *options, "--name", "eeg", "--json")
    assert result.code == 0, result.err
    document = result.document
    assert document["schema"] == "rlxweb.export/1"
    assert (document["name"], document["to"], document["folder"]) == (
        "eeg",
        "web",
        "out",
    )
    assert {f["path"] for f in document["files"]} >= {"eeg.js", "plan.json"}
    x = np.random.default_rng(0).normal(size=(4, 512)).astype("f4")
    got = WelchPlanReplay(user_folder / "out").welch(x)
    want = rlx.welch_peaks(
        x, 128.0, 64, 3, preset="scipy", detrend="linear", device="cpu"
    )
    np.testing.assert_array_equal(got["bins"], want.bins)
    np.testing.assert_array_equal(got["hz"], want.hz)


def test_written_files_are_shown(call: CommandRunner, user_folder: Path) -> None:
    result = call(*WELCH_ARGS)
    assert result.code == 0, result.err
    for word in ("plan.json", "welch.js", "python -m http.server -d out 8000"):
        assert word in result.out
    assert result.err == ""
    result = call(
        *WELCH_ARGS[:2], "pkg", *WELCH_ARGS[3:], "--to", "npm", "--package", "@me/eeg"
    )
    assert "npm publish ./pkg --access public" in result.out
    manifest = json.loads((user_folder / "pkg" / "package.json").read_text())
    assert manifest["name"] == "@me/eeg"


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    "target", ["compiled", "kept.devices", "graph", "mine_to_export.py:compiled"]
)
def test_exported_graph_of_user_module(
    target: str, call: CommandRunner, user_folder: Path
) -> None:
    """A graph is named by module or file; parameters come from the object or from an
    NPZ file.
    """
    source = target if ":" in target else f"mine_to_export:{target}"
    options: tuple[str, ...] = ()
    if target == "graph":
        np.savez(user_folder / "w.npz", w=np.full((3, 2), 2.0, "f4"))
        options = ("--weights", "w.npz")
    result = call("export", source, "out", "--outputs", "y", "--vectors", "2", *options)
    assert result.code == 0, result.err
    replay, x = PlanReplay(user_folder / "out"), np.arange(12, dtype="f4").reshape(4, 3)
    replay.check(1)
    np.testing.assert_allclose(replay.run({"x": x})["y"], x @ np.full((3, 2), 2.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine_to_export:number", "out"], "got an int; expected a Graph"),
        (["mine_to_export:broken", "out"], "raised ValueError: nobody home; "),
        (["mine_to_export:compild", "out"], "did you mean 'compiled'?"),
        (["torn_to_export:g", "out"], "raised ModuleNotFoundError"),
        (["nowhere:g", "out"], "there is no module 'nowhere'"),
        (["no.py:g", "out"], "there is no file 'no.py'"),
        (["mine_to_export", "out"], "MODULE:GRAPH or FILE.py:GRAPH"),
        (["mine_to_export:graph", "out"], "'w' has no value"),
        (["mine_to_export:graph", "out", "--weights", "x.npz"], "cannot be read"),
        (
            ["mine_to_export:graph", "out", "--weights", "beside.py"],
            "expected an NPZ file",
        ),
        (
            ["mine_to_export:bare", "out", "--rows", "3"],
            "it applies only to `export welch`",
        ),
        (["mine_to_export:bare", "out", "--outputs", "a,b"], "1 different names"),
        (["mine_to_export:bare", "out", "--package", "p"], "it requires --to npm"),
        (["welch", "out"], "--rows is missing"),
        ([*WELCH_ARGS[1:], "--weights", "w.npz"], "it applies only to graphs"),
        (
            [*WELCH_ARGS[1:], "--mode", "peaks"],
            "use --mode bins; to find local maxima in your own JavaScript, also use "
            "--output power",
        ),
        (
            [*WELCH_ARGS[1:], "--limit", "maxBuferSize=1"],
            "did you mean 'maxBufferSize'",
        ),
        ([*WELCH_ARGS[1:], "--limit", "maxBufferSize=1k"], "an integer above 0"),
        ([*WELCH_ARGS[1:], "--limit", "maxBufferSize=64"], "64"),
    ],
)
def test_invalid_arguments_are_rejected(
    arguments: list[str], message: str, call: CommandRunner, user_folder: Path
) -> None:
    """A rejected export gives one line, and nothing is written."""
    result = call("export", *arguments)
    check_rejected(
        result, 4 if "--mode" in arguments or "64" in message else 2, message
    )
    assert not (user_folder / "out").exists()


def test_unfit_weights_are_rejected(call: CommandRunner, user_folder: Path) -> None:
    for name, arrays, message in (
        ("other", {"v": np.ones(1, "f4")}, "no param 'v'; its params are 'w'"),
        (
            "shape",
            {"w": np.ones((2, 3), "f4")},
            "param 'w': the array has shape [2, 3]",
        ),
        ("dtype", {"w": np.ones((3, 2))}, "the array has dtype float64"),
        ("none", {}, "'w' has no value"),
    ):
        np.savez(user_folder / f"{name}.npz", **arrays)
        result = call(
            "export", "mine_to_export:graph", "out", "--weights", f"{name}.npz"
        )
        check_rejected(result, 2, message)


def test_export_is_replaced_with_force(call: CommandRunner, user_folder: Path) -> None:
    assert call(*WELCH_ARGS).code == 0
    check_rejected(call(*WELCH_ARGS), 2, "replace the existing export: --force")
    assert call(*WELCH_ARGS, "--force", "--name", "other").code == 0
    assert (user_folder / "out" / "other.js").exists()
