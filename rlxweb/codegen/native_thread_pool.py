"""Native thread pool (LLVM IR, Linux): threads wait inside compiled code and are woken
without the GIL.

A thread of Python's that is woken first waits for the lock, and so does whoever waits
for its end: some 60 microseconds a call, more than many an op takes. The threads of a
crew sleep in a function of ours, in the kernel's futex, and so are woken, work and say
that they are done while Python knows of none of it. Who calls works as well; a thread
that comes too late finds the job closed and touches nothing of it.

Linux only: elsewhere, and while another thread has the crew, who calls works alone.
"""

from __future__ import annotations

import atexit
import os
import platform
import sys
import threading
from collections.abc import Callable
from ctypes import CDLL, c_int64, c_void_p
from typing import Any, Final

import numpy as np

from rlxweb.codegen.jit_cache import compile_cached
from rlxweb.core.fork_safety import register_child_callback

_FUTEX_BY_ARCHITECTURE: Final = {
    "x86_64": (202, "@llvm.x86.sse2.pause()"),
    "aarch64": (98, "@llvm.aarch64.hint(i32 1)"),
}
"""Number of the futex system call and LLVM's pause instruction, by architecture."""
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129  # of this process alone
_WAKE_ALL: Final = (1 << 31) - 1
MAX_SPINS: Final = 6000
"""Spins before a thread sleeps: about a tenth of a millisecond, as long as a small
network may need between two jobs. Waking a thread takes half as long.
"""
_MAX_PINNED_THREADS: Final = 4
"""Largest pool whose threads are pinned away from the caller's CPU; more threads find a
free CPU by themselves.
"""
# Words of 64 bits in the memory that all share.
ROUND, TICKETS, FUNCTION, JOB, DONE, STOP = range(6)
_CLOSED_BIT: Final = 1 << 20
"""Bit of the ticket word that closes a job to latecomers. The bits below count the
threads that joined, those above hold the round.
"""
_ROUND_SHIFT: Final = 21


def thread_pool_llvm_ir(syscall_number: int, pause_call: str) -> str:
    """Return the LLVM IR of @serve(shared, round), in which a worker thread stays,
    @lead(shared, function, job), which runs a job, and @dismiss(shared).

    syscall_number  number of the system call
    pause_call  the function that lets go of the core for a moment, with its arguments
    """
    declaration = "declare i64 @syscall(i64, ...)\n"
    parts = (
        declaration,
        _pause_llvm_ir(syscall_number, pause_call),
        _serve_llvm_ir(syscall_number),
        _lead_llvm_ir(syscall_number),
    )
    return "\n".join((*parts, _dismiss_llvm_ir(syscall_number)))


def _pause_llvm_ir(syscall_number: int, pause_call: str) -> str:
    """Return the IR of the function that waits until a word changes: it spins for a
    while, then sleeps.
    """
    futex_call = f"i64 {syscall_number}, ptr %word, i64 {_FUTEX_WAIT}"
    return f"""define internal void @pause_until(ptr %word, i32 %old) {{
entry:
  br label %look
look:
  %i = phi i32 [ 0, %entry ], [ %next, %again ]
  %now = load atomic i32, ptr %word acquire, align 8
  %same = icmp eq i32 %now, %old
  br i1 %same, label %more, label %out
more:
  %tired = icmp eq i32 %i, {MAX_SPINS}
  br i1 %tired, label %sleep, label %again
again:
  %next = add i32 %i, 1
  call void {pause_call}
  br label %look
sleep:
  %r = call i64 (i64, ...) @syscall({futex_call}, i32 %old, i64 0)
  br label %out
out:
  ret void
}}
"""


def _serve_llvm_ir(syscall_number: int) -> str:
    """Return the IR of the worker loop: take a ticket if the job is open, run the job,
    report that it is done.
    """
    futex_call = f"i64 {syscall_number}, ptr %done, i64 {_FUTEX_WAKE}"
    return f"""define void @serve(ptr %shared, i64 %seen_first) {{
entry:
  %tickets = getelementptr i64, ptr %shared, i64 {TICKETS}
  %function = getelementptr i64, ptr %shared, i64 {FUNCTION}
  %job_at = getelementptr i64, ptr %shared, i64 {JOB}
  %done = getelementptr i64, ptr %shared, i64 {DONE}
  %stop = getelementptr i64, ptr %shared, i64 {STOP}
  br label %wait
wait:
  %seen = phi i64 [ %seen_first, %entry ], [ %seen, %slept ], [ %round, %skip ]
  %round = load atomic i64, ptr %shared acquire, align 8
  %same = icmp eq i64 %round, %seen
  br i1 %same, label %slept, label %come
slept:
  %low = trunc i64 %seen to i32
  call void @pause_until(ptr %shared, i32 %low)
  br label %wait
come:
  %over = load atomic i64, ptr %stop acquire, align 8
  %is_over = icmp ne i64 %over, 0
  br i1 %is_over, label %leave, label %ask
ask:
  %ticket = load atomic i64, ptr %tickets acquire, align 8
  %own = lshr i64 %ticket, {_ROUND_SHIFT}
  %is_own = icmp eq i64 %own, %round
  %bit = and i64 %ticket, {_CLOSED_BIT}
  %is_open = icmp eq i64 %bit, 0
  %may = and i1 %is_own, %is_open
  br i1 %may, label %enter, label %skip
enter:
  %mine = add i64 %ticket, 1
  %pair = cmpxchg ptr %tickets, i64 %ticket, i64 %mine acq_rel acquire
  %got = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %got, label %work, label %ask
work:
  %f = load ptr, ptr %function, align 8
  %job = load ptr, ptr %job_at, align 8
  call void %f(ptr %job)
  %before = atomicrmw add ptr %done, i64 1 acq_rel
  %w = call i64 (i64, ...) @syscall({futex_call}, i32 1)
  br label %skip
skip:
  br label %wait
leave:
  ret void
}}
"""


def _lead_llvm_ir(syscall_number: int) -> str:
    """Return the IR that starts a round, runs the caller's share, closes the tickets
    and waits for the threads that joined.
    """
    futex_call = f"i64 {syscall_number}, ptr %shared, i64 {_FUTEX_WAKE}"
    return f"""define void @lead(ptr %shared, ptr %f, ptr %job) {{
entry:
  %tickets = getelementptr i64, ptr %shared, i64 {TICKETS}
  %function = getelementptr i64, ptr %shared, i64 {FUNCTION}
  %job_at = getelementptr i64, ptr %shared, i64 {JOB}
  %done = getelementptr i64, ptr %shared, i64 {DONE}
  store ptr %f, ptr %function, align 8
  store ptr %job, ptr %job_at, align 8
  store atomic i64 0, ptr %done release, align 8
  %last = load atomic i64, ptr %shared acquire, align 8
  %round = add i64 %last, 1
  %fresh = shl i64 %round, {_ROUND_SHIFT}
  store atomic i64 %fresh, ptr %tickets release, align 8
  store atomic i64 %round, ptr %shared release, align 8
  %w = call i64 (i64, ...) @syscall({futex_call}, i32 {_WAKE_ALL})
  call void %f(ptr %job)
  %closed = atomicrmw or ptr %tickets, i64 {_CLOSED_BIT} acq_rel
  %came = and i64 %closed, {_CLOSED_BIT - 1}
  br label %look
look:
  %ready = load atomic i64, ptr %done acquire, align 8
  %is_ready = icmp eq i64 %ready, %came
  br i1 %is_ready, label %out, label %more
more:
  %low = trunc i64 %ready to i32
  call void @pause_until(ptr %done, i32 %low)
  br label %look
out:
  ret void
}}
"""


def _dismiss_llvm_ir(syscall_number: int) -> str:
    futex_call = f"i64 {syscall_number}, ptr %shared, i64 {_FUTEX_WAKE}"
    return f"""define void @dismiss(ptr %shared) {{
entry:
  %stop = getelementptr i64, ptr %shared, i64 {STOP}
  store atomic i64 1, ptr %stop release, align 8
  %before = atomicrmw add ptr %shared, i64 1 acq_rel
  %w = call i64 (i64, ...) @syscall({futex_call}, i32 {_WAKE_ALL})
  ret void
}}
"""


class NativeThreadPool:
    """Native thread pool of `size` threads besides the caller's, started on first
    use.
    """

    def __init__(self, size: int) -> None:
        self.size = size if sys.platform == "linux" else 0
        self._reset_after_fork()
        register_child_callback(self, NativeThreadPool._reset_after_fork)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._shared = np.zeros(8, np.int64)
        self._threads: list[threading.Thread] = []
        self._lead_function: Callable[..., None] | None = None
        self._current_cpu: Callable[[], int] | None = None
        self._excluded_cpu = -1

    def run(self, function: int, job: int) -> bool:
        """Run the function at an address on the job at an address, on all threads at
        once.

        False, and nothing is done, where another thread has the crew or there is none.
        """
        if not self.size or not self._lock.acquire(blocking=False):
            return False
        try:
            lead_function = self._lead_function or self._start_threads()
            if lead_function is not None:
                self._exclude_caller_cpu()
                lead_function(self._shared.ctypes.data, function, job)
            return lead_function is not None
        finally:
            self._lock.release()

    def _exclude_caller_cpu(self) -> None:
        """Keep worker threads off the caller's CPU: a thread woken there would wait for
        the end of the work it is to help with.

        That is where the kernel wakes it while others turn round and round on the rest,
        as OpenBLAS's do for a while after each call. They give way, the caller does
        not.
        """
        if self._current_cpu is None or len(self._threads) > _MAX_PINNED_THREADS:
            return
        caller_cpu = self._current_cpu()
        if caller_cpu == self._excluded_cpu:
            return
        self._excluded_cpu = caller_cpu
        other_cpus = os.sched_getaffinity(0) - {caller_cpu}
        try:
            for thread in self._threads if other_cpus else ():
                os.sched_setaffinity(thread.native_id or 0, other_cpus)
        except OSError:  # it is not ours to say
            self._current_cpu = None

    def _start_threads(self) -> Callable[..., None] | None:
        """Start the threads; returns None if there can be none."""
        futex = _FUTEX_BY_ARCHITECTURE.get(platform.machine())
        if futex is None:
            self.size = 0
            return None
        code = compile_cached(thread_pool_llvm_ir(*futex))
        serve: Any = code.get_function("serve", None, c_void_p, c_int64)
        dismiss: Any = code.get_function("dismiss", None, c_void_p)
        lead: Any = code.get_function("lead", None, c_void_p, c_void_p, c_void_p)
        # Nobody takes the memory away in which threads still sleep.
        code.keep_loaded()
        shared = self._shared.ctypes.data
        for index in range(self.size):
            # It needs no lock of Python's, and ends when it is told so.
            thread = threading.Thread(
                target=serve, args=(shared, 0), name=f"rlxweb-crew-{index}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no thread left: who is there is enough
                break
            self._threads.append(thread)
        if not self._threads:
            self.size = 0
            return None
        atexit.register(self._stop_threads, dismiss, shared, os.getpid())
        self._current_cpu = getattr(CDLL(None), "sched_getcpu", None)
        self._lead_function = lead
        return self._lead_function

    def _stop_threads(
        self, dismiss: Callable[[int], None], shared: int, pid: int
    ) -> None:
        """Stop the threads before the interpreter shuts down."""
        if pid != os.getpid():
            return
        with self._lock:
            self.size, self._lead_function = 0, None
            dismiss(shared)
        for thread in self._threads:
            thread.join(1.0)
