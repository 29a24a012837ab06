"""Command `rlxweb export`: written files, printed output, and user code that it
runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rlxweb as rlx
from tests.cli_runners import CommandRunner, check_rejected
from tests.exported_plan_replay import PlanReplay, WelchPlanReplay


@pytest.fixture
def user_folder(place_files: Callable[[str], None], tmp_path: Path) -> Path:
    """Folder with a user's module and the module that it imports."""
    place_files("mine_to_export")
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


def test_export_is_replaced_with_force(call: CommandRunner, user_folder: Path) -> None:
    assert call(*WELCH_ARGS).code == 0
    check_rejected(call(*WELCH_ARGS), 2, "replace the existing export: --force")
    assert call(*WELCH_ARGS, "--force", "--name", "other").code == 0
    assert (user_folder / "out" / "other.js").exists()
