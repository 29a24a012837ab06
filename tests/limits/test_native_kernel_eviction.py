"""Check that compiled CPU kernels are bounded: unused ones are evicted, with their code
and memory.
"""

from __future__ import annotations

import sys

import pytest

from tests.cli_runners import run_python

pytestmark = [
    pytest.mark.requires_fast,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"),
        reason="memory is read from /proc",
    ),
]

PRELUDE = r"""
import gc, os, random, threading
from ctypes import c_int64
from functools import lru_cache
from rlxweb.codegen import llvm_compiler, jit_cache
from rlxweb.codegen.jit_cache import JitCache

@lru_cache(None)
def adding(number):
    text = f"define i64 @f(i64 %n) {{ %m = add i64 %n, {number}\n ret i64 %m }}"
    return llvm_compiler.compile_object(text)

# Adds the number, modulo 32: what is compiled once is loaded for each.
def function(number):
    code = llvm_compiler.LoadedCode(adding(number % 32))
    return code.get_function("f", c_int64, c_int64)

def codes():
    gc.collect()
    return sum(isinstance(one, llvm_compiler.LoadedCode) for one in gc.get_objects())

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

cache = JitCache(function, jit_mode=lambda: "wait")
"""


def run_code(code: str) -> None:
    result = run_python("-c", PRELUDE + code)
    assert result.code == 0, result.err


def test_kernel_cache_keeps_the_documented_number() -> None:
    """No more compiled kernels are cached than the limit; one that is in use stays
    alive.
    """
    run_code("""
held = cache.get_kernel(0)
for number in range(jit_cache.MAX_KERNELS + 20):
    assert cache.get_kernel(number)(1) == number % 32 + 1
assert codes() == jit_cache.MAX_KERNELS + 1, codes()
assert held(1) == 1
assert cache.get_kernel(5)(1) == 6  # which was dropped meanwhile
del held
assert codes() == jit_cache.MAX_KERNELS
""")


def test_threads_can_call_kernels_evicted_meanwhile() -> None:
    run_code("""
jit_cache.MAX_KERNELS = 4
cache, wrong = JitCache(function, jit_mode=lambda: "wait"), []

def work(seed):
    rng = random.Random(seed)
    for _ in range(60):
        number = rng.randrange(20)
        kernel = cache.get_kernel(number)
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


def test_memory_is_bounded_over_many_estimate_sizes() -> None:
    """Estimates of six more sizes leave less than 1.5 MiB behind.

    To compile one left half a megabyte behind, and each stayed.
    """
    run_code("""
from rlxweb.ops.welch.cpu.llvm_kernel import WelchKernel

nbytes = llvm_compiler.host_cpu().vector_nbytes

def estimate(n):
    text = WelchKernel(n, nbytes, "float", "constant", "float", 1).llvm_ir()
    return llvm_compiler.LoadedCode(llvm_compiler.compile_object(text))

jit_cache.MAX_KERNELS = 4
cache = JitCache(estimate, jit_mode=lambda: "wait")
for n in range(60, 68, 2):
    assert cache.get_kernel(n)
before = resident()
for n in range(61, 73, 2):
    assert cache.get_kernel(n)
grown = resident() - before
assert grown < 3 << 19, f"{grown >> 10} KiB for 6 more sizes"
assert codes() == 4
""")
