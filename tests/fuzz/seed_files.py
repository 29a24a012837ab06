"""Valid seed files for the fuzzer, each from a writer outside rlxweb where there is
one.

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
from tests.edf_bdf_recordings import make_discontinuous
from tests.fuzz import library_format_seeds as more

FS = 64.0
_STEMS_WITHOUT_RATE = ("bare", "many", "remark", "commas", "mark")
EDF_LABELS = ("EEG Fp1", "EEG Fp2", "EEG Fp1", "Status")

GRAPH_KINDS = ("rlxg", "onnx", "rlxl")
"""Kinds of files that hold no recording."""

FileWriter = Callable[[Path], None]


def write_seeds(folder: Path) -> dict[str, list[Path]]:
    """Write every seed and return the paths by format; the folder must be empty."""
    for name, content in _seed_contents().items():
        (folder / name).write_bytes(content)
    return {
        kind: sorted(folder.glob(f"*.{kind}"))
        for kind in dict.fromkeys(name.rpartition(".")[2] for name in _seed_contents())
    }


@cache
def _seed_contents() -> dict[str, bytes]:
    """Return the bytes of every seed by its name, written once."""
    with tempfile.TemporaryDirectory() as folder:
        seeds = _write_all(Path(folder))
        return {path.name: path.read_bytes() for paths in seeds for path in paths}


def _write_all(folder: Path) -> Iterator[list[Path]]:
    makers: dict[str, Iterator[tuple[str, FileWriter]]] = {
        "edf": _edf_seeds(),
        "bdf": _bdf_seeds(),
        "wav": _wav_seeds(),
        "npy": _npy_seeds(),
        "npz": _npz_seeds(),
        "csv": _csv_seeds(),
        "rlxg": _rlxg_seeds(),
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
    for kind, kind_seeds in makers.items():
        paths = []
        for name, write_file in kind_seeds:
            paths.append(folder / f"{name}.{kind}")
            write_file(paths[-1])
        yield paths


def seed_rate(name: str) -> float | None:
    """Return the rate to give with a seed of that name, where it carries none."""
    stem, _, kind = name.partition(".")
    return FS if kind == "npy" or stem in _STEMS_WITHOUT_RATE else None


def _noise(rows: int, samples: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(1).uniform(-0.9, 0.9, (rows, samples))


# --- EDF and BDF ----------------------------------------------------------------------


def _edf_seeds() -> Iterator[tuple[str, FileWriter]]:
    yield "plain", lambda path: _write_edf(path)
    yield "plus", lambda path: _write_edf(path, n_annotations=2)
    yield "rates", lambda path: _write_edf(path, rates=(64, 16, 8, 64))
    yield "mne", _write_edf_with_mne
    yield "gaps", _write_discontinuous_edf
    yield "no gaps", lambda path: _write_discontinuous_edf(path, "0 1 2 3 4")


def _bdf_seeds() -> Iterator[tuple[str, FileWriter]]:
    yield "plain", lambda path: _write_edf(path)
    yield "plus", lambda path: _write_edf(path, n_annotations=2)


def _write_edf(
    path: Path, rates: tuple[int, ...] = (64, 64, 64, 64), n_annotations: int = 0
) -> None:
    is_bdf = path.suffix == ".bdf"
    signal = edfio.BdfSignal if is_bdf else edfio.EdfSignal
    rows = _noise(len(rates), 5 * int(FS))
    signals = [
        signal(row[: 5 * fs] * 100, fs, label=label, physical_dimension="uV")
        for row, fs, label in zip(rows, rates, EDF_LABELS, strict=True)
    ]
    annotations = [
        edfio.EdfAnnotation(at, None, "blink") for at in range(n_annotations)
    ]
    (edfio.Bdf if is_bdf else edfio.Edf)(signals, annotations=annotations).write(path)


def _write_discontinuous_edf(path: Path, starts: str = "0 1 4.5 5.5 20") -> None:
    """Write an EDF marked as discontinuous, with or without records that begin late."""
    _write_edf(path, n_annotations=1)
    make_discontinuous(path, starts.split())


def _write_edf_with_mne(path: Path) -> None:
    import mne

    mne.set_log_level("ERROR")
    info = mne.create_info(["Fz", "Cz"], FS, "eeg")
    raw = mne.io.RawArray(_noise(2, 5 * int(FS)) * 1e-4, info)
    mne.export.export_raw(path, raw, fmt="edf", overwrite=True)


# --- WAV ------------------------------------------------------------------------------


def _wav_seeds() -> Iterator[tuple[str, FileWriter]]:
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"):
        for container in ("WAV", "WAVEX", "RF64"):
            yield (
                f"{subtype}-{container}",
                _soundfile_writer(subtype, container, "FILE"),
            )
        yield f"{subtype}-BIG", _soundfile_writer(subtype, "WAV", "BIG")
    for law in ("ULAW", "ALAW"):
        yield law, _soundfile_writer(law, "WAV", "FILE")
    yield "adpcm", _soundfile_writer("MS_ADPCM", "WAV", "FILE")
    yield "ima", _soundfile_writer("IMA_ADPCM", "WAV", "FILE")
    for dtype in (np.uint8, np.int16, np.int32, np.float32, np.float64):
        yield f"scipy-{np.dtype(dtype).name}", _scipy_writer(dtype)


def _soundfile_writer(subtype: str, container: str, endian: str) -> FileWriter:
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


def _scipy_writer(dtype: type) -> FileWriter:
    return lambda path: wavfile.write(path, 1000, (_noise(3, 200).T * 99).astype(dtype))


# --- NPY and NPZ ----------------------------------------------------------------------


def _npy_seeds() -> Iterator[tuple[str, FileWriter]]:
    for dtype in ("i1", "<i2", ">i4", "u8", "f2", "f4", ">f8"):
        x = (_noise(3, 200) * 100).astype(dtype)
        yield dtype.strip("<>"), lambda path, x=x: np.save(path, x)
    yield "fortran", lambda path: np.save(path, np.asfortranarray(_noise(3, 200)))
    yield "one", lambda path: np.save(path, _noise(1, 300)[0])
    yield "tall", lambda path: np.save(path, _noise(3, 200).T.copy())
    yield "second", _write_npy_version_2
    yield "objects", lambda path: np.save(path, np.array([None, 1]), allow_pickle=True)


def _write_npy_version_2(path: Path) -> None:
    with path.open("wb") as file:
        np.lib.format.write_array(file, _noise(2, 100), version=(2, 0))


def _npz_seeds() -> Iterator[tuple[str, FileWriter]]:
    x = _noise(3, 200)
    metadata = {
        "fs": 64.0,
        "channels": np.array(["Fz", "Fz", "Cz"]),
        "units": ["uV"] * 3,
    }
    yield "bare", lambda path: np.savez(path, x)
    yield "noted", lambda path: np.savez(path, x=x, **metadata)
    yield "packed", lambda path: np.savez_compressed(path, x=x, **metadata)
    yield "many", lambda path: np.savez_compressed(path, a=x, b=x[0], c=np.array("x"))


# --- CSV ------------------------------------------------------------------------------


def _csv_seeds() -> Iterator[tuple[str, FileWriter]]:
    x = _noise(2, 200).T
    clock = np.column_stack([np.arange(200) / FS, x])
    header_options = {"header": "time,Fz,Cz", "comments": ""}
    yield "bare", lambda path: np.savetxt(path, x)
    yield "clock", lambda path: np.savetxt(path, clock, "%.6f", ",", **header_options)
    yield "remark", lambda path: np.savetxt(path, x, "%.4f", ",", header="Fz,Cz")
    yield "quoted", _write_quoted_csv
    yield "commas", _write_decimal_comma_csv
    yield (
        "mark",
        lambda path: path.write_bytes(b"\xef\xbb\xbfa\tb\r\n" + b"1\t2\r\n" * 99),
    )


def _write_quoted_csv(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["time (ms)", "F\xe9", "note, of a kind"])
        writer.writerows([[at * 4, at % 7, "rest"] for at in range(200)])


def _write_decimal_comma_csv(path: Path) -> None:
    text = io.StringIO()
    np.savetxt(text, _noise(2, 200).T, "%.5f", ";", header="a;b", comments="")
    path.write_text(text.getvalue().replace(".", ","))


# --- graphs ---------------------------------------------------------------------------


def _rlxg_seeds() -> Iterator[tuple[str, FileWriter]]:
    yield "dense", _write_dense_graph
    yield "types", _write_dtype_graph
    yield "ops", _write_every_op


def _write_dense_graph(path: Path) -> None:
    g = rlx.Graph("dense")
    x = g.input("x", (2, 4))
    for at in range(3):
        x = g.gelu(x @ g.param(f"w{at}", (4, 4)) + np.arange(4, dtype=np.float32))
    g.set_outputs([g.softmax(x), x])
    weights = {f"w{at}": _noise(4, 4).astype(np.float32) for at in range(3)}
    g.save(path, weights)


def _write_dtype_graph(path: Path) -> None:
    g = rlx.Graph("types")
    for at, dtype in enumerate(rlx.DType):
        g.param(dtype.label, (at, 2), dtype)
    g.set_outputs([g.tensor(at) for at in range(len(g))])
    params = g.named("param").items()
    g.save(
        path,
        {n: np.zeros(param.type.shape, param.type.dtype.numpy) for n, param in params},
    )


def _write_every_op(path: Path) -> None:
    """Write a graph that applies each op of the vocabulary once, as its first sample
    does.
    """
    g = rlx.Graph("ops")
    outs = []
    for op in registry:
        if op.samples:
            sample = op.samples[0]
            operands = [
                g.input(f"{op.name} {at}", operand_type.shape, operand_type.dtype)
                for at, operand_type in enumerate(sample.inputs)
            ]
            outs.append(g.apply(op.name, *operands, **sample.attrs))
    g.set_outputs(outs)
    g.save(path)
