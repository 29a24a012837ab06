"""The C types that wgpu-py names, parsed in one go.

wgpu-py names a type of C by a string wherever it makes one. For each string that cffi
has not met it parses C anew, every name of the library's header with it: 12 to 20 ms,
some forty times before a first run has ended. Here the names are fields of one struct,
which is parsed once; cffi finds what came of them where it keeps the types it has met.
Where it keeps them elsewhere, or the library knows a name no longer, cffi parses when
it is asked, as without this. Works on an `ffi` it is handed and never imports wgpu.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

_POINTERS: Final = (
    "WGPUAdapterInfo *",
    "WGPUBindGroupDescriptor *",
    "WGPUBindGroupEntry *",
    "WGPUBindGroupLayoutDescriptor *",
    "WGPUBindGroupLayoutEntry *",
    "WGPUBufferBindingLayout *",
    "WGPUBufferDescriptor *",
    "WGPUBufferMapCallbackInfo *",
    "WGPUChainedStruct *",
    "WGPUChainedStruct * ",
    "WGPUCommandBufferDescriptor *",
    "WGPUCommandEncoderDescriptor *",
    "WGPUComputePassDescriptor *",
    "WGPUComputePipelineDescriptor *",
    "WGPUComputeState *",
    "WGPUConstantEntry *",
    "WGPUDeviceDescriptor *",
    "WGPUDeviceExtras *",
    "WGPUDeviceLostCallbackInfo *",
    "WGPUInstanceDescriptor *",
    "WGPULimits *",
    "WGPUNativeLimits *",
    "WGPUPassTimestampWrites *",
    "WGPUPipelineLayoutDescriptor *",
    "WGPUQuerySetDescriptor *",
    "WGPUQueueDescriptor *",
    "WGPURequestDeviceCallbackInfo *",
    "WGPUShaderModuleDescriptor *",
    "WGPUShaderSourceWGSL *",
    "WGPUUncapturedErrorCallbackInfo *",
)
_ARRAYS: Final = (
    "WGPUAdapter[]",
    "WGPUBindGroupEntry[]",
    "WGPUBindGroupLayoutEntry[]",
    "WGPUBindGroupLayout[]",
    "WGPUCommandBuffer[]",
    "WGPUCommandBuffer[1]",
    "WGPUConstantEntry[]",
    "WGPUFeatureName[]",
    "char []",
    "uint32_t []",
)
_CALLBACKS: Final = (
    "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
    "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
)
NAMES: Final = (*_POINTERS, *_ARRAYS, *_CALLBACKS, "intptr_t")
"""As wgpu-py 0.32 and this package spell them, to the blank: cffi's keys."""


def parse_at_once(ffi: Any) -> None:
    """Teach an `ffi` of cffi every type of `NAMES` that its library has."""
    met = getattr(ffi, "_parsed_types", None)
    if not isinstance(met, dict):
        return
    known = {*ffi.list_types()[0], "char", "const", "intptr_t", "uint32_t", "void"}
    names = [n for n in NAMES if n not in met and known.issuperset(_words(n))]
    if not names:
        return
    with suppress(Exception):  # a cffi of another kind: it parses by itself
        # A struct each, for an array of no stated length may only be a last field.
        ffi.cdef(
            "".join(
                f"struct rlxweb_{i} {{ {_field(n)}; }};" for i, n in enumerate(names)
            )
            + "struct rlxweb_types {"
            + "".join(f"struct rlxweb_{i} *t{i};" for i in range(len(names)))
            + "};"
        )
        fields = ffi.typeof("struct rlxweb_types").fields
        for name, (_, pointer) in zip(names, fields, strict=True):
            ((_, only),) = pointer.type.item.fields
            met.setdefault(name, (only.type, name in _CALLBACKS))


def _words(name: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", name)


def _field(name: str) -> str:
    """The type as a field `t`; of a function, what points to one."""
    if name in _CALLBACKS:
        return name.replace("(", "(*t)(", 1)
    base, bracket, length = name.partition("[")
    return f"{base} t{bracket}{length}"
