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
    """In the order in which they were asked for, and more when that thread is gone."""
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
    """With the reason; it is not tried again."""
    bench = Bench()
    for _ in range(3):
        bench.shop.spent("bad", 1.0)
        bench.shop.finish(30)
    assert bench.shop.ready("bad") is None
    assert "the code is wrong" in bench.shop.state("bad")
    assert (bench.made, bench.shop.changes) == (["bad"], 1)


def test_who_waits_has_it_with_the_first_call() -> None:
    """RLX_FAST=wait."""
    bench = Bench("wait")
    assert bench.shop.ready("a") == "kernel of a"
    assert bench.shop.ready("bad") is None
    assert bench.made == ["a", "bad"]


def test_off_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """And without the library nothing is asked of it."""
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
    """Where no thread can be started NumPy serves, and it is asked again later."""

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


def test_a_child_of_a_fork_makes_its_own() -> None:
    """What its parent's thread was to make it asks for again; if that was compiling,
    LLVM's locks are shut in it and kernels are left alone.
    """
    bench = Bench()
    bench.shop._asked.append("a")
    bench.shop._known.add("a")
    bench.shop._in_child()
    assert (bench.shop.state("a"), bench.shop.why_not) == (NOT_YET, "")
    bench.shop._busy = True
    bench.shop._in_child()
    with pytest.warns(KernelWarning, match="while it compiled"):
        bench.shop.spent("a", 1.0)
    bench.shop.spent("a", 1.0)  # said once
    assert "while it compiled" in bench.shop.state("a")
    assert not bench.made
