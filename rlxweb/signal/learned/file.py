"""Files of learned transforms, .rlxl: safetensors, with their purpose as metadata.

Read strictly: each tensor by its name, type and shape, all figures finite and within
their domain, nothing beyond that, and nothing is executed. The program is rebuilt from
the gates, so that a file cannot claim another.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import IO, Any, Final, Protocol, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from rlxweb.advice import Advice, Blank
from rlxweb.errors import GraphFileError, UsageError, shown
from rlxweb.graphfile.layout import METADATA, Layout, read_layout
from rlxweb.graphfile.opened import Source, opened
from rlxweb.host.spec import Detrend
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.learned.network import Program, program_of, stages_of
from rlxweb.signal.learned.transform import LearnedTransform
from rlxweb.whole_file import written_to


class HasTransform(Protocol):
    """The result of a training."""

    @property
    def transform(self) -> LearnedTransform: ...


ModelLike: TypeAlias = "LearnedTransform | HasTransform | Source"

KEY: Final = "rlxweb.learned"
FORMAT: Final = 1
LONGEST: Final = 1 << 16
_MOST_HEADER: Final = 1 << 16
_FIGURES: Final = ("fs", "error", "worst", "recall", "asked")
_INTEGERS: Final = ("format", "n", "first", "stop", "k", "m")
_DETRENDS: Final = ("none", *get_args(Detrend))
_DTYPES: Final = {
    "figures": "F64",
    "window": "F64",
    "weights": "F64",
    "phases": "I64",
    "gates": "U8",
}
"""The types of the file's tensors, in their order."""


def save(transform: LearnedTransform, file: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write a transform, whole or not at all. Errors  RecordingError."""
    program, band = transform.program, transform.band
    arrays = {
        "figures": np.array([getattr(transform, name) for name in _FIGURES], "<f8"),
        "window": np.frombuffer(transform.window, np.float64).astype("<f8"),
        "weights": np.stack([program.weights.real, program.weights.imag]).astype("<f8"),
        "phases": np.array(program.phases, "<i8"),
        "gates": np.packbits(transform.gates),
    }
    purpose = {
        "format": FORMAT,
        "n": transform.n,
        "first": band.first,
        "stop": band.stop,
        "k": transform.k,
        "m": program.m,
        "detrend": transform.detrend or "none",
    }
    header: dict[str, Any] = {METADATA: {KEY: json.dumps(purpose)}}
    end = 0
    for name, dtype in _DTYPES.items():
        begin, end = end, end + arrays[name].nbytes
        shape = list(arrays[name].shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with written_to(file, "save a learned transform") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in _DTYPES:
            out.write(arrays[name].tobytes())


def load_learned(source: ModelLike) -> LearnedTransform:
    """Load a transform from a path, bytes or an open file.

    A loaded one is returned, and of the result of a training its transform.
    Errors   GraphFileError with the rule that the file breaks.
    """
    transform = getattr(source, "transform", source)
    if isinstance(transform, LearnedTransform):
        return transform
    doing = "load a learned transform"
    name, data = opened(cast(Source, source), doing)
    doing = f"{doing} {shown(name)}" if name else doing
    return _File(read_layout(data, doing, _MOST_HEADER), doing).transform()


def model_for(model: ModelLike | None, job: Any, fs: float) -> LearnedTransform:
    """The transform for a job, checked to fit it.

    Errors   GraphFileError for a file that breaks a rule; UsageError for no model, or
             one that was trained for something else.
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
class _File:
    """The layout of a file, to be read and checked."""

    layout: Layout
    doing: str

    def refused(self, problem: str, rule: str = "") -> GraphFileError:
        return GraphFileError(self.doing, problem, rule, "write it anew: rlxweb learn")

    def check(self, holds: bool, problem: str, rule: str) -> None:
        if not holds:
            raise self.refused(problem, rule)

    def transform(self) -> LearnedTransform:
        purpose = self._purpose()
        n, k, band = purpose["n"], purpose["k"], Band(purpose["first"], purpose["stop"])
        try:
            stages = stages_of(n)
        except ValueError as error:
            raise self.refused(f"its segments have {error}") from None
        length = f"its segments have {n:,} samples"
        self.check(n <= LONGEST, length, f"at most {LONGEST:,}")
        bins = f"its bins are {band.first} to {band.stop - 1}"
        is_inside = 0 <= band.first < band.stop <= n // 2 + 1
        self.check(is_inside, bins, f"they lie within 0 to {n // 2}")
        self.check(1 <= k <= len(band), f"k is {k}", f"1 to {len(band)}, its bins")
        numbers = self._floats("figures", (len(_FIGURES),)).tolist()
        figures: dict[str, float] = dict(zip(_FIGURES, numbers, strict=True))
        for name, value in figures.items():
            is_inside = 0 <= value <= (1 if name == "recall" else np.inf)
            is_inside = is_inside and (name != "fs" or value > 0)
            self.check(is_inside, f"{name} is {value:g}", "it is outside its domain")
        window = self._floats("window", (n,))
        count = stages * (n // 2)
        packed = self._array("gates", (-(-count // 8),))
        flat = np.unpackbits(packed, count=count).astype(np.bool_)
        gates = flat.reshape(stages, n // 2)
        try:
            program = program_of(gates, band)
        except ValueError as error:
            raise self.refused(str(error)) from None
        detrend: Any = None if purpose["detrend"] == "none" else purpose["detrend"]
        return LearnedTransform(
            n=n,
            window=window.tobytes(),
            detrend=detrend,
            band=band,
            gates=gates,
            program=self._with_weights(program, purpose["m"]),
            k=k,
            **figures,
        )

    def _with_weights(self, program: Program, m: int) -> Program:
        """The program of the gates, with the weights that were fitted."""
        rule = f"its gates make them of {program.m}"
        self.check(m == program.m, f"it has transforms of {m}", rule)
        phases = tuple(self._array("phases", (len(program.phases),)).tolist())
        if phases != program.phases:
            raise self.refused("its phases are others than its gates leave")
        re, im = self._floats("weights", (2, *program.weights.shape))
        return replace(program, weights=re + 1j * im)

    def _purpose(self) -> dict[str, Any]:
        """The metadata, of known keys and types."""
        texts, names = self.layout.metadata, set(self.layout.entries)
        is_learned = set(texts) == {KEY}
        rule = f"one of {KEY!r} is wanted"
        self.check(is_learned, "it is no learned transform", rule)
        for name in sorted(names ^ set(_DTYPES)):
            if name in names:
                raise self.refused(f"it holds {shown(name)}", "nothing belongs there")
            raise self.refused(f"it has no {name}")
        try:
            purpose = json.loads(texts[KEY])
        except (ValueError, RecursionError):
            raise self.refused(f"{KEY} is no JSON") from None
        keys = (*_INTEGERS, "detrend")
        is_known = isinstance(purpose, dict) and set(purpose) == set(keys)
        self.check(is_known, f"{KEY} says other things", f"it says {', '.join(keys)}")
        for name in _INTEGERS:
            value = purpose[name]
            is_whole = type(value) is int
            self.check(is_whole, f"{name} is {shown(value)}", "a whole number")
        version, detrend = purpose["format"], purpose["detrend"]
        is_read = version == FORMAT
        self.check(is_read, f"its format is {version}", f"{FORMAT} is read")
        rule = f"it is {', '.join(_DETRENDS)}"
        self.check(detrend in _DETRENDS, f"detrend is {shown(detrend)}", rule)
        return dict(purpose)

    def _array(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        entry, dtype = self.layout.entries[name], _DTYPES[name]
        self.check(
            (entry.dtype, entry.shape) == (dtype, shape),
            f"{name} is {entry.dtype} {list(entry.shape)}",
            f"{dtype} {list(shape)} is wanted",
        )
        return self.layout.array(entry)

    def _floats(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        floats = self._array(name, shape).astype(np.float64)
        if not np.isfinite(floats).all():
            raise self.refused(f"{name} holds a number that is not finite")
        return floats
