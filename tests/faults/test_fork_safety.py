"""Forks of a process that used a GPU: the child computes or reports why not, and ends.

Every child has a deadline of its own; one that hangs is killed by it, which the exit
status tells.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rlxweb.core.fork_safety import ForkSafeLock, cached_property
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.io.read_ahead import MAX_BLOCK_NBYTES, ReadAheadFile
from tests.cli_runners import run_forked, run_python
from tests.run_in_threads import WAIT_S, start_threads

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

DEADLINE_S = 30
CHILD_PROGRAM = """
import os, signal, sys

def child(work, leave=sys.exit):
    pid = os.fork()
    if pid == 0:
        signal.alarm({deadline})
        work()
        leave(7)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
SETUP_PROGRAM = """
import numpy as np
import rlxweb as rlx
from rlxweb.core.errors import DeviceError

x = np.random.default_rng(0).standard_normal((4, 1000)).astype("f4")
here = dict(device={device!r}, adapter={name!r})
right = rlx.welch_peaks(x, device="cpu").bins
assert (rlx.welch_peaks(x, **here).bins == right).all()
graph = rlx.Graph("doubling")
graph.set_outputs([graph.input("x", (3,)) * 2.0])
three = {{"x": np.ones(3, "f4")}}
session = lambda: rlx.Session({device!r}, adapter={name!r})
compiled = session().compile(graph)
compiled.run(three)

def refused(work):
    try:
        work()
    except DeviceError as error:
        assert "forked" in str(error) and "spawn" in str(error), error
    else:
        raise AssertionError("it was not refused")
"""
CHILD_TASKS = {
    "nothing": "pass",
    "the CPU": "assert (rlx.welch_peaks(x, device='cpu').bins == right).all()",
    "auto": """
        found = rlx.welch_peaks(np.tile(x, (500, 1)))
        assert found.device is rlx.Device.CPU
        assert "forked" in found.explain(), found.explain()""",
    "welch_peaks": "refused(lambda: rlx.welch_peaks(x, **here))",
    "a new session": "refused(session)",
    "an old graph": "refused(lambda: compiled.run(three))",
    "an old graph, closed": "compiled.close()",
    "devices": "assert rlx.available_devices() == (rlx.Device.CPU,)",
    "GraphDevices": """
        of_mine = rlx.GraphDevices(graph, rlx.DevicePolicy.from_env())
        device, outs = of_mine.run_chain(inputs=three)
        assert device is rlx.Device.CPU and outs[0].tolist() == [2, 2, 2]""",
}


def setup_program_for(adapter: AdapterRequest) -> str:
    """Return the program text that uses an adapter before it forks."""
    (device,) = adapter.backends
    return (CHILD_PROGRAM + SETUP_PROGRAM).format(
        device=device, name=adapter.name, deadline=DEADLINE_S
    )


@pytest.mark.requires_wgpu
def test_child_of_a_process_that_used_a_gpu(adapter: AdapterRequest) -> None:
    """A child of a process that used a GPU gets right results or an error at every
    entry point.

    Nothing hangs, and nothing crashes at exit.
    """
    code = setup_program_for(adapter)
    for work in CHILD_TASKS.values():
        code += f"def work():\n    {work.strip()}\nchild(work)\n".replace(
            "\n        ", "\n    "
        )
    code += "assert compiled.run(three)[0].tolist() == [2, 2, 2]\n"
    result = run_forked("-c", code, RLX_CALIBRATION="off")
    assert result.code == 0, result.err
    assert dict(
        zip(CHILD_TASKS, map(int, result.out.split()), strict=True)
    ) == dict.fromkeys(CHILD_TASKS, 7), result.err


@pytest.mark.full("torch-cpu")
@pytest.mark.parametrize("device", ["torch-cpu", "jax-cpu", "mlx"])
def test_child_of_a_process_that_used_an_array_library(device: str) -> None:
    """A child of a process that used an array library gets an error at every entry
    point.

    The library's threads are not there, and the child ends.

    No GPU is looked for, which under load takes longer than a deadline. JAX's clean-up
    crashes in any fork; multiprocessing's children leave without it.
    """
    leave = "os._exit" if device == "jax-cpu" else "sys.exit"
    works = {k: w for k, w in CHILD_TASKS.items() if k not in ("devices", "auto")}
    code = "import warnings\nwarnings.simplefilter('ignore')\n"  # JAX warns of forks
    code += (CHILD_PROGRAM + SETUP_PROGRAM).format(
        device=device, name="", deadline=DEADLINE_S
    )
    for work in works.values():
        code += f"def work():\n    {work.strip()}\nchild(work, {leave})\n".replace(
            "\n        ", "\n    "
        )
    code += "assert compiled.run(three)[0].tolist() == [2, 2, 2]\n"
    result = run_forked("-c", code, RLX_CALIBRATION="off", RLX_DEVICES=f"{device},cpu")
    assert result.code == 0, result.err
    assert [*map(int, result.out.split())] == [7] * len(works), result.err


@pytest.mark.requires_wgpu
def test_pool_of_forked_workers(adapter: AdapterRequest) -> None:
    """Pools of workers forked while a GPU is in use compute right."""
    code = (
        setup_program_for(adapter)
        + """
import multiprocessing, threading

def peaks(k):
    return rlx.welch_peaks(x * np.float32(k)).bins

busy = True
def keep_busy():
    while busy:
        rlx.welch_peaks(x, **here)

threads = [threading.Thread(target=keep_busy, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
signal.alarm(60)
for _ in range(3):
    with multiprocessing.get_context("fork").Pool(2) as workers:
        for bins in workers.map(peaks, range(1, 5)):
            assert (bins == right).all()
busy = False
for thread in threads:
    thread.join()
assert (rlx.welch_peaks(x, **here).bins == right).all()
"""
    )
    result = run_forked("-c", code, RLX_CALIBRATION="off")
    assert result.code == 0, result.err


def test_lock_held_by_a_parent_thread_is_open_in_the_child() -> None:
    """A lock that a parent's thread holds is open in a child."""
    lock, is_held, may_finish = ForkSafeLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            may_finish.wait(WAIT_S)

    (thread,) = start_threads([hold])
    assert is_held.wait(WAIT_S)
    try:
        child = multiprocessing.get_context("fork").Process(target=lock.__enter__)
        child.start()
        child.join(DEADLINE_S)
        assert child.exitcode == 0
    finally:
        may_finish.set()
        thread.join(WAIT_S)


SLOW_MODULE_TEXT = """
import __main__
__main__.loading[__name__].set()
__main__.go[__name__].wait(60)
"""
LOADING_PROGRAM = """
import threading
import rlxweb as rlx
from rlxweb.core import fork_safety

rlx.Device
sys.path.insert(0, {folder!r})
names = "endless", "slow"
loading, go = ({{name: threading.Event() for name in names}} for _ in names)
threads = {{name: threading.Thread(target=__import__, args=(name,)) for name in names}}

def load(name):
    threads[name].start()
    loading[name].wait()

load("endless")
fork_safety.MODULE_LOAD_TIMEOUT_S = 0.05
child(lambda: None, os._exit)  # it does not keep a fork for ever,
fork_safety.MODULE_LOAD_TIMEOUT_S = 3600
child(lambda: None, os._exit)  # and not a second time
load("slow")
threading.Timer(0.2, go["slow"].set).start()
child(lambda: __import__("slow"), os._exit)
go["endless"].set()
for thread in threads.values():
    thread.join()
"""


def test_fork_waits_for_imports_of_other_threads(tmp_path: Path) -> None:
    """A fork waits for imports: Python leaves the lock of a half-loaded module locked
    in the child.
    """
    for name in ("slow", "endless"):
        (tmp_path / f"{name}.py").write_text(SLOW_MODULE_TEXT)
    code = (CHILD_PROGRAM + LOADING_PROGRAM).format(folder=str(tmp_path), deadline=10)
    result = run_python("-c", code)
    assert result.code == 0, result.err
    assert result.out.split() == ["7", "7", "7"]


LLVM_SETUP = """
import threading
import llvmlite.binding as llvm
from ctypes import c_int64
from rlxweb.codegen import llvm_compiler
from rlxweb.ops.welch.cpu.llvm_kernel import WelchKernel

SMALL = "define i64 @next(i64 %n) {\\n %m = add i64 %n, 1\\n ret i64 %m\\n}\\n"
nbytes = llvm_compiler.host_cpu().vector_nbytes
large = WelchKernel(32, nbytes, "float", "constant", "float", 1).llvm_ir()

def compile_one():
    code = llvm_compiler.LoadedCode(llvm_compiler.compile_object(SMALL))
    assert code.get_function("next", c_int64, c_int64)(41) == 42
"""
BUSY_LLVM_PROGRAM = """
done = threading.Event()

def by_us():
    while not done.is_set():
        llvm_compiler.compile_object(large)

def by_others():  # Numba, say: they share llvmlite and its lock
    target = llvm.Target.from_default_triple().create_target_machine(opt=0)
    while not done.is_set():
        target.emit_object(llvm.parse_assembly(large))

threads = [threading.Thread(target=work) for work in (by_us, by_others)]
for thread in threads:
    thread.start()
for _ in range({forks}):
    child(compile_one, os._exit)
done.set()
for thread in threads:
    thread.join()
"""


@pytest.mark.requires_fast
@pytest.mark.parametrize("forks", [10, pytest.param(100, marks=pytest.mark.full)])
def test_forks_while_llvm_compiles(forks: int) -> None:
    """A fork waits for the LLVM call in progress, so that each child compiles."""
    code = BUSY_LLVM_PROGRAM.replace("{forks}", str(forks))
    result = run_forked(
        "-c", CHILD_PROGRAM.format(deadline=DEADLINE_S) + LLVM_SETUP + code
    )
    assert result.code == 0, result.err
    assert result.out.split() == ["7"] * forks


COMPILING_PROGRAM = """
import multiprocessing, threading
import numpy as np
import rlxweb as rlx
from rlxweb.codegen import jit_cache

# In the background too, the first use asks for a kernel.
jit_cache.COMPILE_AFTER_S = 0.0
x = np.random.default_rng(0).standard_normal((64, 4000)).astype("f4")
rlx.welch_peaks(x, nperseg=64, device="cpu")  # loads what it needs

def work(first, count, steps):
    # Each function compiles in another queue than each estimate.
    for n in range(first, first + 2 * count, 2):
        found = rlx.welch_peaks(x, nperseg=n, device="cpu").power
        f = rlx.function(lambda v: np.exp(-v * v) + n, device="cpu")
        assert np.allclose(f(x), np.exp(-x * x) + n, rtol=1e-5)
        assert np.isfinite(found).all()
        steps()

many = threading.Event()
busy = threading.Thread(target=work, args=(100, {count}, many.set))
busy.start()
many.wait()
fork = multiprocessing.get_context("fork")
for k in range({children}):
    one = fork.Process(target=work, args=(300 + 20 * k, 1, lambda: None))
    one.start()
    one.join({deadline})
    print(one.exitcode, flush=True)
    one.kill()
busy.join()
"""


@pytest.mark.requires_fast
@pytest.mark.parametrize("mode", ["wait", "background"])
@pytest.mark.parametrize(
    ("children", "count"), [(2, 8), pytest.param(8, 30, marks=pytest.mark.full)]
)
def test_children_forked_while_kernels_compile(
    mode: str, children: int, count: int, tmp_path: Path
) -> None:
    """Multiprocessing's children join their threads, including the one that
    compiles.
    """
    code = COMPILING_PROGRAM
    parameters = {"deadline": DEADLINE_S, "children": children, "count": count}
    for name, number in parameters.items():
        code = code.replace(f"{{{name}}}", str(number))
    env = {"RLX_FAST": "wait"} if mode == "wait" else {}
    env |= {"RLX_CACHE_DIR": str(tmp_path), "RLX_CALIBRATION": "off"}
    result = run_forked("-c", code, **env)
    assert result.code == 0, result.err
    assert result.out.split() == ["0"] * children


BROKEN_LOCK_PROGRAM = """
import sys, warnings
import numpy as np
import rlxweb as rlx
from rlxweb.core.errors import AdapterMissing

warnings.simplefilter("error")
x = np.random.default_rng(0).standard_normal((4, 4000)).astype("f4")
right = rlx.welch_peaks(x, nperseg=100, device="cpu").bins
held = llvm_compiler.LoadedCode(llvm_compiler.compile_object(SMALL))
begun, done = threading.Event(), threading.Event()

def call():
    with llvm_compiler._llvmlite_lock():  # a call of LLVM that does not end
        begun.set()
        done.wait()

thread = threading.Thread(target=call)
thread.start()
begun.wait()
llvm_compiler.llvm_calls.timeout_s = 0.05

def work():
    global held
    del held  # what would free it waits for the lock
    for _ in range(2):
        try:
            compile_one()
        except AdapterMissing as error:
            assert "forked this process during a call to LLVM" in str(error)
            assert "spawn" in str(error)
        else:
            raise AssertionError("it was not refused")
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        for n in (100, 102):
            rlx.welch_peaks(x, nperseg=n, device="cpu").bins
    assert (rlx.welch_peaks(x, nperseg=100, device="cpu").bins == right).all()
    (said,) = [str(one.message) for one in noted]
    assert "NumPy computes" in said
    assert "forked this process during a call to LLVM" in said
    grandchild = os.fork()  # and it does not wait again
    if not grandchild:
        os._exit(0)
    assert os.waitpid(grandchild, 0)[1] == 0

child(work)
done.set()
thread.join()
child(compile_one)
"""


@pytest.mark.requires_fast
def test_child_of_a_fork_that_could_not_wait_uses_no_llvm(
    tmp_path: Path,
) -> None:
    """A child of a fork that could not wait for LLVM reports so and computes with
    NumPy.

    Nothing that is freed or forked hangs.
    """
    code = CHILD_PROGRAM.format(deadline=DEADLINE_S) + LLVM_SETUP + BROKEN_LOCK_PROGRAM
    result = run_forked("-c", code, RLX_FAST="wait", RLX_CACHE_DIR=str(tmp_path))
    assert result.code == 0, result.err
    assert result.out.split() == ["7", "7"]


class SlowProperty:
    """Object whose cached property waits for an event."""

    def __init__(self, started: threading.Event, may_finish: threading.Event) -> None:
        self.started, self.may_finish = started, may_finish

    @cached_property
    def value(self) -> int:
        self.started.set()
        assert self.may_finish.wait(WAIT_S)
        return 1


def child_exit_code(target: Callable[[], object]) -> int | None:
    """Run work in a forked child and return its exit code."""
    child = multiprocessing.get_context("fork").Process(target=target)
    child.start()
    child.join(DEADLINE_S)
    code = child.exitcode
    child.kill()
    child.join(DEADLINE_S)
    return code


def test_cached_property_being_computed_is_computed_in_the_child() -> None:
    """A child computes a value while a thread of its parent computes another object's.

    Before Python 3.12 there was one lock for all objects of a class.
    """
    started = threading.Event()
    may_finish = threading.Event()
    finished = threading.Event()
    slow, quick = SlowProperty(started, may_finish), SlowProperty(finished, finished)
    (thread,) = start_threads([lambda: slow.value])
    try:
        assert started.wait(WAIT_S)
        assert child_exit_code(lambda: quick.value) == 0
    finally:
        may_finish.set()
        thread.join(WAIT_S)


def test_block_being_fetched_is_fetched_in_the_child() -> None:
    """The child fetches a block itself: the thread that claimed it does not exist
    there.
    """
    parent, started, may_finish = os.getpid(), threading.Event(), threading.Event()

    def fetch(start: int, stop: int) -> bytes:
        if start and os.getpid() == parent:
            started.set()
            assert may_finish.wait(WAIT_S)
        return bytes(stop - start)

    file = ReadAheadFile(fetch, 3 * MAX_BLOCK_NBYTES)

    def read() -> None:
        assert file.read_at(MAX_BLOCK_NBYTES, 10) == bytes(10)

    (thread,) = start_threads([read])
    try:
        assert started.wait(WAIT_S)
        assert child_exit_code(read) == 0
    finally:
        may_finish.set()
        thread.join(WAIT_S)
