"""CUDA text run on the host: `cupy.RawModule` over NumPy arrays, by g++.

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

HEAD = """
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
TAIL = """
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
KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\)')
SCALARS = {"wide": np.int64, "double": np.float64}


@cache
def _built(code: str) -> ctypes.CDLL:
    tails = []
    for name, taken in KERNEL.findall(code):
        kinds = [one.strip().rsplit(" ", 1)[0] for one in taken.split(",")]
        given = [
            f"({k}) given[{i}]" if "*" in k else f"*({k}*) given[{i}]"
            for i, k in enumerate(kinds)
        ]
        tails.append(TAIL.format(name=name, arguments=", ".join(given)))
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "k.cpp", Path(folder) / "k.so"
        source.write_text(HEAD + code + "".join(tails), encoding="utf-8")
        order = "g++ -std=c++20 -O1 -ffp-contract=off -shared -fPIC".split()
        order += ["-o", str(library), str(source)]
        subprocess.run(order, check=True, capture_output=True, timeout=120)
        return ctypes.CDLL(str(library))


class HostModule:
    """`cupy.RawModule(code=…, options=…)`; built when a function is asked for.

    launched   names of kernels in order, over all modules
    """

    launched: list[str] = []  # noqa: RUF012 - of all of them, for tests to read

    def __init__(self, *, code: str, options: tuple[str, ...]) -> None:
        assert options == ("-fmad=false",)
        self._code = code

    def get_function(self, name: str) -> Any:
        taken = dict(KERNEL.findall(self._code))[name].split(",")
        kinds = [one.strip().rsplit(" ", 1)[0].split()[-1] for one in taken]
        run = getattr(_built(self._code), f"launch_{name}")

        def launch(grid: tuple[int], block: tuple[int], given: tuple[Any, ...]) -> None:
            HostModule.launched.append(name)
            assert len(given) == len(kinds)
            held = [_held(kind, one) for kind, one in zip(kinds, given, strict=True)]
            pointers = (ctypes.c_void_p * len(held))(*(one.ctypes.data for one in held))
            run(ctypes.c_uint(*grid), ctypes.c_uint(*block), pointers)

        return launch


def _held(kind: str, one: Any) -> Any:
    """The array a pointer means, or a scalar's own; as CuPy, nothing is converted."""
    if kind in SCALARS:
        assert isinstance(one, SCALARS[kind]), (kind, one)
        return np.array(one)
    assert one.flags.c_contiguous
    return one
