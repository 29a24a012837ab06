"""Compiled kernels are bounded: what is not used goes, with its code and its memory."""

from __future__ import annotations

import sys

import pytest

from tests.command_line import python

pytestmark = [
    pytest.mark.requires_fast,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"),
        reason="memory is read from /proc",
    ),
]

BEGIN = r"""
import gc, os, random, threading
from ctypes import c_int64
from functools import cache
from rlxweb.machine import library, workshop
from rlxweb.machine.workshop import Workshop

@cache
def adding(number):
    text = f"define i64 @f(i64 %n) {{ %m = add i64 %n, {number}\n ret i64 %m }}"
    return library.object_code(text)

# Adds the number, modulo 32: what is compiled once is loaded for each.
def function(number):
    return library.Code(adding(number % 32)).function("f", c_int64, c_int64)

def codes():
    gc.collect()
    return sum(isinstance(one, library.Code) for one in gc.get_objects())

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

shop = Workshop(function, lambda: "wait")
"""


def run(code: str) -> None:
    said = python("-c", BEGIN + code)
    assert said.code == 0, said.err


def test_as_many_kernels_live_as_are_documented() -> None:
    """No more compiled kernels are kept than the limit; one that is in use stays."""
    run("""
held = shop.ready(0)
for number in range(workshop.MOST_KERNELS + 20):
    assert shop.ready(number)(1) == number % 32 + 1
assert codes() == workshop.MOST_KERNELS + 1, codes()
assert held(1) == 1
assert shop.ready(5)(1) == 6  # which was dropped meanwhile
del held
assert codes() == workshop.MOST_KERNELS
""")


def test_threads_call_kernels_that_are_dropped_meanwhile() -> None:
    run("""
workshop.MOST_KERNELS = 4
shop, wrong = Workshop(function, lambda: "wait"), []

def work(seed):
    rng = random.Random(seed)
    for _ in range(60):
        number = rng.randrange(20)
        kernel = shop.ready(number)
        for n in range(50):
            if kernel(n) != number + n:
                wrong.append((number, n))

threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
assert codes() == 4, codes()
""")


def test_memory_does_not_grow_with_the_sizes_of_estimates() -> None:
    """Estimates of six more sizes leave less than 1.5 MiB behind.

    To compile one left half a megabyte behind, and each stayed.
    """
    run("""
from rlxweb.machine.estimate import Estimate

nbytes = library.processor().nbytes

def estimate(n):
    text = Estimate(n, nbytes, "float", "constant", "float", 1).text()
    return library.Code(library.object_code(text))

workshop.MOST_KERNELS = 4
shop = Workshop(estimate, lambda: "wait")
for n in range(60, 68, 2):
    assert shop.ready(n)
before = resident()
for n in range(61, 73, 2):
    assert shop.ready(n)
grown = resident() - before
assert grown < 3 << 19, f"{grown >> 10} KiB for 6 more sizes"
assert codes() == 4
""")
