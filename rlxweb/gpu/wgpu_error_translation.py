"""Translation of the exceptions of wgpu-py to rlxweb errors.

Reads the class name and the text of an error and never imports wgpu. Used by
`wgpu_port.py` only.
"""

from __future__ import annotations

from rlxweb.core.errors import DeviceError, DeviceLost, OutOfMemory, ShaderRejected


def translate_error(
    error: Exception, context: str, default_error: type[DeviceError], source: str
) -> DeviceError:
    """Return the rlxweb error for one of wgpu's.

    `default_error` is what a failure of no special kind means here; a loss and a lack
    of memory mean the same everywhere.
    """
    text = str(error).replace("Validation Error\n\nCaused by:\n", "").strip()
    if "device is lost" in text.lower() or default_error is DeviceLost:
        hint = "open the device again, or choose device 'cpu'"
        return DeviceLost(context, text or type(error).__name__, "", hint)
    if type(error).__name__ == "GPUOutOfMemoryError":
        return OutOfMemory(context, text, "", "free memory, or use smaller inputs")
    if default_error is ShaderRejected:
        hint = "see the generated source in the attribute `source` of this exception"
        return ShaderRejected(context, text, "", hint, source)
    problem = f"{type(error).__name__}: {text}"
    return DeviceError(context, problem, "", "choose device 'cpu'")
