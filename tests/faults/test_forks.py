"""A process that used a GPU forks: the child computes or says why not, and ends.

Every child has a deadline of its own; one that hangs is killed by it, which the exit
status tells.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from rlxweb.forked import ForkLock
from rlxweb.gpu.port import Want
from tests.command_line import python
from tests.threads import WAIT_S, begin

pytestmark = [
    pytest.mark.fault,
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
    """By every door: no hang, no crash at exit, the right answer or one clear error."""
    code = begin_on(adapter)
    for work in WORKS.values():
        code += f"def work():\n    {work.strip()}\nchild(work)\n".replace(
            "\n        ", "\n    "
        )
    code += "assert compiled.run(three)[0].tolist() == [2, 2, 2]\n"
    said = python("-c", code, RLX_CALIBRATION="off")
    assert said.code == 0, said.err
    assert dict(zip(WORKS, map(int, said.out.split()), strict=True)) == dict.fromkeys(
        WORKS, 7
    ), said.err


@pytest.mark.parametrize("device", ["torch-cpu", "jax-cpu", "mlx"])
def test_a_child_of_a_process_that_used_an_array_library(device: str) -> None:
    """Its threads are not there: refused by every door, and the child ends.

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
    said = python("-c", code, RLX_CALIBRATION="off", RLX_DEVICES=f"{device},cpu")
    assert said.code == 0, said.err
    assert [*map(int, said.out.split())] == [7] * len(works), said.err


@pytest.mark.requires_wgpu
def test_a_pool_of_forked_workers(adapter: Want) -> None:
    """Multiprocessing's own way to fork, after a GPU was used and while it is used."""
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
for _ in range(5):
    with multiprocessing.get_context("fork").Pool(2) as workers:
        for bins in workers.map(peaks, range(1, 5)):
            assert (bins == right).all()
busy = False
for thread in threads:
    thread.join()
assert (rlx.welch_peaks(x, **here).bins == right).all()
"""
    )
    said = python("-c", code, RLX_CALIBRATION="off")
    assert said.code == 0, said.err


def test_a_lock_held_elsewhere_is_open_in_a_child() -> None:
    """Whoever held it in the parent is not there to let go."""
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
