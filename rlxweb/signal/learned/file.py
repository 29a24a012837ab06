"""Files of learned transforms, .rlxl: safetensors, with what they are for beside them.

Read strictly: each tensor of its name, type and shape, all figures finite and within
their domain, nothing more than that, and nothing in it is ever executed. The program is
put together from the gates again, so that a file cannot claim another.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import IO, Any, Final, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from rlxweb.advice import Advice, Blank
from rlxweb.errors import GraphFileError, UsageError, shown
from rlxweb.graphfile.layout import METADATA, Layout, read_layout
from rlxweb.graphfile.opened import Source, opened
from rlxweb.host.spec import Detrend
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.butterflies import Gates, stages_of
from rlxweb.signal.learned.compact import Compact, compacted
from rlxweb.signal.learned.transform import LearnedTransform
from rlxweb.whole_file import written_to

ModelLike: TypeAlias = "LearnedTransform | Source"

KEY: Final = "rlxweb.learned"
FORMAT: Final = 1
LONGEST: Final = 1 << 16
_MOST_HEADER: Final = 1 << 16
_FIGURES: Final = ("fs", "error", "worst", "recall", "asked")
_WHOLE: Final = ("format", "n", "first", "stop", "k", "m")
_DETRENDS: Final = ("none", *get_args(Detrend))


def save(transform: LearnedTransform, file: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write one, whole or not at all. Errors  RecordingError."""
    figures = [getattr(transform, name) for name in _FIGURES]
    program = transform.program
    arrays: dict[str, npt.NDArray[Any]] = {
        "figures": np.array(figures, np.float64),
        "window": np.frombuffer(transform.window, np.float64),
        "weights": np.stack([program.weights.real, program.weights.imag]),
        "phases": np.array(program.phases, np.int64),
        "gates": np.packbits(transform.gates),
    }
    told = {
        "format": FORMAT,
        "n": transform.n,
        "first": transform.band.first,
        "stop": transform.band.stop,
        "k": transform.k,
        "m": program.m,
        "detrend": transform.detrend or "none",
    }
    header: dict[str, Any] = {METADATA: {KEY: json.dumps(told)}}
    at = 0
    for name, array in arrays.items():
        dtype = {"f": "F64", "i": "I64", "u": "U8"}[array.dtype.kind]
        end = at + array.nbytes
        shape = list(array.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with written_to(file, "save a learned transform") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            out.write(np.ascontiguousarray(little).tobytes())


def load_learned(source: ModelLike) -> LearnedTransform:
    """One from a path, bytes or an open file; one that is loaded as it is.

    Errors   GraphFileError with the rule that the file breaks.
    """
    if isinstance(source, LearnedTransform):
        return source
    doing = "load a learned transform"
    name, data = opened(source, doing)
    doing = f"{doing} {shown(name)}" if name else doing
    layout = read_layout(data, doing, _MOST_HEADER)
    return _Reading(layout, doing).transform()


def model_for(model: ModelLike | None, job: Any, fs: float) -> LearnedTransform:
    """The transform for a job. Errors  GraphFileError; UsageError where none is given,
    or one that was trained for something else.
    """
    if model is None:
        raise UsageError(
            "welch_peaks with strategy='learned'",
            "it needs a trained model of the transform",
            "there is none that suits all recordings",
            Advice(
                "train one by `rlxweb learn` or rlx.learn_welch, and give {}",
                model=Blank("FILE"),
            ),
        )
    transform = load_learned(model)
    transform.check_fits(job.spec, fs, job.band)
    return transform


@dataclass(frozen=True, slots=True)
class _Reading:
    """A file that is taken apart."""

    layout: Layout
    doing: str

    def refused(self, problem: str, rule: str = "") -> GraphFileError:
        return GraphFileError(self.doing, problem, rule, "write it anew: rlxweb learn")

    def transform(self) -> LearnedTransform:
        told = self._told()
        n, stages = told["n"], 0
        try:
            stages = stages_of(n)
        except ValueError as error:
            raise self.refused(f"its segments have {error}") from None
        if n > LONGEST:
            raise self.refused(
                f"its segments have {n:,} samples", f"at most {LONGEST:,}"
            )
        band = Band(told["first"], told["stop"])
        if not 0 <= band.first < band.stop <= n // 2 + 1:
            rule = f"they lie within 0 to {n // 2}"
            raise self.refused(f"its bins are {band.first} to {band.stop - 1}", rule)
        if not 1 <= told["k"] <= len(band):
            raise self.refused(f"k is {told['k']}", f"1 to {len(band)}, its bins")
        figures = dict(
            zip(_FIGURES, self._floats("figures", (len(_FIGURES),)), strict=True)
        )
        for name, value in figures.items():
            most = 1.0 if name == "recall" else np.inf
            if value < 0 or value > most or (name == "fs" and value == 0):
                raise self.refused(f"{name} is {value:g}", "it is outside its domain")
        window = self._floats("window", (n,))
        packed = self._array("gates", "U8", (-(-stages * (n // 2) // 8),))
        flat = np.unpackbits(packed, count=stages * (n // 2)).astype(np.bool_)
        gates = flat.reshape(stages, n // 2)
        program = self._program(self._compacted(gates, band), told)
        if set(self.layout.entries) != set(_TENSORS):
            extra = sorted(set(self.layout.entries) - set(_TENSORS))
            raise self.refused(f"it holds {shown(extra[0])}", "nothing belongs there")
        detrend: Any = None if told["detrend"] == "none" else told["detrend"]
        return LearnedTransform(
            n=n,
            fs=float(figures["fs"]),
            window=window.tobytes(),
            detrend=detrend,
            band=band,
            gates=gates,
            program=program,
            error=float(figures["error"]),
            worst=float(figures["worst"]),
            recall=float(figures["recall"]),
            asked=float(figures["asked"]),
            k=told["k"],
        )

    def _compacted(self, gates: Gates, band: Band) -> Compact:
        try:
            return compacted(gates, np.arange(band.first, band.stop))
        except ValueError as error:
            raise self.refused(str(error)) from None

    def _program(self, of_gates: Compact, told: dict[str, Any]) -> Compact:
        """The weights as they were fitted, on the gates' own program."""
        count = len(of_gates.phases)
        if told["m"] != of_gates.m:
            rule = f"its gates make them of {of_gates.m}"
            raise self.refused(f"it has transforms of {told['m']}", rule)
        phases = self._array("phases", "I64", (count,))
        if tuple(map(int, phases)) != of_gates.phases:
            raise self.refused("its phases are others than its gates leave")
        re, im = self._floats("weights", (2, len(of_gates.weights), count))
        return Compact(of_gates.n, of_gates.m, of_gates.phases, re + 1j * im)

    def _told(self) -> dict[str, Any]:
        texts = self.layout.metadata
        if set(texts) != {KEY}:
            rule = f"one of {KEY!r} is wanted"
            raise self.refused("it is no learned transform", rule)
        try:
            told = json.loads(texts[KEY])
        except (ValueError, RecursionError):
            raise self.refused(f"{KEY} is no JSON") from None
        if not isinstance(told, dict) or set(told) != {*_WHOLE, "detrend"}:
            wanted = ", ".join((*_WHOLE, "detrend"))
            raise self.refused(f"{KEY} says other things", f"it says {wanted}")
        for name in _WHOLE:
            if type(told[name]) is not int:
                raise self.refused(f"{name} is {shown(told[name])}", "a whole number")
        if told["format"] != FORMAT:
            raise self.refused(f"its format is {told['format']}", f"{FORMAT} is read")
        if told["detrend"] not in _DETRENDS:
            known = ", ".join(_DETRENDS)
            raise self.refused(f"detrend is {shown(told['detrend'])}", f"it is {known}")
        return told

    def _array(self, name: str, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        entry = self.layout.entries.get(name)
        if entry is None:
            raise self.refused(f"it has no {name}")
        if entry.dtype != dtype or entry.shape != shape:
            found = f"{name} is {entry.dtype} {list(entry.shape)}"
            raise self.refused(found, f"{dtype} {list(shape)} is wanted")
        return self.layout.array(entry)

    def _floats(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        found = self._array(name, "F64", shape).astype(np.float64)
        if not np.isfinite(found).all():
            raise self.refused(f"{name} holds a number that is not finite")
        return found


_TENSORS: Final = ("figures", "window", "weights", "phases", "gates")
