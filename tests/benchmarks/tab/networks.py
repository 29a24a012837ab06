"""A network of the browser benchmark on rlxweb, in the tab: loaded, compiled, run."""

from __future__ import annotations

import base64
import json
import platform
from typing import Any

import numpy as np

import rlxweb as rlx


class Ours:
    """A saved graph on one device, and the arrays of its runs.

    data    the bytes of its file
    inputs  JSON: name, dtype, dims and base64 of each
    """

    def __init__(self, data: Any, inputs: str, device: str) -> None:
        self._graph = rlx.load(bytes(data))
        self._device = device
        named = {one["name"]: one for one in json.loads(inputs)}
        self._inputs = {name: _array(named[name]) for name in self._graph.inputs}

    def run(self) -> dict[str, Any]:
        """The outputs, on the host."""
        return self._graph.run(self._inputs, device=self._device)

    def told(self, result: dict[str, Any]) -> str:
        """What `run` gave, as JSON."""
        return json.dumps({name: _told(array) for name, array in result.items()})

    def close(self) -> None:
        """Free it."""
        self._graph.close()


def versions() -> str:
    """Versions of what computes here, as JSON."""
    return json.dumps({"python": platform.python_version(), "numpy": np.__version__})


def _array(one: dict[str, Any]) -> Any:
    flat = np.frombuffer(base64.b64decode(one["base64"]), one["dtype"])
    return flat.reshape(one["dims"])


def _told(array: Any) -> dict[str, Any]:
    packed = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": str(array.dtype), "dims": list(array.shape), "base64": packed}
