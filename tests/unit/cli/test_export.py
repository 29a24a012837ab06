"""`rlxweb export`: what it writes, what it says, and whose code it runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rlxweb as rlx
from tests.command_line import Call, check_refused
from tests.plan_replay import Replay, WelchReplay

MODULE = """
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
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of the caller's and what that imports."""
    (tmp_path / "mine_to_export.py").write_text(MODULE)
    (tmp_path / "beside.py").write_text("VALUE = 2.0\n")
    (tmp_path / "torn_to_export.py").write_text("import not_there_at_all\n")
    monkeypatch.chdir(tmp_path)
    for name in ("mine_to_export", "beside", "torn_to_export"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return tmp_path


WELCH = ("export", "welch", "out", "--rows", "4", "--samples", "512", "--fs", "128")


@pytest.mark.requires_wgpu
def test_welch(call: Call, home: Path) -> None:
    """The options of `rlxweb welch` mean the same to `export welch`."""
    own = ("--preset", "scipy", "--nperseg", "64", "--k", "3", "--detrend", "linear")
    said = call(*WELCH, *own, "--name", "eeg", "--json")
    assert said.code == 0, said.err
    record = said.record
    assert record["schema"] == "rlxweb.export/1"
    assert (record["name"], record["to"], record["folder"]) == ("eeg", "web", "out")
    assert {f["path"] for f in record["files"]} >= {"eeg.js", "plan.json"}
    x = np.random.default_rng(0).normal(size=(4, 512)).astype("f4")
    got = WelchReplay(home / "out").welch(x)
    want = rlx.welch_peaks(
        x, 128.0, 64, 3, preset="scipy", detrend="linear", device="cpu"
    )
    np.testing.assert_array_equal(got["bins"], want.bins)
    np.testing.assert_array_equal(got["hz"], want.hz)


def test_what_was_written_is_shown(call: Call, home: Path) -> None:
    said = call(*WELCH)
    assert said.code == 0, said.err
    for word in ("plan.json", "welch.js", "python -m http.server -d out 8000"):
        assert word in said.out
    assert said.err == ""
    said = call(*WELCH[:2], "pkg", *WELCH[3:], "--to", "npm", "--package", "@me/eeg")
    assert "npm publish ./pkg --access public" in said.out
    manifest = json.loads((home / "pkg" / "package.json").read_text())
    assert manifest["name"] == "@me/eeg"


@pytest.mark.requires_wgpu
@pytest.mark.parametrize(
    "target", ["compiled", "kept.devices", "graph", "mine_to_export.py:compiled"]
)
def test_a_graph_of_the_callers(target: str, call: Call, home: Path) -> None:
    """A graph is named by module or file; params are the object's or of an NPZ file."""
    where = target if ":" in target else f"mine_to_export:{target}"
    more: tuple[str, ...] = ()
    if target == "graph":
        np.savez(home / "w.npz", w=np.full((3, 2), 2.0, "f4"))
        more = ("--weights", "w.npz")
    said = call("export", where, "out", "--outputs", "y", "--vectors", "2", *more)
    assert said.code == 0, said.err
    page, x = Replay(home / "out"), np.arange(12, dtype="f4").reshape(4, 3)
    page.check(1)
    np.testing.assert_allclose(page.run({"x": x})["y"], x @ np.full((3, 2), 2.0))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mine_to_export:number", "out"], "it is a int; a Graph"),
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
            "an NPZ file is wanted",
        ),
        (["mine_to_export:bare", "out", "--rows", "3"], "it is of `export welch`"),
        (["mine_to_export:bare", "out", "--outputs", "a,b"], "1 different names"),
        (["mine_to_export:bare", "out", "--package", "p"], "it is of --to npm"),
        (["welch", "out"], "--rows is missing"),
        ([*WELCH[1:], "--weights", "w.npz"], "it is a graph's"),
        ([*WELCH[1:], "--mode", "peaks"], "use --mode bins, or --output power"),
        ([*WELCH[1:], "--limit", "maxBuferSize=1"], "did you mean 'maxBufferSize'"),
        ([*WELCH[1:], "--limit", "maxBufferSize=1k"], "a whole number above 0"),
        ([*WELCH[1:], "--limit", "maxBufferSize=64"], "64"),
    ],
)
def test_what_is_refused(
    arguments: list[str], said: str, call: Call, home: Path
) -> None:
    """A refusal is one line, and nothing is written."""
    found = call("export", *arguments)
    check_refused(found, 4 if "--mode" in arguments or "64" in said else 2, said)
    assert not (home / "out").exists()


def test_weights_that_do_not_fit(call: Call, home: Path) -> None:
    for name, arrays, said in (
        ("other", {"v": np.ones(1, "f4")}, "no param 'v'; it has 'w'"),
        ("shape", {"w": np.ones((2, 3), "f4")}, "param 'w': the array is [2, 3]"),
        ("dtype", {"w": np.ones((3, 2))}, "the array is float64"),
        ("none", {}, "'w' has no value"),
    ):
        np.savez(home / f"{name}.npz", **arrays)
        found = call(
            "export", "mine_to_export:graph", "out", "--weights", f"{name}.npz"
        )
        check_refused(found, 2, said)


def test_an_export_is_replaced_when_that_is_asked(call: Call, home: Path) -> None:
    assert call(*WELCH).code == 0
    check_refused(call(*WELCH), 2, "replace the export there: --force")
    assert call(*WELCH, "--force", "--name", "other").code == 0
    assert (home / "out" / "other.js").exists()
