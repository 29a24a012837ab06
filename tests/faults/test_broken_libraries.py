"""Libraries that are installed and broken: a reason in the report, nobody's error.

Each is a package of a few lines that is found in place of the real one, in a process of
its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlxweb import library_probe
from rlxweb.library_versions import version_problem
from tests.command_line import Said, python

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
EVERYTHING = """
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
    """A process in which that module is this text."""
    home = folder / module
    home.mkdir()
    (home / "__init__.py").write_text(text, "utf-8")
    return python(*args, PYTHONPATH=f"{folder}:{Path(__file__).parents[2]}")


@pytest.mark.parametrize("why", BROKEN)
def test_a_broken_library_is_a_line_of_the_report(why: str, tmp_path: Path) -> None:
    """With what it raised; what it prints is not in the JSON."""
    module, label, text, words = BROKEN[why]
    report = ("-m", "rlxweb", "devices", label, "cpu", "--json")
    said = in_place_of(module, text, tmp_path, *report)
    assert said.code == 0, said.err
    row, cpu = said.record["devices"]
    assert cpu["available"]
    assert not row["available"]
    assert words in row["blocker"]


def test_nobody_else_notices(tmp_path: Path) -> None:
    """Who does not name it runs, and a chain goes on past it."""
    for module in ("jax", "cupy"):
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text("raise SystemExit(9)")
    said = in_place_of("torch", "1 / 0", tmp_path, "-c", EVERYTHING)
    assert said.code == 0, said.err


def test_naming_it_is_one_clear_error(tmp_path: Path) -> None:
    module, label, text, words = BROKEN["no native half"]
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n3,4\n")
    asked = ("-m", "rlxweb", "welch", file, "--fs", "1", "--device", label)
    said = in_place_of(module, text, tmp_path, *asked)
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
# A hang is waited for; what the other libraries of the machine take is no matter here.
SHORT = "import rlxweb.library_probe as p; p.DEADLINE_S = 4; "
ASKED = f"""
{SHORT}
import json, sys
import numpy as np, rlxweb as rlx
label = sys.argv[1]
graph = rlx.Graph("g")
graph.set_outputs([graph.input("x", (4,)) * 2])
found = [str(d.label) for d in rlx.available_devices()]
try:
    rlx.Session(label)
    reason = ""
except rlx.RlxError as error:
    reason = str(error)
(y,) = rlx.Session("auto").compile(graph).run({{"x": np.ones(4, "f4")}})
json.dump({{"found": found, "reason": reason, "auto": y.tolist()}}, sys.stdout)
"""
MAIN = f"{SHORT}import sys; from rlxweb.cli.main import main; main(sys.argv[1:])"


def with_fake(module: str, text: str, folder: Path, *, driver: bool) -> dict[str, str]:
    """The environment in which that module is this text, and NVIDIA's driver is there.

    The driver is any library under its name: only whether it loads is asked.
    """
    home = folder.joinpath(*module.split("."))
    home.mkdir(parents=True)
    (home / "__init__.py").write_text(text, "utf-8")
    if driver:
        drivers = folder / "drivers"
        drivers.mkdir()
        maps = Path("/proc/self/maps").read_text().split()
        libm = next(word for word in maps if "/libm.so" in word or "/libm-" in word)
        shutil.copy(libm, drivers / "libcuda.so.1")
    return {
        "PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}",
        "LD_LIBRARY_PATH": str(folder / "drivers") if driver else "",
        "RLX_CACHE_DIR": str(folder / "cache"),
        "VK_ICD_FILENAMES": "",
    }


@pytest.mark.parametrize(
    ("why", "driver"),
    [*((why, True) for why in (*FATAL, *ABSENT)), ("segmentation fault", False)],
)
def test_a_library_for_cuda_cannot_end_or_block_the_process(
    why: str, driver: bool, tmp_path: Path
) -> None:
    """Every other device is there; naming this one gives the reason."""
    text, words = {**FATAL, **ABSENT}[why]
    more = with_fake("cupy", text, tmp_path, driver=driver)
    said = python("-c", ASKED, "cuda", **more)
    assert said.code == 0, said.err
    assert "cpu" in said.record["found"]
    assert "cuda" not in said.record["found"]
    assert (words if driver else "no NVIDIA driver") in said.record["reason"]
    assert said.record["auto"] == [2, 2, 2, 2]
    said = python("-c", MAIN, "devices", "cuda", "cpu", "--json", **more)
    assert said.code == 0, said.err
    row, cpu = said.record["devices"]
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
    said = python("-c", ASKED, label, **more)
    assert said.code == 0, said.err
    assert words in said.record["reason"]


@pytest.mark.parametrize("why", ["segmentation fault", "hang"])
@pytest.mark.parametrize("module", ["wgpu", "wgpudawn"])
def test_a_library_of_webgpu_cannot_either(
    why: str, module: str, tmp_path: Path
) -> None:
    text, words = FATAL[why]
    more = with_fake(module, text, tmp_path, driver=False)
    said = python("-c", ASKED, "gpu" if module == "wgpu" else "dawn", **more)
    assert said.code == 0, said.err
    assert words in said.record["reason"]


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
    said = python("-c", ASKED, label, **more)
    assert said.code == 0, said.err
    assert needed in said.record["reason"]


def test_a_device_that_ends_the_process_when_it_is_counted(tmp_path: Path) -> None:
    """The import went well."""
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
    said = python("-c", ASKED, "cuda", **more)
    assert said.code == 0, said.err
    assert "SIGSEGV" in said.record["reason"]


def test_the_answer_is_remembered_until_the_library_changes(tmp_path: Path) -> None:
    """A second process does not load what ended a first one."""
    count = tmp_path / "count"
    text = f"open({str(count)!r}, 'a').write('x')\nimport os\nos._exit(7)\n"
    more = with_fake("torch", text, tmp_path, driver=False)
    asked = ("-m", "rlxweb", "devices", "torch-cpu", "--json")
    for _ in range(2):
        said = python(*asked, **more)
        assert "exit code 7" in said.record["devices"][0]["blocker"]
        assert count.read_text() == "x"
    (tmp_path / "torch" / "__init__.py").write_text(text + "# another build\n")
    python(*asked, **more)
    assert count.read_text() == "xx"


def test_a_damaged_file_of_answers_is_as_good_as_none(tmp_path: Path) -> None:
    more = with_fake("torch", "import os; os._exit(7)", tmp_path, driver=False)
    cache = tmp_path / "cache"
    cache.mkdir()
    text = '{"a": 1, "b": {"problem": 2, "unix_s": "x"}, "c": null, "d": {}}'
    (cache / "library-probes.json").write_text(text)
    said = python("-m", "rlxweb", "devices", "torch-cpu", "--json", **more)
    assert "exit code 7" in said.record["devices"][0]["blocker"]


def test_an_engine_of_another_package_cannot_end_the_process(tmp_path: Path) -> None:
    """Its module is loaded to read its row."""
    text, words = FATAL["segmentation fault"]
    more = with_fake("shiny", text, tmp_path, driver=False)
    info = tmp_path / "shiny-1.0.dist-info"
    info.mkdir()
    about = "Metadata-Version: 2.1\nName: shiny\nVersion: 1.0\n"
    (info / "METADATA").write_text(about)
    (info / "entry_points.txt").write_text("[rlxweb.backends]\nshiny = shiny:row\n")
    said = python("-c", ASKED, "shiny", **more)
    assert said.code == 0, said.err
    assert "shiny 1.0: it is installed and cannot be used" in said.record["reason"]
    assert words in said.record["reason"]


def test_a_compiler_that_ends_the_process_is_a_line_of_the_report(
    tmp_path: Path,
) -> None:
    text, words = FATAL["segmentation fault"]
    more = with_fake("llvmlite", text, tmp_path, driver=False)
    said = python("-m", "rlxweb", "devices", "cpu", "--json", RLX_FAST="wait", **more)
    assert said.code == 0, said.err
    assert said.record["compiled_code"].startswith("none: llvmlite cannot be used")
    assert words in said.record["compiled_code"]


def test_smoke_reports_a_library_that_ends_the_process(tmp_path: Path) -> None:
    more = with_fake(
        "torch", "import ctypes\nctypes.string_at(0)", tmp_path, driver=False
    )
    report = tmp_path / "report.json"
    asked = ("smoke", "--device", "torch-cpu", "-k", "samples/exp*", "--json", report)
    said = python("-m", "rlxweb", *asked, **more)
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
