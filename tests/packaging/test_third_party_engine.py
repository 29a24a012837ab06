"""A package with an engine, built from the how-to page and installed by pip.

Nothing of rlxweb is edited, and the package's engine is a device like ours: in the
report, in Python and on the command line.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import ROOT, Said, forked
from tests.packaging.conftest import run

PAGE = ROOT / "site" / "pages" / "howto" / "add-a-backend.md"
LABEL = "node-by-node"
IN_PYTHON = """
import sys, warnings, numpy as np, rlxweb as rlx
assert "rlxweb_node_by_node" not in sys.modules
x = np.sin(np.arange(2048, dtype=np.float32) * 0.3)
found = rlx.welch_peaks(x, fs=256, k=3, device="node-by-node")
right = rlx.welch_peaks(x, fs=256, k=3, device="cpu")
np.testing.assert_array_equal(found.bins, right.bins)
g = rlx.Graph("double")
g.set_outputs([g.input("x", (4,)) * 2])
four = np.ones(4, np.float32)
(y,) = rlx.Session("node-by-node").compile(g).run({"x": four})
np.testing.assert_array_equal(y, 2 * four)
runner = rlx.GraphDevices(g)
assert "node-by-node" in runner.devices
(y,) = runner.run("node-by-node", {"x": four})
np.testing.assert_array_equal(y, 2 * four)
runner.resolve("node-by-node")
print(found.engine, "|", found.device, "|", runner.explain())
"""
MEASURE = """
from rlxweb.calibration import measure
from rlxweb.calibration.known import measure_now
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.devices.place import parse_place
all_of = measure.kernel_jobs
measure.kernel_jobs = lambda place: list(all_of(place))[:measure.TELLING]
quick = Stopwatch(0, samples=1, least=1, budget_ns=1.0)
measure_now(parse_place("node-by-node"), watch=quick, budget_s=120.0)
"""
# A package that is found by the run and by the processes that it starts; what the
# run's own process was forked from has not looked for any.
FOUND = """
import os, runpy, sys
os.environ["PYTHONPATH"] = {path!r}
sys.path.append({package!r})
_, kind, what, *args = sys.argv
if kind == "-m":
    sys.argv = [what, *args]
    runpy.run_module(what, run_name="__main__", alter_sys=True)
else:
    exec(what)
"""

Spawn = Callable[..., Said]


def blocks(kind: str) -> list[str]:
    """The page's blocks of a kind."""
    text = PAGE.read_text("utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)


def installed(folder: Path) -> Path:
    """Install the page's package with pip and return its folder."""
    source, target = folder / "source", folder / "target"
    source.mkdir()
    (source / "pyproject.toml").write_text(blocks("toml")[0], "utf-8")
    (source / "rlxweb_node_by_node.py").write_text(module(), "utf-8")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    pip += ["--no-compile", "--no-build-isolation", "--target", str(target)]
    run([*pip, str(source)], cwd=folder)
    return target


def module() -> str:
    """The page's engine and the end of its module."""
    programs = blocks("python")
    (end,) = (text for text in programs if "\nrow = Row(" in text)
    return f"{programs[0]}\n\n{end}"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("third"))


@pytest.fixture
def spawn(package: Path, tmp_path: Path) -> Spawn:
    """Runs Python where the package is installed, with a cache of its own."""

    def go(*args: object, package: Path = package) -> Said:
        code = FOUND.format(package=str(package), path=f"{ROOT}:{package}")
        return forked("-c", code, *args, RLX_CACHE_DIR=str(tmp_path / "cache"))

    return go


WRONG = """
class Wrong(NodeByNode):
    async def run(self, program, feeds):
        outs = await super().run(program, feeds)
        for out in outs:
            if out.size > 5 and out.dtype == np.float32:
                out.flat[5] += 1
        return outs


async def opened(adapter):
    return Wrong()


row = Row(opened)
"""
SMOKE = ("-m", "rlxweb", "smoke", "--quick", "-k", "samples and relu", "--json", "-")


def test_it_passes_the_smoke_test(spawn: Spawn) -> None:
    """Another package's engine passes the smoke test where it is demanded."""
    said = spawn(*SMOKE, "--device", LABEL, "--require", LABEL)
    assert said.code == 0, said.err
    (engine,) = said.record["engines"]
    assert engine["word"] == "right"
    assert engine["counts"]["right"] > 10


def test_a_wrong_one_is_found(spawn: Spawn, package: Path, tmp_path: Path) -> None:
    """A wrong engine is found by the index of the first value that is wrong."""
    other = shutil.copytree(package, tmp_path / "other")
    (other / "rlxweb_node_by_node.py").write_text(module() + WRONG, "utf-8")
    said = spawn(*SMOKE, "--device", LABEL, package=other)
    assert said.code == 1, said.err
    (engine,) = said.record["engines"]
    assert engine["word"] == "wrong"
    rows = {row["case"]: row for row in engine["rows"]}
    assert rows["samples/relu/1"]["word"] == "right"
    wrong = rows["samples/relu/2"]  # 13 numbers
    assert (wrong["word"], wrong["wrong"], wrong["elements"]) == ("wrong", 1, 13)
    first = wrong["first"]
    assert first["at"] == [5]
    assert first["got"] == pytest.approx(first["want"] + 1)


def test_it_is_listed_with_its_package(spawn: Spawn) -> None:
    said = spawn("-m", "rlxweb", "devices", "--json")
    assert said.code == 0, said.err
    (row,) = [r for r in said.record["devices"] if r["device"] == LABEL]
    assert row["available"]
    assert row["name"] == "Node by node"
    assert row["facts"]["package"] == "rlxweb-node-by-node 1.0"


def test_it_runs_everything_that_is_public(spawn: Spawn) -> None:
    """Another package's engine runs all that is public, and is loaded when named."""
    said = spawn("-c", IN_PYTHON)
    assert said.code == 0, said.err
    engine, device, why = (part.strip() for part in said.out.split("|"))
    assert engine.endswith("node by node")
    assert device == "Node by node"
    assert "device node-by-node: it was asked for" in why


def test_it_is_calibrated_priced_and_explained(spawn: Spawn) -> None:
    """The figures are kept, and the next process prices by them."""
    said = spawn("-c", MEASURE)
    assert said.code == 0, said.err
    where = ("--device", LABEL, "--json")
    said = spawn("-m", "rlxweb", "calibrate", "--show", *where)
    assert said.code == 0, said.err
    (record,) = said.record["records"]
    assert record["engine"].endswith("node by node")
    said = spawn("-m", "rlxweb", "explain", "--batch", "4", *where)
    assert said.code == 0, said.err
    priced = [
        way
        for job in said.record["jobs"]
        for way in job["candidates"]
        if way["predicted_ns"] is not None
    ]
    assert {way["source"] for way in priced} == {"calibrated"}
    assert all(way["engine"].endswith("node by node") for way in priced)
