"""Good files to begin with, each by a writer that others made.

All are small, a few seconds of a few channels, so that thousands of them are read a
minute. The same call makes the same files.
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import edfio
import numpy as np
import numpy.typing as npt
import soundfile
from scipy.io import wavfile

import rlxweb as rlx
from rlxweb.ir.op import registry
from tests.fuzz import seeds_of_libraries as more
from tests.recordings import restarted

FS = 64.0
_WITHOUT_RATE = ("bare", "many", "remark", "commas", "mark")
LABELS = ("EEG Fp1", "EEG Fp2", "EEG Fp1", "Status")

GRAPHS = ("rlxg", "onnx", "rlxl")
"""Kinds of files that hold no recording."""

Maker = Callable[[Path], None]


def write_seeds(folder: Path) -> dict[str, list[Path]]:
    """Every seed, by format; the folder must be empty."""
    for name, content in _seeds().items():
        (folder / name).write_bytes(content)
    return {
        kind: sorted(folder.glob(f"*.{kind}"))
        for kind in dict.fromkeys(name.rpartition(".")[2] for name in _seeds())
    }


@cache
def _seeds() -> dict[str, bytes]:
    """The bytes of every seed by its name, written once."""
    with tempfile.TemporaryDirectory() as folder:
        seeds = _write(Path(folder))
        return {path.name: path.read_bytes() for one in seeds for path in one}


def _write(folder: Path) -> Iterator[list[Path]]:
    makers: dict[str, Iterator[tuple[str, Maker]]] = {
        "edf": _edf(),
        "bdf": _bdf(),
        "wav": _wav(),
        "npy": _npy(),
        "npz": _npz(),
        "csv": _csv(),
        "rlxg": _rlxg(),
        "fif": more.fif_seeds(),
        "vhdr": more.vhdr_seeds(),
        "gdf": more.gdf_seeds(),
        "set": more.set_seeds(),
        "mat": more.mat_seeds(),
        "h5": more.h5_seeds(),
        "nwb": more.nwb_seeds(),
        "zip": more.zip_seeds(),
        "parquet": more.parquet_seeds(),
        "flac": more.audio_seeds(("FLAC", "PCM_16"), ("FLAC", "PCM_24")),
        "ogg": more.audio_seeds(("OGG", "VORBIS"), ("OGG", "OPUS")),
        "mp3": more.audio_seeds(("MP3", "MPEG_LAYER_III")),
        "aiff": more.audio_seeds(("AIFF", "PCM_16"), ("AIFF", "IMA_ADPCM")),
        "onnx": more.onnx_seeds(),
        "rlxl": more.rlxl_seeds(),
    }
    for kind, named in makers.items():
        paths = []
        for name, make in named:
            paths.append(folder / f"{name}.{kind}")
            make(paths[-1])
        yield paths


def rate_of(name: str) -> float | None:
    """The rate to give with a seed of that name, where it carries none."""
    stem, _, kind = name.partition(".")
    return FS if kind == "npy" or stem in _WITHOUT_RATE else None


def _noise(rows: int, samples: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(1).uniform(-0.9, 0.9, (rows, samples))


# --- EDF and BDF ----------------------------------------------------------------------


def _edf() -> Iterator[tuple[str, Maker]]:
    yield "plain", lambda path: _write_edf(path)
    yield "plus", lambda path: _write_edf(path, notes=2)
    yield "rates", lambda path: _write_edf(path, rates=(64, 16, 8, 64))
    yield "mne", _write_by_mne
    yield "gaps", _write_edf_d
    yield "no gaps", lambda path: _write_edf_d(path, "0 1 2 3 4")


def _bdf() -> Iterator[tuple[str, Maker]]:
    yield "plain", lambda path: _write_edf(path)
    yield "plus", lambda path: _write_edf(path, notes=2)


def _write_edf(
    path: Path, rates: tuple[int, ...] = (64, 64, 64, 64), notes: int = 0
) -> None:
    is_bdf = path.suffix == ".bdf"
    signal = edfio.BdfSignal if is_bdf else edfio.EdfSignal
    rows = _noise(len(rates), 5 * int(FS))
    signals = [
        signal(row[: 5 * fs] * 100, fs, label=label, physical_dimension="uV")
        for row, fs, label in zip(rows, rates, LABELS, strict=True)
    ]
    texts = [edfio.EdfAnnotation(at, None, "blink") for at in range(notes)]
    (edfio.Bdf if is_bdf else edfio.Edf)(signals, annotations=texts).write(path)


def _write_edf_d(path: Path, starts: str = "0 1 4.5 5.5 20") -> None:
    """Marked as discontinuous, with or without records that begin late."""
    _write_edf(path, notes=1)
    restarted(path, starts.split())


def _write_by_mne(path: Path) -> None:
    import mne

    mne.set_log_level("ERROR")
    info = mne.create_info(["Fz", "Cz"], FS, "eeg")
    raw = mne.io.RawArray(_noise(2, 5 * int(FS)) * 1e-4, info)
    mne.export.export_raw(path, raw, fmt="edf", overwrite=True)


# --- WAV ------------------------------------------------------------------------------


def _wav() -> Iterator[tuple[str, Maker]]:
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"):
        for container in ("WAV", "WAVEX", "RF64"):
            yield f"{subtype}-{container}", _by_soundfile(subtype, container, "FILE")
        yield f"{subtype}-BIG", _by_soundfile(subtype, "WAV", "BIG")
    for law in ("ULAW", "ALAW"):
        yield law, _by_soundfile(law, "WAV", "FILE")
    yield "adpcm", _by_soundfile("MS_ADPCM", "WAV", "FILE")
    yield "ima", _by_soundfile("IMA_ADPCM", "WAV", "FILE")
    for dtype in (np.uint8, np.int16, np.int32, np.float32, np.float64):
        yield f"scipy-{np.dtype(dtype).name}", _by_scipy(dtype)


def _by_soundfile(subtype: str, container: str, endian: str) -> Maker:
    def make(path: Path) -> None:
        soundfile.write(
            path,
            _noise(2, 300).T,
            8000,
            subtype=subtype,
            format=container,
            endian=endian,
        )

    return make


def _by_scipy(dtype: type) -> Maker:
    return lambda path: wavfile.write(path, 1000, (_noise(3, 200).T * 99).astype(dtype))


# --- NPY and NPZ ----------------------------------------------------------------------


def _npy() -> Iterator[tuple[str, Maker]]:
    for dtype in ("i1", "<i2", ">i4", "u8", "f2", "f4", ">f8"):
        x = (_noise(3, 200) * 100).astype(dtype)
        yield dtype.strip("<>"), lambda path, x=x: np.save(path, x)
    yield "fortran", lambda path: np.save(path, np.asfortranarray(_noise(3, 200)))
    yield "one", lambda path: np.save(path, _noise(1, 300)[0])
    yield "tall", lambda path: np.save(path, _noise(3, 200).T.copy())
    yield "second", _second_version
    yield "objects", lambda path: np.save(path, np.array([None, 1]), allow_pickle=True)


def _second_version(path: Path) -> None:
    with path.open("wb") as file:
        np.lib.format.write_array(file, _noise(2, 100), version=(2, 0))


def _npz() -> Iterator[tuple[str, Maker]]:
    x = _noise(3, 200)
    notes = {"fs": 64.0, "channels": np.array(["Fz", "Fz", "Cz"]), "units": ["uV"] * 3}
    yield "bare", lambda path: np.savez(path, x)
    yield "noted", lambda path: np.savez(path, x=x, **notes)
    yield "packed", lambda path: np.savez_compressed(path, x=x, **notes)
    yield "many", lambda path: np.savez_compressed(path, a=x, b=x[0], c=np.array("x"))


# --- CSV ------------------------------------------------------------------------------


def _csv() -> Iterator[tuple[str, Maker]]:
    x = _noise(2, 200).T
    clock = np.column_stack([np.arange(200) / FS, x])
    named = {"header": "time,Fz,Cz", "comments": ""}
    yield "bare", lambda path: np.savetxt(path, x)
    yield "clock", lambda path: np.savetxt(path, clock, "%.6f", ",", **named)
    yield "remark", lambda path: np.savetxt(path, x, "%.4f", ",", header="Fz,Cz")
    yield "quoted", _quoted
    yield "commas", _with_commas
    yield (
        "mark",
        lambda path: path.write_bytes(b"\xef\xbb\xbfa\tb\r\n" + b"1\t2\r\n" * 99),
    )


def _quoted(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["time (ms)", "F\xe9", "note, of a kind"])
        writer.writerows([[at * 4, at % 7, "rest"] for at in range(200)])


def _with_commas(path: Path) -> None:
    text = io.StringIO()
    np.savetxt(text, _noise(2, 200).T, "%.5f", ";", header="a;b", comments="")
    path.write_text(text.getvalue().replace(".", ","))


# --- graphs ---------------------------------------------------------------------------


def _rlxg() -> Iterator[tuple[str, Maker]]:
    yield "dense", _dense
    yield "types", _types
    yield "ops", _every_op


def _dense(path: Path) -> None:
    g = rlx.Graph("dense")
    x = g.input("x", (2, 4))
    for at in range(3):
        x = g.gelu(x @ g.param(f"w{at}", (4, 4)) + np.arange(4, dtype=np.float32))
    g.set_outputs([g.softmax(x), x])
    weights = {f"w{at}": _noise(4, 4).astype(np.float32) for at in range(3)}
    g.save(path, weights)


def _types(path: Path) -> None:
    g = rlx.Graph("types")
    for at, dtype in enumerate(rlx.DType):
        g.param(dtype.label, (at, 2), dtype)
    g.set_outputs([g.tensor(at) for at in range(len(g))])
    params = g.named("param").items()
    g.save(
        path, {n: np.zeros(one.type.shape, one.type.dtype.numpy) for n, one in params}
    )


def _every_op(path: Path) -> None:
    """Write a graph of each op of the vocabulary once, as its first sample has it."""
    g = rlx.Graph("ops")
    outs = []
    for op in registry:
        if op.samples:
            sample = op.samples[0]
            operands = [
                g.input(f"{op.name} {at}", one.shape, one.dtype)
                for at, one in enumerate(sample.inputs)
            ]
            outs.append(g.apply(op.name, *operands, **sample.attrs))
    g.set_outputs(outs)
    g.save(path)
