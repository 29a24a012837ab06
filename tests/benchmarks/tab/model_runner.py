"""Python side of the browser's network benchmark: load a network in the tab, compile
it, run it.
"""

from __future__ import annotations

import base64
import json
import platform
from typing import Any

import numpy as np

import rlxweb as rlx


class Ours:
    """Saved graph on one device, and the arrays of its runs.

    data    the bytes of its file
    inputs  JSON: name, dtype, dims and base64 of each
    """

    def __init__(self, data: Any, inputs: str, device: str) -> None:
        self._graph = rlx.load(bytes(data))
        self._device = device
        arrays_by_name = {array["name"]: array for array in json.loads(inputs)}
        self._inputs = {
            name: _decode_array(arrays_by_name[name]) for name in self._graph.inputs
        }

    def run(self) -> dict[str, Any]:
        """Run the graph and return the outputs on the host."""
        return self._graph.run(self._inputs, device=self._device)

    def told(self, result: dict[str, Any]) -> str:
        """Encode a result of `run` as JSON."""
        return json.dumps(
            {name: _encode_array(array) for name, array in result.items()}
        )

    def close(self) -> None:
        """Free the graph."""
        self._graph.close()


def versions() -> str:
    """Return the versions of Python and NumPy in the tab, as JSON."""
    return json.dumps({"python": platform.python_version(), "numpy": np.__version__})


def _decode_array(encoded: dict[str, Any]) -> Any:
    flat = np.frombuffer(base64.b64decode(encoded["base64"]), encoded["dtype"])
    return flat.reshape(encoded["dims"])


def _encode_array(array: Any) -> dict[str, Any]:
    packed = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": str(array.dtype), "dims": list(array.shape), "base64": packed}
