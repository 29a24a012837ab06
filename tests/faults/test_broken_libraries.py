"""Libraries that are installed and broken: a reason in the report, nobody's error.

Each is a package of a few lines that is found in place of the real one, in a process of
its own.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlxweb import library_probe
from rlxweb.library_versions import version_problem
from tests.command_line import Said, forked, python

GARBAGE = "import os; print('<<garbage>>'); os.write(2, b'more of it')\n"
BROKEN = {
    "no native half": (
        "torch",
        "torch-cpu",
        "raise ImportError('libtorch_cpu.so: cannot open shared object file')",
        "ImportError: libtorch_cpu.so: cannot open shared object file",
    ),
    "another ABI": (
        "torch",
        "torch-cpu",
        f"{GARBAGE}raise RuntimeError('module compiled against ABI 0x9')",
        "RuntimeError: module compiled against ABI 0x9",
    ),
    "it ends the process": (
        "torch",
        "torch-cpu",
        f"{GARBAGE}import sys; sys.exit(7)",
        "SystemExit: 7",
    ),
    "nothing in it": ("torch", "torch-cpu", GARBAGE, "ImportError: cannot import name"),
    "recursion": ("torch", "torch-cpu", "def f(): f()\nf()", "RecursionError"),
}
# The command line where the modules of a folder are found first.
WITH_FOLDER = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from rlxweb.cli.main import main
main(sys.argv[1:])
"""
EVERYTHING = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, rlxweb as rlx
assert rlx.welch_peaks(np.ones(512, np.float32), fs=1, k=1).device == "cpu"
assert "cpu" in rlx.available_devices()
graph = rlx.Graph("g")
graph.set_outputs([graph.input("x", (4,)) * 2])
runner = rlx.GraphDevices(graph)
chain = ["torch-cpu", "jax-cpu", "cpu"]
device, (y,) = runner.run_chain(chain, {"x": np.ones(4, "f4")})
assert device == "cpu" and (y == 2).all()
"""


def in_place_of(module: str, text: str, folder: Path, *args: object) -> Said:
    """`rlxweb ARGS` where that module is this text."""
    home = folder / module
    home.mkdir()
    (home / "__init__.py").write_text(text, "utf-8")
    return forked("-c", WITH_FOLDER, folder, *args)


@pytest.mark.parametrize("why", BROKEN)
def test_a_broken_library_is_a_line_of_the_report(why: str, tmp_path: Path) -> None:
    """A broken library is a line of the report, with what it raised.

    What it prints is not in the JSON.
    """
    module, label, text, words = BROKEN[why]
    report = ("devices", label, "cpu", "--json")
    said = in_place_of(module, text, tmp_path, *report)
    assert said.code == 0, said.err
    row, cpu = said.record["devices"]
    assert cpu["available"]
    assert not row["available"]
    assert words in row["blocker"]


def test_nobody_else_notices(tmp_path: Path) -> None:
    """A broken library harms nobody who does not name it; a chain goes on past it."""
    for module in ("jax", "cupy"):
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text("raise SystemExit(9)")
    (tmp_path / "torch.py").write_text("1 / 0")
    said = forked("-c", EVERYTHING, tmp_path)
    assert said.code == 0, said.err


def test_naming_it_is_one_clear_error(tmp_path: Path) -> None:
    module, label, text, words = BROKEN["no native half"]
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n3,4\n")
    welch = ("welch", file, "--fs", "1", "--device", label)
    said = in_place_of(module, text, tmp_path, *welch)
    assert said.code == 3
    (line,) = said.err.splitlines()
    assert line.startswith(f"rlxweb: open device '{label}': ")
    assert words in line


FATAL = {
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
    "abort": ("import os\nprint('last words')\nos.abort()", "SIGABRT"),
    "silent end": ("import os\nos._exit(7)", "exit code 7"),
    "hang": ("import time\ntime.sleep(3600)", "it hangs"),
    "busy hang": ("while True:\n    pass", "it hangs"),
}
ABSENT = {
    "RuntimeError": ("raise RuntimeError('no kernel image')", "no kernel image"),
    "SystemExit": ("raise SystemExit(3)", "SystemExit: 3"),
    "SyntaxError": ("def (:", "SyntaxError"),
    "empty package": ("", "ImportError: cannot import name"),
    "old version": ("__version__ = '0.1.0'", "cupy 0.1.0 found, 13.4 or newer needed"),
    "no devices": ("__version__ = '13.4.0'", "ImportError: cannot import name"),
}
# Asks a device by every door; of the other libraries of the machine only where the
# word "all" stands behind its label. Where the word "wgpu" stands there, the one that
# this process was forked with is as if it had not been loaded. Only a hang is waited
# for with a short deadline, which nothing else may miss on a slow machine.
ASKED = """
import contextlib, io, json, sys
folder, label, *more = sys.argv[1:]
sys.path.insert(0, folder)
if "wgpu" in more:
    for name in [n for n in sys.modules if n.partition(".")[0] == "wgpu"]:
        del sys.modules[name]
import numpy as np, rlxweb as rlx
from rlxweb.cli.main import main
if "hang" in more:
    import rlxweb.library_probe
    rlxweb.library_probe.DEADLINE_S = 1
graph = rlx.Graph("g")
graph.set_outputs([graph.input("x", (4,)) * 2])
two = [d for d in rlx.Device if d.label in (label, "cpu")]
there = rlx.available_devices() if "all" in more else filter(rlx.is_available, two)
try:
    rlx.Session(label)
    reason = ""
except rlx.RlxError as error:
    reason = str(error)
(y,) = rlx.Session("auto").compile(graph).run({"x": np.ones(4, "f4")})
shown = io.TextIOWrapper(io.BytesIO(), "utf-8")
with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
    main(["devices", *(d.label for d in two), "--json"])
rows = json.loads(shown.buffer.getvalue())["devices"]
found = [d.label for d in there]
said = {"found": found, "reason": reason, "auto": y.tolist(), "rows": rows}
json.dump(said, sys.stdout)
"""


def with_fake(module: str, text: str, folder: Path, *, driver: bool) -> dict[str, str]:
    """Make that module of this text, and NVIDIA's driver; return the environment.

    The driver is any library under its name: only whether it loads is asked.
    """
    home = folder.joinpath(*module.split("."))
    home.mkdir(parents=True)
    (home / "__init__.py").write_text(text, "utf-8")
    more = {"RLX_CACHE_DIR": str(folder / "cache"), "VK_ICD_FILENAMES": ""}
    return more | ({"LD_LIBRARY_PATH": str(nvidia())} if driver else {})


@cache
def nvidia() -> Path:
    """Return a folder with a driver of NVIDIA's, one for all tests of this process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    maps = Path("/proc/self/maps").read_text().split()
    libm = next(word for word in maps if "/libm.so" in word or "/libm-" in word)
    shutil.copy(libm, folder / "libcuda.so.1")
    return folder


def reply_about(
    label: str, folder: Path, why: str = "", *more: str, **had: str
) -> dict[str, Any]:
    """Return what a program that asks for a device prints, as JSON.

    The modules of `folder` are found first. The program is a fork of a process that has
    loaded wgpu and no other library.
    """
    words = [why.rpartition(" ")[2], *more]
    if "all" not in more:
        had |= {"RLX_DEVICES": f"{label},cpu", "RLX_FAST": "off"}
    program = ("-c", ASKED, folder, label, *words)
    said = forked(*program, is_common=True, **had)
    assert said.code == 0, said.err
    return said.record


@pytest.mark.parametrize(
    ("why", "driver"),
    [*((why, True) for why in (*FATAL, *ABSENT)), ("segmentation fault", False)],
)
def test_a_library_for_cuda_cannot_end_or_block_the_process(
    why: str, driver: bool, tmp_path: Path
) -> None:
    """A library for CUDA ends and blocks nothing; naming the device gives why."""
    text, words = {**FATAL, **ABSENT}[why]
    more = with_fake("cupy", text, tmp_path, driver=driver)
    others = ("all",) if why == "abort" else ()
    said = reply_about("cuda", tmp_path, why, *others, **more)
    assert "cpu" in said["found"]
    assert "cuda" not in said["found"]
    assert (words if driver else "no NVIDIA driver") in said["reason"]
    assert said["auto"] == [2, 2, 2, 2]
    row, cpu = sorted(said["rows"], key=lambda row: row["device"] == "cpu")
    assert cpu["available"]
    assert (words if driver else "no NVIDIA driver") in row["blocker"]


@pytest.mark.parametrize(
    ("why", "module", "label"),
    [
        ("segmentation fault", "torch", "torch-cpu"),
        ("abort", "jax", "jax-cpu"),
        ("hang", "mlx.core", "mlx"),
    ],
)
def test_a_library_for_the_cpu_cannot_either(
    why: str, module: str, label: str, tmp_path: Path
) -> None:
    text, words = FATAL[why]
    more = with_fake(module, text, tmp_path, driver=False)
    assert words in reply_about(label, tmp_path, why, **more)["reason"]


@pytest.mark.parametrize("why", ["segmentation fault", "hang"])
@pytest.mark.parametrize("module", ["wgpu", "wgpudawn"])
def test_a_library_of_webgpu_cannot_either(
    why: str, module: str, tmp_path: Path
) -> None:
    text, words = FATAL[why]
    more = with_fake(module, text, tmp_path, driver=False)
    label = "gpu" if module == "wgpu" else "dawn"
    said = reply_about(label, tmp_path, why, module, **more)
    assert words in said["reason"]


@pytest.mark.parametrize(
    ("module", "label", "needed"),
    [
        ("torch", "torch-cpu", "torch 0.1.0 found, 2.6 or newer needed"),
        ("jax", "jax-cpu", "jax 0.1.0 found, 0.8 or newer needed"),
        ("mlx.core", "mlx", "mlx.core 0.1.0 found, 0.29 or newer needed"),
        ("wgpu", "gpu", "wgpu 0.1.0 found, 0.32 or newer needed"),
    ],
)
def test_an_old_version_is_an_error_with_both_versions(
    module: str, label: str, needed: str, tmp_path: Path
) -> None:
    """The bounds are those of pyproject.toml."""
    more = with_fake(module, "__version__ = '0.1.0'", tmp_path, driver=False)
    said = reply_about(label, tmp_path, "", module, **more)
    assert needed in said["reason"]


def test_a_device_that_ends_the_process_when_it_is_counted(tmp_path: Path) -> None:
    """A library that ends the process when its GPU is counted is told with why."""
    text = (
        "__version__ = '2.9'\nimport ctypes\nclass version: cuda = '12'; hip = None\n"
        "class cuda:\n    is_available = staticmethod(lambda: ctypes.string_at(0))\n"
    )
    more = with_fake("torch", text, tmp_path, driver=True)
    compat = tmp_path / "array_api_compat"
    compat.mkdir()
    (compat / "__init__.py").write_text("__version__ = '1.12'")
    (compat / "torch.py").touch()
    info = tmp_path / "torch-2.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9\n")
    assert "SIGSEGV" in reply_about("cuda", tmp_path, **more)["reason"]


def test_the_answer_is_remembered_until_the_library_changes(tmp_path: Path) -> None:
    """A second process does not load what ended a first one."""
    count = tmp_path / "count"
    text = f"open({str(count)!r}, 'a').write('x')\nimport os\nos._exit(7)\n"
    more = with_fake("torch", text, tmp_path, driver=False)
    words = (tmp_path, "devices", "torch-cpu", "--json")
    for _ in range(2):
        said = forked("-c", WITH_FOLDER, *words, **more)
        assert "exit code 7" in said.record["devices"][0]["blocker"]
        assert count.read_text() == "x"
    (tmp_path / "torch" / "__init__.py").write_text(text + "# another build\n")
    forked("-c", WITH_FOLDER, *words, **more)
    assert count.read_text() == "xx"


def test_a_damaged_file_of_answers_is_as_good_as_none(tmp_path: Path) -> None:
    more = with_fake("torch", "import os; os._exit(7)", tmp_path, driver=False)
    cache = tmp_path / "cache"
    cache.mkdir()
    text = '{"a": 1, "b": {"problem": 2, "unix_s": "x"}, "c": null, "d": {}}'
    (cache / "library-probes.json").write_text(text)
    words = (tmp_path, "devices", "torch-cpu", "--json")
    said = forked("-c", WITH_FOLDER, *words, **more)
    assert "exit code 7" in said.record["devices"][0]["blocker"]


def test_an_engine_of_another_package_cannot_end_the_process(tmp_path: Path) -> None:
    """Another package's engine cannot end the process when its row is read."""
    text, words = FATAL["segmentation fault"]
    more = with_fake("shiny", text, tmp_path, driver=False)
    info = tmp_path / "shiny-1.0.dist-info"
    info.mkdir()
    about = "Metadata-Version: 2.1\nName: shiny\nVersion: 1.0\n"
    (info / "METADATA").write_text(about)
    (info / "entry_points.txt").write_text("[rlxweb.backends]\nshiny = shiny:row\n")
    reason = reply_about("shiny", tmp_path, **more)["reason"]
    assert "shiny 1.0: it is installed and cannot be used" in reason
    assert words in reason


def test_a_compiler_that_ends_the_process_is_a_line_of_the_report(
    tmp_path: Path,
) -> None:
    text, words = FATAL["segmentation fault"]
    more = with_fake("llvmlite", text, tmp_path, driver=False)
    devices = (tmp_path, "devices", "cpu", "--json")
    said = forked("-c", WITH_FOLDER, *devices, RLX_FAST="wait", **more)
    assert said.code == 0, said.err
    assert said.record["compiled_code"].startswith("none: llvmlite cannot be used")
    assert words in said.record["compiled_code"]


def test_smoke_reports_a_library_that_ends_the_process(tmp_path: Path) -> None:
    more = with_fake(
        "torch", "import ctypes\nctypes.string_at(0)", tmp_path, driver=False
    )
    report = tmp_path / "report.json"
    asked = ("smoke", "--device", "torch-cpu", "-k", "samples/exp*", "--json", report)
    path = f"{tmp_path}:{Path(__file__).parents[2]}"  # its children find it too
    code = f"import os\nos.environ['PYTHONPATH'] = {path!r}\n{WITH_FOLDER}"
    said = forked("-c", code, tmp_path, *asked, **more)
    assert said.code == 1, said
    assert "SIGSEGV" in said.out + said.err


def test_the_child_of_an_isolated_interpreter_is_isolated(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    hit = tmp_path / "hit"
    (own / "json.py").write_text(f"open({str(hit)!r}, 'w')\n")
    more = with_fake("torch", "import os; os._exit(7)", tmp_path, driver=False)
    more["PYTHONPATH"] = str(own)
    code = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(Path(__file__).parents[2])!r}]
from rlxweb import devices
from rlxweb.library_probe import library_problem
print(library_problem("torch", "rlxweb.library_probe:import_module", "torch"))
"""
    said = python("-I", "-c", code, **more)
    assert said.code == 0, said.err
    assert not hit.exists()


def test_a_child_that_cannot_start_says_nothing_about_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(library_probe, "_PROGRAM", "raise SystemExit(9)")
    assert library_probe.library_problem("no_such_module", "no:way") == ""


def test_a_browser_tab_and_a_program_of_another_name_start_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", fail)
    for name, value in (("platform", "emscripten"), ("executable", "/opt/blender")):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, value)
            assert library_probe.library_problem("no_such_module", "no:way") == ""


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("0.31.9", "0.31.9 found, 0.32 or newer needed"),
        ("0.33.0", "0.33.0 found, a version before 0.33 needed"),
        ("1.0", "1.0 found, a version before 0.33 needed"),
        ("0.32", ""),
        ("0.32.0rc1", ""),
        ("0.32.5+local", ""),
        ("unknown", ""),
        (None, ""),
    ],
)
def test_versions_are_compared_as_numbers(version: object, problem: str) -> None:
    assert version_problem(version, "wgpu") == problem
