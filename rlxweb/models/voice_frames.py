"""Frames of a voice through Silero's models, their state from run to run on the device.

One model takes many frames and the two halves of the state apart, the other one frame
and both in one array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.device import DeviceLike
from rlxweb.onnx.model import Model
from rlxweb.runtime.device_array import DeviceArray
from rlxweb.runtime.from_file import Asked

Array = npt.NDArray[Any]

FRAMES = {16000: (512, 64), 8000: (256, 32)}
"""Rate → samples of a frame, and of those before it that are seen again."""
_WIDE = 128


class VoiceFrames:
    """Judges frames in their order. Used by one thread.

    rate        Hz of the samples
    takes_many  a run is of many frames, which should be as many each time
    """

    def __init__(
        self, model: Model, rate: int, device: DeviceLike | None, adapter: str
    ) -> None:
        self.rate = rate
        self.takes_many = "h" in model.inputs
        self._model = model
        kept = ("hn", "cn") if self.takes_many else ("stateN",)
        self._asked = Asked(device, adapter, None, keep=kept)
        self._state: dict[str, Any] = {}
        self.reset()

    def reset(self) -> None:
        """Forget what was heard."""
        self._free()
        if self.takes_many:
            zero = np.zeros((1, 1, _WIDE), np.float32)
            self._state = {"h": zero, "c": zero}
        else:
            self._state = {"state": np.zeros((2, 1, _WIDE), np.float32)}

    def _free(self) -> None:
        for one in self._state.values():
            if isinstance(one, DeviceArray):
                one.close()

    async def heard(self, x: Array) -> Array:
        """The probability of each frame, (n,) float32.

        x   n frames one after the other, after the samples that are seen again
        """
        frame, before = FRAMES[self.rate]
        rows = np.lib.stride_tricks.sliding_window_view(x, before + frame)[::frame]
        if self.takes_many:
            return await self._run({"input": rows}, "speech_probs", ("hn", "cn"))
        rate = np.array(self.rate, np.int64)
        found = [
            await self._run({"input": row[None], "sr": rate}, "output", ("stateN",))
            for row in rows
        ]
        return np.concatenate(found)

    async def _run(
        self, inputs: dict[str, Any], output: str, states: tuple[str, ...]
    ) -> Array:
        outs = await self._model.computed({**inputs, **self._state}, self._asked)
        self._free()
        self._state = dict(zip(self._state, (outs[n] for n in states), strict=True))
        found: Array = outs[output].reshape(-1)
        return found

    def close(self) -> None:
        """Free the state."""
        self._free()
        self._state = {}
