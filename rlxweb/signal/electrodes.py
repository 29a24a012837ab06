"""Where the electrodes of the 10-20 system and its extensions sit on the head.

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

_ROWS: Final = {
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
_RING: Final = {
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
"""Degrees around the ring from the front, of the row's end (number 7 or 8)."""
_OTHER: Final = {"T3": "T7", "T4": "T8", "T5": "P7", "T6": "P8"}
_AS: Final = {"FT": "FC", "T": "C", "TP": "CP", "A": "C", "M": "CP"}
_COUNTED = re.compile(r"[A-H]\d{1,2}$")
_OTHER_CAP: Final = 4
"""So many names that count on, where the 10-20 system has no place, are another's."""
_NAME = re.compile(r"(FP|AF|FC|FT|CP|TP|PO|F|C|T|P|O|I|N|A|M)(Z|\d{1,2})$")
_BEFORE = re.compile(r"^(EEG|POL|MEG)(?![A-Z0-9])[\s_:]*")
_BEHIND = re.compile(r"[-_\s.]+(REF|LE|AVG|AV|A1|A2|M1|M2)?\.*$")


def positions(names: Sequence[str]) -> tuple[Floats, list[int]]:
    """Unit vectors (P, 3) of those names that are electrodes, and which they are.

    x to the right ear, y to the nose, z up. "EEG Fp1-REF" and "Fc5." are known as well.
    Among names like A1 … D32, as caps of BioSemi have them, none is: their C3 is
    another place.
    """
    found, which = [], []
    others = [name for name in map(_plain, names) if _COUNTED.match(name)]
    if sum(_position(name) is None for name in others) >= _OTHER_CAP:
        return np.zeros((0, 3)), []
    for at, name in enumerate(names):
        own = _position(_plain(name))
        if own is not None:
            found.append(own)
            which.append(at)
    return np.array(found).reshape(-1, 3), which


def flat(places: Floats) -> Floats:
    """(P, 2) seen from above: distance from the middle is the angle from the vertex,
    1 at the equator.
    """
    angle = np.arccos(np.clip(places[:, 2], -1.0, 1.0))
    far = np.hypot(places[:, 0], places[:, 1])
    scale = np.where(far > 1e-9, angle / (np.pi / 2) / np.maximum(far, 1e-9), 0.0)
    return places[:, :2] * scale[:, None]


def _plain(name: str) -> str:
    return _BEHIND.sub("", _BEFORE.sub("", name.strip().upper()))


@lru_cache(maxsize=4096)  # names come from files
def _position(name: str) -> Floats | None:
    name = _OTHER.get(name, name)
    match = _NAME.match(name)
    if match is None:
        return None
    row, place = match.groups()
    if row == "N":
        return _middle(90.0) if place == "Z" else None
    row = _AS.get(row, row)
    if place == "Z":
        return _middle(_ROWS[row])
    number = int(place)
    if name.startswith(("A", "M")) and not name.startswith("AF"):
        number = 9 if number % 2 else 10  # earlobes and mastoids, below the ring
    if not 1 <= number <= 10:
        return None
    steps = (number + 1) // 2 if number % 2 else number // 2
    if row in ("FP", "O", "I"):  # 1 and 2 are the ends themselves
        steps = 4 if steps == 1 else steps
    own = _on_row(row, steps / 4.0)
    return own if number % 2 == 0 else own * (-1.0, 1.0, 1.0)


def _middle(degrees: float) -> Floats:
    at = np.deg2rad(degrees)
    return np.array([0.0, np.sin(at), np.cos(at)])


def _on_row(row: str, share: float) -> Floats:
    """From the middle (0) to the right end (1) of a row, on the circle through both."""
    around, down = np.deg2rad(_RING[row]), np.deg2rad(72.0)
    end = np.array(
        [
            np.sin(down) * np.sin(around),
            np.sin(down) * np.cos(around),
            np.cos(down),
        ]
    )
    middle = _middle(_ROWS[row])
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
    at = share * angle
    turned = radius * np.cos(at) + across * np.linalg.norm(radius) * np.sin(at)
    return np.asarray(centre + turned, np.float64)
