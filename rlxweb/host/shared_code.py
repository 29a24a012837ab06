"""Machine code that shares out its own work, called by all threads there are.

Where there is a crew, Python hears of the call and of its end and of nothing between;
elsewhere threads of Python's call the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_void_p
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.host.compiled import address
from rlxweb.host.row_blocks import together, usable_cpus
from rlxweb.machine.crew import Crew
from rlxweb.machine.jobs import address_of
from rlxweb.machine.library import Code


class Shared(NamedTuple):
    """A function of one address, as Python calls it and as machine code does."""

    call: Callable[[int], None]
    address: int

    @classmethod
    def of(cls, code: Code, name: str) -> Shared:
        """The function of that name for jobs; `machine/jobs.py` makes it."""
        function = code.function(f"{name}_job", None, c_void_p)
        return cls(function, address_of(function))

    def __call__(self, job: NDArray[np.int64], *, threaded: bool) -> None:
        """On the caller's thread, or on all."""
        at = address(job)
        if not threaded:
            self.call(at)
        elif not crew().run(self.address, at):
            together(lambda: self.call(at), True)


@cache
def crew() -> Crew:
    """The process's: a thread for every processor but the caller's."""
    return Crew(usable_cpus() - 1)
