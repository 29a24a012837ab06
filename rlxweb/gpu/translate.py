"""wgpu's errors as ours: every exception that leaves a native port passes here.

Reads the class name and the text of an error and never imports wgpu. Used by
`native.py` only.
"""

from __future__ import annotations

from rlxweb.errors import DeviceError, DeviceLost, OutOfMemory, ShaderRejected


def translate(
    error: Exception, doing: str, otherwise: type[DeviceError], source: str
) -> DeviceError:
    """The error of our tree for one of wgpu's.

    `otherwise` is what a failure of no special kind means here; a loss and a lack of
    memory mean the same everywhere.
    """
    text = str(error).replace("Validation Error\n\nCaused by:\n", "").strip()
    if "device is lost" in text.lower() or otherwise is DeviceLost:
        hint = "open the device again, or choose device 'cpu'"
        return DeviceLost(doing, text or type(error).__name__, "", hint)
    if type(error).__name__ == "GPUOutOfMemoryError":
        return OutOfMemory(doing, text, "", "free memory, or use smaller blocks")
    if otherwise is ShaderRejected:
        hint = "the generated source is on this exception, as `source`"
        return ShaderRejected(doing, text, "", hint, source)
    problem = f"{type(error).__name__}: {text}"
    return DeviceError(doing, problem, "", "choose device 'cpu'")
