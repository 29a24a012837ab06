"""The round trip a device must get right before it is used.

A device may be lost at birth, and most calls on a lost device seem to succeed; so four
bytes go there, through a shader and back. Speaks to the port's verbs only.
"""

from __future__ import annotations

from rlxweb.errors import DeviceError
from rlxweb.gpu.port import Copy, Dispatch, Port, Range

_SHADER = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1) fn main() { y[0] = x[0] * 3u + 1u; }
"""


async def prove(port: Port) -> None:
    """Demand a right answer to a trivial shader; leaves nothing behind.

    Errors   DeviceError for a wrong answer, and whatever the port raises.
    """
    x, y = port.buffer(4, "storage"), port.buffer(4, "storage")
    back = port.buffer(4, "readback")
    kernel = await port.pipeline(_SHADER, ("read", "write"), {})
    port.write(x, 0, memoryview(b"\x05\0\0\0"))
    spans = (Range(x, 0, 4), Range(y, 0, 4))
    port.submit([Dispatch(kernel, spans, (1, 1, 1), "proof"), Copy(spans[1], back)])
    answer = bytes(await port.read(back, 0, 4))
    for handle in (x, y, back, kernel):
        port.destroy(handle)
    if answer != b"\x10\0\0\0":
        raise DeviceError(
            "prove the device",
            f"a trivial shader gave {answer.hex()}",
            "it should give 10000000",
            "update the driver, or choose another device",
        )
