"""Threads in machine code: every share once, by whoever comes, in any process."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

from rlxweb.host.compiled import address
from rlxweb.host.shared_code import Shared
from rlxweb.machine.crew import Crew
from rlxweb.machine.jobs import job_text, packed
from rlxweb.machine.library import Code, object_code
from rlxweb.machine.text import Shape, Value, Writer
from tests.command_line import python

pytestmark = pytest.mark.requires_fast
SIGNATURE = "void @count(ptr %out, i64 %n, float %by, ptr %taken)"


@pytest.fixture(autouse=True)
def _futexes() -> None:
    if sys.platform != "linux":
        pytest.skip("a crew sleeps in a futex")


def counting() -> Shared:
    """Adds `by` to each of n floats."""
    w = Writer(SIGNATURE, Shape("float", 1))

    def one(at: Value) -> None:
        there = w.at("%out", at)
        w.store(w.plus(w.load(there), w.spread("%by")), there)

    w.claimed("%taken", 1, "%n", one)
    w.say("ret void")
    return Shared.of(Code(object_code(w.text + job_text(SIGNATURE))), "count")


class Counted:
    """A job of so many shares, and what came of it."""

    def __init__(self, n: int) -> None:
        self.out, self.taken = np.zeros(n, np.float32), np.zeros(1, np.int64)
        self.job = packed(address(self.out), n, 1.5, address(self.taken))

    def check(self, rounds: int) -> None:
        assert (self.out == 1.5 * rounds).all()


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("shares", [1, 2, 500])
def test_every_share_is_done_once(size: int, shares: int) -> None:
    """Shares are done once, round after round: nobody is left over from the last."""
    crew, count, one = Crew(size), counting(), Counted(shares)
    for _ in range(1000):
        one.taken[0] = 0
        assert crew.run(count.address, address(one.job))
    one.check(1000)
    assert len(crew._threads) == size


def test_callers_take_turns_or_work_alone() -> None:
    """What is refused is not done; nothing is done twice."""
    crew, count = Crew(2), counting()
    jobs = [Counted(64) for _ in range(4)]
    done = [0] * len(jobs)

    def call(mine: int) -> None:
        for _ in range(500):
            jobs[mine].taken[0] = 0
            done[mine] += crew.run(count.address, address(jobs[mine].job))

    threads = [threading.Thread(target=call, args=(at,)) for at in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for one, rounds in zip(jobs, done, strict=True):
        one.check(rounds)
    assert sum(done) > 0


def test_none_is_no_crew() -> None:
    one = Counted(3)
    assert not Crew(0).run(counting().address, address(one.job))
    one.check(0)


USED = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
from tests.unit.machine.test_crew import Counted, Crew, address, counting
crew, count, one = Crew(2), counting(), Counted(100)
for _ in range(50):
    one.taken[0] = 0
    assert crew.run(count.address, address(one.job))
one.check(50)
"""
# Python 3.12 and newer warn of every fork beside threads, which is what is tried here.
FORK = """
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    pid = os.fork()
one.taken[0] = 0
assert crew.run(count.address, address(one.job))
one.check(51)
if pid:
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
"""
BUSY = """
def forever():
    while True:
        one.taken[0] = 0
        crew.run(count.address, address(one.job))
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
"""


@pytest.mark.parametrize("more", ["", "time.sleep(0.1)", FORK, BUSY])
def test_a_process_ends_as_it_should(more: str, request: pytest.FixtureRequest) -> None:
    """A process ends with threads awake, asleep, after a fork or amid a job."""
    root = str(request.config.rootpath)
    said = python("-c", USED.format(root=root) + more)
    assert (said.code, said.err) == (0, "")


def test_nobody_waits_on_the_callers_processor() -> None:
    """A few threads are kept off it; a refusal is taken."""
    allowed = os.sched_getaffinity(0)
    crew, count, one = Crew(1), counting(), Counted(5)
    for here in sorted(allowed)[:2] * 2:
        os.sched_setaffinity(0, {here})
        try:
            one.taken[0] = 0
            assert crew.run(count.address, address(one.job))
        finally:
            os.sched_setaffinity(0, allowed)
    (thread,) = crew._threads
    assert thread.native_id is not None
    one.taken[0] = 0
    crew._away, crew._where = -1, lambda: min(allowed)
    assert crew.run(count.address, address(one.job))
    if len(allowed) > 1:
        assert os.sched_getaffinity(thread.native_id) == allowed - {min(allowed)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_setaffinity", refused)
        one.taken[0], crew._away = 0, -1
        assert crew.run(count.address, address(one.job))
    assert crew._where is None or len(allowed) == 1


def refused(*given: object) -> None:
    raise PermissionError(1, "not permitted")
