"""C types that wgpu-py refers to by name, parsed in one pass to save start-up time.

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
C_TYPE_NAMES: Final = (*_POINTERS, *_ARRAYS, *_CALLBACKS, "intptr_t")
"""Type names exactly as wgpu-py 0.32 and this package spell them, blanks included:
cffi's keys.
"""


def parse_types(ffi: Any) -> None:
    """Parse every type of `C_TYPE_NAMES` that the library of a cffi `ffi` has."""
    parsed_types = getattr(ffi, "_parsed_types", None)
    if not isinstance(parsed_types, dict):
        return
    known_names = {
        *ffi.list_types()[0],
        "char",
        "const",
        "intptr_t",
        "uint32_t",
        "void",
    }
    names = [
        n
        for n in C_TYPE_NAMES
        if n not in parsed_types and known_names.issuperset(_identifiers(n))
    ]
    if not names:
        return
    with suppress(Exception):  # a cffi of another kind: it parses by itself
        # A struct each, for an array of no stated length may only be a last field.
        ffi.cdef(
            "".join(
                f"struct rlxweb_{i} {{ {_field_declaration(n)}; }};"
                for i, n in enumerate(names)
            )
            + "struct rlxweb_types {"
            + "".join(f"struct rlxweb_{i} *t{i};" for i in range(len(names)))
            + "};"
        )
        fields = ffi.typeof("struct rlxweb_types").fields
        for name, (_, pointer) in zip(names, fields, strict=True):
            ((_, field),) = pointer.type.item.fields
            parsed_types.setdefault(name, (field.type, name in _CALLBACKS))


def _identifiers(name: str) -> list[str]:
    """Return the identifiers in a C type name."""
    return re.findall(r"[A-Za-z_]\w*", name)


def _field_declaration(name: str) -> str:
    """Return a declaration of a field `t` of the type; a function pointer for a
    function type.
    """
    if name in _CALLBACKS:
        return name.replace("(", "(*t)(", 1)
    base, bracket, length = name.partition("[")
    return f"{base} t{bracket}{length}"
