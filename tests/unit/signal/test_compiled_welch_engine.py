"""Compiled Welch code as one more candidate of the CPU: reported, picked when ready,
not awaited.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.batch import recording_analysis
from rlxweb.batch.recording_analysis import analyse_file
from rlxweb.batch.settings import Settings
from rlxweb.codegen import jit_cache
from rlxweb.engines.protocol import CPU_IDENTITY
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.signal.compiled_welch_engine import ENGINE_NAME
from tests.cli_runners import run_forked, run_python

HERE = Path(__file__)
X = np.random.default_rng(0).standard_normal((40, 1200)).astype(np.float32)
WELCH_PROGRAM = (
    "import numpy as np, rlxweb as rlx\n"
    "x = np.random.default_rng(0).standard_normal((400, 1200)).astype(np.float32)\n"
    "call = lambda: rlx.welch_peaks(x, 256, nperseg=120, device='cpu')\n"
)


@pytest.mark.requires_fast
def test_numpy_serves_until_a_kernel_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The decision names the engine before and after; the numbers are the same."""
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(jit_cache, "COMPILE_AFTER_S", 0.0)
    welch_kernels._kernels.clear()
    first = rlx.welch_peaks(X, 100, nperseg=222, device="cpu")
    assert first.engine.startswith("NumPy")
    waits = {
        c.how: c.blocker for c in first.decision.candidates if c.strategy == "fast"
    }
    assert waits == {"host": "", "compiled": jit_cache.NOT_COMPILED}
    welch_kernels.wait_until_idle(60)
    second = rlx.welch_peaks(X, 100, nperseg=222, device="cpu")
    assert second.engine == ENGINE_NAME
    assert "next best: fast on NumPy" in second.decision.why
    np.testing.assert_array_equal(first.bins, second.bins)
    np.testing.assert_allclose(first.power, second.power, 1e-6)


@pytest.mark.requires_fast
def test_wait_mode_compiles_for_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """`welch` and `welch_peaks` share the kernel; integers have their own."""
    monkeypatch.setenv("RLX_FAST", "wait")
    changes_before = welch_kernels.change_count
    result = rlx.welch_peaks(X, 100, nperseg=88, preset="scipy", device="cpu")
    assert result.engine == ENGINE_NAME
    _, power = rlx.welch(X, 100, nperseg=88, device="cpu")
    np.testing.assert_array_equal(result.power[:, 0], power.max(axis=1))
    assert welch_kernels.change_count == changes_before + 1
    counts = (X * 1000).astype(np.int16)
    _, exact = rlx.welch(rlx.Digital(counts, 1e-3), 100, nperseg=88, device="cpu")
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, power, 2e-2)


@pytest.mark.requires_fast
def test_estimates_without_a_kernel_use_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision gives the reason."""
    monkeypatch.setenv("RLX_FAST", "wait")
    compiled_result = rlx.welch_peaks(
        X.astype(complex).real[:, :120], 100, 60, device="cpu"
    )
    assert compiled_result.engine == ENGINE_NAME
    numpy_result = rlx.welch_peaks(np.ones((1, 1 << 17)), 100, 1 << 17, device="cpu")
    assert numpy_result.engine.startswith("NumPy")
    blocked = [
        c.blocker for c in numpy_result.decision.candidates if c.how == "compiled"
    ]
    assert "65,536" in blocked[0]


@pytest.mark.requires_fast
def test_only_large_recordings_are_compiled_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only a recording's size decides whether code is compiled for it, whatever ran
    before.
    """
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(recording_analysis, "MIN_COMPILED_SAMPLES", 50_000)
    engines = {}
    for n_samples in (1000, 6000, 1000):
        path = tmp_path / f"{n_samples}.npy"
        np.save(path, np.random.default_rng(0).standard_normal((9, n_samples)))
        settings = Settings(fs=100.0, nperseg=90, device="cpu")
        (group,) = analyse_file(str(path), settings).groups
        engines.setdefault(n_samples, set()).add(group.engine)
    assert engines == {1000: {CPU_IDENTITY.name}, 6000: {ENGINE_NAME}}


def program_with_broken_llvmlite(tmp_path: Path, text: str) -> str:
    """Return the beginning of a program that imports another llvmlite first."""
    package = tmp_path / "llvmlite"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '0.1'\n")
    (package / "binding.py").write_text(text)
    return (
        "import sys\n"
        "assert 'llvmlite' not in sys.modules\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise OSError('libllvm.so: cannot open')", "llvmlite cannot be loaded"),
        ("llvm_version_info = (11, 1, 0)", "llvmlite 0.1 is too old"),
        ("def nothing(): pass", "llvmlite cannot be loaded"),
    ],
)
def test_broken_llvmlite_is_reported_once(
    tmp_path: Path, text: str, reason: str
) -> None:
    """NumPy serves, one line gives the reason, and llvmlite is not tried again."""
    code = (
        program_with_broken_llvmlite(tmp_path, text)
        + WELCH_PROGRAM
        + "for _ in range(3): found = call()\n"
    )
    code += "print(found.engine)\nprint(found.decision.candidates[-1].blocker)"
    completed = run_forked("-c", code, RLX_FAST="wait")
    engine, blocker = completed.out.splitlines()
    assert completed.code == 0
    assert engine.startswith("NumPy")
    assert reason in blocker
    (line, *_) = [
        line for line in completed.err.splitlines() if "KernelWarning" in line
    ]
    assert reason in line
    assert completed.err.count("KernelWarning") == 1


@pytest.mark.requires_fast
@pytest.mark.parametrize("folder", ["missing/file", "sealed"])
def test_unusable_cache_folder_is_tolerated(tmp_path: Path, folder: str) -> None:
    """The cache folder is a file, or cannot be written."""
    (tmp_path / "missing").write_text("a file")
    (tmp_path / "sealed").mkdir(mode=0o500)
    code = WELCH_PROGRAM + "print(call().engine)"
    cache_dir = str(tmp_path / folder)
    completed = run_forked("-c", code, RLX_FAST="wait", RLX_CACHE_DIR=cache_dir)
    assert (completed.code, completed.out.strip()) == (0, ENGINE_NAME)
    assert "Traceback" not in completed.err


@pytest.mark.requires_fast
def test_next_process_reuses_compiled_code(tmp_path: Path) -> None:
    """The next process reads the code from disk; a damaged file is compiled again."""
    code = WELCH_PROGRAM + "print(call().engine)\n"
    forbid_compile = (
        "from rlxweb.codegen import llvm_compiler\n"
        "def never(text): raise AssertionError('compiled again')\n"
        "llvm_compiler.compile_object = never\n"
    )
    wait = {"RLX_FAST": "wait", "RLX_CACHE_DIR": str(tmp_path)}
    assert run_forked("-c", code, **wait).out.strip() == ENGINE_NAME
    assert run_forked("-c", forbid_compile + code, **wait).out.strip() == ENGINE_NAME
    (file,) = (tmp_path / "kernels").iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    assert (
        run_forked("-c", forbid_compile + code, **wait).out.strip().startswith("NumPy")
    )
    assert run_forked("-c", code, **wait).out.strip() == ENGINE_NAME
    assert run_forked("-c", forbid_compile + code, **wait).out.strip() == ENGINE_NAME


@pytest.mark.requires_fast
def test_an_interpreter_may_end_while_a_kernel_compiles() -> None:
    """An interpreter ends while a kernel compiles, without a hang or a crash."""
    code = WELCH_PROGRAM + (
        "import sys, time\n"
        "from rlxweb.codegen import jit_cache\n"
        "jit_cache.COMPILE_AFTER_S = 0\n"
        "for n in range(40, 46): rlx.welch_peaks(x, 256, nperseg=n, device='cpu')\n"
        "time.sleep(float(sys.argv[1]))\n"
    )
    for pause in ("0", "0.05", "0.2"):
        completed = run_python("-c", code, pause, RLX_FAST="background")
        assert (completed.code, completed.err) == (0, "")


@pytest.mark.requires_fast
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_fork_computes_at_any_compile_state() -> None:
    """A forked process computes with threads started, kernels compiled, or one being
    compiled.
    """
    code = WELCH_PROGRAM + (
        "import os, time\n"
        "from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels\n"
        "from rlxweb.codegen import jit_cache\n"
        "jit_cache.COMPILE_AFTER_S = 0\n"
        "big = np.tile(x, (8, 1))\n"
        "def child(n, data):\n"
        "    want = rlx.welch_peaks(data, 256, nperseg=n, device='cpu')\n"
        "    if not (pid := os.fork()):\n"
        "        for _ in range(3):\n"
        "            got = rlx.welch_peaks(data, 256, nperseg=n, device='cpu')\n"
        "            welch_kernels.wait_until_idle(20)\n"
        "        os._exit(0 if (got.bins == want.bins).all() else 9)\n"
        "    return os.waitpid(pid, 0)[1]\n"
        "codes = [child(n, x) for n in range(80, 83)]\n"
        "welch_kernels.wait_until_idle()\n"
        "codes += [child(n, big) for n in range(80, 82)]\n"
        "print(codes)\n"
    )
    completed = run_python("-c", code, RLX_FAST="background")
    assert (completed.code, completed.out.strip()) == (0, str([0] * 5)), completed.err
