"""Positions of the electrodes of the 10-20 system and its extensions on the head.

The positions follow from the rule, so none is tabled: the head is a sphere, a ring of
electrodes runs a tenth of the way above its equator, the middle line is cut into
tenths, and each row between lies on the circle through its two ends and its middle.

Source   Jasper 1958; Oostenveld & Praamstra 2001, The five percent electrode system
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROW_DEGREES: Final = {
    "FP": 72.0,
    "AF": 54.0,
    "F": 36.0,
    "FC": 18.0,
    "C": 0.0,
    "CP": -18.0,
    "P": -36.0,
    "PO": -54.0,
    "O": -72.0,
    "I": -90.0,
}
"""Degrees from the vertex to the front, along the middle line."""
_RING_DEGREES: Final = {
    "FP": 18.0,
    "AF": 36.0,
    "F": 54.0,
    "FC": 72.0,
    "C": 90.0,
    "CP": 108.0,
    "P": 126.0,
    "PO": 144.0,
    "O": 162.0,
    "I": 162.0,
}
"""Degrees around the ring from the front, of the end of each row (number 7 or 8)."""
_OLD_NAMES: Final = {"T3": "T7", "T4": "T8", "T5": "P7", "T6": "P8"}
_ROW_ALIASES: Final = {"FT": "FC", "T": "C", "TP": "CP", "A": "C", "M": "CP"}
_NUMBERED_NAME = re.compile(r"[A-H]\d{1,2}$")
_MIN_FOREIGN_NAMES: Final = 4
"""Minimum number of numbered names without a place in the 10-20 system by which a cap
is known to use another system.
"""
_ELECTRODE_NAME = re.compile(r"(FP|AF|FC|FT|CP|TP|PO|F|C|T|P|O|I|N|A|M)(Z|\d{1,2})$")
_TYPE_PREFIX = re.compile(r"^(EEG|POL|MEG)(?![A-Z0-9])[\s_:]*")
_REFERENCE_SUFFIX = re.compile(r"[-_\s.]+(REF|LE|AVG|AV|A1|A2|M1|M2)?\.*$")


def electrode_positions(names: Sequence[str]) -> tuple[Floats, list[int]]:
    """Return unit vectors (P, 3) of the names that are electrodes, and the indices of
    these names.

    x to the right ear, y to the nose, z up. "EEG Fp1-REF" and "Fc5." are known as well.
    Among names like A1 … D32, as caps of BioSemi have them, none is: their C3 is
    another place.
    """
    vectors, indices = [], []
    numbered_names = [
        name for name in map(_strip_affixes, names) if _NUMBERED_NAME.match(name)
    ]
    if (
        sum(_electrode_position(name) is None for name in numbered_names)
        >= _MIN_FOREIGN_NAMES
    ):
        return np.zeros((0, 3)), []
    for index, name in enumerate(names):
        vector = _electrode_position(_strip_affixes(name))
        if vector is not None:
            vectors.append(vector)
            indices.append(index)
    return np.array(vectors).reshape(-1, 3), indices


def project_to_plane(vectors: Floats) -> Floats:
    """Project positions to the plane (P, 2) seen from above: the distance from the
    centre is the angle from the vertex, 1 at the equator.
    """
    angle = np.arccos(np.clip(vectors[:, 2], -1.0, 1.0))
    radius = np.hypot(vectors[:, 0], vectors[:, 1])
    scale = np.where(radius > 1e-9, angle / (np.pi / 2) / np.maximum(radius, 1e-9), 0.0)
    return vectors[:, :2] * scale[:, None]


def _strip_affixes(name: str) -> str:
    """Return a name in capitals without a type before and a reference behind it."""
    return _REFERENCE_SUFFIX.sub("", _TYPE_PREFIX.sub("", name.strip().upper()))


@lru_cache(maxsize=4096)  # names come from files
def _electrode_position(name: str) -> Floats | None:
    """Return the unit vector of an electrode; None for another name."""
    name = _OLD_NAMES.get(name, name)
    match = _ELECTRODE_NAME.match(name)
    if match is None:
        return None
    row, number_text = match.groups()
    if row == "N":
        return _midline_position(90.0) if number_text == "Z" else None
    row = _ROW_ALIASES.get(row, row)
    if number_text == "Z":
        return _midline_position(_ROW_DEGREES[row])
    number = int(number_text)
    if name.startswith(("A", "M")) and not name.startswith("AF"):
        number = 9 if number % 2 else 10  # earlobes and mastoids, below the ring
    if not 1 <= number <= 10:
        return None
    steps = (number + 1) // 2 if number % 2 else number // 2
    if row in ("FP", "O", "I"):  # 1 and 2 are the ends themselves
        steps = 4 if steps == 1 else steps
    vector = _row_position(row, steps / 4.0)
    return vector if number % 2 == 0 else vector * (-1.0, 1.0, 1.0)


def _midline_position(degrees: float) -> Floats:
    """Return the position on the middle line at an angle from the vertex to the
    front.
    """
    angle = np.deg2rad(degrees)
    return np.array([0.0, np.sin(angle), np.cos(angle)])


def _row_position(row: str, share: float) -> Floats:
    """Return the position on a row, from the middle (0) to the right end (1), on the
    circle through both.
    """
    azimuth, polar_angle = np.deg2rad(_RING_DEGREES[row]), np.deg2rad(72.0)
    end = np.array(
        [
            np.sin(polar_angle) * np.sin(azimuth),
            np.sin(polar_angle) * np.cos(azimuth),
            np.cos(polar_angle),
        ]
    )
    middle = _midline_position(_ROW_DEGREES[row])
    # The circle lies in the plane of the ends and the middle, around their foot.
    across = np.array([1.0, 0.0, 0.0])
    chord = np.array([0.0, end[1], end[2]])
    up = middle - chord
    normal = np.cross(across, up / max(float(np.linalg.norm(up)), 1e-12))
    centre = normal * float(normal @ middle)
    radius = middle - centre
    angle = np.arctan2(
        float((end - centre) @ across) / float(np.linalg.norm(radius)),
        float((end - centre) @ radius) / float(radius @ radius),
    )
    arc = share * angle
    rotated = radius * np.cos(arc) + across * np.linalg.norm(radius) * np.sin(arc)
    return np.asarray(centre + rotated, np.float64)
