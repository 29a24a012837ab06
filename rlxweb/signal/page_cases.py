"""Test vectors of a Welch estimate: rows, and what `welch_peaks` gives for them.

Ordinary rows with one of zeros among them, and rows so loud, and so soft, that a page
has to bring them into the middle of float32 first. Nothing that rounding alone decides
is asked of a page.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rlxweb.device import Device
from rlxweb.errors import UsageError
from rlxweb.export.reference import expected
from rlxweb.export.vectors import Stored, Vector
from rlxweb.gpu.drive import drive
from rlxweb.host.spectrum import frequencies
from rlxweb.signal.engine import NUMPY
from rlxweb.signal.page_estimate import PageEstimate
from rlxweb.signal.peaks_of_power import peaks_of_power
from rlxweb.signal.scaled import Caller, ReadyRows, ready_rows

# Of the rows so many bytes at most are stored; the others repeat them.
_STORED_BYTES, _MOST_ROWS, _FEW_ROWS = 256 << 10, 8, 3
_TRIES, _LINES = 16, 6
_UNDECIDED = "which bins are strongest is not compared: rounding decides it"


def cases_of(one: PageEstimate) -> list[Vector]:
    """Ordinary rows, loud ones and soft ones."""
    most = max(1, _STORED_BYTES // (4 * one.samples))
    count = min(one.rows, _MOST_ROWS, most)
    x, is_decided = _rows(one, count)
    # Where the window itself leaves the range of float32, rows that bring it back.
    middle = int(np.clip(-one.plain.shift // 2, -100, 100))
    x = np.ldexp(x, middle)
    few = x[:_FEW_ROWS].copy()
    if count > _FEW_ROWS:
        x[_FEW_ROWS] = 0
    every = [x]
    energy = np.square(few[:, : one.plain.used], dtype=np.float64).sum(1).max()
    for limit, over in ((one.plain.most, 4.0), (one.plain.least, 0.25)):
        if not one.plain.shift and few.nbytes <= _STORED_BYTES:
            up = np.frexp(np.sqrt(limit) * np.sqrt(over / energy))[1]
            every.append(np.ldexp(few, up))
    cases = []
    for rows in every:
        # What float32 cannot hold is refused in a page too.
        with suppress(UsageError):
            cases.append(_case(one, rows, is_decided))
    return cases


def _rows(one: PageEstimate, count: int) -> tuple[NDArray[np.float32], bool]:
    """Rows of a few lines and noise; does no rounding decide what is a peak of them?"""
    rng = np.random.default_rng(1)
    x, is_decided = np.empty((count, one.samples), np.float32), True
    for at in range(count):
        for _ in range(_TRIES):
            x[at] = _row(rng, one.samples)
            if not one.k or _is_decided(one, x[at : at + 1]):
                break
        else:
            is_decided = False
    return x, is_decided


def _row(rng: np.random.Generator, samples: int) -> NDArray[np.float64]:
    turns = rng.uniform(0.01, 0.49, (_LINES, 1)) * np.arange(samples)
    lines = rng.uniform(0.5, 2.0, (_LINES, 1)) * np.sin(2 * np.pi * turns)
    row: NDArray[np.float64] = lines.sum(0) + rng.normal(rng.normal(), 0.3, samples)
    return row


def _is_decided(one: PageEstimate, row: NDArray[np.float32]) -> bool:
    """Is each of the k + 1 strongest powers further from the next than they may err?"""
    (found,) = expected(replace(one, output="power").graph(1), {"x": row})
    power = np.sort(found.array[0].astype(np.float64))[::-1][: one.k + 1]
    return bool((-np.diff(power) > 2 * (found.atol + found.rtol * power[:-1])).all())


def _case(one: PageEstimate, x: NDArray[np.float32], is_decided: bool) -> Vector:
    """What `welch` and `welch_peaks` give on the CPU, within what a device may err."""
    caller = Caller("export_welch", (len(x),))
    given = ready_rows(x, one.spec, caller)
    raw = drive(NUMPY.power(given.x, given.spec))
    power = given.reading.restored(raw, caller)
    rtol, atol = _allowed(one, given)
    hz = frequencies(one.spec, one.fs)
    outputs = {}
    if one.k:
        floor = given.by(Device.CPU).floor()
        found = peaks_of_power(power, hz, one.k, mode="bins", floor=floor)
        outputs["power"] = Stored(found.power, rtol, atol, True)
        outputs["count"] = Stored(found.count.astype(np.int32), repeats=True)
        if is_decided:
            outputs["bins"] = Stored(found.bins.astype(np.int32), repeats=True)
            outputs["hz"] = Stored(found.hz, repeats=True)
    if one.output != "peaks":
        of_power = ("hz", "power") if one.output == "power" else ("freqs", "spectrum")
        outputs[of_power[0]] = Stored(hz)
        outputs[of_power[1]] = Stored(power, rtol, atol, True)
    return Vector({"x": x}, outputs, [] if is_decided else [_UNDECIDED])


def _allowed(one: PageEstimate, given: ReadyRows) -> tuple[float, float]:
    """What a device may err by, relative and absolute."""
    rows = np.asarray(given.x)
    (found,) = expected(replace(one, output="power").graph(len(rows)), {"x": rows})
    shift, there = given.reading.shift, given.reading.energy > 0
    up = 0 if shift is None or not there.any() else int(shift[there].max())
    return found.rtol, float(np.ldexp(found.atol, up))
