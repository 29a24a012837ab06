"""Native thread pool: every share runs once, on any thread, in any process."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

from rlxweb.codegen.llvm_builder import IRBuilder, Value, VectorType
from rlxweb.codegen.llvm_compiler import LoadedCode, compile_object
from rlxweb.codegen.native_calls import (
    ParallelNativeFunction,
    array_address,
    job_wrapper_llvm_ir,
    pack_arguments,
)
from rlxweb.codegen.native_thread_pool import NativeThreadPool
from tests.cli_runners import run_python

pytestmark = pytest.mark.requires_fast
SIGNATURE = "void @count(ptr %out, i64 %n, float %by, ptr %taken)"


@pytest.fixture(autouse=True)
def _require_futexes() -> None:
    if sys.platform != "linux":
        pytest.skip("a crew sleeps in a futex")


def compile_counter() -> ParallelNativeFunction:
    """Compile a function that adds `by` to each of n floats."""
    ir = IRBuilder(SIGNATURE, VectorType("float", 1))

    def emit_addition(index: Value) -> None:
        element = ir.element_pointer("%out", index)
        ir.store(ir.add_reals(ir.load(element), ir.broadcast("%by")), element)

    ir.claim_loop("%taken", 1, "%n", emit_addition)
    ir.emit("ret void")
    return ParallelNativeFunction.from_code(
        LoadedCode(compile_object(ir.text + job_wrapper_llvm_ir(SIGNATURE))), "count"
    )


class CountingJob:
    """Job of n shares, and its result."""

    def __init__(self, n: int) -> None:
        self.values, self.claim_counter = np.zeros(n, np.float32), np.zeros(1, np.int64)
        self.arguments = pack_arguments(
            array_address(self.values), n, 1.5, array_address(self.claim_counter)
        )

    def check(self, rounds: int) -> None:
        assert (self.values == 1.5 * rounds).all()


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("shares", [1, 2, 500])
def test_every_share_is_done_once(size: int, shares: int) -> None:
    """Shares are done once in every round; no thread lags from the round before."""
    pool, count, job = NativeThreadPool(size), compile_counter(), CountingJob(shares)
    for _ in range(1000):
        job.claim_counter[0] = 0
        assert pool.run(count.address, array_address(job.arguments))
    job.check(1000)
    assert len(pool._threads) == size


def test_callers_take_turns_or_work_alone() -> None:
    """A refused job is not run, and no job is run twice."""
    pool, count = NativeThreadPool(2), compile_counter()
    jobs = [CountingJob(64) for _ in range(4)]
    done = [0] * len(jobs)

    def call(i: int) -> None:
        for _ in range(500):
            jobs[i].claim_counter[0] = 0
            done[i] += pool.run(count.address, array_address(jobs[i].arguments))

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for job, rounds in zip(jobs, done, strict=True):
        job.check(rounds)
    assert sum(done) > 0


def test_a_pool_of_no_threads_runs_nothing() -> None:
    job = CountingJob(3)
    assert not NativeThreadPool(0).run(
        compile_counter().address, array_address(job.arguments)
    )
    job.check(0)


POOL_SCRIPT = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
from tests.unit.codegen.test_native_thread_pool import (
    CountingJob, NativeThreadPool, array_address, compile_counter
)
pool, count, job = NativeThreadPool(2), compile_counter(), CountingJob(100)
for _ in range(50):
    job.claim_counter[0] = 0
    assert pool.run(count.address, array_address(job.arguments))
job.check(50)
"""
# Python 3.12 and newer warn of every fork beside threads, which is what is tried here.
FORK_SCRIPT = """
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    pid = os.fork()
job.claim_counter[0] = 0
assert pool.run(count.address, array_address(job.arguments))
job.check(51)
if pid:
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
"""
BUSY_SCRIPT = """
def forever():
    while True:
        job.claim_counter[0] = 0
        pool.run(count.address, array_address(job.arguments))
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
"""


@pytest.mark.parametrize("script", ["", "time.sleep(0.1)", FORK_SCRIPT, BUSY_SCRIPT])
def test_a_process_ends_as_it_should(
    script: str, request: pytest.FixtureRequest
) -> None:
    """A process ends cleanly with threads awake, asleep, after a fork or amid a job."""
    root = str(request.config.rootpath)
    result = run_python("-c", POOL_SCRIPT.format(root=root) + script)
    assert (result.code, result.err) == (0, "")


def test_threads_leave_the_callers_cpu() -> None:
    """Few threads are kept off the caller's CPU; a refused affinity is tolerated."""
    allowed = os.sched_getaffinity(0)
    pool, count, job = NativeThreadPool(1), compile_counter(), CountingJob(5)
    for cpu in sorted(allowed)[:2] * 2:
        os.sched_setaffinity(0, {cpu})
        try:
            job.claim_counter[0] = 0
            assert pool.run(count.address, array_address(job.arguments))
        finally:
            os.sched_setaffinity(0, allowed)
    (thread,) = pool._threads
    assert thread.native_id is not None
    job.claim_counter[0] = 0
    pool._excluded_cpu, pool._current_cpu = -1, lambda: min(allowed)
    assert pool.run(count.address, array_address(job.arguments))
    if len(allowed) > 1:
        assert os.sched_getaffinity(thread.native_id) == allowed - {min(allowed)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_setaffinity", raise_permission_error)
        job.claim_counter[0], pool._excluded_cpu = 0, -1
        assert pool.run(count.address, array_address(job.arguments))
    assert pool._current_cpu is None or len(allowed) == 1


def raise_permission_error(*arguments: object) -> None:
    raise PermissionError(1, "not permitted")
