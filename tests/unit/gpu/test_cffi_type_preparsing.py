"""C types parsed in one batch are those that cffi parses one by one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rlxweb.gpu.cffi_type_preparsing import C_TYPE_NAMES, parse_types
from rlxweb.gpu.wgpu_libraries import list_adapters

HEADER = """
typedef struct WGPULimits { int most; } WGPULimits;
typedef struct WGPUAdapterImpl *WGPUAdapter;
"""
# What cffi parses in a process that opens a device, computes and times.
RUN_SCRIPT = """
import cffi.cparser as parser
parse, seen = parser.Parser._parse, []
def seeing(self, source):
    seen.append(source)
    return parse(self, source)
parser.Parser._parse = seeing
import numpy as np
import rlxweb as rlx
g = rlx.Graph("g")
g.set_outputs([g.matmul(g.input("x", (64, 64)), g.param("w", (64, 64)))])
run = rlx.Session("vulkan", adapter="llvmpipe").compile(g)
run.set_param("w", np.ones((64, 64), np.float32))
run.run({"x": np.ones((64, 64), np.float32)})
run.profile({"x": np.ones((64, 64), np.float32)})
for one in seen:
    if "__dummy" in one:
        print(one.split("__dummy(")[1].rsplit(")", 1)[0].strip())
"""


def new_ffi() -> Any:
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(HEADER)
    return ffi


@pytest.mark.requires_wgpu
def test_types_match_those_that_cffi_parses() -> None:
    list_adapters("wgpu")  # loads the library
    ffi = sys.modules["wgpu.backends.wgpu_native"].ffi
    for name in C_TYPE_NAMES:
        batch_parsed = ffi._parsed_types.pop(name)
        ffi._typeof(name, consider_function_as_funcptr=True)
        assert ffi._parsed_types[name] == batch_parsed
        assert ffi._parsed_types[name][0] is batch_parsed[0]


@pytest.mark.requires_lavapipe
def test_a_run_parses_no_other_type() -> None:
    process = subprocess.run(
        [sys.executable, "-c", RUN_SCRIPT], capture_output=True, text=True, timeout=100
    )
    assert process.returncode == 0, process.stderr
    # The library's own two, before it can be handed anything, and the struct of all.
    types = process.stdout.splitlines()
    assert types[-1] == "struct rlxweb_types"
    assert all(
        one.startswith(("void(WGPULogLevel", "WGPUStringView")) for one in types[:-1]
    )


@pytest.mark.requires_wgpu
def test_names_that_a_library_lacks_are_left_out() -> None:
    ffi = new_ffi()
    parse_types(ffi)
    assert ffi._parsed_types["WGPULimits *"][0] is ffi.typeof("WGPULimits *")
    assert ffi.sizeof(ffi.new("WGPUAdapter[]", 3)) == 3 * ffi.sizeof("void *")
    assert "WGPUDeviceDescriptor *" not in ffi._parsed_types


def test_an_unknown_cffi_is_left_alone() -> None:
    class FfiWithoutParsedTypes:
        """FFI that keeps its types elsewhere."""

    class FfiWithoutStructs:
        """FFI that parses no structs."""

        _parsed_types: dict[str, object] = {}  # noqa: RUF012

        def list_types(self) -> tuple[list[str], list[str], list[str]]:
            return [], [], []

        def cdef(self, _source: str) -> None:
            raise NotImplementedError

    parse_types(FfiWithoutParsedTypes())
    ffi = FfiWithoutStructs()
    parse_types(ffi)
    assert ffi._parsed_types == {}
