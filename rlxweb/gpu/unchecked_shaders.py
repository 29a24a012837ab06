"""Creation of shader modules without the run-time checks of wgpu's compiler.

By default naga clamps every index into an array and bounds every loop, since a web page
may have written the shader. wgpu-native can be told to trust one; wgpu-py has no method
for that, so its library is called here as `create_shader_module` of wgpu-py 0.32 does.
Only for shaders that this package wrote. Used by `wgpu_port.py` only.
"""

from __future__ import annotations

import sys
from typing import Any

_NO_CHECKS = 0


def create_unchecked_module(device: Any, source: str) -> Any:
    """Create a shader module without run-time checks; None if the library cannot.

    Errors   those of wgpu, for a text it refuses.
    """
    # The library that made the device, whichever that is: nothing is imported here.
    native: Any = sys.modules[type(device).__module__]
    library = getattr(native, "libf", None)
    create = getattr(library, "wgpuDeviceCreateShaderModuleTrusted", None)
    if create is None:
        return None
    code = native.new_struct_p(
        "WGPUShaderSourceWGSL *", code=native.to_c_string_view(source)
    )
    code[0].chain.next = native.ffi.NULL
    code[0].chain.sType = native.lib.WGPUSType_ShaderSourceWGSL
    descriptor = native.new_struct_p(
        "WGPUShaderModuleDescriptor *",
        nextInChain=native.ffi.cast("WGPUChainedStruct *", code),
        label=native.to_c_string_view(""),
    )
    native_module = create(device._internal, descriptor, _NO_CHECKS)
    return native.GPUShaderModule("", native_module, device)
