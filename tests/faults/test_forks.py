"""A process that used a GPU forks: the child computes or says why not, and ends.

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

from rlxweb.forked import ForkLock, cached_property
from rlxweb.gpu.port import Want
from rlxweb.io.read_ahead import LARGEST, BlockFile
from tests.command_line import forked, python
from tests.threads import WAIT_S, begin

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

DEADLINE_S = 30
CHILD = """
import os, signal, sys

def child(work, leave=sys.exit):
    pid = os.fork()
    if pid == 0:
        signal.alarm({deadline})
        work()
        leave(7)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
BEGIN = """
import numpy as np
import rlxweb as rlx
from rlxweb.errors import DeviceError

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
WORKS = {
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


def begin_on(adapter: Want) -> str:
    (device,) = adapter.backends
    return (CHILD + BEGIN).format(device=device, name=adapter.name, deadline=DEADLINE_S)


@pytest.mark.requires_wgpu
def test_a_child_of_a_process_that_used_a_gpu(adapter: Want) -> None:
    """A child of a process that used a GPU is right or refused, by every door.

    Nothing hangs, and nothing crashes at exit.
    """
    code = begin_on(adapter)
    for work in WORKS.values():
        code += f"def work():\n    {work.strip()}\nchild(work)\n".replace(
            "\n        ", "\n    "
        )
    code += "assert compiled.run(three)[0].tolist() == [2, 2, 2]\n"
    said = forked("-c", code, RLX_CALIBRATION="off")
    assert said.code == 0, said.err
    assert dict(zip(WORKS, map(int, said.out.split()), strict=True)) == dict.fromkeys(
        WORKS, 7
    ), said.err


@pytest.mark.full("torch-cpu")
@pytest.mark.parametrize("device", ["torch-cpu", "jax-cpu", "mlx"])
def test_a_child_of_a_process_that_used_an_array_library(device: str) -> None:
    """A child of a process that used an array library is refused by every door.

    The library's threads are not there, and the child ends.

    No GPU is looked for, which under load takes longer than a deadline. JAX's clean-up
    crashes in any fork; multiprocessing's children leave without it.
    """
    leave = "os._exit" if device == "jax-cpu" else "sys.exit"
    works = {k: w for k, w in WORKS.items() if k not in ("devices", "auto")}
    code = "import warnings\nwarnings.simplefilter('ignore')\n"  # JAX warns of forks
    code += (CHILD + BEGIN).format(device=device, name="", deadline=DEADLINE_S)
    for work in works.values():
        code += f"def work():\n    {work.strip()}\nchild(work, {leave})\n".replace(
            "\n        ", "\n    "
        )
    code += "assert compiled.run(three)[0].tolist() == [2, 2, 2]\n"
    said = forked("-c", code, RLX_CALIBRATION="off", RLX_DEVICES=f"{device},cpu")
    assert said.code == 0, said.err
    assert [*map(int, said.out.split())] == [7] * len(works), said.err


@pytest.mark.requires_wgpu
def test_a_pool_of_forked_workers(adapter: Want) -> None:
    """Pools of forked workers are right, made while a GPU is used."""
    code = (
        begin_on(adapter)
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
    said = forked("-c", code, RLX_CALIBRATION="off")
    assert said.code == 0, said.err


def test_a_lock_held_elsewhere_is_open_in_a_child() -> None:
    """A lock that a parent's thread holds is open in a child."""
    lock, held, done = ForkLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(WAIT_S)

    (thread,) = begin([hold])
    assert held.wait(WAIT_S)
    try:
        child = multiprocessing.get_context("fork").Process(target=lock.__enter__)
        child.start()
        child.join(DEADLINE_S)
        assert child.exitcode == 0
    finally:
        done.set()
        thread.join(WAIT_S)


SLOW_MODULE = """
import __main__
__main__.loading[__name__].set()
__main__.go[__name__].wait(60)
"""
WHILE_LOADING = """
import threading
import rlxweb as rlx
from rlxweb import forked

rlx.Device
sys.path.insert(0, {folder!r})
names = "endless", "slow"
loading, go = ({{name: threading.Event() for name in names}} for _ in names)
threads = {{name: threading.Thread(target=__import__, args=(name,)) for name in names}}

def load(name):
    threads[name].start()
    loading[name].wait()

load("endless")
forked.LOADING_S = 0.05
child(lambda: None, os._exit)  # it does not keep a fork for ever,
forked.LOADING_S = 3600
child(lambda: None, os._exit)  # and not a second time
load("slow")
threading.Timer(0.2, go["slow"].set).start()
child(lambda: __import__("slow"), os._exit)
go["endless"].set()
for thread in threads.values():
    thread.join()
"""


def test_a_fork_waits_for_what_others_are_loading(tmp_path: Path) -> None:
    """Python leaves the lock of a half-loaded module shut in the child."""
    for name in ("slow", "endless"):
        (tmp_path / f"{name}.py").write_text(SLOW_MODULE)
    code = (CHILD + WHILE_LOADING).format(folder=str(tmp_path), deadline=10)
    said = python("-c", code)
    assert said.code == 0, said.err
    assert said.out.split() == ["7", "7", "7"]


LLVM = """
import threading
import llvmlite.binding as llvm
from ctypes import c_int64
from rlxweb.machine import library
from rlxweb.machine.estimate import Estimate

SMALL = "define i64 @next(i64 %n) {\\n %m = add i64 %n, 1\\n ret i64 %m\\n}\\n"
nbytes = library.processor().nbytes
large = Estimate(32, nbytes, "float", "constant", "float", 1).text()

def compile_one():
    code = library.Code(library.object_code(SMALL))
    assert code.function("next", c_int64, c_int64)(41) == 42
"""
WHILE_LLVM_WORKS = """
done = threading.Event()

def by_us():
    while not done.is_set():
        library.object_code(large)

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
def test_forks_while_llvm_is_at_work(forks: int) -> None:
    """A fork waits for LLVM's call that is under way, so that each child compiles."""
    code = WHILE_LLVM_WORKS.replace("{forks}", str(forks))
    said = forked("-c", CHILD.format(deadline=DEADLINE_S) + LLVM + code)
    assert said.code == 0, said.err
    assert said.out.split() == ["7"] * forks


WHILE_KERNELS_COMPILE = """
import multiprocessing, threading
import numpy as np
import rlxweb as rlx
from rlxweb.machine import workshop

workshop.WORTH_S = 0.0  # in the background too, the first use asks for a kernel
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
def test_children_forked_while_kernels_compile_work_and_end(
    mode: str, children: int, count: int, tmp_path: Path
) -> None:
    """Multiprocessing's children join their threads, also that which compiles."""
    code = WHILE_KERNELS_COMPILE
    numbers = {"deadline": DEADLINE_S, "children": children, "count": count}
    for name, number in numbers.items():
        code = code.replace(f"{{{name}}}", str(number))
    more = {"RLX_FAST": "wait"} if mode == "wait" else {}
    more |= {"RLX_CACHE_DIR": str(tmp_path), "RLX_CALIBRATION": "off"}
    said = forked("-c", code, **more)
    assert said.code == 0, said.err
    assert said.out.split() == ["0"] * children


TORN = """
import sys, warnings
import numpy as np
import rlxweb as rlx
from rlxweb.errors import AdapterMissing

warnings.simplefilter("error")
x = np.random.default_rng(0).standard_normal((4, 4000)).astype("f4")
right = rlx.welch_peaks(x, nperseg=100, device="cpu").bins
held = library.Code(library.object_code(SMALL))
begun, done = threading.Event(), threading.Event()

def call():
    with library._lock():  # a call of LLVM that does not end
        begun.set()
        done.wait()

thread = threading.Thread(target=call)
thread.start()
begun.wait()
library.calls.wait_s = 0.05

def work():
    global held
    del held  # what would free it waits for the lock
    for _ in range(2):
        try:
            compile_one()
        except AdapterMissing as error:
            assert "forked this one while LLVM" in str(error) and "spawn" in str(error)
        else:
            raise AssertionError("it was not refused")
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        for n in (100, 102):
            rlx.welch_peaks(x, nperseg=n, device="cpu").bins
    assert (rlx.welch_peaks(x, nperseg=100, device="cpu").bins == right).all()
    (said,) = [str(one.message) for one in noted]
    assert "NumPy computes" in said and "forked this one while LLVM" in said
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
def test_a_child_of_a_fork_that_could_not_wait_leaves_llvm_alone(
    tmp_path: Path,
) -> None:
    """A child of a fork that could not wait for LLVM says so and computes by NumPy.

    Nothing that is freed or forked hangs.
    """
    code = CHILD.format(deadline=DEADLINE_S) + LLVM + TORN
    said = forked("-c", code, RLX_FAST="wait", RLX_CACHE_DIR=str(tmp_path))
    assert said.code == 0, said.err
    assert said.out.split() == ["7", "7"]


class Slow:
    """A value that waits, if its object has something to wait for."""

    def __init__(self, begun: threading.Event, done: threading.Event) -> None:
        self.begun, self.done = begun, done

    @cached_property
    def value(self) -> int:
        self.begun.set()
        assert self.done.wait(WAIT_S)
        return 1


def in_a_child(work: Callable[[], object]) -> int | None:
    """The exit code of a forked child that does some work."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(DEADLINE_S)
    code = child.exitcode
    child.kill()
    child.join(DEADLINE_S)
    return code


def test_a_value_that_another_thread_computes_is_computed_in_a_child() -> None:
    """A child computes a value while a thread of its parent computes another's.

    Before Python 3.12 there was one lock for all objects of a class.
    """
    begun, done, free = threading.Event(), threading.Event(), threading.Event()
    slow, quick = Slow(begun, done), Slow(free, free)
    (thread,) = begin([lambda: slow.value])
    try:
        assert begun.wait(WAIT_S)
        assert in_a_child(lambda: quick.value) == 0
    finally:
        done.set()
        thread.join(WAIT_S)


def test_a_block_that_another_thread_fetches_is_fetched_in_a_child() -> None:
    """The thread that claimed it is not there."""
    parent, begun, done = os.getpid(), threading.Event(), threading.Event()

    def fetch(start: int, stop: int) -> bytes:
        if start and os.getpid() == parent:
            begun.set()
            assert done.wait(WAIT_S)
        return bytes(stop - start)

    file = BlockFile(fetch, 3 * LARGEST)

    def read() -> None:
        assert file.read_at(LARGEST, 10) == bytes(10)

    (thread,) = begin([read])
    try:
        assert begun.wait(WAIT_S)
        assert in_a_child(read) == 0
    finally:
        done.set()
        thread.join(WAIT_S)
