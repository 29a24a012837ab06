"""Broken installed libraries: each gives a reason in the report and no error elsewhere.

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

from rlxweb.core import library_crash_probe
from rlxweb.core.required_library_versions import version_problem
from tests.cli_runners import CommandResult, run_forked, run_python

GARBAGE = "import os; print('<<garbage>>'); os.write(2, b'more of it')\n"
BROKEN_MODULES = {
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
MAIN_WITH_FOLDER = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from rlxweb.cli.main import main
main(sys.argv[1:])
"""
FALLBACK_PROGRAM = """
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


def run_with_fake_module(
    module: str, text: str, folder: Path, *args: object
) -> CommandResult:
    """Run `rlxweb ARGS` with a module replaced by the given source text."""
    package_folder = folder / module
    package_folder.mkdir()
    (package_folder / "__init__.py").write_text(text, "utf-8")
    return run_forked("-c", MAIN_WITH_FOLDER, folder, *args)


@pytest.mark.parametrize("failure", BROKEN_MODULES)
def test_broken_library_is_reported_as_unavailable(
    failure: str, tmp_path: Path
) -> None:
    """Report a broken library in one row, with the exception it raised.

    What it prints is not in the JSON.
    """
    module, label, text, expected = BROKEN_MODULES[failure]
    report = ("devices", label, "cpu", "--json")
    result = run_with_fake_module(module, text, tmp_path, *report)
    assert result.code == 0, result.err
    row, cpu = result.document["devices"]
    assert cpu["available"]
    assert not row["available"]
    assert expected in row["blocker"]


def test_broken_library_does_not_affect_other_devices(tmp_path: Path) -> None:
    """A broken library affects no caller that does not name it; a chain skips it."""
    for module in ("jax", "cupy"):
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text("raise SystemExit(9)")
    (tmp_path / "torch.py").write_text("1 / 0")
    result = run_forked("-c", FALLBACK_PROGRAM, tmp_path)
    assert result.code == 0, result.err


def test_naming_a_broken_library_gives_one_clear_error(tmp_path: Path) -> None:
    module, label, text, expected = BROKEN_MODULES["no native half"]
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n3,4\n")
    welch = ("welch", file, "--fs", "1", "--device", label)
    result = run_with_fake_module(module, text, tmp_path, *welch)
    assert result.code == 3
    (line,) = result.err.splitlines()
    assert line.startswith(f"rlxweb: open device '{label}': ")
    assert expected in line


FATAL_MODULES = {
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
    "abort": ("import os\nprint('last words')\nos.abort()", "SIGABRT"),
    "silent end": ("import os\nos._exit(7)", "exit code 7"),
    "hang": ("import time\ntime.sleep(3600)", "it did not load within 1 s"),
    "busy hang": ("while True:\n    pass", "it did not load within 1 s"),
}
UNUSABLE_MODULES = {
    "RuntimeError": ("raise RuntimeError('no kernel image')", "no kernel image"),
    "SystemExit": ("raise SystemExit(3)", "SystemExit: 3"),
    "SyntaxError": ("def (:", "SyntaxError"),
    "empty package": ("", "ImportError: cannot import name"),
    "old version": (
        "__version__ = '0.1.0'",
        "cupy 0.1.0 found, 13.4 or newer required",
    ),
    "no devices": ("__version__ = '13.4.0'", "ImportError: cannot import name"),
}
# Asks a device by every door; of the other libraries of the machine only where the
# word "all" stands behind its label. Where the word "wgpu" stands there, the one that
# this process was forked with is as if it had not been loaded. Only a hang is waited
# for with a short deadline, which nothing else may miss on a slow machine.
QUERY_PROGRAM = """
import contextlib, io, json, sys
folder, label, *more = sys.argv[1:]
sys.path.insert(0, folder)
if "wgpu" in more:
    for name in [n for n in sys.modules if n.partition(".")[0] == "wgpu"]:
        del sys.modules[name]
import numpy as np, rlxweb as rlx
from rlxweb.cli.main import main
if "hang" in more:
    import rlxweb.core.library_crash_probe
    rlxweb.core.library_crash_probe.DEADLINE_S = 1
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


def write_fake_module(
    module: str, text: str, folder: Path, *, driver: bool
) -> dict[str, str]:
    """Write a fake module and, on request, a fake NVIDIA driver; return the
    environment.

    The driver is any library under its name: only whether it loads is asked.
    """
    package_folder = folder.joinpath(*module.split("."))
    package_folder.mkdir(parents=True)
    (package_folder / "__init__.py").write_text(text, "utf-8")
    env = {"RLX_CACHE_DIR": str(folder / "cache"), "VK_ICD_FILENAMES": ""}
    return env | ({"LD_LIBRARY_PATH": str(fake_nvidia_driver())} if driver else {})


@cache
def fake_nvidia_driver() -> Path:
    """Return a folder with a fake NVIDIA driver, created once per process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    maps = Path("/proc/self/maps").read_text().split()
    libm = next(word for word in maps if "/libm.so" in word or "/libm-" in word)
    shutil.copy(libm, folder / "libcuda.so.1")
    return folder


def query_device(
    label: str, folder: Path, failure: str = "", *flags: str, **env: str
) -> dict[str, Any]:
    """Run a program that asks for a device and return the JSON it prints.

    The modules of `folder` are found first. The program is a fork of a process that has
    loaded wgpu and no other library.
    """
    program_flags = [failure.rpartition(" ")[2], *flags]
    if "all" not in flags:
        env |= {"RLX_DEVICES": f"{label},cpu", "RLX_FAST": "off"}
    program = ("-c", QUERY_PROGRAM, folder, label, *program_flags)
    result = run_forked(*program, is_common=True, **env)
    assert result.code == 0, result.err
    return result.document


@pytest.mark.parametrize(
    ("failure", "driver"),
    [
        *((why, True) for why in (*FATAL_MODULES, *UNUSABLE_MODULES)),
        ("segmentation fault", False),
    ],
)
def test_cuda_library_cannot_end_or_block_the_process(
    failure: str, driver: bool, tmp_path: Path
) -> None:
    """A broken CUDA library ends and blocks nothing; naming the device gives the
    reason.
    """
    text, expected = {**FATAL_MODULES, **UNUSABLE_MODULES}[failure]
    env = write_fake_module("cupy", text, tmp_path, driver=driver)
    flags = ("all",) if failure == "abort" else ()
    reply = query_device("cuda", tmp_path, failure, *flags, **env)
    assert "cpu" in reply["found"]
    assert "cuda" not in reply["found"]
    assert (expected if driver else "no NVIDIA driver") in reply["reason"]
    assert reply["auto"] == [2, 2, 2, 2]
    row, cpu = sorted(reply["rows"], key=lambda row: row["device"] == "cpu")
    assert cpu["available"]
    assert (expected if driver else "no NVIDIA driver") in row["blocker"]


@pytest.mark.parametrize(
    ("failure", "module", "label"),
    [
        ("segmentation fault", "torch", "torch-cpu"),
        ("abort", "jax", "jax-cpu"),
        ("hang", "mlx.core", "mlx"),
    ],
)
def test_cpu_library_cannot_end_or_block_the_process(
    failure: str, module: str, label: str, tmp_path: Path
) -> None:
    text, expected = FATAL_MODULES[failure]
    env = write_fake_module(module, text, tmp_path, driver=False)
    assert expected in query_device(label, tmp_path, failure, **env)["reason"]


@pytest.mark.parametrize("failure", ["segmentation fault", "hang"])
@pytest.mark.parametrize("module", ["wgpu", "wgpudawn"])
def test_webgpu_library_cannot_end_or_block_the_process(
    failure: str, module: str, tmp_path: Path
) -> None:
    text, expected = FATAL_MODULES[failure]
    env = write_fake_module(module, text, tmp_path, driver=False)
    label = "gpu" if module == "wgpu" else "dawn"
    reply = query_device(label, tmp_path, failure, module, **env)
    assert expected in reply["reason"]


@pytest.mark.parametrize(
    ("module", "label", "needed"),
    [
        ("torch", "torch-cpu", "torch 0.1.0 found, 2.6 or newer required"),
        ("jax", "jax-cpu", "jax 0.1.0 found, 0.8 or newer required"),
        ("mlx.core", "mlx", "mlx.core 0.1.0 found, 0.29 or newer required"),
        ("wgpu", "gpu", "wgpu 0.1.0 found, 0.32 or newer required"),
    ],
)
def test_an_old_version_is_an_error_with_both_versions(
    module: str, label: str, needed: str, tmp_path: Path
) -> None:
    """The bounds are those of pyproject.toml."""
    env = write_fake_module(module, "__version__ = '0.1.0'", tmp_path, driver=False)
    reply = query_device(label, tmp_path, "", module, **env)
    assert needed in reply["reason"]


def test_library_that_crashes_while_counting_devices_is_reported(
    tmp_path: Path,
) -> None:
    """Report a library that ends the process when its GPUs are counted."""
    text = (
        "__version__ = '2.9'\nimport ctypes\nclass version: cuda = '12'; hip = None\n"
        "class cuda:\n    is_available = staticmethod(lambda: ctypes.string_at(0))\n"
    )
    env = write_fake_module("torch", text, tmp_path, driver=True)
    compat = tmp_path / "array_api_compat"
    compat.mkdir()
    (compat / "__init__.py").write_text("__version__ = '1.12'")
    (compat / "torch.py").touch()
    info = tmp_path / "torch-2.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9\n")
    assert "SIGSEGV" in query_device("cuda", tmp_path, **env)["reason"]


def test_probe_result_is_cached_until_the_library_changes(tmp_path: Path) -> None:
    """A second process does not load what ended a first one."""
    count = tmp_path / "count"
    text = f"open({str(count)!r}, 'a').write('x')\nimport os\nos._exit(7)\n"
    env = write_fake_module("torch", text, tmp_path, driver=False)
    arguments = (tmp_path, "devices", "torch-cpu", "--json")
    for _ in range(2):
        result = run_forked("-c", MAIN_WITH_FOLDER, *arguments, **env)
        assert "exit code 7" in result.document["devices"][0]["blocker"]
        assert count.read_text() == "x"
    (tmp_path / "torch" / "__init__.py").write_text(text + "# another build\n")
    run_forked("-c", MAIN_WITH_FOLDER, *arguments, **env)
    assert count.read_text() == "xx"


def test_damaged_probe_cache_is_ignored(tmp_path: Path) -> None:
    env = write_fake_module("torch", "import os; os._exit(7)", tmp_path, driver=False)
    cache = tmp_path / "cache"
    cache.mkdir()
    text = '{"a": 1, "b": {"problem": 2, "unix_s": "x"}, "c": null, "d": {}}'
    (cache / "library-probes.json").write_text(text)
    arguments = (tmp_path, "devices", "torch-cpu", "--json")
    result = run_forked("-c", MAIN_WITH_FOLDER, *arguments, **env)
    assert "exit code 7" in result.document["devices"][0]["blocker"]


def test_an_engine_of_another_package_cannot_end_the_process(tmp_path: Path) -> None:
    """Another package's engine cannot end the process when its row is read."""
    text, expected = FATAL_MODULES["segmentation fault"]
    env = write_fake_module("shiny", text, tmp_path, driver=False)
    info = tmp_path / "shiny-1.0.dist-info"
    info.mkdir()
    metadata = "Metadata-Version: 2.1\nName: shiny\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata)
    (info / "entry_points.txt").write_text("[rlxweb.backends]\nshiny = shiny:row\n")
    reason = query_device("shiny", tmp_path, **env)["reason"]
    assert "shiny 1.0: it is installed but cannot be used" in reason
    assert expected in reason


def test_compiler_that_ends_the_process_is_reported(
    tmp_path: Path,
) -> None:
    text, expected = FATAL_MODULES["segmentation fault"]
    env = write_fake_module("llvmlite", text, tmp_path, driver=False)
    devices = (tmp_path, "devices", "cpu", "--json")
    result = run_forked("-c", MAIN_WITH_FOLDER, *devices, RLX_FAST="wait", **env)
    assert result.code == 0, result.err
    assert result.document["compiled_code"].startswith("none: llvmlite cannot be used")
    assert expected in result.document["compiled_code"]


def test_smoke_reports_a_library_that_ends_the_process(tmp_path: Path) -> None:
    env = write_fake_module(
        "torch", "import ctypes\nctypes.string_at(0)", tmp_path, driver=False
    )
    report = tmp_path / "report.json"
    arguments = (
        "smoke",
        "--device",
        "torch-cpu",
        "-k",
        "samples/exp*",
        "--json",
        report,
    )
    path = f"{tmp_path}:{Path(__file__).parents[2]}"  # its children find it too
    code = f"import os\nos.environ['PYTHONPATH'] = {path!r}\n{MAIN_WITH_FOLDER}"
    result = run_forked("-c", code, tmp_path, *arguments, **env)
    assert result.code == 1, result
    assert "SIGSEGV" in result.out + result.err


def test_the_child_of_an_isolated_interpreter_is_isolated(tmp_path: Path) -> None:
    own_folder = tmp_path / "own"
    own_folder.mkdir()
    marker = tmp_path / "hit"
    (own_folder / "json.py").write_text(f"open({str(marker)!r}, 'w')\n")
    env = write_fake_module("torch", "import os; os._exit(7)", tmp_path, driver=False)
    env["PYTHONPATH"] = str(own_folder)
    code = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(Path(__file__).parents[2])!r}]
from rlxweb import devices
from rlxweb.core.library_crash_probe import library_problem
probe = "rlxweb.core.library_crash_probe:import_module"
print(library_problem("torch", probe, "torch"))
"""
    result = run_python("-I", "-c", code, **env)
    assert result.code == 0, result.err
    assert not marker.exists()


def test_probe_that_cannot_start_reports_no_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(library_crash_probe, "_CHILD_PROGRAM", "raise SystemExit(9)")
    assert library_crash_probe.library_problem("no_such_module", "no:way") == ""


def test_no_probe_process_in_browsers_and_embedded_interpreters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", fail)
    for name, value in (("platform", "emscripten"), ("executable", "/opt/blender")):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, value)
            assert library_crash_probe.library_problem("no_such_module", "no:way") == ""


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("0.31.9", "0.31.9 found, 0.32 or newer required"),
        ("0.33.0", "0.33.0 found, a version before 0.33 required"),
        ("1.0", "1.0 found, a version before 0.33 required"),
        ("0.32", ""),
        ("0.32.0rc1", ""),
        ("0.32.5+local", ""),
        ("unknown", ""),
        (None, ""),
    ],
)
def test_versions_are_compared_as_numbers(version: object, problem: str) -> None:
    assert version_problem(version, "wgpu") == problem
