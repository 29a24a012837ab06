"""Files of learned transforms, .rlxl: safetensors with a JSON description in the
metadata.

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

from rlxweb.core.atomic_file import open_output
from rlxweb.core.errors import GraphFileError, UsageError, shown
from rlxweb.core.message_text import Advice, Blank
from rlxweb.ops.welch.spec import Detrend
from rlxweb.runtime.graph_files.memory_mapped_bytes import Source, load_bytes
from rlxweb.runtime.graph_files.safetensors_header import (
    METADATA_KEY,
    SafetensorsLayout,
    read_layout,
)
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned.gated_fft import (
    PrunedFftProgram,
    cheapest_program,
    stage_count,
)
from rlxweb.signal.learned.transform import LearnedTransform


class HasTransform(Protocol):
    """Protocol of the result of a training."""

    @property
    def transform(self) -> LearnedTransform: ...


ModelLike: TypeAlias = "LearnedTransform | HasTransform | Source"

TRANSFORM_METADATA_KEY: Final = "rlxweb.learned"
FORMAT_VERSION: Final = 1
MAX_NPERSEG: Final = 1 << 16
_MAX_HEADER_BYTES: Final = 1 << 16
_FLOAT_FIELDS: Final = ("fs", "error", "worst", "recall", "asked")
_INTEGER_KEYS: Final = ("format", "n", "first", "stop", "k", "m")
_DETRENDS: Final = ("none", *get_args(Detrend))
_TENSOR_DTYPES: Final = {
    "figures": "F64",
    "window": "F64",
    "weights": "F64",
    "phases": "I64",
    "gates": "U8",
}
"""Types of the file's tensors, in their order."""


def save_transform(
    transform: LearnedTransform, file: str | os.PathLike[str] | IO[bytes]
) -> None:
    """Write a transform atomically; raise RecordingError."""
    program, band = transform.program, transform.band
    arrays = {
        "figures": np.array(
            [getattr(transform, name) for name in _FLOAT_FIELDS], "<f8"
        ),
        "window": np.frombuffer(transform.window, np.float64).astype("<f8"),
        "weights": np.stack([program.weights.real, program.weights.imag]).astype("<f8"),
        "phases": np.array(program.phases, "<i8"),
        "gates": np.packbits(transform.gates),
    }
    metadata = {
        "format": FORMAT_VERSION,
        "n": transform.n,
        "first": band.first,
        "stop": band.stop,
        "k": transform.k,
        "m": program.m,
        "detrend": transform.detrend or "none",
    }
    header: dict[str, Any] = {
        METADATA_KEY: {TRANSFORM_METADATA_KEY: json.dumps(metadata)}
    }
    end = 0
    for name, dtype in _TENSOR_DTYPES.items():
        begin, end = end, end + arrays[name].nbytes
        shape = list(arrays[name].shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open_output(file, "save a learned transform") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name in _TENSOR_DTYPES:
            stream.write(arrays[name].tobytes())


def load_learned(source: ModelLike) -> LearnedTransform:
    """Load a transform from a path, bytes or an open file.

    A loaded one is returned, and of the result of a training its transform.
    Errors   GraphFileError with the rule that the file breaks.
    """
    transform = getattr(source, "transform", source)
    if isinstance(transform, LearnedTransform):
        return transform
    context = "load a learned transform"
    name, data = load_bytes(cast(Source, source), context)
    context = f"{context} {shown(name)}" if name else context
    return _TransformFileReader(
        read_layout(data, context, _MAX_HEADER_BYTES), context
    ).read_transform()


def load_fitting_model(
    model: ModelLike | None, job: Any, fs: float
) -> LearnedTransform:
    """Load the transform for a job, and check that it fits.

    Errors   GraphFileError for a file that breaks a rule; UsageError for no model, or
             one that was trained for something else.
    """
    if model is None:
        raise UsageError(
            "welch_peaks with strategy='learned'",
            "a trained model is required",
            "no model suits all recordings",
            Advice(
                "train a model with `rlxweb learn` or rlx.learn_welch, and pass {}",
                model=Blank("FILE"),
            ),
        )
    transform = load_learned(model)
    transform.check_fits(job.spec, fs, job.band)
    return transform


@dataclass(frozen=True, slots=True)
class _TransformFileReader:
    """Reader of a transform file that checks every part of its layout."""

    layout: SafetensorsLayout
    context: str

    def format_error(self, problem: str, rule: str = "") -> GraphFileError:
        """Return the error for a file that breaks a rule."""
        return GraphFileError(
            self.context, problem, rule, "create the file again with rlxweb learn"
        )

    def require(self, condition: bool, problem: str, rule: str) -> None:
        """Raise GraphFileError unless a condition is true."""
        if not condition:
            raise self.format_error(problem, rule)

    def read_transform(self) -> LearnedTransform:
        """Read and check the transform."""
        metadata = self._read_metadata()
        n = metadata["n"]
        k = metadata["k"]
        band = BinRange(metadata["first"], metadata["stop"])
        try:
            stages = stage_count(n)
        except ValueError as error:
            raise self.format_error(f"the segment length {error}") from None
        length_text = f"the segments have {n:,} samples"
        self.require(
            n <= MAX_NPERSEG, length_text, f"at most {MAX_NPERSEG:,} are allowed"
        )
        bins_text = f"the bins are {band.first} to {band.stop - 1}"
        is_inside = 0 <= band.first < band.stop <= n // 2 + 1
        self.require(is_inside, bins_text, f"must be within 0 to {n // 2}")
        self.require(
            1 <= k <= len(band),
            f"k is {k}",
            f"must be 1 to {len(band)}, the number of bins",
        )
        figure_values = self._read_floats("figures", (len(_FLOAT_FIELDS),)).tolist()
        figures: dict[str, float] = dict(zip(_FLOAT_FIELDS, figure_values, strict=True))
        for name, value in figures.items():
            is_inside = 0 <= value <= (1 if name == "recall" else np.inf)
            is_inside = is_inside and (name != "fs" or value > 0)
            rule = {"recall": "must be 0 to 1", "fs": "must be above 0"}.get(
                name, "must be at least 0"
            )
            self.require(is_inside, f"{name} is {value:g}", rule)
        window = self._read_floats("window", (n,))
        count = stages * (n // 2)
        packed = self._read_array("gates", (-(-count // 8),))
        flat_gates = np.unpackbits(packed, count=count).astype(np.bool_)
        gates = flat_gates.reshape(stages, n // 2)
        try:
            program = cheapest_program(gates, band)
        except ValueError as error:
            raise self.format_error(str(error)) from None
        detrend: Any = None if metadata["detrend"] == "none" else metadata["detrend"]
        return LearnedTransform(
            n=n,
            window=window.tobytes(),
            detrend=detrend,
            band=band,
            gates=gates,
            program=self._with_weights(program, metadata["m"]),
            k=k,
            **figures,
        )

    def _with_weights(self, program: PrunedFftProgram, m: int) -> PrunedFftProgram:
        """Return the program of the gates with the weights that were fitted."""
        rule = f"the gates require length {program.m}"
        self.require(m == program.m, f"the length of the transforms is {m}", rule)
        phases = tuple(self._read_array("phases", (len(program.phases),)).tolist())
        if phases != program.phases:
            raise self.format_error("the phases do not match the gates")
        re, im = self._read_floats("weights", (2, *program.weights.shape))
        return replace(program, weights=re + 1j * im)

    def _read_metadata(self) -> dict[str, Any]:
        """Read the JSON description, with known keys and types only."""
        texts, names = self.layout.metadata, set(self.layout.entries)
        is_learned = set(texts) == {TRANSFORM_METADATA_KEY}
        rule = f"expected only the metadata key {TRANSFORM_METADATA_KEY!r}"
        self.require(is_learned, "the file is not a learned transform", rule)
        for name in sorted(names ^ set(_TENSOR_DTYPES)):
            if name in names:
                raise self.format_error(
                    f"the file contains the unknown tensor {shown(name)}",
                    f"expected {', '.join(_TENSOR_DTYPES)}",
                )
            raise self.format_error(f"the tensor {name!r} is missing")
        try:
            metadata = json.loads(texts[TRANSFORM_METADATA_KEY])
        except (ValueError, RecursionError):
            raise self.format_error(
                f"the metadata entry {TRANSFORM_METADATA_KEY!r} is not valid JSON"
            ) from None
        keys = (*_INTEGER_KEYS, "detrend")
        is_known = isinstance(metadata, dict) and set(metadata) == set(keys)
        self.require(
            is_known,
            f"the metadata entry {TRANSFORM_METADATA_KEY!r} has missing or unknown "
            "keys",
            f"expected {', '.join(keys)}",
        )
        for name in _INTEGER_KEYS:
            value = metadata[name]
            is_integer = type(value) is int
            self.require(is_integer, f"{name} is {shown(value)}", "expected an integer")
        version, detrend = metadata["format"], metadata["detrend"]
        is_supported = version == FORMAT_VERSION
        self.require(
            is_supported,
            f"the format version is {version}",
            f"expected {FORMAT_VERSION}",
        )
        rule = f"expected {' or '.join(_DETRENDS)}"
        self.require(detrend in _DETRENDS, f"detrend is {shown(detrend)}", rule)
        return dict(metadata)

    def _read_array(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Read a tensor of the expected dtype and shape."""
        entry, dtype = self.layout.entries[name], _TENSOR_DTYPES[name]
        self.require(
            (entry.dtype, entry.shape) == (dtype, shape),
            f"{name} is {entry.dtype} {list(entry.shape)}",
            f"expected {dtype} {list(shape)}",
        )
        return self.layout.array(entry)

    def _read_floats(
        self, name: str, shape: tuple[int, ...]
    ) -> npt.NDArray[np.float64]:
        """Read a tensor of finite floats of the expected shape."""
        floats = self._read_array(name, shape).astype(np.float64)
        if not np.isfinite(floats).all():
            raise self.format_error(
                f"the tensor {name!r} contains a value that is not finite"
            )
        return floats
