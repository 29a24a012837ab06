"""Compiled code as one more way of the CPU: told, picked when ready, not awaited."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.protocol import CPU_ENGINE
from rlxweb.host.welch_kernels import welch_kernels
from rlxweb.jobs import analysis
from rlxweb.jobs.analysis import analyse_file
from rlxweb.jobs.settings import Settings
from rlxweb.machine import workshop
from rlxweb.signal.compiled_engine import NAME
from tests.command_line import forked, python

HERE = Path(__file__)
X = np.random.default_rng(0).standard_normal((40, 1200)).astype(np.float32)
WELCH = (
    "import numpy as np, rlxweb as rlx\n"
    "x = np.random.default_rng(0).standard_normal((400, 1200)).astype(np.float32)\n"
    "call = lambda: rlx.welch_peaks(x, 256, nperseg=120, device='cpu')\n"
)


@pytest.mark.requires_fast
def test_numpy_serves_until_a_kernel_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision says so before and after; the numbers are the same."""
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(workshop, "WORTH_S", 0.0)
    welch_kernels._made.clear()
    first = rlx.welch_peaks(X, 100, nperseg=222, device="cpu")
    assert first.engine.startswith("NumPy")
    waits = {
        c.how: c.blocker for c in first.decision.candidates if c.strategy == "fast"
    }
    assert waits == {"host": "", "compiled": workshop.NOT_YET}
    welch_kernels.finish(60)
    second = rlx.welch_peaks(X, 100, nperseg=222, device="cpu")
    assert second.engine == NAME
    assert "next, fast on NumPy" in second.decision.why
    np.testing.assert_array_equal(first.bins, second.bins)
    np.testing.assert_allclose(first.power, second.power, 1e-6)


@pytest.mark.requires_fast
def test_who_waits_is_served_by_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """`welch` and `welch_peaks` share the kernel; integers have their own."""
    monkeypatch.setenv("RLX_FAST", "wait")
    made = welch_kernels.changes
    found = rlx.welch_peaks(X, 100, nperseg=88, preset="scipy", device="cpu")
    assert found.engine == NAME
    _, power = rlx.welch(X, 100, nperseg=88, device="cpu")
    np.testing.assert_array_equal(found.power[:, 0], power.max(axis=1))
    assert welch_kernels.changes == made + 1
    counts = (X * 1000).astype(np.int16)
    _, exact = rlx.welch(rlx.Digital(counts, 1e-3), 100, nperseg=88, device="cpu")
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, power, 2e-2)


@pytest.mark.requires_fast
def test_what_has_no_kernel_goes_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason stands in the decision."""
    monkeypatch.setenv("RLX_FAST", "wait")
    many = rlx.welch_peaks(X.astype(complex).real[:, :120], 100, 60, device="cpu")
    assert many.engine == NAME
    wide = rlx.welch_peaks(np.ones((1, 1 << 17)), 100, 1 << 17, device="cpu")
    assert wide.engine.startswith("NumPy")
    blocked = [c.blocker for c in wide.decision.candidates if c.how == "compiled"]
    assert "65,536" in blocked[0]


@pytest.mark.requires_fast
def test_a_recording_is_compiled_for_by_its_size_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Recordings are compiled for by their size, whatever ran before."""
    monkeypatch.setenv("RLX_FAST", "background")
    monkeypatch.setattr(analysis, "COMPILED_SAMPLES", 50_000)
    engines = {}
    for n_samples in (1000, 6000, 1000):
        path = tmp_path / f"{n_samples}.npy"
        np.save(path, np.random.default_rng(0).standard_normal((9, n_samples)))
        settings = Settings(fs=100.0, nperseg=90, device="cpu")
        (group,) = analyse_file(str(path), settings).groups
        engines.setdefault(n_samples, set()).add(group.engine)
    assert engines == {1000: {CPU_ENGINE[0]}, 6000: {NAME}}


def broken(tmp_path: Path, text: str) -> str:
    """A program's beginning, for which another llvmlite comes first."""
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
    ("text", "why"),
    [
        ("raise OSError('libllvm.so: cannot open')", "llvmlite cannot be loaded"),
        ("llvm_version_info = (11, 1, 0)", "llvmlite 0.1 is too old"),
        ("def nothing(): pass", "llvmlite cannot be loaded"),
    ],
)
def test_a_library_that_does_not_work_is_named(
    tmp_path: Path, text: str, why: str
) -> None:
    """NumPy serves, one line says why, and it is not tried again."""
    code = broken(tmp_path, text) + WELCH + "for _ in range(3): found = call()\n"
    code += "print(found.engine)\nprint(found.decision.candidates[-1].blocker)"
    said = forked("-c", code, RLX_FAST="wait")
    engine, blocker = said.out.splitlines()
    assert said.code == 0
    assert engine.startswith("NumPy")
    assert why in blocker
    (line, *_) = [line for line in said.err.splitlines() if "KernelWarning" in line]
    assert why in line
    assert said.err.count("KernelWarning") == 1


@pytest.mark.requires_fast
@pytest.mark.parametrize("folder", ["missing/file", "sealed"])
def test_where_code_cannot_be_kept_it_is_made_each_time(
    tmp_path: Path, folder: str
) -> None:
    """A cache folder that is a file, or that cannot be written."""
    (tmp_path / "missing").write_text("a file")
    (tmp_path / "sealed").mkdir(mode=0o500)
    code = WELCH + "print(call().engine)"
    where = str(tmp_path / folder)
    said = forked("-c", code, RLX_FAST="wait", RLX_CACHE_DIR=where)
    assert (said.code, said.out.strip()) == (0, NAME)
    assert "Traceback" not in said.err


@pytest.mark.requires_fast
def test_the_next_process_need_not_compile(tmp_path: Path) -> None:
    """The next process reads the code from disk; a damaged file is made anew."""
    code = WELCH + "print(call().engine)\n"
    again = (
        "from rlxweb.machine import library\n"
        "def never(text): raise AssertionError('compiled again')\n"
        "library.object_code = never\n"
    )
    wait = {"RLX_FAST": "wait", "RLX_CACHE_DIR": str(tmp_path)}
    assert forked("-c", code, **wait).out.strip() == NAME
    assert forked("-c", again + code, **wait).out.strip() == NAME
    (file,) = (tmp_path / "kernels").iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    assert forked("-c", again + code, **wait).out.strip().startswith("NumPy")
    assert forked("-c", code, **wait).out.strip() == NAME
    assert forked("-c", again + code, **wait).out.strip() == NAME


@pytest.mark.requires_fast
def test_an_interpreter_may_end_while_a_kernel_compiles() -> None:
    """An interpreter ends while a kernel compiles, without a hang or a crash."""
    code = WELCH + (
        "import sys, time\n"
        "from rlxweb.machine import workshop\n"
        "workshop.WORTH_S = 0\n"
        "for n in range(40, 46): rlx.welch_peaks(x, 256, nperseg=n, device='cpu')\n"
        "time.sleep(float(sys.argv[1]))\n"
    )
    for pause in ("0", "0.05", "0.2"):
        said = python("-c", code, pause, RLX_FAST="background")
        assert (said.code, said.err) == (0, "")


@pytest.mark.requires_fast
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_computes_whatever_was_compiled_or_not() -> None:
    """A fork computes with threads started, kernels made, or one in the making."""
    code = WELCH + (
        "import os, time\n"
        "from rlxweb.host.welch_kernels import welch_kernels\n"
        "from rlxweb.machine import workshop\n"
        "workshop.WORTH_S = 0\n"
        "big = np.tile(x, (8, 1))\n"
        "def child(n, data):\n"
        "    want = rlx.welch_peaks(data, 256, nperseg=n, device='cpu')\n"
        "    if not (pid := os.fork()):\n"
        "        for _ in range(3):\n"
        "            got = rlx.welch_peaks(data, 256, nperseg=n, device='cpu')\n"
        "            welch_kernels.finish(20)\n"
        "        os._exit(0 if (got.bins == want.bins).all() else 9)\n"
        "    return os.waitpid(pid, 0)[1]\n"
        "codes = [child(n, x) for n in range(80, 83)]\n"
        "welch_kernels.finish()\n"
        "codes += [child(n, big) for n in range(80, 82)]\n"
        "print(codes)\n"
    )
    said = python("-c", code, RLX_FAST="background")
    assert (said.code, said.out.strip()) == (0, str([0] * 5)), said.err
