"""Third-party engine package, built from the how-to page and installed with pip.

Nothing of rlxweb is edited, and the package's engine is a device like ours: in the
report, in Python and on the command line.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli_runners import ROOT, CommandResult, run_forked
from tests.howto_pages import code_blocks
from tests.packaging.conftest import run_command

LABEL = "node-by-node"
USE_PUBLIC_API = """
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
CALIBRATE_QUICKLY = """
from rlxweb.select.calibration import measure_engine
from rlxweb.select.calibration.engine_calibration_lookup import measure_now
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.device_and_adapter import parse_place
all_of = measure_engine.kernel_jobs
count = measure_engine.ESSENTIAL_KERNEL_COUNT
measure_engine.kernel_jobs = lambda place: list(all_of(place))[:count]
quick = Stopwatch(0, samples=1, min_samples=1, budget_ns=1.0)
measure_now(parse_place("node-by-node"), watch=quick, budget_s=120.0)
"""
# A package that is found by the run and by the processes that it starts; what the
# run's own process was forked from has not looked for any.
RUN_WITH_PACKAGE = """
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

Spawn = Callable[..., CommandResult]


def install_package(folder: Path) -> Path:
    """Install the page's package with pip and return its folder."""
    source, target = folder / "source", folder / "target"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        code_blocks("add-an-engine", "toml")[0], "utf-8"
    )
    (source / "rlxweb_node_by_node.py").write_text(module_source(), "utf-8")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    pip += ["--no-compile", "--no-build-isolation", "--target", str(target)]
    run_command([*pip, str(source)], cwd=folder)
    return target


def module_source() -> str:
    """Return the page's engine and the end of its module."""
    programs = code_blocks("add-an-engine", "python")
    (last_block,) = (text for text in programs if "\nrow = Row(" in text)
    return f"{programs[0]}\n\n{last_block}"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_package(tmp_path_factory.mktemp("third"))


@pytest.fixture
def spawn(package: Path, tmp_path: Path) -> Spawn:
    """Return a function that runs Python where the package is installed, with a cache
    of its own.
    """

    def run_python(*args: object, package: Path = package) -> CommandResult:
        code = RUN_WITH_PACKAGE.format(package=str(package), path=f"{ROOT}:{package}")
        return run_forked("-c", code, *args, RLX_CACHE_DIR=str(tmp_path / "cache"))

    return run_python


WRONG_ENGINE = """
class Wrong(NodeByNode):
    def compute(self, program, values):
        outs = [np.array(out) for out in super().compute(program, values)]
        for out in outs:
            if out.size > 5 and out.dtype == np.float32:
                out.flat[5] += 1
        return outs


async def opened(adapter):
    return Wrong()


row = Row(opened)
"""
SMOKE_COMMAND = (
    "-m",
    "rlxweb",
    "smoke",
    "--quick",
    "-k",
    "samples and relu",
    "--json",
    "-",
)


def test_engine_passes_the_smoke_test(spawn: Spawn) -> None:
    """A third-party engine passes the smoke test when it is required."""
    result = spawn(*SMOKE_COMMAND, "--device", LABEL, "--require", LABEL)
    assert result.code == 0, result.err
    (engine,) = result.document["engines"]
    assert engine["word"] == "right"
    assert engine["counts"]["right"] > 10


def test_wrong_engine_fails_the_smoke_test(
    spawn: Spawn, package: Path, tmp_path: Path
) -> None:
    """The report names the index of the first wrong value of a wrong engine."""
    broken_package = shutil.copytree(package, tmp_path / "other")
    (broken_package / "rlxweb_node_by_node.py").write_text(
        module_source() + WRONG_ENGINE, "utf-8"
    )
    result = spawn(*SMOKE_COMMAND, "--device", LABEL, package=broken_package)
    assert result.code == 1, result.err
    (engine,) = result.document["engines"]
    assert engine["word"] == "wrong"
    rows = {row["case"]: row for row in engine["rows"]}
    assert rows["samples/relu/1"]["word"] == "right"
    wrong = rows["samples/relu/2"]  # 13 numbers
    assert (wrong["word"], wrong["wrong"], wrong["elements"]) == ("wrong", 1, 13)
    first = wrong["first"]
    assert first["at"] == [5]
    assert first["got"] == pytest.approx(first["want"] + 1)


def test_engine_is_listed_with_its_package(spawn: Spawn) -> None:
    result = spawn("-m", "rlxweb", "devices", "--json")
    assert result.code == 0, result.err
    (row,) = [r for r in result.document["devices"] if r["device"] == LABEL]
    assert row["available"]
    assert row["name"] == "Node by node"
    assert row["facts"]["package"] == "rlxweb-node-by-node 1.0"


def test_engine_runs_the_public_api(spawn: Spawn) -> None:
    """A third-party engine runs the public API, and is loaded when it is named."""
    result = spawn("-c", USE_PUBLIC_API)
    assert result.code == 0, result.err
    engine, device, why = (part.strip() for part in result.out.split("|"))
    assert engine.endswith("node by node")
    assert device == "Node by node"
    assert "device node-by-node: it was requested" in why


def test_engine_is_calibrated_priced_and_explained(spawn: Spawn) -> None:
    """Calibrations are stored, and the next process prices candidates by them."""
    result = spawn("-c", CALIBRATE_QUICKLY)
    assert result.code == 0, result.err
    options = ("--device", LABEL, "--json")
    result = spawn("-m", "rlxweb", "calibrate", "--show", *options)
    assert result.code == 0, result.err
    (record,) = result.document["records"]
    assert record["engine"].endswith("node by node")
    result = spawn("-m", "rlxweb", "explain", "--batch", "4", *options)
    assert result.code == 0, result.err
    priced = [
        candidate
        for job in result.document["jobs"]
        for candidate in job["candidates"]
        if candidate["predicted_ns"] is not None
    ]
    assert {candidate["source"] for candidate in priced} == {"calibrated"}
    assert all(candidate["engine"].endswith("node by node") for candidate in priced)
