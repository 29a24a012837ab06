"""Threads that wait inside machine code: a job reaches them without Python's lock.

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

from rlxweb.forked import watch
from rlxweb.machine.making import code_of

_FUTEX: Final = {
    "x86_64": (202, "@llvm.x86.sse2.pause()"),
    "aarch64": (98, "@llvm.aarch64.hint(i32 1)"),
}
"""The system call's number, and LLVM's word for a pause."""
_WAIT, _WAKE = 128, 129  # of this process alone
_ALL: Final = (1 << 31) - 1
SPINS: Final = 6000
"""Times that a thread looks before it sleeps: about a tenth of a millisecond, as long
as a small network may be about something else. To be woken takes half as long.
"""
_FEW: Final = 4
"""Threads up to which they are told where to run; more find a free processor."""
# Words of 64 bits in the memory that all share.
ROUND, TICKETS, FUNCTION, JOB, DONE, STOP = range(6)
_CLOSED: Final = 1 << 20
"""In the tickets: nobody else comes in. Below it how many did, above it which round."""
_ROUND: Final = 21


def crew_text(call: int, pause: str) -> str:
    """@serve(shared, round), where a thread stays, @lead(shared, function, job), by
    which one calls it, and @dismiss(shared).

    call    number of the system call
    pause   the function that lets go of the core for a moment, with its arguments
    """
    declared = "declare i64 @syscall(i64, ...)\n"
    parts = declared, _pausing(call, pause), _serving(call), _leading(call)
    return "\n".join((*parts, _dismissing(call)))


def _pausing(call: int, pause: str) -> str:
    """Until a word changes: it looks for a while, then it sleeps."""
    return f"""define internal void @pause_until(ptr %word, i32 %old) {{
entry:
  br label %look
look:
  %i = phi i32 [ 0, %entry ], [ %next, %again ]
  %now = load atomic i32, ptr %word acquire, align 8
  %same = icmp eq i32 %now, %old
  br i1 %same, label %more, label %out
more:
  %tired = icmp eq i32 %i, {SPINS}
  br i1 %tired, label %sleep, label %again
again:
  %next = add i32 %i, 1
  call void {pause}
  br label %look
sleep:
  %r = call i64 (i64, ...) @syscall(i64 {call}, ptr %word, i64 {_WAIT}, i32 %old, i64 0)
  br label %out
out:
  ret void
}}
"""


def _serving(call: int) -> str:
    """Round after round: a ticket where there is one, the job, and a word that it is
    done.
    """
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
  %own = lshr i64 %ticket, {_ROUND}
  %is_own = icmp eq i64 %own, %round
  %bit = and i64 %ticket, {_CLOSED}
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
  %w = call i64 (i64, ...) @syscall(i64 {call}, ptr %done, i64 {_WAKE}, i32 1)
  br label %skip
skip:
  br label %wait
leave:
  ret void
}}
"""


def _leading(call: int) -> str:
    """A new round; the caller's share; no more tickets; all who had one are done."""
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
  %fresh = shl i64 %round, {_ROUND}
  store atomic i64 %fresh, ptr %tickets release, align 8
  store atomic i64 %round, ptr %shared release, align 8
  %w = call i64 (i64, ...) @syscall(i64 {call}, ptr %shared, i64 {_WAKE}, i32 {_ALL})
  call void %f(ptr %job)
  %closed = atomicrmw or ptr %tickets, i64 {_CLOSED} acq_rel
  %came = and i64 %closed, {_CLOSED - 1}
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


def _dismissing(call: int) -> str:
    return f"""define void @dismiss(ptr %shared) {{
entry:
  %stop = getelementptr i64, ptr %shared, i64 {STOP}
  store atomic i64 1, ptr %stop release, align 8
  %before = atomicrmw add ptr %shared, i64 1 acq_rel
  %w = call i64 (i64, ...) @syscall(i64 {call}, ptr %shared, i64 {_WAKE}, i32 {_ALL})
  ret void
}}
"""


class Crew:
    """So many threads beside the caller's, made when they are first wanted."""

    def __init__(self, size: int) -> None:
        self.size = size if sys.platform == "linux" else 0
        self._in_child()
        watch(self, Crew._in_child)

    def _in_child(self) -> None:
        self._lock = threading.Lock()
        self._shared = np.zeros(8, np.int64)
        self._threads: list[threading.Thread] = []
        self._lead: Callable[..., None] | None = None
        self._where: Callable[[], int] | None = None
        self._away = -1

    def run(self, function: int, job: int) -> bool:
        """The function of that address on the job of that address, by all at once.

        False, and nothing is done, where another thread has the crew or there is none.
        """
        if not self.size or not self._lock.acquire(blocking=False):
            return False
        try:
            lead = self._lead or self._hired()
            if lead is not None:
                self._keep_apart()
                lead(self._shared.ctypes.data, function, job)
            return lead is not None
        finally:
            self._lock.release()

    def _keep_apart(self) -> None:
        """No thread on the caller's processor: woken there it would wait for the end of
        what it is to help with.

        That is where the kernel wakes it while others turn round and round on the rest,
        as OpenBLAS's do for a while after each call. They give way, the caller does
        not.
        """
        if self._where is None or len(self._threads) > _FEW:
            return
        here = self._where()
        if here == self._away:
            return
        self._away = here
        others = os.sched_getaffinity(0) - {here}
        try:
            for thread in self._threads if others else ():
                os.sched_setaffinity(thread.native_id or 0, others)
        except OSError:  # it is not ours to say
            self._where = None

    def _hired(self) -> Callable[..., None] | None:
        """The threads begin; None where there can be none."""
        words = _FUTEX.get(platform.machine())
        if words is None:
            self.size = 0
            return None
        code = code_of(crew_text(*words))
        serve: Any = code.function("serve", None, c_void_p, c_int64)
        dismiss: Any = code.function("dismiss", None, c_void_p)
        lead: Any = code.function("lead", None, c_void_p, c_void_p, c_void_p)
        # Nobody takes the memory away in which threads still sleep.
        code.keep()
        shared = self._shared.ctypes.data
        for at in range(self.size):
            # It needs no lock of Python's, and ends when it is told so.
            thread = threading.Thread(
                target=serve, args=(shared, 0), name=f"rlxweb-crew-{at}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no thread left: who is there is enough
                break
            self._threads.append(thread)
        if not self._threads:
            self.size = 0
            return None
        atexit.register(self._end, dismiss, shared, os.getpid())
        self._where = getattr(CDLL(None), "sched_getcpu", None)
        self._lead = lead
        return self._lead

    def _end(self, dismiss: Callable[[int], None], shared: int, pid: int) -> None:
        """Before the interpreter is taken down."""
        if pid != os.getpid():
            return
        with self._lock:
            self.size, self._lead = 0, None
            dismiss(shared)
        for thread in self._threads:
            thread.join(1.0)
