"""Kernels are made once, in the background or when asked for; nobody waits in vain."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import pytest

from rlxweb.errors import DeviceError, KernelWarning
from rlxweb.machine import library, workshop
from rlxweb.machine.workshop import COMPILING, NOT_YET, WORTH_S, Mode, Workshop


class Bench:
    """A workshop whose kernels are their names, made when the gate is open."""

    def __init__(self, mode: Mode = "background") -> None:
        self.mode: Mode = mode
        self.made: list[Hashable] = []
        self.gate = threading.Event()
        self.gate.set()
        self.shop: Workshop[str] = Workshop(self.make, lambda: self.mode)

    def make(self, about: Hashable) -> str:
        assert self.gate.wait(30)
        self.made.append(about)
        if about == "bad":
            raise DeviceError("compile it", "the code is wrong")
        return f"kernel of {about}"


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "is_installed", lambda: True)


def test_work_pays_for_its_kernel() -> None:
    """Nothing is made for one short call; much work makes it, once."""
    bench = Bench()
    bench.shop.spent("a", WORTH_S / 2)
    assert bench.shop.state("a") == NOT_YET
    assert bench.shop.ready("a") is None
    bench.gate.clear()
    bench.shop.spent("a", WORTH_S / 2)
    assert bench.shop.state("a") == COMPILING
    bench.shop.spent("a", 1.0)
    assert bench.shop.ready("a") is None
    bench.gate.set()
    bench.shop.finish(30)
    assert bench.shop.ready("a") == "kernel of a"
    assert (bench.made, bench.shop.state("a"), bench.shop.changes) == (["a"], "", 1)


def test_several_are_made_one_after_the_other() -> None:
    """Kernels are made in the order asked for, also when a first thread is gone."""
    bench = Bench()
    bench.gate.clear()
    for about in "abc":
        bench.shop.spent(about, 1.0)
    bench.gate.set()
    bench.shop.finish(30)
    bench.shop.spent("d", 1.0)
    bench.shop.finish(30)
    assert bench.made == [*"abcd"]


def test_what_cannot_be_made_is_refused_once() -> None:
    """A kernel that cannot be made is refused with the reason and not tried again."""
    bench = Bench()
    for _ in range(3):
        bench.shop.spent("bad", 1.0)
        bench.shop.finish(30)
    assert bench.shop.ready("bad") is None
    assert "the code is wrong" in bench.shop.state("bad")
    assert (bench.made, bench.shop.changes) == (["bad"], 1)


def test_who_waits_has_it_with_the_first_call() -> None:
    """With RLX_FAST=wait the first call has the compiled kernel."""
    bench = Bench("wait")
    assert bench.shop.ready("a") == "kernel of a"
    assert bench.shop.ready("bad") is None
    assert bench.made == ["a", "bad"]


def test_off_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workshop that is off, or lacks the library, makes nothing."""
    bench = Bench("off")
    bench.shop.now("a")
    bench.shop.spent("a", 1.0)
    assert not bench.shop.is_open
    assert bench.shop.state("a") == "RLX_FAST=off"
    bench.mode = "wait"
    monkeypatch.setattr(library, "is_installed", lambda: False)
    assert bench.shop.ready("a") is None
    assert "extra `fast`" in bench.shop.state("a")
    assert not bench.made


def test_a_process_without_threads_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without threads is served by NumPy, and asked again later."""

    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    bench = Bench()
    monkeypatch.setattr(workshop.threading, "Thread", NoThread)
    bench.shop.spent("a", 1.0)
    assert bench.shop.state("a") == NOT_YET
    monkeypatch.undo()
    monkeypatch.setattr(library, "is_installed", lambda: True)
    bench.shop.spent("a", 1.0)
    bench.shop.finish(30)
    assert bench.shop.ready("a") is not None


def test_a_child_of_a_fork_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child makes anew what its parent's thread was making or was to make.

    Where LLVM was in the middle of a call, it uses the kernels that are there.
    """
    bench = Bench()
    bench.shop.now("there")
    bench.gate.clear()
    for about in "ab":  # the first is being made, the second waits for it
        bench.shop.spent(about, 1.0)
    assert bench.shop.state("a") == bench.shop.state("b") == COMPILING
    bench.gate.set()
    bench.shop.finish(30)
    bench.shop._coming.update("cd")
    bench.shop._asked.append("d")
    bench.shop._in_child()
    assert (bench.shop.state("c"), bench.shop.state("d")) == (NOT_YET, NOT_YET)
    assert bench.shop.why_not == ""
    monkeypatch.setattr(library.calls, "torn_by", 1)
    bench.shop._in_child()
    with pytest.warns(KernelWarning, match="while LLVM was at work"):
        bench.shop.spent("c", 1.0)
    bench.shop.spent("c", 1.0)  # said once
    assert "while LLVM was at work" in bench.shop.state("c")
    assert bench.shop.ready("there") == "kernel of there"
    assert bench.made == ["there", *"ab"]


def test_kernels_are_bounded_by_number_and_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The least recently used goes; who wants it again has it made again."""
    monkeypatch.setattr(workshop, "MOST_KERNELS", 3)
    bench = Bench("wait")
    for about in ("a", "b", "c", "a", "d"):
        assert bench.shop.ready(about) == f"kernel of {about}"
    changes = bench.shop.changes
    bench.mode = "background"
    assert [bench.shop.ready(about) is None for about in "abcd"] == [0, 1, 0, 0]
    assert bench.shop.state("b") == NOT_YET
    assert bench.shop.now("b") == "kernel of b"
    assert (bench.made, bench.shop.changes) == ([*"abcdb"], changes + 1)
    monkeypatch.setattr(workshop, "MOST_BYTES", 10)
    heavy: Workshop[str] = Workshop(str, lambda: "wait", len)
    for about in ("four", "five", "six"):
        heavy.now(about)
    assert heavy.ready("six") == "six"
    assert len(heavy._made) == 2


def test_a_job_of_some_hundred_sizes_makes_each_kernel_once() -> None:
    """Hundreds of sizes in turn keep their kernels; none is dropped before its use."""
    bench = Bench("wait")
    sizes = [str(size) for size in range(500)]
    for about in sizes + sizes:
        assert bench.shop.ready(about) == f"kernel of {about}"
    assert bench.made == sizes


def test_notes_on_kernels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes on kernels that fail, or are not worth it yet, are bounded."""
    monkeypatch.setattr(workshop, "_MOST_NOTES", 5)

    def refuse(about: Hashable) -> str:
        raise DeviceError("compile it", "the code is wrong")

    shop: Workshop[str] = Workshop(refuse, lambda: "wait")
    for about in range(20):
        shop.spent(about, WORTH_S / 2)
        assert shop.ready(about) is None
    assert (len(shop._spent), len(shop._refused), len(shop._coming)) == (5, 5, 0)
