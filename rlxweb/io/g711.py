"""The two companded codes of telephony, mu-law and A-law (ITU-T G.711).

A byte stands for one of 256 integers of 16 bits: a sign, one of eight ranges, each
twice as wide as the one below, and a place inside the range. Both are tables here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def mu_law() -> npt.NDArray[np.int16]:
    """The integer of each byte: 14 bits of range, in the upper bits of 16."""
    code = np.arange(256) ^ 0xFF
    span, place = code >> 4 & 7, code & 15
    # 33 is the bias that lets each range begin where the one below ends.
    size = ((2 * place + 33) << span) - 33
    return np.where(code & 0x80, -4 * size, 4 * size).astype(np.int16)


def a_law() -> npt.NDArray[np.int16]:
    """The integer of each byte: 13 bits of range, in the upper bits of 16."""
    code = np.arange(256) ^ 0x55
    span, place = code >> 4 & 7, code & 15
    # The two lowest ranges are equally wide.
    size = np.where(span, (2 * place + 33) << np.maximum(span - 1, 0), 2 * place + 1)
    return np.where(code & 0x80, 8 * size, -8 * size).astype(np.int16)
