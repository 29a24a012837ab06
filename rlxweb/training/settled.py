"""A step that is computed by the same code from its first time on.

On the CPU code is compiled while NumPy computes, and small steps become one call after
their first run. Either way rounds in its own way, so a training that goes on from a
file would differ from one that was never interrupted by where it began anew.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from rlxweb.device import Device
from rlxweb.machine.making import fast_mode
from rlxweb.tracing.held_call import HeldCall

_RUNS = 2
"""What is made of a first run is used from the second on."""


def settle(call: HeldCall, *args: Any) -> None:
    """Have all of a step's code made, by runs whose results are dropped."""
    if call.device is not Device.CPU or fast_mode() == "off":
        return
    from rlxweb.backends.cpu import WORKSHOPS

    with ExitStack() as stack:
        for shop in WORKSHOPS:
            stack.enter_context(shop.waiting())
        for _ in range(_RUNS):
            call(*args, stay=1)
