"""Decoding tables of the two companded telephony codes, mu-law and A-law (ITU-T G.711).

A byte stands for one of 256 integers of 16 bits: a sign, one of eight ranges, each
twice as wide as the one below, and a place inside the range. Both are tables here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def mu_law_table() -> npt.NDArray[np.int16]:
    """Return the int16 value of each mu-law byte: 14 bits of range, in the upper bits
    of 16.
    """
    code = np.arange(256) ^ 0xFF
    segment, step = code >> 4 & 7, code & 15
    # 33 is the bias that lets each range begin where the one below ends.
    magnitude = ((2 * step + 33) << segment) - 33
    return np.where(code & 0x80, -4 * magnitude, 4 * magnitude).astype(np.int16)


def a_law_table() -> npt.NDArray[np.int16]:
    """Return the int16 value of each A-law byte: 13 bits of range, in the upper bits of
    16.
    """
    code = np.arange(256) ^ 0x55
    segment, step = code >> 4 & 7, code & 15
    # The two lowest ranges are equally wide.
    magnitude = np.where(
        segment, (2 * step + 33) << np.maximum(segment - 1, 0), 2 * step + 1
    )
    return np.where(code & 0x80, 8 * magnitude, -8 * magnitude).astype(np.int16)
