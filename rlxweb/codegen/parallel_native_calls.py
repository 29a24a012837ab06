"""Calls of native (LLVM) functions that divide their own work, made on all threads at
once.

Where there is a crew, Python hears of the call and of its end and of nothing between;
elsewhere threads of Python's call the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_void_p
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.job_calling_convention import array_address, function_address
from rlxweb.codegen.llvm_compiler import LoadedCode
from rlxweb.codegen.native_thread_pool import NativeThreadPool
from rlxweb.core.thread_tasks import run_on_all_threads, usable_cpus


class ParallelNativeFunction(NamedTuple):
    """Native function of one job address, callable from Python and from native code."""

    call: Callable[[int], None]
    address: int

    @classmethod
    def from_code(cls, code: LoadedCode, name: str) -> ParallelNativeFunction:
        """Return the job function of that name; `job_calling_convention.py`
        generates it.
        """
        function = code.get_function(f"{name}_job", None, c_void_p)
        return cls(function, function_address(function))

    def __call__(self, job: NDArray[np.int64], *, threaded: bool) -> None:
        """Run a job on the caller's thread, or on all threads."""
        job_address = array_address(job)
        if not threaded:
            self.call(job_address)
        elif not native_thread_pool().run(self.address, job_address):
            run_on_all_threads(lambda: self.call(job_address), True)


@cache
def native_thread_pool() -> NativeThreadPool:
    """Return the native thread pool of this process: a thread for every processor but
    the caller's.
    """
    return NativeThreadPool(usable_cpus() - 1)
