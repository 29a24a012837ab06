"""Python side of the export demo: peaks of the samples, and the shaders that the
browser got for them.
"""

import numpy as np

import rlxweb as rlx
from rlxweb.engines.pool import pool

SHADERS = []


def record_shaders():
    """Record every shader that the tab's engine passes to the browser's compiler."""
    port = pool.engine("webgpu").port
    create_pipeline = port.create_pipeline

    async def pipeline(source, *rest, **more):
        SHADERS.append(source)
        return await create_pipeline(source, *rest, **more)

    if not SHADERS:
        port.create_pipeline = pipeline


async def peaks(args, buffers):
    """Return frequencies and power of the strongest peaks, and the engine that computed
    them.
    """
    x = np.frombuffer(buffers[0], np.float32).reshape(args["rows"], args["samples"])
    if args["device"] == "webgpu":
        record_shaders()
    result = await rlx.welch_peaks_async(
        x, args["fs"], args["nperseg"], args["k"], device=args["device"]
    )
    return {"engine": result.engine, "shaders": SHADERS}, [result.hz, result.power]
