"""NumPy on the CPU: always there, the embedded default and the definition of right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlxweb.backends.array import ArrayBackend, array_target
from rlxweb.backends.protocol import CPU_ENGINE
from rlxweb.host.variants import VARIANTS, Variant
from rlxweb.ir.dtype import DType


class CpuBackend(ArrayBackend):
    """`ArrayBackend` over NumPy itself; without `variants` by the references alone."""

    target = array_target("NumPy", frozenset(DType))

    def __init__(self, variants: Sequence[Variant] = VARIANTS) -> None:
        adapter, api, driver = CPU_ENGINE
        super().__init__(
            np,
            self.target,
            name=adapter,
            api=api,
            driver=driver,
            to_device=np.asarray,
            to_host=np.asarray,
            variants=variants,
        )
