"""Calls of native code: the layout of a job's arguments, and jobs on the native thread
pool.

A job is a function of one address, at which its arguments lie, 64 bits each; what hands
jobs to threads knows no signatures.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ctypes import addressof, c_char, c_void_p, cast
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.llvm_compiler import LoadedCode
from rlxweb.codegen.native_thread_pool import NativeThreadPool
from rlxweb.codegen.wasm_builder import IN_BROWSER
from rlxweb.core.thread_tasks import run_on_all_threads, usable_cpus

# --- Calling convention: the code that reads a job's arguments, and the array that
# holds them

WORD_NBYTES: Final = 8
"""Bytes of an argument."""
_SIGNATURE_PATTERN = re.compile(r"void @(\w+)\((.*)\)")


def job_wrapper_llvm_ir(signature: str) -> str:
    """Return the LLVM IR of @NAME_job(ptr), which loads the arguments of a signature
    from memory and calls it.
    """
    match = _SIGNATURE_PATTERN.fullmatch(signature)
    assert match is not None, signature
    name, parameters = match.groups()
    lines, arguments = [], []
    for index, parameter in enumerate(parameters.split(", ")):
        value_type = parameter.split(" ")[0]
        stored_type = "double" if value_type == "float" else value_type
        lines.append(f"  %w{index} = getelementptr i64, ptr %job, i64 {index}")
        lines.append(f"  %a{index} = load {stored_type}, ptr %w{index}, align 8")
        value = f"%a{index}"
        if stored_type != value_type:
            value = f"%n{index}"
            lines.append(f"  {value} = fptrunc double %a{index} to float")
        arguments.append(f"{value_type} {value}")
    lines.append(f"  call void @{name}({', '.join(arguments)})")
    body = "\n".join(lines)
    return f"define void @{name}_job(ptr %job) {{\nentry:\n{body}\n  ret void\n}}\n"


def function_address(function: Any) -> int:
    """Return the address of a ctypes function, as native code calls it."""
    return cast(function, c_void_p).value or 0


def array_address(array: NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    if IN_BROWSER:  # the other ways take five times as long there
        return array.ctypes.data
    if array.flags.writeable and array.flags.c_contiguous and array.size:
        # A third of the time that the other way takes, which one row would feel.
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def pack_arguments(*values: float) -> NDArray[np.int64]:
    """Pack integers, addresses and floats as 64-bit words for a job function."""
    words: NDArray[np.int64] = np.empty(len(values), np.int64)
    floats: NDArray[Any] = words.view(np.float64)
    for index, value in enumerate(values):
        (floats if isinstance(value, float) else words)[index] = value
    return words


# --- Calls of native (LLVM) functions that divide their own work, made on all threads
# at once
#
# With a native thread pool, Python sees only the start and the end of a call; otherwise
# Python threads call the same function.


class ParallelNativeFunction(NamedTuple):
    """Native function of one job address, callable from Python and from native code."""

    call: Callable[[int], None]
    address: int

    @classmethod
    def from_code(cls, code: LoadedCode, name: str) -> ParallelNativeFunction:
        """Return the job function of that name, from `job_wrapper_llvm_ir`."""
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
