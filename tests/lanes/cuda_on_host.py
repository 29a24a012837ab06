"""CUDA source run on the host: `cupy.RawModule` over NumPy arrays, compiled by g++.

A block's lanes take turns, each until its next `__syncthreads`; blocks run one after
another. So the text itself runs, with the host's functions: what a GPU's
compiler, functions and order of lanes make of it is seen on a GPU alone.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HOST_PRELUDE = """
#include <cmath>
#include <ucontext.h>
#include <vector>
using namespace std;
struct Place { unsigned x; };
static Place threadIdx, blockIdx, blockDim;
static ucontext_t host_turns, host_lanes[256];
static bool host_done[256];
static char stacks[256][1 << 16];
#define __global__
#define __device__ static
#define __shared__ static
#define __syncthreads() swapcontext(&host_lanes[threadIdx.x], &host_turns)
"""
LAUNCH_TEMPLATE = """
static void** given_{name};
static void lane_{name}() {{
    void** given = given_{name};
    {name}({arguments});
    host_done[threadIdx.x] = true;
}}
extern "C" void launch_{name}(unsigned blocks, unsigned size, void** given) {{
    blockDim.x = size;
    given_{name} = given;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {{
        for (unsigned i = 0; i < size; ++i) {{
            host_done[i] = false;
            getcontext(&host_lanes[i]);
            host_lanes[i].uc_stack.ss_sp = stacks[i];
            host_lanes[i].uc_stack.ss_size = sizeof stacks[i];
            host_lanes[i].uc_link = &host_turns;
            makecontext(&host_lanes[i], lane_{name}, 0);
        }}
        for (unsigned left = size; left;)
            for (unsigned i = 0; i < size; ++i) {{
                if (host_done[i]) continue;
                threadIdx.x = i;
                swapcontext(&host_turns, &host_lanes[i]);
                left -= host_done[i];
            }}
    }}
}}
"""
KERNEL_PATTERN = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\)')
SCALAR_TYPES = {"wide": np.int64, "double": np.float64}


@cache
def _compile_library(code: str) -> ctypes.CDLL:
    tails = []
    for name, parameters in KERNEL_PATTERN.findall(code):
        kinds = [
            parameter.strip().rsplit(" ", 1)[0] for parameter in parameters.split(",")
        ]
        arguments = [
            f"({k}) given[{i}]" if "*" in k else f"*({k}*) given[{i}]"
            for i, k in enumerate(kinds)
        ]
        tails.append(LAUNCH_TEMPLATE.format(name=name, arguments=", ".join(arguments)))
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "k.cpp", Path(folder) / "k.so"
        source.write_text(HOST_PRELUDE + code + "".join(tails), encoding="utf-8")
        command = "g++ -std=c++20 -O1 -ffp-contract=off -shared -fPIC".split()
        command += ["-o", str(library), str(source)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        return ctypes.CDLL(str(library))


class HostCudaModule:
    """Stand-in for `cupy.RawModule(code=…, options=…)`, built when a function is
    requested.

    launched   names of kernels in order, over all modules
    """

    launched: list[str] = []  # noqa: RUF012 - of all of them, for tests to read

    def __init__(self, *, code: str, options: tuple[str, ...]) -> None:
        assert options == ("-fmad=false",)
        self._code = code

    def get_function(self, name: str) -> Any:
        parameters = dict(KERNEL_PATTERN.findall(self._code))[name].split(",")
        kinds = [
            parameter.strip().rsplit(" ", 1)[0].split()[-1] for parameter in parameters
        ]
        run = getattr(_compile_library(self._code), f"launch_{name}")

        def launch(
            grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]
        ) -> None:
            HostCudaModule.launched.append(name)
            assert len(arguments) == len(kinds)
            host_values = [
                _host_value(kind, host_value)
                for kind, host_value in zip(kinds, arguments, strict=True)
            ]
            pointers = (ctypes.c_void_p * len(host_values))(
                *(host_value.ctypes.data for host_value in host_values)
            )
            run(ctypes.c_uint(*grid), ctypes.c_uint(*block), pointers)

        return launch


def _host_value(kind: str, argument: Any) -> Any:
    """Return the array behind a pointer argument, or a scalar as an array; like CuPy,
    convert nothing.
    """
    if kind in SCALAR_TYPES:
        assert isinstance(argument, SCALAR_TYPES[kind]), (kind, argument)
        return np.array(argument)
    assert argument.flags.c_contiguous
    return argument
